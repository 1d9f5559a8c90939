"""Run logs: progress and outcome of each run, stored in the metadata folder of its data set.

A log is one file, written once when a run ends, for people who ask how the run went. Readers, resumed runs and commits
never use it. If a log is missing or damaged, a report shows less.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Self

from dkfeat.canonical import Count, check_length, dumps, parse_object, typed
from dkfeat.errors import ShardError
from dkfeat.io.manifest.manifest import check
from dkfeat.io.storage.base import META, Storage

LOG_NAME = re.compile(r"log-([0-9]{6,12})-([0-9]{4,12})\.json")
MOST_POINTS = 256
"""Maximum number of points kept for a stage."""
MOST_LOGS = 8
"""Maximum number of logs kept for a batch; the oldest are removed."""
MAX_BYTES = 1 << 18
"""Maximum size of a log file in bytes; dkfeat writes no longer ones."""
PREPARING = ("scan", "landmarks")
"""Stages before the stage that makes shards."""
_LONGEST = 400

Point = tuple[float, Count, Count]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLog:
    """Log of one stage of a run."""

    stage: str
    """Name, such as "scan" or "featurize"."""
    tasks: Count
    """Splits done."""
    total_tasks: Count
    """Splits in all."""
    rows: Count
    """Rows done."""
    source_bytes: Count
    """Bytes of the source done, as stored."""
    seconds: float
    """Duration."""
    points: tuple[Point, ...]
    """Tuples of seconds since the stage began, rows done and bytes done; at most `MOST_POINTS`, none decreasing."""


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
    """Time at which the run ended, as an ISO date and time."""
    outcome: str
    """"committed", "failed" or "interrupted"."""
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
        for stage in log.stages:
            check(len(stage.stage) <= _LONGEST and stage.seconds >= 0, f"{what}: a stage has no name or no duration")
            check(len(stage.points) <= MOST_POINTS, f"{what}: {len(stage.points):,} points of a stage")
            falls = any(a > b for former, point in pairwise(stage.points) for a, b in zip(former, point, strict=True))
            check(not falls and all(point[0] >= 0 for point in stage.points), f"{what}: points fall")
        return log


def keep_log(storage: Storage, log: RunLog) -> None:
    """Write a run's log and remove the oldest logs of its batch; only the process that holds the lock may call it.

    A storage error does not fail the run: the log is then missing.
    """
    with suppress(OSError):
        ours = sorted((name for name in storage.list(META) if log_batch(name) == log.batch), key=_attempt)
        attempt = 1 + max((_attempt(name) for name in ours), default=0)
        storage.create(f"{META}/log-{log.batch:06d}-{attempt:04d}.json", log.to_json())
        for name in ours[: max(0, len(ours) + 1 - MOST_LOGS)]:
            storage.remove(f"{META}/{name}")


def read_logs(storage: Storage) -> tuple[RunLog, ...]:
    """Read the logs of a data set's runs, oldest first; damaged logs are left out."""
    logs = []
    with suppress(OSError):
        for name in sorted(filter(LOG_NAME.fullmatch, storage.list(META)), key=_order):
            path = f"{META}/{name}"
            with suppress(OSError, ShardError, ValueError):
                check_length(storage.size(path) or 0, path, MAX_BYTES)
                logs.append(RunLog.from_json(storage.read(path), path))
    return tuple(logs)


def log_batch(name: str) -> int | None:
    """Batch number in the file name of a log; None for any other name.

    Examples
    --------
    >>> log_batch("log-000002-0001.json"), log_batch("plan-000002.json")
    (2, None)
    """
    match = LOG_NAME.fullmatch(name)
    return int(match[1]) if match else None


def short(text: str) -> str:
    """First line of a text, cut after 400 characters."""
    line = text.partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


def _attempt(name: str) -> int:
    match = LOG_NAME.fullmatch(name)
    return int(match[2]) if match else 0


def _order(name: str) -> tuple[int, int]:
    return log_batch(name) or 0, _attempt(name)
