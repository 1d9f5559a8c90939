"""Events as lines of JSON, and failures that do not end the rest."""

from __future__ import annotations

import contextlib
import json
import traceback


def emit(event, **values):
    print(json.dumps({"event": event, **values}), flush=True)  # noqa: T201 - what the program is for


@contextlib.contextmanager
def reported(failures, part, folder):
    """Report an error of what is done under ``with``, and go on after it."""
    try:
        yield
    except Exception as error:
        failures.append(part)
        emit("failed", part=part, folder=str(folder), error=f"{type(error).__name__}: {error}"[:5000])
        traceback.print_exc()
