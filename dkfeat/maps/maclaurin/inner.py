"""Random Maclaurin features of compositional kernels, whose factors are features of another map.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, §5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dkfeat.compiled.random import STREAM_MACLAURIN_INNER, STREAM_MACLAURIN_SAMPLE, draw_words, signs_of_samples
from dkfeat.errors import ConfigError, InputError
from dkfeat.maps._base import FeatureMap
from dkfeat.maps._sampled import SampledMap
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.fourier import FourierFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.maps.laplace import LaplaceFeatures
from dkfeat.maps.maclaurin.signs import Draws

_INNER = {cls.name: cls for cls in (FourierFeatures, LaplaceFeatures, GCWSFeatures, DartFeatures)}
_CELLS = 2**20
"""Maximum number of factors held in memory at a time."""
_FACTORS_BYTES = 24 * _CELLS
"""Maximum memory of these factors, in bytes: 4 for each and for its copy, and 16 for a full sample."""


def checked_inner(inner: Any, n_features: int) -> FeatureMap:
    """Make an unfitted inner map from an estimator's parameter, and check it.

    Parameters
    ----------
    inner : FeatureMap or mapping
        A map, or ``{"map": its name, "params": its parameters}`` as in a spec.
    n_features : int
        Number of columns of the rows.

    Raises
    ------
    dkfeat.errors.ConfigError
        If single features of the map are biased, or one of its parameters is out of range.
    """
    if isinstance(inner, Mapping):
        if set(inner) != {"map", "params"} or inner["map"] not in _INNER or not isinstance(inner["params"], Mapping):
            raise ConfigError(
                f"inner={dict(inner)!r}, but a mapping must be {{'map': name, 'params': parameters}} with a name among "
                f"{', '.join(map(repr, _INNER))}"
            )
        cls = _INNER[inner["map"]]
        unknown = sorted(set(inner["params"]) - set(cls._get_param_names()))
        if unknown:
            raise ConfigError(f"inner has the unknown settings {unknown} of {cls.__name__}; leave them out")
        inner = cls(**inner["params"])
    if type(inner) not in _INNER.values():
        names = ", ".join(cls.__name__ for cls in _INNER.values())
        raise ConfigError(f"inner={inner!r}, but its factors must be unbiased features; give one of {names}")
    unfitted: FeatureMap = clone(inner).set_params(random_state=0)
    params = unfitted.set_params(n_components=1).fit_width(n_features).to_spec()["params"]
    if isinstance(unfitted, FourierFeatures):
        if params["normalize"]:
            raise ConfigError(
                "inner=FourierFeatures(normalize=True) has biased features (NRFF), whose products are biased too; "
                "set normalize=False (RFF)"
            )
        if params["projection"] == "orthogonal":
            raise ConfigError(
                "inner=FourierFeatures(projection='orthogonal') has biased features (SORF), whose products are biased "
                "too; choose another projection"
            )
    return cast(FeatureMap, clone(unfitted))


def inner_mapping(inner: FeatureMap, n_features: int) -> dict[str, Any]:
    """Return the spec of an inner map: all of its parameters except those that the factors set."""
    params = clone(inner).fit_width(n_features).to_spec()["params"]
    del params["n_components"]
    return {"map": inner.name, "params": params}


def inner_bytes(inner: FeatureMap, n_features: int, n_components: int) -> int:
    """Bytes that `multiply_inner` needs besides rows and features, for a number of components per factor."""
    factor_map = clone(inner).set_params(n_components=n_components, random_state=0).fit_width(n_features)
    return _FACTORS_BYTES + factor_map._working_bytes


def multiply_inner(X: Any, inner: FeatureMap, draws: Draws, seed: int) -> NDArray[np.float32]:
    """Compute products of inner features.

    For each j, an inner map with a seed of its own makes factor j of all components that have one. So the factors of a
    component are independent, even if the features of one inner map are correlated.

    Parameters
    ----------
    X : array or CSR of shape (n_samples, n_features)
    inner : FeatureMap
    draws : Draws
    seed : int

    Returns
    -------
    features : ndarray of shape (n_samples, n_components), float32
    """
    n_samples, n_components = X.shape[0], len(draws.degrees)
    features = np.empty((n_samples, n_components), np.float32)
    features[:] = draws.constants[:n_components]
    depth = int(draws.degrees[0])
    for j, factor_seed in enumerate(_factor_seeds(seed, depth)):
        width = int(np.count_nonzero(draws.degrees > j))
        factor_map = clone(inner).set_params(n_components=width, random_state=factor_seed).fit_width(X.shape[1])
        for rows, factors in _scalar_features(factor_map, X, factor_seed):
            features[rows, :width] *= factors * draws.scales[:width]
    return features


def _scalar_features(factor_map: FeatureMap, X: Any, seed: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield features in blocks of rows; each feature alone is an unbiased estimate."""
    n_rows = max(1, _CELLS // factor_map.to_spec()["params"]["n_components"])
    for first in range(0, X.shape[0], n_rows):
        rows = slice(first, first + n_rows)
        try:
            factors = _factors(factor_map, X[rows], seed)
        except InputError as error:
            if error.row is not None and first:
                _factors(factor_map, X[: first + error.row + 1], seed)  # raises an error with the row number in X
            raise
        yield rows, factors


def _factors(factor_map: FeatureMap, X: Any, seed: int) -> NDArray[np.float32]:
    if not isinstance(factor_map, SampledMap):
        features: NDArray[np.float32] = factor_map.transform(X)
        features *= np.float32(math.sqrt(factor_map.n_features_out))
        return features
    coordinates, numbers = factor_map.sample(X)
    signs = np.empty(coordinates.shape, np.float32)
    signs_of_samples(coordinates, numbers, np.uint64(STREAM_MACLAURIN_SAMPLE), np.uint64(seed), signs)
    return signs


def _factor_seeds(seed: int, depth: int) -> list[int]:
    words = np.empty((depth, 4), np.uint32)
    draw_words(np.uint64(0), np.uint64(STREAM_MACLAURIN_INNER), np.uint64(seed), words)
    return [int(low) | int(high) << 32 for low, high in words[:, :2].tolist()]
