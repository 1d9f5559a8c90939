"""Objects from settings: the feature map and the source that a command line or a job file names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from functools import partial
from itertools import count
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from dkfeat.cli._storage import resolve_options
from dkfeat.errors import ConfigError
from dkfeat.wording import nearest

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
    from dkfeat.io.manifest import Manifest
    from dkfeat.io.source import Source
    from dkfeat.io.status import Status
    from dkfeat.maps import FeatureMap

__all__ = ["build_map", "build_rows", "build_source", "load_job", "part_status", "run_part", "run_settings"]


def load_job(path: str, needs: str | None = None) -> JobConfig:
    """Read a job file; what it leaves out is taken from Dask's configuration. Arguments as of `load_config`."""
    from dkfeat.config import load_config
    from dkfeat.engine.defaults import read_defaults

    return load_config(path, needs, read_defaults())


def build_map(config: MapConfig) -> FeatureMap:
    """Make the unfitted feature map that the settings name.

    Raises
    ------
    ConfigError
        For a map, or a parameter of it, that does not exist; says which ones do.

    Examples
    --------
    >>> from dkfeat.config import MapConfig
    >>> build_map(MapConfig(name="gcws", params={"n_components": 64}))
    GCWSFeatures(n_components=64)
    """
    # scikit-learn and numba come with the maps; help texts do without
    from dkfeat.maps import FEATURE_MAPS

    if config.name not in FEATURE_MAPS:
        message = f"there is no map {config.name!r}; {nearest(config.name, list(FEATURE_MAPS), 'maps')}"
        raise ConfigError(message)
    cls = FEATURE_MAPS[config.name]
    known = sorted(cls().get_params())
    for name in config.params:
        if name not in known:
            message = f"the map {config.name} has no parameter {name!r}; {nearest(name, known, 'parameters')}"
            raise ConfigError(message)
    return cls(**config.params)


def build_source(config: SourceConfig) -> Source:
    """Make the source that the settings describe."""
    options = config.to_mapping()
    storage_options = resolve_options(options.pop("storage_options"), "source.storage_options")
    return source_of(options.pop("urlpath"), options, storage_options)


def build_rows(part: PredictConfig | EvaluateConfig) -> dict[str, Any]:
    """Make what a `predict` or `evaluate` part of a job file reads: arguments of the function of that name."""
    source = part.shards if part.source is None else build_source(part.source)
    return {"source": source, "storage_options": resolve_options(part.storage_options, "storage_options")}


def source_of(urlpath: str | Sequence[str], options: Mapping[str, Any], storage_options: Any) -> Source:
    """Make a source of the format that is said, or that the paths show.

    Parameters
    ----------
    urlpath : str or sequence of str
        Path, glob or URL, or several.
    options : mapping
        The fields of `SourceConfig` by name; those at their defaults count as left out.
    storage_options : mapping or None
        For fsspec.

    Raises
    ------
    ConfigError
        For an option that is none of the format's.
    """
    from dkfeat.config import SourceConfig
    from dkfeat.io.libsvm import LibsvmSource
    from dkfeat.io.parquet import ParquetSource
    from dkfeat.io.parquet_splits import looks_like_parquet

    paths = [urlpath] if isinstance(urlpath, str) else list(urlpath)
    name = options.get("format", "auto")
    if name == "auto":
        name = "parquet" if looks_like_parquet(paths) else "libsvm"
    kind: type[Any] = ParquetSource if name == "parquet" else LibsvmSource
    defaults = {item.name: item.default for item in fields(SourceConfig)}
    given = {key: _as_tuples(value) for key, value in options.items() if key != "format"}
    given = {key: value for key, value in given.items() if value != _as_tuples(defaults[key])}
    foreign = sorted(given.keys() - {item.name for item in fields(kind)})
    if foreign:
        other = "pass --format parquet, in a job file format: parquet" if name == "libsvm" else "leave it out"
        message = f"{', '.join(foreign)} is no option of {name} sources, as which {paths[0]} is read; {other}"
        raise ConfigError(message)
    made: Source = kind(tuple(paths), **given, storage_options=storage_options)
    return made


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list | tuple) else value


@contextmanager
def run_settings(run: RunConfig) -> Iterator[Iterator[dict[str, Any]]]:
    """Give, for one part of a job file after another, the arguments that say where and how it runs.

    A cluster that the file names is started by the first part that needs it, and serves all. Each part has a
    performance report of its own: report.html, report-2.html, …
    """
    from dkfeat.engine.clusters import SharedCluster

    sizes = {name: getattr(run, name) for name in ("n_workers", "threads_per_worker", "memory_limit")}
    with ExitStack() as stack:
        given = run.to_mapping()
        if run.cluster is not None:
            shared = stack.enter_context(SharedCluster(run.cluster, **sizes))
            given |= {"cluster": shared, **dict.fromkeys(sizes)}
        yield map(partial(_numbered, given), count(1))


def _numbered(given: Mapping[str, Any], number: int) -> dict[str, Any]:
    if given["performance_report"] is None or number == 1:
        return dict(given)
    path = PurePath(given["performance_report"])
    return {**given, "performance_report": str(path.with_name(f"{path.stem}-{number}{path.suffix}"))}


def run_part(part: FeaturizeConfig, run: Mapping[str, Any], **options: Any) -> Manifest:
    """Run one `featurize` part of a job file with arguments of `run_settings`; `options` go before them."""
    from dkfeat.engine.featurize import featurize

    return featurize(
        build_source(part.source),
        None if part.map is None else build_map(part.map),
        part.out,
        like=part.like,
        layout=part.layout,
        on_bad_row=part.on_bad_row,
        max_bad_rows=part.max_bad_rows,
        on_changed_source=part.on_changed_source,
        target_options=resolve_options(part.target_options, "target_options"),
        **{**run, **options},
    )


def part_status(part: FeaturizeConfig) -> Status:
    """Tell how the target of one `featurize` part of a job file stands."""
    from dkfeat.io.status import status

    return status(part.out, storage_options=resolve_options(part.target_options, "target_options"))
