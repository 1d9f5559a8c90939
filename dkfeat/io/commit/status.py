"""Status of a data set: its newest commit, the run that writes to it, its unfinished batch, and the logs of its runs.

A log is one file for people who ask how a run went. It is written when the first task of the run starts, replaced each
minute and when the run ends. Readers and commits do not depend on it. If a log is missing or damaged, a report shows
less.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from os import PathLike
from typing import Any, Self

from dkfeat.canonical import Count, check_length, dumps, parse_object, typed
from dkfeat.errors import ShardError
from dkfeat.io.manifest import metadata
from dkfeat.io.manifest.batch_plan import BatchPlan
from dkfeat.io.manifest.manifest import Manifest, check, manifest_name
from dkfeat.io.shards.codec import planned_shards, read_footer
from dkfeat.io.storage import open_storage
from dkfeat.io.storage.base import DATA, META, Holder, Storage, faults_as

LOG_NAME = re.compile(r"log-([0-9]{6,12})-([0-9]{4,12})\.json")
MOST_POINTS = 256
"""Maximum number of points kept for a stage."""
MOST_LOGS = 8
"""Maximum number of logs kept for a batch; the oldest are removed."""
MAX_BYTES = 1 << 18
"""Maximum size of a log file in bytes; a larger file is not read."""
RUNNING, KILLED = "running", "killed"
"""Outcomes of a run that has not written its end: the first until it is known to have ended."""
PREPARING = ("scan", "landmarks")
"""Stages before the stage that makes shards."""
_LONGEST = 400

Point = tuple[float, Count, Count]
_THREADS = 16
"""Number of footers read in parallel, because an object store takes 30 ms or more for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Summary of the newest manifest."""

    number: int
    """Number of committed batches."""
    rows: int
    """Number of rows in all shards."""
    shards: int
    """Number of shards."""
    size: int
    """Size of the shards in bytes."""
    sources: int
    """Number of source files covered."""
    at: str
    """Time of the commit, as an ISO date and time."""
    run_id: str
    """Id of the run that committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Batch that is planned and not committed."""

    number: int
    """Number of the plan, and of the manifest that will commit it."""
    sources: tuple[str, ...]
    """Names of the source files in the batch."""
    splits: int
    """Number of planned splits."""
    splits_done: int
    """Number of splits whose shards are all present, by their footers."""
    shards: tuple[str, ...]
    """Shards of the batch that are in ``data/`` so far; no manifest lists them."""

    @property
    def splits_left(self) -> int:
        """Number of splits still to do."""
        return self.splits - self.splits_done


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """Newest run that made or tried to make shards, from its log."""

    run_id: str
    """Id of the run."""
    outcome: str
    """See `RunLog.outcome`."""
    error: str
    """Error that ended the run, one line; empty if there was none."""
    shards: int
    """Number of shards that the run wrote or found."""
    started: str
    """Time at which the run locked the target, as an ISO date and time."""
    ended: str
    """Time at which the run ended, or its log was last written, as an ISO date and time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Status of a data set."""

    target: str
    """Path or URL of the data set."""
    committed: Committed | None
    """Newest commit; None before the first."""
    marked: bool
    """True if ``_SUCCESS`` names the newest manifest and so tells other Parquet readers that it is complete."""
    holder: Holder | None
    """Run that holds the target, or held it and died; None if there is none."""
    unfinished: Unfinished | None
    """Batch that is in progress or was interrupted; None if there is none."""
    missing: tuple[str, ...]
    """Committed shards that are missing or of another size."""
    unlisted: tuple[str, ...]
    """Files under ``data/`` that neither a manifest nor the unfinished batch lists; readers ignore them."""
    last_run: LastRun | None = None
    """Newest run that has a log; None if there is none."""

    @property
    def state(self) -> str:
        """One word: the first that applies of "running", "damaged", "unfinished", "empty" and "complete".

        "complete": everything planned is committed and marked by ``_SUCCESS``, and no run is writing. If the state is
        "unfinished" or "damaged", another run with the same arguments completes it.
        """
        if self.holder is not None and self.holder.alive is not False:
            return "running"
        if self.missing:
            return "damaged"
        if self.unfinished is not None or (self.committed is not None and not self.marked):
            return "unfinished"
        return "empty" if self.committed is None else "complete"

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values, including `state`."""
        values: dict[str, Any] = {"state": self.state, **asdict(self)}
        if self.unfinished is not None:
            values["unfinished"]["splits_left"] = self.unfinished.splits_left
        return values


