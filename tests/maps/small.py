"""Unfitted maps for tests that go over all of them."""

from __future__ import annotations

from typing import Any

from dkfeat.maps import FEATURE_MAPS, FeatureMap


def small_map(name: str, *, n_components: int = 8, random_state: Any = 0, **params: Any) -> FeatureMap:
    """Make a map of few components and one seed."""
    return FEATURE_MAPS[name](n_components=n_components, random_state=random_state, **params)
