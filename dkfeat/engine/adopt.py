"""Take over what an existing spec says, after checking that nothing else is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sklearn.base import clone

from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.io.metadata import differences
from dkfeat.io.plans import OTHER_TARGET
from dkfeat.io.source import Source
from dkfeat.maps import FeatureMap

__all__ = ["adopt_map", "adopt_source", "must_agree"]

_OF_ALL_KINDS = ("n_features", "dtype", "multilabel", "labels", "label_dtype")
"""Input options that mean the same in every format."""


def adopt_source(
    source: Source, name: str, spec: Mapping[str, Any], *, in_full: bool, remedy: str = OTHER_TARGET
) -> Source:
    """Take the options that stand at their defaults from a spec; the others must agree with it."""
    existing = dict(spec["input"])
    asked, plain = (json.loads(json.dumps(mapping)) for mapping in (source.to_mapping(), source.defaults()))
    kind = existing.pop("kind", None)
    if kind != asked.pop("kind"):
        if in_full:
            made = f"{name} was made from another kind of source, {kind!r}, than the {source.kind!r} that is asked"
            message = f"{made}; {remedy}"
            raise SpecConflictError(message)
        if source.zero_based == "auto":
            message = f"{name} was made from {kind!r}, which does not tell the index base of text; pass zero_based"
            raise ConfigError(message)
        existing = {key: existing[key] for key in _OF_ALL_KINDS if key in existing}
    taken: dict[str, Any] = {}
    for key, value in existing.items():
        if key in source.own_rows and not in_full:
            continue
        if key not in asked:
            message = f"{name} has the input option {key!r}, which this dkfeat does not know; update dkfeat"
            raise SpecConflictError(message)
        if asked[key] == plain[key]:
            taken[key] = tuple(value) if isinstance(value, list) else value
        elif asked[key] != value and (in_full or key != "blocksize"):
            message = f"{key}={asked[key]!r} is asked, but {name} has {key}={value!r}; leave it out or {remedy}"
            raise SpecConflictError(message)
    return source.replaced(**taken)


def adopt_map(
    map: FeatureMap | None,
    name: str,
    spec: Mapping[str, Any],
    load: Callable[[Mapping[str, Any]], FeatureMap],
    remedy: str,
) -> FeatureMap:
    """Make the spec's map, after checking that the one asked for is the same."""
    if map is not None:
        must_agree({"map": map.name}, {"map": spec["map"].get("map")}, name, remedy, "map")
    existing = load(spec["map"])
    if map is None:
        return existing
    if not hasattr(map, "n_features_in_"):
        map = clone(map)
        if map.random_state is None:
            map.set_params(random_state=existing.seed_)
        map.fit_like(existing)
    must_agree(json.loads(json.dumps(map.to_spec())), spec["map"], name, remedy, "map")
    return existing


def must_agree(asked: Mapping[str, Any], existing: Mapping[str, Any], name: str, remedy: str, place: str = "") -> None:
    """Compare two specs key by key."""
    differing = differences(existing, asked, place)
    if differing:
        message = f"{name} was made with other settings, {'; '.join(differing)}; use the same or {remedy}"
        raise SpecConflictError(message)
