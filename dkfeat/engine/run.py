"""Fourth and fifth step of a run: run its tasks, and commit their shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dkfeat.blocks import BadRow, Split
from dkfeat.canonical import dumps, parse_typed
from dkfeat.engine.plan import make_plan, plan_tasks
from dkfeat.engine.progress import Progress
from dkfeat.engine.resolve import Resolved
from dkfeat.engine.runners.base import Runner
from dkfeat.engine.scan import check_bad_rows, run_stage, scale_warning, suggesting_quarantine, warn_unterminated
from dkfeat.engine.tasks.job import Job, SplitResult, merge_labels, numeric_env
from dkfeat.engine.tasks.landmarks import sidecar_files
from dkfeat.filesystems.urls import identifying, is_url
from dkfeat.messages import counted, logger_of
from dkfeat.sources.base import Source
from dkfeat.store.commit.batch import Batch
from dkfeat.store.commit.begin import begin
from dkfeat.store.commit.run_log import read_logs
from dkfeat.store.manifest.manifest import Manifest, labels_named, labels_shown
from dkfeat.store.manifest.records import ShardEntry
from dkfeat.store.shards import codec as shards

logger = logger_of(__name__)

UNKNOWN_ENVIRONMENT = "unknown, of shards that an earlier run made"
_SHOWN = 10
"""Maximum number of columns in a warning."""
_RECORDED = 20
MAX_PATTERN_CHARS = 20_000
"""Maximum length of a source's patterns in a log; longer ones are omitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A batch whose tasks are done, and what they returned."""

    resolved: Resolved
    batch: Batch
    totals: _Totals | None = None
    """None if there was nothing to do."""


def run_tasks(resolved: Resolved, splits: Sequence[Split], *, delta: bool = False) -> Finished:
    """Record the plan of new splits, and run the tasks that are not done.

    The runner is opened only if there is something to do, and closed while the target is still locked. With `delta` a
    Delta log of the target begins.

    Raises
    ------
    dkfeat.errors.DkfeatError
        Errors of `begin`, `Plan.check`, the tasks and the limit; after an error nothing is committed.
    """
    context = resolved.opened.run
    batch = begin(
        context.storage,
        resolved.spec,
        resolved.opened.files,
        splits,
        sidecars=sidecar_files(resolved.spec, resolved.map, resolved.source.encoder) | resolved.sidecars,
        resume=context.policy.resume,
        keep_changed=context.policy.on_changed_source == "keep",
        lock=context.lock,
        delta=resolved.schema if delta else None,
    )
    context.closing.enter_context(batch)
    if batch.is_done:
        return Finished(resolved=resolved, batch=batch)
    runner = context.runners.get()
    job = resolved.job(
        source=resolved.source,
        storage=context.storage,
        spec=resolved.spec,
        spec_fp=batch.spec_fp,
        run_id=batch.id,
        is_resumed=batch.is_resumed,
    )
    if resolved.opened.target is not None and not resolved.runs_in_driver:  # else `plan_tasks` has checked it
        make_plan(resolved, batch.splits).check(runner.memory_limit)
    totals = _run_job(job, batch, runner, context.reporter, resolved.stage)
    return Finished(resolved=resolved, batch=batch, totals=totals)


def commit(finished: Finished) -> Manifest:
    """Commit the shards of a finished batch, or return the newest manifest if there was nothing to do."""
    batch, resolved, totals = finished.batch, finished.resolved, finished.totals
    if totals is None:
        assert batch.manifest is not None  # it lists every file
        rows = counted(batch.manifest.rows, "row")
        resolved.opened.run.reporter.note(f"{batch.storage.url} is complete already: {rows}; nothing to do")
        return batch.manifest
    environments = totals.environments
    return batch.commit(
        totals.entries,
        schema=resolved.schema,
        n_features=resolved.spec["map"]["n_features"],
        labels=totals.labels,
        final_newlines=totals.final_newlines,
        versions={**shards.versions(), "dask": version("dask"), "numba": version("numba")},
        numeric_env=environments[0] if environments else numeric_env(),
        numeric_envs=environments,
    )


