"""Unfitted maps for tests that go over all of them, whichever parameters a map has."""

from __future__ import annotations

from typing import Any

from dkfeat.maps import FEATURE_MAPS, FeatureMap


def has(map_class: type[FeatureMap], parameter: str) -> bool:
    """Return True if a map has a parameter."""
    return parameter in map_class._get_param_names()


def small_map(name: str, *, n_components: int = 8, random_state: Any = 0, **params: Any) -> FeatureMap:
    """Make a map of few components and one seed, as far as it has them."""
    sizes = {"n_components": n_components, "random_state": random_state}
    map_class = FEATURE_MAPS[name]
    return map_class(**{key: value for key, value in sizes.items() if has(map_class, key)}, **params)
