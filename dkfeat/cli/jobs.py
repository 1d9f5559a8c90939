"""Runs of a job file: its sources, maps and parts, and the nightly mode, which reports events as JSON lines."""

from __future__ import annotations

import glob
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from dkfeat.cli.group import text_of
from dkfeat.cli.options.shared import resolve_options
from dkfeat.errors import ConfigError, DkfeatError, ShardError, SourceNotFoundError, SpecConflictError, TargetBusyError
from dkfeat.messages import nearest
from dkfeat.sources.formats import as_source

if TYPE_CHECKING:
    from dkfeat.cli.output import LogLines
    from dkfeat.config import (
        EvaluateConfig,
        FeaturizeConfig,
        JobConfig,
        MapConfig,
        PredictConfig,
        RunConfig,
        SourceConfig,
    )
    from dkfeat.engine.open import Target
    from dkfeat.maps import FeatureMap
    from dkfeat.sources.base import Source
    from dkfeat.store.commit.status import Status
    from dkfeat.store.manifest.manifest import Manifest


Part = TypeVar("Part")


def load_job(path: str, needs: str | None = None) -> JobConfig:
    """Read a job file, with defaults from Dask's configuration, and check its sources and maps by making them.

    For the arguments, see `load_config`.
    """
    from dkfeat.config import load_config
    from dkfeat.config.settings import errors_at
    from dkfeat.engine.runners.defaults import read_defaults

    job = load_config(path, needs, read_defaults())
    for section in ("featurize", "predict", "evaluate"):
        for number, part in enumerate(getattr(job, section)):
            with errors_at(f"{path}: {section}[{number}].source"):
                if part.source is not None:
                    build_source(part.source)
            with errors_at(f"{path}: {section}[{number}].map"):
                if getattr(part, "map", None) is not None:
                    build_map(part.map)
    return job


def build_map(config: MapConfig) -> FeatureMap:
    """Make the unfitted feature map that the settings name.

    Raises
    ------
    ConfigError
        If the map, or one of its parameters, does not exist; the message suggests known names.

    Examples
    --------
    >>> from dkfeat.config import MapConfig
    >>> build_map(MapConfig(name="gcws", params={"n_components": 64}))
    GCWSFeatures(n_components=64)
    """
    # late import: loads scikit-learn and numba, which help pages do not need
    from dkfeat.maps import FEATURE_MAPS

    if config.name not in FEATURE_MAPS:
        raise ConfigError(f"there is no map {config.name!r}; {nearest(config.name, list(FEATURE_MAPS), 'maps')}")
    cls = FEATURE_MAPS[config.name]
    known = sorted(cls().get_params())
    for name in config.params:
        if name not in known:
            raise ConfigError(f"the map {config.name} has no parameter {name!r}; {nearest(name, known, 'parameters')}")
    return cls(**config.params)


def build_source(config: SourceConfig) -> Source:
    """Make the source that the settings describe."""
    storage_options = resolve_options(config.storage_options, "source.storage_options")
    return as_source(config.urlpath, storage_options, config.format, **config.options)


def build_rows(part: PredictConfig | EvaluateConfig) -> dict[str, Any]:
    """Make the arguments ``source`` and ``storage_options`` of a `predict` or `evaluate` part of a job file."""
    source = part.shards if part.source is None else build_source(part.source)
    return {"source": source, "storage_options": resolve_options(part.storage_options, "storage_options")}


@contextmanager
def open_runs(run: RunConfig, parts: Sequence[Part]) -> Iterator[Iterator[tuple[Part, RunConfig]]]:
    """Yield each part of a job file with its run settings.

    A cluster that the file names is started by the first part that needs it, and is used by all parts. Each part has
    its own performance report: report.html, report-2.html, …
    """
    from dkfeat.engine.clusters.open import SharedCluster

    with ExitStack() as stack:
        if run.cluster is not None:
            sizes = {name: getattr(run, name) for name in ("n_workers", "threads_per_worker", "memory_limit")}
            shared: Any = stack.enter_context(SharedCluster(run.cluster, **sizes))
            run = replace(run, cluster=shared, n_workers=None, threads_per_worker=None, memory_limit=None)
        yield ((part, _with_own_report(run, number)) for number, part in enumerate(parts, 1))


def _with_own_report(run: RunConfig, number: int) -> RunConfig:
    if run.performance_report is None or number == 1:
        return run
    path = PurePath(run.performance_report)
    return replace(run, performance_report=str(path.with_name(f"{path.stem}-{number}{path.suffix}")))


def run_featurize(part: FeaturizeConfig, run: RunConfig, *, progress: Any = None) -> Manifest:
    """Run one `featurize` part of a job file; `progress`, if given, overrides that of the settings."""
    from dkfeat.engine.featurize import featurize
    from dkfeat.engine.open import with_bad_rows

    feature_map = None if part.map is None else build_map(part.map)
    return featurize(
        with_bad_rows(build_source(part.source), part.on_bad_row, part.max_bad_rows),
        _target(part, run, on_changed_source=part.on_changed_source),
        feature_map,
        like=part.like,
        layout=part.layout,
        client=run,
        progress=run.progress if progress is None else progress,
    )


def run_predict(part: PredictConfig, run: RunConfig) -> Manifest:
    """Run one `predict` part of a job file."""
    from dkfeat.engine.open import with_bad_rows
    from dkfeat.learn.predict import predict

    rows = build_rows(part)
    source = with_bad_rows(rows.pop("source"), part.on_bad_row, part.max_bad_rows)
    to = _target(part, run)
    return predict(part.model, source, to, scores=part.scores, **rows, client=run, progress=run.progress)