def execute(resolved: Resolved) -> Manifest:
    """Plan, run and commit a run whose settings are known."""
    return commit(run_tasks(resolved, plan_tasks(resolved)))


def _run_job(job: Job, run: Batch, runner: Runner, reporter: Progress, stage: str) -> _Totals:
    """Run a job over the splits of a batch, and write the log meanwhile."""
    source = job.source
    totals = _Totals(job, run)
    where = runner.description  # read now: a cluster of this run has ended when the log is written
    run.log.facts = lambda: {
        "where": where,
        "sources": _patterns(source),
        "shards": len(totals.entries),
        "found": totals.n_found,
        "retries": totals.n_retries,
        "stages": reporter.logs(),
        "environments": () if job.is_exact else tuple(sorted({*totals.environments, *totals.earlier})),
        "drift": tuple(totals.drift),
        "column_shares": tuple(totals.column_shares.items()),
    }
    run.log.progress(at_once=True)
    with suggesting_quarantine(source):
        if job.run_in_driver is not None:
            job.run_in_driver(run.splits, runner, totals.add)
        else:
            run_stage(stage, job, source, run.splits, runner, reporter, totals.add)
    totals.check_limit(totals.n_rows)
    _report(totals, run, source, reporter)
    return totals


class _Totals:
    """Sums of the results of a batch's tasks."""

    def __init__(self, job: Job, run: Batch) -> None:
        self._job, self._run, source = job, run, job.source
        # their bad rows were within the limit when they were committed
        self._accepted = {split.number for split in run.repairs}
        self._n_known = _known_rows(source, [split for split in run.splits if split.number not in self._accepted])
        self._first: tuple[Split, BadRow] | None = None
        self.rounded: tuple[Split, BadRow] | None = None
        self._labels = run.manifest.labels if run.manifest is not None else ()
        self.entries = _Entries()
        self._own: set[str] = set()
        # the log of a killed run lacks an environment if its first result had not arrived before the run was killed
        logs = read_logs(job.storage, batch=run.number)
        self.earlier = {name for log in logs for name in log.environments}
        """Environments of earlier runs, of which a later run of the batch must know."""
        self.final_newlines: dict[str, bool] = {}
        """For each file of text, True if its last line has a line end."""
        self.n_rows = self.n_bad = self.n_retries = self.n_found = self._n_good = self._n_weighed = 0
        self._odd: Any = 0
        self._shares: Counter[int] = Counter()

    @property
    def labels(self) -> tuple[int | float, ...] | None:
        """Declared labels if there are any, else the labels that occur; None for more than 10,000."""
        source = self._job.source
        if source.labels is None:
            return self._labels
        return tuple(sorted(map(int if source.label_dtype == "int64" else float, source.labels)))

    @property
    def environments(self) -> tuple[str, ...]:
        """Numeric environments of the shards up to now, of earlier runs by their logs; empty if they do not matter."""
        if self._job.is_exact:
            return ()
        earlier = self.earlier or {UNKNOWN_ENVIRONMENT}
        return tuple(sorted(self._own | earlier if self.n_found else self._own))

    @property
    def drift(self) -> list[str]:
        """Descriptions of the first columns that differ much from the rows to which the encoder was fitted."""
        if not self._n_good:  # rows that no encoder of tables has counted
            return []
        return self._job.source.encoder.describe().drift(self._odd, self._n_good)[:_SHOWN]

    @property
    def column_shares(self) -> dict[int, int]:
        """Means over the splits of the shares of columns, as in `SplitResult`; of the twenty largest."""
        largest = sorted(self._shares.items(), key=lambda pair: (-pair[1], pair[0]))[:_RECORDED]
        return {column: total // self._n_weighed for column, total in largest}

    def add(self, split: Split, result: SplitResult) -> int:
        """Add the result of a split; return its number of rows."""
        for name, data in result.files.items():
            self._job.storage.replace(name, data)
        self.n_retries += result.retries
        self.n_found += result.found
        if result.odd is not None:
            self._odd, self._n_good = self._odd + result.odd, self._n_good + result.rows
        self.entries.extend(result.entries)
        self._n_weighed += result.column_shares is not None
        self._shares.update(result.column_shares or {})
        self._labels = merge_labels(self._labels, result.labels)
        if result.unterminated is not None:
            for position, file in enumerate(split.files):
                is_whole = position not in result.unterminated
                self.final_newlines[file.name] = self.final_newlines.get(file.name, True) and is_whole
        if result.rounded is not None and (self.rounded is None or split.number < self.rounded[0].number):
            self.rounded = split, result.rounded
        is_new = not self._own.issuperset(result.environments)
        self._own.update(result.environments)
        self._run.log.progress(at_once=is_new)
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
        check_bad_rows(self._job.source, self.n_bad, n_rows, first)


class _Entries:
    """Records of shards until the commit: as text they take 330 bytes, as objects 770."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._count = 0

    def extend(self, entries: Sequence[ShardEntry]) -> None:
        """Add the records of a split."""
        self._texts.append(dumps(entries))
        self._count += len(entries)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ShardEntry]:
        for text in self._texts:
            yield from parse_typed(text, tuple[ShardEntry, ...], "records of shards")


def _report(totals: _Totals, run: Batch, source: Source, reporter: Progress) -> None:
    """Log what users should know of a batch whose tasks are done."""
    url = run.storage.url
    if totals.n_bad:
        reporter.note(f"bad rows set aside: {totals.n_bad:,} of {totals.n_rows:,}; see `dkfeat quarantine {url}`")
    filters = getattr(source, "filters", None)
    if filters and not totals.n_rows and run.plan is not None:
        logger.warning("%s: no row of the new files passes filters=%.200r", url, filters)
    if totals.n_retries:
        logger.warning("%s: requests to object stores that failed and were repeated: %d", url, totals.n_retries)
    if totals.rounded is not None:
        split, row = totals.rounded
        logger.warning("%s", source.describe_rounded(split.files[row.file], row))
    if drift := totals.drift:
        text = "%s: columns differ from the rows to which the encoder was fitted: %s; "
        text += "leave out columns that only grow, or use a new target for new ranks"
        logger.warning(text, url, "; ".join(drift))
    if source.label_dtype == "int64":  # other labels may be values of a regression
        _warn_of_new_labels(run, totals.labels, source)
    if warning := scale_warning(totals.column_shares, source.to_mapping()):
        logger.warning("%s: %s", url, warning)
    new_files = () if run.plan is None else run.plan.files
    warn_unterminated([file for file in new_files if not totals.final_newlines.get(file.name, True)], source)


def _warn_of_new_labels(run: Batch, labels: Sequence[int | float] | None, source: Source) -> None:
    """Warn of labels that no earlier batch has."""
    if run.manifest is None or run.plan is None or run.manifest.labels is None or labels is None:
        return
    new = sorted(set(labels) - set(run.manifest.labels))
    if new:
        text = "%s: batch %d has labels that no earlier batch has: %s"
        logger.warning(text, run.storage.url, run.plan.number, labels_shown(labels_named(new, source.to_mapping())))


def _known_rows(source: Source, splits: Sequence[Split]) -> int | None:
    """Return the number of rows of splits; None if it is unknown without reading, or if bad rows are errors."""
    counts = [source.rows_of(split) for split in splits] if source.on_bad_row == "quarantine" else [None]
    return None if None in counts else sum(count for count in counts if count is not None)


def _patterns(source: Source) -> tuple[str, ...]:
    """Paths and URLs of the source, for reports that read it again; empty if they are too long for a log."""
    patterns = [identifying(text) if is_url(text) else str(Path(text).absolute()) for text in source.patterns]
    return tuple(patterns) if sum(map(len, patterns)) <= MAX_PATTERN_CHARS else ()
