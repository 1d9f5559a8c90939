"""Factors of random Maclaurin features that are unbiased features of another map.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, §5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dkfeat.compiled.random import STREAM_MACLAURIN_INNER, STREAM_MACLAURIN_SAMPLE, draw_words, signs_of_samples
from dkfeat.errors import ConfigError
from dkfeat.maps._base import FeatureMap
from dkfeat.maps._kernel_estimates import EstimatedKernel
from dkfeat.maps._rows import RowsFrom
from dkfeat.maps._sampled import SampledMap
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.fourier import FourierFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.maps.laplace import LaplaceFeatures
from dkfeat.maps.maclaurin.series import Draws

_INNER = {cls.name: cls for cls in (FourierFeatures, LaplaceFeatures, GCWSFeatures, DartFeatures)}
_FACTORS = 2**20
"""Maximum number of factors from an inner map held in memory at a time."""
FACTORS_BYTES = 24 * _FACTORS
"""Maximum memory of these factors, in bytes: 4 for each and for its copy, and 16 for a full sample."""


def checked_inner(inner: Any, n_features: int) -> tuple[FeatureMap, dict[str, Any]]:
    """Make an unfitted inner map from an estimator's parameter, check it, and describe it for the spec.

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
    unfitted: FeatureMap = clone(inner).set_params(n_components=1, random_state=0)
    params = clone(unfitted).fit_width(n_features).to_spec()["params"]
    if isinstance(unfitted, FourierFeatures):
        for name, biased, kind, remedy in (
            ("normalize", True, "NRFF", "set normalize=False (RFF)"),
            ("projection", "orthogonal", "SORF", "choose another projection"),
        ):
            if params[name] == biased:
                raise ConfigError(
                    f"inner=FourierFeatures({name}={biased!r}) has biased features ({kind}), whose products are biased "
                    f"too; {remedy}"
                )
    del params["n_components"]  # which the factors set
    return unfitted, {"map": unfitted.name, "params": params}


def kernel_of_factor(inner: FeatureMap, n_features: int) -> EstimatedKernel:
    """Describe an inner map's kernel, and the variance of one factor: a component, or a random sign of a sample."""
    single = clone(inner).set_params(n_components=1, random_state=0)
    if isinstance(single, SampledMap):
        # the product of two signs is 1 or -1
        return replace(
            single.fit_width(n_features)._estimated_kernel(), variance_at=lambda values: 1 - values**2, note=""
        )
    # correlations with other components do not matter for a single one
    return single.set_params(projection="dense").fit_width(n_features)._estimated_kernel()


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
    n_components = len(draws.degrees)
    features = np.empty((X.shape[0], n_components), np.float32)
    features[:] = draws.constants[:n_components]
    for j, factor_seed in enumerate(_factor_seeds(seed, int(draws.degrees[0]))):
        width = int(np.count_nonzero(draws.degrees > j))
        factor_map, n_rows = make_factor_map(inner, X.shape[1], width, factor_seed), max(1, _FACTORS // width)
        for first in range(0, X.shape[0], n_rows):
            rows = slice(first, first + n_rows)
            with RowsFrom(first):
                features[rows, :width] *= _factors(factor_map, X[rows], factor_seed) * draws.scales[:width]
    return features


def make_factor_map(inner: FeatureMap, n_features: int, width: int, seed: int) -> FeatureMap:
    """Make the map of one factor of `width` components."""
    unfitted: FeatureMap = clone(inner).set_params(n_components=width, random_state=seed)
    return unfitted.fit_width(n_features)


def _factors(factor_map: FeatureMap, X: Any, seed: int) -> NDArray[np.float32]:
    """Compute features of which each alone is an unbiased estimate."""
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
