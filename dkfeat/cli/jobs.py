"""Sources, feature maps and runs built from the settings of a job file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from dkfeat.cli.options.storage import resolve_options
from dkfeat.errors import ConfigError
from dkfeat.messages import nearest
from dkfeat.sources.formats import as_source

if TYPE_CHECKING:
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
