"""Run of a plan, from the lock on its target to the commit of its batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from dkfeat.canonical import dumps, parse_typed
from dkfeat.engine.plan import plan_splits, warn_of_sizes
from dkfeat.engine.progress import Progress
from dkfeat.engine.runners.local import Runner
from dkfeat.engine.scan import run_stage, warn_unterminated
from dkfeat.engine.tasks.bad_row_limit import BadRowLimit, suggesting_quarantine
from dkfeat.engine.tasks.job import Job, SplitResult, merge_labels, numeric_env
from dkfeat.filesystems.urls import is_url, shown_url
from dkfeat.store.commit import begin as commit
from dkfeat.store.commit.run_log import read_logs
from dkfeat.store.manifest.manifest import labels_shown
from dkfeat.store.manifest.records import ShardEntry
from dkfeat.store.shards import codec as shards

if TYPE_CHECKING:
    from dkfeat.blocks import BadRow, SourceFile, Split
    from dkfeat.engine.plan import Plan
    from dkfeat.engine.resolve import Resolved
    from dkfeat.engine.runners.open import LazyRunner
    from dkfeat.sources.base import Source
    from dkfeat.store.commit.batch import Batch
    from dkfeat.store.manifest.manifest import Manifest
    from dkfeat.store.storage.base import Lock, Storage


logger = logging.getLogger(__name__)

UNKNOWN_ENVIRONMENT = "unknown, of shards that an earlier run made"
MAX_PATTERN_CHARS = 20_000
"""Maximum length of a source's patterns in a log; longer ones are omitted."""
RECORDS_OF_A_TEXT = 1024
"""Number of records of shards that wait for the commit in one text."""


def run_plan(
    plan: Plan | None,
    settings: Resolved,
    storage: Storage,
    runners: LazyRunner,
    limit: BadRowLimit,
    reporter: Progress,
    *,
    schema: Mapping[str, str],
    sidecars: Mapping[str, bytes],
    resume: bool,
    keep_changed: bool = False,
    job: Callable[..., Job] = Job,
    stage: str = "featurize",
    lock: Lock | None = None,
) -> Manifest:
    """Lock the target, run the tasks that are not done and commit their shards.

    Parameters
    ----------
    plan : Plan or None
        Made from `settings`, for a new target; None: only the files that are not committed are planned.
    settings : Resolved
    storage : Storage
        The target.
    runners : LazyRunner
        Opened only if there is something to do, and closed while the target is still locked.
    limit : BadRowLimit
        Limit on the rows that this batch sets aside.
    reporter : Progress
    schema : mapping
        Columns and types of every shard.
    sidecars, resume, keep_changed, lock
        See `dkfeat.store.commit.begin.begin`.
    job : callable
        Class of the tasks.
    stage : str
        Name of the stage in progress reports.

    Raises
    ------
    dkfeat.errors.DkfeatError
        Errors of `begin`, `Plan.check`, the tasks, the limit and the commit; after an error nothing is committed.
    """
    if plan is None:
        warn_of_sizes(settings.files)
    held = commit.begin(
        storage,
        settings.spec,
        settings.files,
        partial(_cut, plan, settings.source),
        sidecars=sidecars,
        resume=resume,
        keep_changed=keep_changed,
        lock=lock,
    )
    with held as batch, runners:
        if batch.is_done and batch.manifest is not None:
            reporter.note(f"{storage.url} is complete already: {batch.manifest.rows:,} rows; nothing to do")
            return batch.manifest
        runner = runners.get()
        planned = plan if plan is not None else plan_splits(settings, storage.url, batch.splits)
        planned.check(runner.memory_limit)
        task = job(
            source=settings.source, storage=storage, spec=settings.spec, spec_fp=settings.spec_fp, run_id=batch.id
        )
        totals = _run_tasks(task, batch, runner, limit, reporter, stage)
        environments = () if task.is_exact else totals.environments.of_shards
        return batch.commit(
            totals.entries,
            schema=schema,
            n_features=settings.map.n_features_in_,
            labels=totals.labels,
            final_newlines=totals.final_newlines,
            versions={**shards.versions(), "dask": version("dask"), "numba": version("numba")},
            numeric_env=environments[0] if environments else numeric_env(),
            numeric_envs=environments,
        )


def _cut(plan: Plan | None, source: Source, files: Sequence[SourceFile]) -> Sequence[Split]:
    """Return the splits of the plan if it has exactly these files; else split these (others are committed)."""
    return plan.splits if plan is not None and tuple(files) == plan.files else source.splits(files)


def _run_tasks(job: Job, run: Batch, runner: Runner, limit: BadRowLimit, reporter: Progress, stage: str) -> _Totals:
    """Run a job over the splits of a batch, and write the log meanwhile."""
    source = job.source
    totals = _Totals(job, run, limit)
    where = runner.description  # read now: a cluster of this run has ended when the log is written
    run.log.facts = lambda: {
        "where": where,
        "sources": _patterns(source),
        "shards": len(totals.entries),
        "found": totals.n_found,
        "retries": totals.n_retries,
        "stages": reporter.logs(),
        "environments": () if job.is_exact else totals.environments.to_log,
    }
    run.log.progress(at_once=True)
    with suggesting_quarantine(source):
        run_stage(stage, job, source, run.splits, runner, reporter, totals.add)
    totals.check_limit(totals.n_rows)
    _report(totals, run, source, reporter)
    return totals


