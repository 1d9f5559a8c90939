"""Logs of runs: one file for each, for people who ask how a run went.

A log is written when the first task of the run starts, replaced each minute and when the run ends. Readers and commits
do not depend on it; a resumed run takes from it only the numeric environments of the shards that it finds. If a log is
missing or damaged, a report shows less.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from dkfeat.canonical import Count, dumps, parse_object, typed
from dkfeat.errors import ShardError
from dkfeat.store.manifest.records import check
from dkfeat.store.storage.base import META, Storage, now, read_required

LOG_NAME = re.compile(r"log-([0-9]{6,12})-([0-9]{4,12})\.json")
MOST_LOGS = 8
"""Maximum number of logs kept for a batch; the oldest are removed."""
MAX_BYTES = 1 << 18
"""Maximum size of a log file in bytes; a larger file is not read."""
RUNNING, KILLED = "running", "killed"
"""Outcomes of a run whose end is not in its log: `RUNNING` until the run is known to have ended, then `KILLED`."""
PREPARING = ("scan", "landmarks")
"""Stages before the stage that makes shards."""
_LONGEST = 400
LOG_SECONDS = 60.0
"""Interval at which the log of a run in progress is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLog:
    """Log of one stage of a run."""

    stage: str
    """Name, such as "scan" or "featurize"."""
    tasks: Count
    """Number of finished tasks."""
    total_tasks: Count
    """Number of all tasks."""
    rows: Count
    """Number of processed rows."""
    source_bytes: Count
    """Number of processed bytes of the source, as stored."""
    seconds: float
    """Time since the stage began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """Log of one run."""

    batch: Count
    """Number of the batch that the run worked on."""
    run_id: str
    """Id of the run."""
    host: str
    """Machine that coordinated the run."""
    where: str
    """Description of the scheduler that ran the tasks."""
    started: str
    """Time at which the run locked the target, as an ISO date and time."""
    ended: str
    """Time at which the run ended, or its log was last written, as an ISO date and time."""
    outcome: str
    """"committed", "failed", "interrupted" or "running"; "killed" if the run ended without writing its log, because it
    was killed or could not write to its target."""
    error: str
    """Error that ended the run, one line; empty if there was none."""
    shards: Count
    """Number of shards that the run wrote or found."""
    found: Count
    """Number of those shards that an earlier run had left: their rows were read again, but the shards were not made
    again."""
    retries: Count
    """Number of storage requests that failed and were repeated."""
    sources: tuple[str, ...]
    """Paths, patterns and URLs of the source as the caller gave them, without secrets; empty if there are too many."""
    stages: tuple[StageLog, ...]
    """Stages in the order in which they began."""
    environments: tuple[str, ...] = ()
    """Numeric environments of the processes that made the shards, see `Manifest.numeric_envs`; empty if the features do
    not depend on them."""
    drift: tuple[str, ...] = ()
    """Columns of the batch that differ much from the rows to which its encoder was fitted, as text; the first ten."""

    column_shares: tuple[tuple[Count, Count], ...] = ()
    """Columns with large values, and their shares in all magnitudes, in millionths; empty if there are none, or if the
    map's kernel does not depend on them."""

    @property
    def main_stage(self) -> StageLog | None:
        """Stage that made shards; None if the run ended before it."""
        last = self.stages[-1] if self.stages else None
        return None if last is None or last.stage in PREPARING else last

    def to_json(self) -> bytes:
        """Serialize the log; `from_json` reads the result."""
        return dumps({"format": 1, **asdict(self)})

    @classmethod
    def from_json(cls, data: bytes, what: str = "log") -> Self:
        """Read and check the text of a log.

        Raises
        ------
        ShardError
            If the text is damaged or has another format.
        """
        values = parse_object(data, what, max_bytes=MAX_BYTES)
        check(values.get("format") == 1, f"{what}: format {values.get('format')!r:.20}")
        log = typed(values, cls, what)
        check(all(stage.seconds >= 0 for stage in log.stages), f"{what}: a stage has a duration below 0")
        return log


