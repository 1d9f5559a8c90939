"""Objects from settings: the feature map and the source that a command line or a job file names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dkfeat.cli._storage import resolve_options
from dkfeat.errors import ConfigError
from dkfeat.wording import nearest

if TYPE_CHECKING:
    from dkfeat.config import FeaturizeConfig, MapConfig, RunConfig, SourceConfig
    from dkfeat.io.libsvm import LibsvmSource
    from dkfeat.io.manifest import Manifest
    from dkfeat.maps import FeatureMap

__all__ = ["build_map", "build_source", "run_part"]


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


def build_source(config: SourceConfig) -> LibsvmSource:
    """Make the source that the settings describe."""
    from dkfeat.io.libsvm import LibsvmSource

    options = config.to_mapping()
    labels = options.pop("labels")
    options["storage_options"] = resolve_options(options["storage_options"], "source.storage_options")
    return LibsvmSource(**options, labels=None if labels is None else tuple(labels))


def run_part(part: FeaturizeConfig, run: RunConfig, **options: Any) -> Manifest:
    """Run one `featurize` part of a job file; `options` go before what the file says."""
    from dkfeat.engine.featurize import featurize

    return featurize(
        build_source(part.source),
        None if part.map is None else build_map(part.map),
        part.out,
        like=part.like,
        layout=part.layout,
        on_bad_row=part.on_bad_row,
        max_bad_rows=part.max_bad_rows,
        target_options=resolve_options(part.target_options, "target_options"),
        **{**run.to_mapping(), **options},
    )
