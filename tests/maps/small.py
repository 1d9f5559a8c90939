"""Unfitted maps for tests that go over all of them, whichever parameters a map has."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from dkfeat.maps import CLASSES, FeatureMap, map_class

FEATURE_MAPS = {name: map_class(name) for name in CLASSES}
"""Classes of all maps by their names."""


def has(cls: type[FeatureMap], parameter: str) -> bool:
    """Return True if a map has a parameter."""
    return parameter in cls._get_param_names()


def rows_for(cls: type[FeatureMap], X: np.ndarray) -> np.ndarray:
    """Return the rows that a map takes: of any numbers, or the sets of the larger ones."""
    return (np.abs(X) > np.median(np.abs(X))).astype(X.dtype) if cls.takes_sets else X


def text_for(cls: type[FeatureMap], text: str) -> str:
    """Return LIBSVM text that a map takes: of sets, all values but zeros are 1."""
    return re.sub(r":(?!0\s)\S+", ":1", text) if cls.takes_sets else text


def small_map(name: str, *, n_components: int = 8, random_state: Any = 0, **params: Any) -> FeatureMap:
    """Make a map of few components and one seed, as far as it has them."""
    sizes = {"n_components": n_components, "random_state": random_state}
    cls = FEATURE_MAPS[name]
    return cls(**{key: value for key, value in sizes.items() if has(cls, key)}, **params)
