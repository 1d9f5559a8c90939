"""Settle what a run needs to know before it starts: source options, the fitted map and the spec that binds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dkfeat.canonical import fingerprint
from dkfeat.engine.adopt import adopt_map, adopt_source, must_agree
from dkfeat.engine.defaults import with_configured_blocksize
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.io.metadata import spec_text
from dkfeat.io.plans import OTHER_TARGET
from dkfeat.io.scans import Scan
from dkfeat.io.source import Source
from dkfeat.maps import FEATURE_MAPS, FeatureMap, from_spec

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile

__all__ = ["Draw", "Settled", "settle"]

PIECE_BYTES = 64 << 20
"""Encoded bytes after which a piece ends, however long its text."""

LAYOUTS = ("codes", "sparse", "dense")

Draw = Callable[[Source, Scan, NDArray[np.int64]], Any]
"""Takes rows from a settled source that was scanned, by their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A job whose every value-affecting setting is known."""

    source: Source
    """Its index base, width and label type are known."""
    map: FeatureMap
    """Fitted."""
    spec: Mapping[str, Any]
    """Plain JSON values: all that decides the shards' bytes, and nothing else."""
    scan: Scan | None = None
    """The pass over the source, if one was needed."""

    @property
    def spec_fp(self) -> str:
        """Fingerprint of the spec."""
        return fingerprint(self.spec)


def settle(
    source: Source,
    map: FeatureMap | None,
    *,
    files: Sequence[SourceFile] | None = None,
    target: tuple[str, Mapping[str, Any]] | None = None,
    like: tuple[str, Mapping[str, Any]] | None = None,
    layout: str | None = None,
    scan: Callable[[Source], Scan],
    draw: Draw | None = None,
    load: Callable[[Mapping[str, Any]], FeatureMap] = from_spec,
    remedy: str = OTHER_TARGET,
) -> Settled:
    """Settle a job from the target's spec, then from `like`, then from a scan.

    Every option of the source that stands at its default is taken from an existing spec. What was asked otherwise must
    agree with the target's spec in full, and with `like` in all but `blocksize` and `layout`.

    Parameters
    ----------
    source : Source
    map : FeatureMap or None
        Fitted or not, never changed; None takes the existing spec's. An unfitted one is cloned, and without a
        `random_state` of its own it takes the existing spec's seed.
    files : sequence of SourceFile or None
        The source's, as they were listed; None: they are listed if they must be looked at.
    target, like : (name, spec) or None
        Existing specs, with the name to use in messages.
    layout : str or None
        Shard layout; None: the target's, else the map's own.
    scan : callable
        Called at most once, when something is still open, or when rows must be counted.
    draw : callable
        Called at most once, for a map that needs rows and is not fitted: gives rows of the settled source by their
        numbers.
    load : callable
        Makes the map of an existing spec, landmarks included.
    remedy : str
        What messages offer where the target's spec is another, beside asking for the same.

    Raises
    ------
    SpecConflictError
        Where asked and existing settings differ; names both values.
    ConfigError
        For a map that is missing or no feature map, for an unknown layout, and for settings too long to be kept.
    """
    if map is not None and not isinstance(map, FeatureMap):
        message = f"map={map!r:.100}, but it must be a feature map ({', '.join(FEATURE_MAPS)}) or None"
        raise ConfigError(message)
    if map is None and target is None and like is None:
        message = "no feature map is given; pass one, or `like` with a folder or model whose map is taken over"
        raise ConfigError(message)
    if layout is not None and layout not in LAYOUTS:
        message = f"layout={layout!r}, but shards are laid out as one of {', '.join(LAYOUTS)}"
        raise ConfigError(message)
    for existing, kept in ((target, True), (like, False)):
        if existing is not None:
            way_out = remedy if kept else OTHER_TARGET
            source = adopt_source(source, *existing, in_full=kept, remedy=way_out)
            map = adopt_map(map, *existing, load, way_out)
    if target is None and like is None:
        source = with_configured_blocksize(source)
    if layout is None:
        layout = target[1]["output"]["layout"] if target is not None else None
    source, map, found = _complete(source, map, files, scan, draw)
    spec = _spec(source, map, layout or map.layout)
    if target is not None:
        must_agree(spec, target[1], target[0], remedy)
    return Settled(source=source, map=map, spec=spec, scan=found)


def _complete(
    source: Source,
    map: FeatureMap | None,
    files: Sequence[SourceFile] | None,
    scan: Callable[[Source], Scan],
    draw: Draw | None,
) -> tuple[Source, FeatureMap, Scan | None]:
    """Fill in what no existing spec gave."""
    if map is None:  # the caller has refused this
        message = "no feature map"
        raise ConfigError(message)
    fitted = hasattr(map, "n_features_in_")
    if not fitted:
        map.check_params()
    if fitted and source.n_features is None:
        source = source.replaced(n_features=map.n_features_in_)
    found = None
    if not source.is_settled:
        source = source.inspect(source.files() if files is None else files)
    if not source.is_settled:
        found = scan(source)
        source = source.settle(found)
    if not fitted and map.needs_rows:
        if draw is None:
            message = f"{type(map).__name__} learns from rows of the source; fit it before, or use dkfeat.featurize"
            raise ConfigError(message)
        counted = found = scan(source) if found is None else found
        map = clone(map).fit_drawn(found.n_rows, found.n_features, partial(draw, source, counted))
    elif not fitted:
        map = clone(map).fit_width(source.n_features)
    elif map.n_features_in_ != source.n_features:
        message = (
            f"n_features={source.n_features:,} is asked of the source, but the map was fitted on {map.n_features_in_:,}"
        )
        raise SpecConflictError(message)
    return source, map, found


def _spec(source: Source, map: FeatureMap, layout: str) -> dict[str, Any]:
    if "codes" in (layout, map.layout) and layout not in ("sparse", map.layout):
        message = f"layout={layout!r} cannot hold what {type(map).__name__} gives; use {map.layout!r} or 'sparse'"
        raise ConfigError(message)
    row_bytes = map.encoded_row_bytes if layout == map.layout else _sparse_row_bytes(map)
    mapping = source.to_mapping()
    output = {"schema": 1, "layout": layout, "n_features_out": map.n_features_out, "row_bytes": row_bytes}
    if layout == "sparse":
        output["values"] = map.layout != "codes"  # one-hot rows are ones, which are left out
    spec = {
        "format": 1,
        "map": map.to_spec(),
        "input": mapping,
        "split": {"blocksize": mapping["blocksize"], "max_piece_rows": max(1, PIECE_BYTES // row_bytes)},
        "output": output,
    }
    plain: dict[str, Any] = json.loads(spec_text(spec))  # tuples become the lists that are read back
    return plain


def _sparse_row_bytes(map: FeatureMap) -> int:
    """Most bytes that a row's column numbers and values take in memory."""
    nonzeros = getattr(map, "n_components", map.n_features_out) if map.layout == "codes" else map.n_features_out
    return int(nonzeros) * (8 if map.n_features_out <= 2**31 - 1 else 12)