class LogWriter:
    """Writer of the log of one run: when its first task starts, each minute, and at its end.

    Parameters
    ----------
    storage : Storage
        Storage of the target.
    batch : int
        Number of the batch.
    run_id, started : str
        Id of the run, and the time at which it began.
    """

    def __init__(self, storage: Storage, batch: int, run_id: str, started: str) -> None:
        self._storage, self._batch, self.run_id, self.started = storage, batch, run_id, started
        self.facts: Callable[[], Mapping[str, Any]] | None = None
        """Function that returns the current fields of `RunLog`; without it no log is written."""
        self._name: str | None = None
        self._written = 0.0
        self.is_committed = False
        """True if the run has committed its batch."""

    def progress(self, *, at_once: bool = False) -> None:
        """Write the log of a run in progress if `at_once` is True or the last one is older than `LOG_SECONDS`."""
        if at_once or time.monotonic() - self._written > LOG_SECONDS:
            self._write(RUNNING)

    def end(self, error: BaseException | None) -> None:
        """Write the log with the outcome of a run that ended with this error, or with None."""
        failed = isinstance(error, Exception)
        outcome = "committed" if self.is_committed else "failed" if failed else "interrupted"
        lines = f"{type(error).__name__}: {error}".splitlines() if failed else [""]
        self._write(outcome, lines[0][:_LONGEST])

    def _write(self, outcome: str, error: str = "") -> None:
        if self.facts is None:
            return
        log = RunLog(
            batch=self._batch,
            run_id=self.run_id,
            host=socket.gethostname(),
            started=self.started,
            ended=now(),
            outcome=outcome,
            error=error,
            **self.facts(),
        )
        with suppress(OSError):  # it does not fail the run: the log is then missing
            self._keep(log)
        self._written = time.monotonic()

    def _keep(self, log: RunLog) -> None:
        """Write the log; the first time under a new name, and the oldest logs of its batch are removed."""
        if self._name is not None:
            self._storage.replace(self._name, log.to_json())
            return
        logs = _log_names(self._storage, f"log-{log.batch:06d}-")
        attempt = 1 + (log_numbers(logs[-1].removeprefix(f"{META}/"))[1] if logs else 0)
        name = f"{META}/log-{log.batch:06d}-{attempt:04d}.json"
        self._storage.create(name, log.to_json())
        self._name = name
        for old in logs[: max(0, len(logs) + 1 - MOST_LOGS)]:
            self._storage.remove(old)


def recorded_shares(logs: Sequence[RunLog]) -> dict[int, int]:
    """Return the shares of columns in the last log that has some."""
    return dict(next((log.column_shares for log in reversed(logs) if log.column_shares), ()))


def read_logs(storage: Storage, *, only_newest: bool = False, batch: int | None = None) -> tuple[RunLog, ...]:
    """Read the logs of a data set's runs, or of those on one batch, oldest first; damaged logs are left out."""
    logs: list[RunLog] = []
    with suppress(OSError):
        names = _log_names(storage, "log-" if batch is None else f"log-{batch:06d}-")
        for name in names[-1:] if only_newest else names:
            with suppress(OSError, ShardError, ValueError):
                logs.append(RunLog.from_json(read_required(storage, name, "removed meanwhile", MAX_BYTES), name))
        if any(log.outcome == RUNNING for log in logs):
            holder = storage.holder()
            alive = None if holder is None or holder.alive is False else holder.run_id
            logs = [
                replace(log, outcome=KILLED) if log.outcome == RUNNING and log.run_id != alive else log for log in logs
            ]
    return tuple(logs)


def _log_names(storage: Storage, prefix: str = "log-") -> list[str]:
    names = [name for name in storage.list(META, sizes=False) if name.startswith(prefix) and LOG_NAME.fullmatch(name)]
    return [f"{META}/{name}" for name in sorted(names, key=log_numbers)]


def log_numbers(name: str) -> tuple[int, int]:
    """Batch and attempt in the file name of a log; zeros for any other name.

    Examples
    --------
    >>> log_numbers("log-000002-0001.json"), log_numbers("plan-000002.json")
    ((2, 1), (0, 0))
    """
    match = LOG_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else (0, 0)
