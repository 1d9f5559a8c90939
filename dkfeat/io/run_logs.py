"""A short log of each run beside its data set: when rows were done, and how it ended. Nothing relies on it.

A log is one file, created whole when a run ends. It is for people who ask how a run went: no reader, no resume and no
commit looks at it, and where it is missing or damaged a report says less.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from dkfeat.errors import ShardError
from dkfeat.io import strict_json
from dkfeat.io.entries import check, check_count, is_finite, pick
from dkfeat.io.storage import META, Storage

__all__ = ["MOST_POINTS", "RunLog", "StageLog", "keep_log", "log_batch", "read_logs", "short"]

LOG_NAME = re.compile(r"log-([0-9]{6,12})-([0-9]{4,12})\.json")
MOST_POINTS = 256
"""Moments of a stage that are kept."""
MOST_LOGS = 8
"""Logs of one batch that are kept, the newest ones."""
MAX_BYTES = 1 << 18
"""A longer file is none of ours."""
PREPARING = ("scan", "landmarks")
"""Stages before the one that makes shards."""
_LONGEST = 400
_COUNTS = ("batch", "shards", "found", "retries")
_TEXTS = ("run_id", "host", "where", "started", "ended", "outcome", "error")

Point = tuple[float, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLog:
    """How one stage of a run went."""

    stage: str
    """What was done, such as "scan" or "featurize"."""
    tasks: int
    """Splits done."""
    total_tasks: int
    """Splits in all."""
    rows: int
    """Rows done."""
    source_bytes: int
    """Bytes of the source done, as stored."""
    seconds: float
    """How long it took."""
    points: tuple[Point, ...]
    """Seconds since the stage began, rows and bytes done by then: at most `MOST_POINTS`, none of which falls."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = {key: getattr(self, key) for key in self.__slots__}
        return {**values, "points": [list(point) for point in self.points]}

    @classmethod
    def from_mapping(cls, mapping: Any) -> Self:
        """Inverse of `to_mapping`, without trust."""
        values = pick(mapping, cls.__slots__, "stage")
        for key in ("tasks", "total_tasks", "rows", "source_bytes"):
            check_count(values[key], f"stage: {key}")
        check(isinstance(values["stage"], str) and len(values["stage"]) <= _LONGEST, "stage: it has no name")
        seconds, points = values["seconds"], values["points"]
        check(is_finite(seconds) and seconds >= 0, "stage: seconds are no duration")
        check(isinstance(points, list) and len(points) <= MOST_POINTS, "stage: points are no list")
        before: Point = (0, 0, 0)
        for point in points:
            check(isinstance(point, list) and len(point) == 3 and all(map(is_finite, point)), "stage: a point is wrong")
            check(all(new >= old for new, old in zip(point, before, strict=True)), "stage: points fall")
            before = tuple(point)
        return cls(**{**values, "seconds": float(seconds), "points": tuple(map(tuple, points))})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """How one run went."""

    batch: int
    """Number of the batch that it worked on."""
    run_id: str
    """Id of the run."""
    host: str
    """Machine that coordinated it."""
    where: str
    """Where its tasks ran, in words."""
    started: str
    """When it took the target, as an ISO date and time."""
    ended: str
    """When it ended."""
    outcome: str
    """"committed", "failed" or "interrupted"."""
    error: str
    """What went wrong, one line; empty if nothing did."""
    shards: int
    """Shards that it made or found."""
    found: int
    """Shards among them that an earlier run had left: their rows were read again, not made again."""
    retries: int
    """Requests to stores that failed and were made again."""
    sources: tuple[str, ...]
    """Paths, patterns and URLs that the source was given as, without secrets; empty where they are too many."""
    stages: tuple[StageLog, ...]
    """In the order in which they began."""

    @property
    def main_stage(self) -> StageLog | None:
        """The one that made shards; None where the run did not come that far."""
        last = self.stages[-1] if self.stages else None
        return None if last is None or last.stage in PREPARING else last

    def to_json(self) -> bytes:
        """Text of the file; what `from_json` reads."""
        values = {key: getattr(self, key) for key in self.__slots__}
        stages = [stage.to_mapping() for stage in self.stages]
        return strict_json.dumps({"format": 1, **values, "sources": list(self.sources), "stages": stages})

    @classmethod
    def from_json(cls, data: bytes, what: str = "log") -> Self:
        """Read and check the text of a log.

        Raises
        ------
        ShardError
            It is damaged, or of another format.
        """
        values = strict_json.parse_object(data, what, max_bytes=MAX_BYTES)
        check(values.get("format") == 1, f"{what}: format {values.get('format')!r:.20}")
        values = pick(values, cls.__slots__, what)
        for key in _COUNTS:
            check_count(values[key], f"{what}: {key}")
        for key in _TEXTS:
            check(isinstance(values[key], str), f"{what}: {key} is not text")
        sources, stages = values["sources"], values["stages"]
        check(isinstance(sources, list) and all(isinstance(each, str) for each in sources), f"{what}: bad sources")
        check(isinstance(stages, list), f"{what}: stages is not a list")
        stages = tuple(map(StageLog.from_mapping, stages))
        return cls(**{**values, "sources": tuple(sources), "stages": stages})


def keep_log(storage: Storage, log: RunLog) -> None:
    """Create a run's log, and remove the oldest ones of its batch; only the lock's holder does.

    A fault of the storage is none of the run: then there is no log.
    """
    with suppress(OSError):
        ours = sorted((name for name in storage.list(META) if log_batch(name) == log.batch), key=_attempt)
        attempt = 1 + max((_attempt(name) for name in ours), default=0)
        storage.create(f"{META}/log-{log.batch:06d}-{attempt:04d}.json", log.to_json())
        for name in ours[: max(0, len(ours) + 1 - MOST_LOGS)]:
            storage.remove(f"{META}/{name}")


def read_logs(storage: Storage) -> tuple[RunLog, ...]:
    """Read the logs of a data set's runs, oldest first; those that are damaged are left out."""
    logs = []
    with suppress(OSError):
        for name in sorted(filter(LOG_NAME.fullmatch, storage.list(META)), key=_order):
            path = f"{META}/{name}"
            with suppress(OSError, ShardError, ValueError):
                strict_json.check_length(storage.size(path) or 0, path, MAX_BYTES)
                logs.append(RunLog.from_json(storage.read(path), path))
    return tuple(logs)


def log_batch(name: str) -> int | None:
    """Batch that a file of the metadata folder is a log of, by its name; None if it is no log.

    Examples
    --------
    >>> log_batch("log-000002-0001.json"), log_batch("plan-000002.json")
    (2, None)
    """
    match = LOG_NAME.fullmatch(name)
    return int(match[1]) if match else None


def short(text: str) -> str:
    """First line of a text, cut where it is long."""
    line = text.partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


def _attempt(name: str) -> int:
    match = LOG_NAME.fullmatch(name)
    return int(match[2]) if match else 0


def _order(name: str) -> tuple[int, int]:
    return log_batch(name) or 0, _attempt(name)