def _target(part: FeaturizeConfig | PredictConfig, run: RunConfig, **policy: Any) -> Target:
    """Make the target of a part, after breaking the lock that the settings name."""
    from dkfeat.engine.open import Target
    from dkfeat.store.commit.maintenance import break_lock

    target_options = resolve_options(part.target_options, "target_options")
    if run.break_lock is not None:
        break_lock(part.out, run.break_lock, target_options=target_options)
    return Target(part.out, storage_options=target_options, resume=run.resume, **policy)


def part_status(part: FeaturizeConfig) -> Status:
    """State of the target of one `featurize` part of a job file."""
    from dkfeat.store.commit.status import status

    return status(part.out, storage_options=resolve_options(part.target_options, "target_options"))


BUSY = TargetBusyError.exit_code


def run_nightly(conf: str, log: LogLines) -> int:
    """Run all `featurize` parts of a job file, even if an earlier one failed.

    Parameters
    ----------
    conf : str
        Job file.
    log : LogLines
        Receives the events.

    Returns
    -------
    status : int
        Exit status of the first part that failed; 4 if none failed and some were skipped because another run holds
        their targets; else 0.
    """
    began = time.monotonic()
    job = load_job(conf, needs="featurize")
    waiting: set[str] = set()
    with open_runs(job.run, job.featurize) as parts:
        results = [_run_part(part, run, log, waiting) for part, run in parts]
    failed = [status for status, busy in results if status and not busy]
    status = failed[0] if failed else max(status for status, _ in results)
    log("end", level="error" if failed else "info", exit_code=status, seconds=_since(began))
    return status


def _run_part(part: FeaturizeConfig, run: RunConfig, log: LogLines, waiting: set[str]) -> tuple[int, bool]:
    """Run a part; return its exit status, and True if the part was skipped because its target is busy."""
    began = time.monotonic()
    log("start", target=part.out, source=part.source.urlpath)
    try:
        before = _status(part)
        present = _present(part) if _may_be_empty(part, before) else part
        if part.like in waiting or present is None:
            if _is_unstarted(before):
                waiting.add(part.out)
            why = "the source has no files yet" if _is_unstarted(before) else "the source has no files now"
            log("waiting", target=part.out, message=why, seconds=_since(began))
            return 0, False
        if _is_unstarted(before):  # if only some patterns match, the others are most likely mistakes
            present = part
        try:
            manifest = run_featurize(present, run, progress=log.progress if run.progress else False)
        except SourceNotFoundError as error:
            if _is_unstarted(before) or _finds_files(build_source(part.source)):
                raise
            raise SpecConflictError(
                f"{error}; files of it were planned or committed: is a disk not mounted?"
            ) from error
    except TargetBusyError as error:
        log("skipped", level="warning", target=part.out, reason="busy", message=str(error), seconds=_since(began))
        return BUSY, True
    except (DkfeatError, OSError) as error:
        status = error.exit_code if isinstance(error, DkfeatError) else ShardError.exit_code
        log(
            "failed",
            level="error",
            target=part.out,
            error=type(error).__name__,
            message=text_of(error),
            exit_code=status,
            seconds=_since(began),
        )
        return status, False
    last = before.committed if before is not None else None
    log(
        "unchanged" if last is not None and last.number == manifest.number else "committed",
        target=part.out,
        manifest=manifest.number,
        commit=manifest.run.get("id"),
        rows=manifest.rows,
        new_rows=manifest.rows - (last.rows if last else 0),
        bad_rows=manifest.n_bad_rows or None,
        shards=len(manifest.shards),
        new_shards=len(manifest.shards) - (last.shards if last else 0),
        seconds=_since(began),
    )
    return 0, False


def _status(part: FeaturizeConfig) -> Status | None:
    try:
        return part_status(part)
    except ShardError:  # no target yet, or a damaged one, which the run reports
        return None


def _is_unstarted(before: Status | None) -> bool:
    return before is None or (before.committed is None and before.unfinished is None)


def _may_be_empty(part: FeaturizeConfig, before: Status | None) -> bool:
    """Return True if a source may have no files: before the first batch, or if committed files may be moved away."""
    if before is None or before.unfinished is not None:
        return before is None
    return before.committed is None or part.on_changed_source == "keep"


def _present(part: FeaturizeConfig) -> FeaturizeConfig | None:
    """Leave out patterns that match nothing in an existing folder; None if no pattern is left."""
    source = build_source(part.source)
    urlpath = tuple(
        path
        for path, pattern in zip(source.urlpath, source.patterns, strict=True)
        if not (glob.has_magic(pattern) and _has_folder(pattern)) or _finds_files(source.replaced(urlpath=(path,)))
    )
    if not urlpath:
        return None
    # file names are relative to the common folder of all patterns, which must not change
    if len({_folder(pattern) for pattern in source.patterns}) > 1:
        return part
    return replace(part, source=replace(part.source, urlpath=urlpath))


def _finds_files(source: Source) -> bool:
    try:
        source.files()
    except SourceNotFoundError:
        return False
    return True


def _has_folder(pattern: str) -> bool:
    """Return True if the folder of a local pattern exists; if it does not, a disk may not be mounted."""
    return "://" in pattern or _folder(pattern).exists()


def _folder(pattern: str) -> Path:
    """Return the deepest parent folder of a pattern that has no wildcards."""
    return next(folder for folder in Path(pattern).parents if not glob.has_magic(str(folder)))


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