def status(target: str | PathLike[str] | Storage, *, storage_options: Mapping[str, Any] | None = None) -> Status:
    r"""Report the status of a data set, also while a run writes to it.

    The function reads manifests, plans, names and sizes, and one footer for each split of an unfinished batch. It reads
    no shard in full; `verify` does. It writes nothing and takes no lock.

    Parameters
    ----------
    target : str or path
        Folder or URL that `dkfeat.featurize` wrote or is writing.
    storage_options : mapping or None
        Options of fsspec for a URL.

    Returns
    -------
    status : Status
        Status; its ``state`` is a summary in one word.

    Raises
    ------
    dkfeat.errors.ShardError
        If there is no data set, or its metadata is damaged.
    dkfeat.errors.SpecConflictError
        If a newer version of dkfeat wrote it.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", gcws, progress=False)
    >>> found = dkfeat.status(folder / "features")
    >>> found.state, found.committed.rows, found.unfinished
    ('complete', 2, None)
    """
    storage = open_storage(target, storage_options)
    with faults_as(ShardError, f"{storage.url}: cannot be inspected"):
        holder = storage.holder()
        manifest, plan = _newest(storage)
        sizes = {}
        if manifest or plan:
            with suppress(FileNotFoundError):  # without the folder, all shards are missing
                sizes = storage.list(DATA)
        marked = manifest is not None and metadata.read_success(storage) == (manifest.name, manifest.sha256)
        listed = {entry.name for entry in manifest.shards} if manifest else set()
        planned = planned_shards(plan, sizes) if plan else {}
        return Status(
            target=storage.url,
            committed=None
            if manifest is None
            else Committed(
                number=manifest.number,
                rows=manifest.rows,
                shards=len(manifest.shards),
                size=sum(entry.size for entry in manifest.shards),
                sources=len(manifest.sources),
                at=str(manifest.run.get("ended", "")),
                run_id=str(manifest.run.get("id", "")),
            ),
            marked=marked,
            holder=holder,
            unfinished=None if plan is None else _unfinished(storage, plan, planned),
            missing=tuple(entry.name for entry in manifest.missing(sizes)) if manifest else (),
            unlisted=tuple(name for name in sizes if name not in listed and name not in planned),
            last_run=_last_run(storage),
        )


def _last_run(storage: Storage) -> LastRun | None:
    logs = read_logs(storage, only_newest=True)
    names = [item.name for item in fields(LastRun)]
    return LastRun(**{name: getattr(logs[0], name) for name in names}) if logs else None


def _newest(storage: Storage) -> tuple[Manifest | None, BatchPlan | None]:
    """Newest manifest, and the plan that follows it; read again if a run commits in between."""
    while True:
        manifest = metadata.newest_manifest(storage)
        number, plan = metadata.next_batch(storage, manifest)
        if plan is None or storage.size(f"{META}/{manifest_name(number)}") is None:
            return manifest, plan