class _Totals:
    """Sums of the results of a batch's tasks."""

    def __init__(self, job: Job, run: Batch, limit: BadRowLimit) -> None:
        self._run, self._limit, source = run, limit, job.source
        # their bad rows were within the limit when they were committed
        self._accepted = {split.number for split in run.repairs}
        self._n_known = _known_rows(source, [split for split in run.splits if split.number not in self._accepted])
        self._first: tuple[Split, BadRow] | None = None
        self._labels = run.manifest.labels if run.manifest is not None else ()
        self._declared: tuple[int | float, ...] | None = None
        if source.labels is not None:
            kind = int if source.label_dtype == "int64" else float
            self._declared = tuple(sorted(map(kind, source.labels)))
        self.entries = _Entries()
        self.final_newlines: dict[str, bool] = {}
        """For each file of text, True if its last line has a line end."""
        self.environments = _Environments(job.storage, run.number)
        self.n_rows = self.n_bad = self.n_retries = self.n_found = 0

    @property
    def labels(self) -> tuple[int | float, ...] | None:
        """Declared labels if there are any, else the labels that occur; None for more than `MAX_LABELS`."""
        return self._labels if self._declared is None else self._declared

    def add(self, split: Split, result: SplitResult) -> int:
        """Add the result of a split; return its number of rows."""
        self.n_retries += result.retries
        self.n_found += result.found
        self.entries.extend(result.entries)
        self._labels = merge_labels(self._labels, result.labels)
        if result.unterminated is not None:
            for position, file in enumerate(split.files):
                is_whole = position not in result.unterminated
                self.final_newlines[file.name] = self.final_newlines.get(file.name, True) and is_whole
        self._run.log.progress(at_once=self.environments.add(result))
        if split.number not in self._accepted:
            self.n_rows += result.rows + result.n_bad_rows
            self.n_bad += result.n_bad_rows
            if result.first_bad is not None and (self._first is None or split.number < self._first[0].number):
                self._first = split, result.first_bad
            self.check_limit(self._n_known)
        return result.rows

    def check_limit(self, n_rows: int | None) -> None:
        """Raise an error if there are too many bad rows for a batch of `n_rows` rows, or of an unknown number."""
        first = None if self._first is None else (self._first[0].files[self._first[1].file], self._first[1])
        self._limit.check(self.n_bad, n_rows, first)


class _Entries:
    """Records of shards until the commit: as text they take 330 bytes, as objects 770."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._last: list[ShardEntry] = []
        self._count = 0

    def extend(self, entries: Sequence[ShardEntry]) -> None:
        """Add records."""
        self._last.extend(entries)
        self._count += len(entries)
        if len(self._last) >= RECORDS_OF_A_TEXT:
            self._texts.append(dumps(self._last))
            self._last = []

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ShardEntry]:
        for text in self._texts:
            yield from parse_typed(text, tuple[ShardEntry, ...], "records of shards")
        yield from self._last


def _report(totals: _Totals, run: Batch, source: Source, reporter: Progress) -> None:
    """Log what users should know of a batch whose tasks are done."""
    url = run.storage.url
    if totals.n_bad:
        note = f"{totals.n_bad:,} of {totals.n_rows:,} rows were bad and are set aside; see `dkfeat quarantine {url}`"
        reporter.note(note)
    filters = getattr(source, "filters", None)
    if filters and not totals.n_rows and run.plan is not None:
        logger.warning("%s: no row of the new files passes filters=%.200r", url, filters)
    if totals.n_retries:
        logger.warning("%s: %d requests to object stores failed and were repeated", url, totals.n_retries)
    if source.label_dtype == "int64":  # other labels may be values of a regression
        _warn_of_new_labels(run, totals.labels)
    new_files = () if run.plan is None else run.plan.files
    warn_unterminated([file for file in new_files if not totals.final_newlines.get(file.name, True)], source)


class _Environments:
    """Numeric environments in which the shards of a batch were made, by this run and, from their logs, by earlier ones.

    The log of a killed run lacks an environment if its first result had not arrived before the run was killed.
    """

    def __init__(self, storage: Storage, batch: int) -> None:
        self._own: set[str] = set()
        self._earlier = {name for log in read_logs(storage, batch=batch) for name in log.environments}
        self._found = 0

    def add(self, result: SplitResult) -> bool:
        """Count a result; return True if it was made in environments that are new in this run."""
        self._found += result.found
        before = len(self._own)
        self._own.update(result.environments)
        return len(self._own) > before

    @property
    def of_shards(self) -> tuple[str, ...]:
        """Environments of the shards up to now, one of them perhaps `UNKNOWN_ENVIRONMENT`."""
        earlier = self._earlier or {UNKNOWN_ENVIRONMENT}
        return tuple(sorted(self._own | earlier if self._found else self._own))

    @property
    def to_log(self) -> tuple[str, ...]:
        """Environments that a later run of the batch must know of."""
        return tuple(sorted({*self.of_shards, *self._earlier}))


def _warn_of_new_labels(run: Batch, labels: Sequence[int | float] | None) -> None:
    """Warn of labels that no earlier batch has."""
    if run.manifest is None or run.plan is None or run.manifest.labels is None or labels is None:
        return
    new = sorted(set(labels) - set(run.manifest.labels))
    if new:
        text = "%s: batch %d has labels that no earlier batch has: %s"
        logger.warning(text, run.storage.url, run.plan.number, labels_shown(new))


def _known_rows(source: Source, splits: Sequence[Split]) -> int | None:
    """Return the number of rows of splits; None if it is unknown without reading, or if bad rows are errors."""
    counts = [source.rows_of(split) for split in splits] if source.on_bad_row == "quarantine" else [None]
    return None if None in counts else sum(count for count in counts if count is not None)


def _patterns(source: Source) -> tuple[str, ...]:
    """Paths and URLs of the source, for reports that read it again; empty if they are too long for a log."""
    patterns = [shown_url(text) if is_url(text) else str(Path(text).absolute()) for text in source.patterns]
    return tuple(patterns) if sum(map(len, patterns)) <= MAX_PATTERN_CHARS else ()
