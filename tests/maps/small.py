"""Unfitted maps for tests that go over all of them, whichever parameters a map has."""

from __future__ import annotations

from typing import Any

from dkfeat.maps import CLASSES, FeatureMap, map_class

FEATURE_MAPS = {name: map_class(name) for name in CLASSES}
"""Classes of all maps by their names."""


def has(cls: type[FeatureMap], parameter: str) -> bool:
    """Return True if a map has a parameter."""
    return parameter in cls._get_param_names()


def small_map(name: str, *, n_components: int = 8, random_state: Any = 0, **params: Any) -> FeatureMap:
    """Make a map of few components and one seed, as far as it has them."""
    sizes = {"n_components": n_components, "random_state": random_state}
    cls = FEATURE_MAPS[name]
    return cls(**{key: value for key, value in sizes.items() if has(cls, key)}, **params)