def _unfinished(storage: Storage, plan: BatchPlan, planned: Mapping[str, int]) -> Unfinished:
    pieces: dict[int, list[str]] = {}
    for name in sorted(planned):
        pieces.setdefault(planned[name], []).append(name)
    # pieces are made in order: a split is complete if its highest piece is marked as the last
    whole = [names[-1] for names in pieces.values() if _piece(names[-1]) == len(names) - 1]
    with ThreadPoolExecutor(_THREADS) as pool:
        done = sum(pool.map(lambda name: _is_last(storage, name), whole))
    return Unfinished(
        number=plan.number,
        sources=tuple(file.name for file in plan.files),
        splits=len(plan.splits),
        splits_done=done,
        shards=tuple(sorted(planned)),
    )


def _piece(name: str) -> int:
    return int(name.split("-")[2])


def _is_last(storage: Storage, name: str) -> bool:
    try:
        with storage.open(f"{DATA}/{name}") as file:
            return read_footer(file, name).last
    except OSError:  # damaged, or removed meanwhile: the piece will be made again
        return False


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
    """Tuples of seconds since the stage began, rows done and bytes done; at most `MOST_POINTS`, in order."""


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
            decreases = any(
                a > b for former, point in pairwise(stage.points) for a, b in zip(former, point, strict=True)
            )
            check(not decreases and all(point[0] >= 0 for point in stage.points), f"{what}: points are out of order")
        return log


def keep_log(storage: Storage, log: RunLog, name: str | None = None) -> str | None:
    """Write a run's log; only the process that holds the lock may call it.

    Without a name the log gets a new one, and the oldest logs of its batch are removed. Returns the name. A storage
    error does not fail the run: the log is then missing, and the result is `name`.
    """
    with suppress(OSError):
        if name is not None:
            storage.replace(name, log.to_json())
            return name
        logs = sorted((_log_numbers(each), each) for each in storage.list(META) if log_batch(each) == log.batch)
        attempt = 1 + (logs[-1][0][1] if logs else 0)
        path = f"{META}/log-{log.batch:06d}-{attempt:04d}.json"
        storage.create(path, log.to_json())
        name = path
        for _, old in logs[: max(0, len(logs) + 1 - MOST_LOGS)]:
            storage.remove(f"{META}/{old}")
    return name


def close_log(storage: Storage) -> None:
    """Write into the newest log that its run was killed, if it says that it is running; only for the lock's holder."""
    with suppress(OSError, ShardError, ValueError):
        names = _log_names(storage)
        if names and (log := _read_log(storage, names[-1])).outcome == RUNNING:
            keep_log(storage, replace(log, outcome=KILLED), names[-1])


def read_logs(storage: Storage, *, only_newest: bool = False) -> tuple[RunLog, ...]:
    """Read the logs of a data set's runs, oldest first; damaged logs are left out."""
    logs: list[RunLog] = []
    with suppress(OSError):
        names = _log_names(storage)
        for name in names[-1:] if only_newest else names:
            with suppress(OSError, ShardError, ValueError):
                logs.append(_read_log(storage, name))
        if any(log.outcome == RUNNING for log in logs):
            holder = storage.holder()
            alive = None if holder is None or holder.alive is False else holder.run_id
            logs = [
                replace(log, outcome=KILLED) if log.outcome == RUNNING and log.run_id != alive else log for log in logs
            ]
    return tuple(logs)


def _log_names(storage: Storage) -> list[str]:
    return [f"{META}/{name}" for name in sorted(filter(LOG_NAME.fullmatch, storage.list(META)), key=_log_numbers)]


def _read_log(storage: Storage, name: str) -> RunLog:
    check_length(storage.size(name) or 0, name, MAX_BYTES)
    return RunLog.from_json(storage.read(name), name)


def log_batch(name: str) -> int:
    """Batch number in the file name of a log; 0 for any other name.

    Examples
    --------
    >>> log_batch("log-000002-0001.json"), log_batch("plan-000002.json")
    (2, 0)
    """
    return _log_numbers(name)[0]


def _log_numbers(name: str) -> tuple[int, int]:
    """Batch and attempt in the file name of a log."""
    match = LOG_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def first_line(text: str) -> str:
    """First line of a text, cut after 400 characters."""
    line = text.partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"
