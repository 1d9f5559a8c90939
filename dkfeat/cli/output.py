"""Output of commands: text or JSON on standard output, and events of a run as JSON lines for log collectors."""

from __future__ import annotations

import json
import logging
import math
import secrets
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import click

from dkfeat.cli.terminal import wrapped
from dkfeat.messages import aligned, printable, printable_lines, show_bytes, without_secrets

if TYPE_CHECKING:
    from dkfeat.engine.progress import ProgressState
    from dkfeat.store.manifest.manifest import Manifest


QUIET, JSON = "dkfeat.quiet", "dkfeat.json"
"""Keys of ``--quiet`` and ``--json`` in click's shared context data."""


def is_given(key: str) -> bool:
    """Return True if ``--quiet`` or ``--json`` was given to the command or to its group."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.meta.get(key))


def is_quiet() -> bool:
    """Return True if ``--quiet`` was given."""
    return is_given(QUIET)


def print_result(record: Mapping[str, Any]) -> None:
    """Print a result as a JSON object if ``--json`` was given; `echo`, `facts` and `table` then print nothing."""
    if is_given(JSON):
        print_json(record)


def echo(text: str = "", *, raw: bool = False) -> None:
    """Print a line of a result as text, without secrets; unless it is `raw`, wrapped and control characters escaped."""
    if not is_given(JSON):
        click.echo(without_secrets(text) if raw else wrapped(printable(text), sys.stdout))


def facts(**values: str) -> None:
    """Print names and values as two columns; underscores in names become blanks."""
    width = max(len(name) for name in values)
    for name, value in values.items():
        echo(f"{name.replace('_', ' '):<{width}}  {value}")


def summary(record: Mapping[str, Any], shown: Mapping[str, str]) -> None:
    """Print the result of a command: `record` as a JSON object, or else `shown` as two columns."""
    print_result(record)
    if not is_quiet():
        facts(**shown)


def summary_of(manifest: Manifest, name: str, target: str, **more: Any) -> None:
    """Print the totals of a manifest, and the target under the key `name`; `more` is added to the JSON object."""
    size = manifest.size
    record = {"rows": manifest.rows, "bad_rows": manifest.n_bad_rows, "shards": len(manifest.shards), "size": size}
    shown = {"rows": f"{manifest.rows:,}"}
    if manifest.n_bad_rows:
        shown["bad rows"] = f"{manifest.n_bad_rows:,}, see `dkfeat quarantine {target}`"
    shown |= {"shards": f"{len(manifest.shards):,}", "size": show_size(size, manifest.rows), name: target}
    summary(record | {"manifest": manifest.number, name: target, **more}, shown)


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Print rows of cells as columns; `right` holds the numbers, from 0, of the right-aligned columns."""
    for line in aligned([[printable(cell) for cell in row] for row in rows], right):
        echo(line)


def note(text: str = "", *, err: bool = False, raw: bool = False) -> None:
    """Print a line that is not part of the result, as `echo` does; with ``--json`` only if it is for standard error."""
    if not is_quiet() and (err or not is_given(JSON)):
        click.echo((without_secrets if raw else printable)(text), err=err)


def print_json(record: Mapping[str, Any]) -> None:
    """Print plain values as one line of JSON; non-finite numbers become null."""
    click.echo(json.dumps(_plain(record, without_secrets), sort_keys=True))


def _plain(value: Any, text: Callable[[str], str]) -> Any:
    """Convert a value to plain JSON values: texts by `text`, non-finite numbers to null."""
    if isinstance(value, Mapping):
        return {text(str(key)): _plain(item, text) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, text) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else text(str(value))


def show_size(size: int, rows: int) -> str:
    """Size as text, with bytes per row if there are rows.

    Examples
    --------
    >>> show_size(6_400_000, 12_500)
    '6.1 MiB (512.0 bytes a row)'
    >>> show_size(12, 0)
    '12 bytes'
    """
    return f"{show_bytes(size)} ({size / rows:,.1f} bytes a row)" if rows else show_bytes(size)


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
        self._stream, self._write = stream, stream.write  # not what hides secrets later: it knows no JSON
        self._always = {"run": self.run, **always}
        self._writing = threading.Lock()
        self._next = 0.0

    def __call__(self, event: str, *, level: str = "info", **fields: Any) -> None:
        """Write a line; fields are plain JSON values, and those that are None are left out."""
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        known = {key: value for key, value in {**self._always, **fields}.items() if value is not None}
        line = json.dumps({"time": moment, "level": level, "event": event, **_plain(known, printable_lines)})
        with self._writing:
            self._write(line + "\n")
            self._stream.flush()

    def progress(self, state: ProgressState) -> None:
        """Write a stage's progress every few seconds, and its end; for the `progress` of `dkfeat.featurize`."""
        from dkfeat.engine.progress import LINE_SECONDS

        now = time.monotonic()
        if now < self._next and state.tasks < state.total_tasks:
            return
        self._next = now + LINE_SECONDS
        names = ("stage", "tasks", "total_tasks", "rows", "source_bytes", "total_bytes")
        self("progress", **{name: getattr(state, name) for name in names}, seconds=round(state.seconds, 3))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Write dkfeat's log records and Python's warnings as lines while the ``with`` block runs."""
        handler = logging.Handler()
        handler.emit = self._write_record  # type: ignore[method-assign]
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

    def _write_record(self, record: logging.LogRecord) -> None:
        self("log", level=record.levelname.lower(), logger=record.name, message=record.getMessage())
