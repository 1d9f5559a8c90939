"""Feature maps: scikit-learn estimators whose inner products estimate a kernel.

Maps are loaded when first used: `CLASSES` can be read without loading scikit-learn and numba.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dkfeat.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.maps._base import FeatureMap as FeatureMap

CLASSES = {
    "gcws": "dkfeat.maps.gcws:GCWSFeatures",
    "dart": "dkfeat.maps.darts:DartFeatures",
    "minhash": "dkfeat.maps.minhash:MinHashFeatures",
    "fourier": "dkfeat.maps.fourier:FourierFeatures",
    "laplace": "dkfeat.maps.laplace:LaplaceFeatures",
    "maclaurin": "dkfeat.maps.maclaurin.features:MaclaurinFeatures",
    "nystroem": "dkfeat.maps.nystroem:NystroemFeatures",
}
"""Module and class of each feature map, by the map's name in specs: the one place where a map is registered."""

WEIGHTED = ("gcws", "dart")
"""Maps of the min-max kernel of any values, for which the units of columns matter."""

_BASES = {"FeatureMap": "dkfeat.maps._base", "KernelPairs": "dkfeat.maps._kernel_estimates"}
_MODULES = _BASES | {name: module for module, name in (target.split(":") for target in CLASSES.values())}


def map_class(name: str) -> type[FeatureMap]:
    """Load the class of a map by its name in specs."""
    module, cls = CLASSES[name].split(":")
    loaded: type[FeatureMap] = getattr(importlib.import_module(module), cls)
    return loaded


def from_spec(spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> FeatureMap:
    """Make the fitted map that a spec describes.

    Parameters
    ----------
    spec : mapping of plain JSON values
        Result of `FeatureMap.to_spec`.
    arrays : mapping of str to ndarray, or None
        Landmarks of a Nyström map, which `dkfeat.open_shards` and `dkfeat.load_model` read from a file beside the spec.

    Returns
    -------
    fitted : FeatureMap
        Map with the same features as the one that the spec was made from, bit-identical for maps of codes.

    Raises
    ------
    dkfeat.errors.ConfigError
        If the map or one of its settings is unknown, or landmarks are missing or are not those of the spec.
    dkfeat.errors.SpecConflictError
        If the spec was made by another version of the algorithm.

    Examples
    --------
    >>> from dkfeat.maps import GCWSFeatures
    >>> fitted = GCWSFeatures(n_components=16, random_state=7).fit_width(100)
    >>> from_spec(fitted.to_spec()).fingerprint() == fitted.fingerprint()
    True
    """
    name = spec.get("map")
    if name not in CLASSES:
        raise ConfigError(
            f"the spec names the map {name!r}, but the known maps are {', '.join(CLASSES)}; update dkfeat"
        )
    return map_class(name).from_spec(spec, arrays)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dkfeat.maps' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
