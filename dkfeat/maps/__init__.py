"""Feature maps: scikit-learn estimators whose inner products estimate a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from dkfeat.errors import ConfigError
from dkfeat.maps._base import FeatureMap
from dkfeat.maps._kernel_estimates import KernelPairs
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.fourier import FourierFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.maps.laplace import LaplaceFeatures
from dkfeat.maps.maclaurin.features import MaclaurinFeatures
from dkfeat.maps.nystroem import NystroemFeatures

__all__ = [
    "FEATURE_MAPS",
    "DartFeatures",
    "FeatureMap",
    "FourierFeatures",
    "GCWSFeatures",
    "KernelPairs",
    "LaplaceFeatures",
    "MaclaurinFeatures",
    "NystroemFeatures",
    "from_spec",
]

FEATURE_MAPS: dict[str, type[FeatureMap]] = {
    cls.name: cls
    for cls in (GCWSFeatures, DartFeatures, FourierFeatures, LaplaceFeatures, MaclaurinFeatures, NystroemFeatures)
}
"""Feature maps by their name in specs."""


def from_spec(spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> FeatureMap:
    """Make the fitted map that a spec describes.

    Parameters
    ----------
    spec : mapping of plain JSON values
        Result of `FeatureMap.to_spec`.
    arrays : mapping of str to ndarray, or None
        Result of `FeatureMap.fitted_arrays`, for a map whose spec names landmarks.

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
    >>> fitted = GCWSFeatures(n_components=16, random_state=7).fit_width(100)
    >>> from_spec(fitted.to_spec()).fingerprint() == fitted.fingerprint()
    True
    """
    name = spec.get("map")
    if name not in FEATURE_MAPS:
        raise ConfigError(
            f"the spec names the map {name!r}, but the known maps are {', '.join(FEATURE_MAPS)}; update dkfeat"
        )
    return FEATURE_MAPS[name].from_spec(spec, arrays)
