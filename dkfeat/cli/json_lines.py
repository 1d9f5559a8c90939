"""Events of a run as JSON lines, for schedulers and log collectors."""

from __future__ import annotations

import json
import logging
import math
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from dkfeat.engine.progress import LINE_SECONDS, ProgressState
from dkfeat.filesystems.urls import printable
from dkfeat.store.outputs import check_outputs, check_outside

_MOST_LINE_BYTES = 1 << 20


class LogLines:
    r"""Writes each event as one line of JSON, in one call of the stream.

    Every line has ``time`` (UTC), ``level``, ``event`` and ``run``, then the event's own fields. Lines are plain ASCII:
    control characters in names and messages are escaped, and possible secrets in URLs are left out.

    Parameters
    ----------
    stream : text stream
        Flushed after each line.
    **always
        Fields of every line.

    Examples
    --------
    >>> import sys
    >>> log = LogLines(sys.stdout)
    >>> log("committed", rows=3, target="features/day\x1b[2J")
    {"time": "...", "level": "info", "event": "committed", "run": "...", "rows": 3, "target": "features/day\\x1b[2J"}
    """

    def __init__(self, stream: TextIO, **always: Any) -> None:
        self.run = secrets.token_hex(16)
        """128 random bits, in hexadecimal, that identify the lines of this process."""
        self._stream = stream
        self._always = {"run": self.run, **always}
        self._writing = threading.Lock()
        self._next = 0.0

    def __call__(self, event: str, *, level: str = "info", **fields: Any) -> None:
        """Write a line; fields are plain JSON values, and those that are None are left out."""
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        known = {key: value for key, value in {**self._always, **fields}.items() if value is not None}
        line = json.dumps({"time": moment, "level": level, "event": event, **_safe(known)})
        with self._writing:
            self._stream.write(line + "\n")
            self._stream.flush()

    def progress(self, state: ProgressState) -> None:
        """Write a stage's progress every few seconds, and its end; for the `progress` of `dkfeat.featurize`."""
        now = time.monotonic()
        if now < self._next and state.tasks < state.total_tasks:
            return
        self._next = now + LINE_SECONDS
        names = ("stage", "tasks", "total_tasks", "rows", "source_bytes", "total_bytes")
        self("progress", **{name: getattr(state, name) for name in names}, seconds=round(state.seconds, 3))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Write dkfeat's log records and Python's warnings as lines while the ``with`` block runs."""
        handler = _Handler(self)
        loggers = [logging.getLogger("dkfeat"), logging.getLogger("py.warnings")]
        former = [(logger, logger.level, logger.propagate) for logger in loggers]
        logging.captureWarnings(True)
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False
        try:
            yield
        finally:
            logging.captureWarnings(False)
            for logger, level, propagate in former:
                logger.removeHandler(handler)
                logger.setLevel(level)
                logger.propagate = propagate


def check_log(file: str) -> None:
    """Check that lines may be appended to a file: it is new, empty, no regular file or a log of `LogLines`.

    Raises
    ------
    ConfigError
        If it has other content, or lies in a data set or a model.
    """
    path = Path(file)
    if path.exists() and not path.is_file() and not path.is_dir():
        return
    has_lines = False
    if path.is_file():
        with path.open("rb") as lines, suppress(ValueError, AttributeError):
            first = lines.readline(_MOST_LINE_BYTES)
            has_lines = not first or {"time", "level", "event"} <= json.loads(first).keys()
    if has_lines:  # its folder need not be writable
        check_outside(path.resolve().parent)
    else:
        check_outputs([file])


class _Handler(logging.Handler):
    """Turns records of the logging module into lines."""

    def __init__(self, lines: LogLines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines("log", level=record.levelname.lower(), logger=record.name, message=record.getMessage())


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return "\n".join(map(printable, value.split("\n")))
    if isinstance(value, Mapping):
        return {printable(str(key)): _safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_safe(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else printable(str(value))
