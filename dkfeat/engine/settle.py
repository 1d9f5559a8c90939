"""Settle what a run needs to know before it starts: source options, the fitted map and the spec that binds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dkfeat.canonical import fingerprint
from dkfeat.errors import ConfigError, DkfeatError, ShardError, SourceNotFoundError, SpecConflictError
from dkfeat.io.libsvm import LibsvmSource
from dkfeat.io.metadata import differences, read_spec, spec_text, ways_out
from dkfeat.io.parquet import ParquetSource
from dkfeat.io.parquet_splits import looks_like_parquet
from dkfeat.io.plans import OTHER_TARGET
from dkfeat.io.remote import is_url, shown_url
from dkfeat.io.scans import Scan
from dkfeat.io.source import Source
from dkfeat.io.storage import SPEC, Storage, open_storage
from dkfeat.io.strict_json import check_length, parse_object
from dkfeat.maps import FEATURE_MAPS, FeatureMap, from_spec

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile

__all__ = [
    "Draw",
    "Settled",
    "adopt_source",
    "as_path",
    "as_source",
    "binding_spec",
    "like_spec",
    "like_storage",
    "open_place",
    "settle",
    "target_spec",
]

MODEL_FILE = "model.json"
PIECE_BYTES = 64 << 20
"""Encoded bytes after which a piece ends, however long its text."""

LAYOUTS = ("codes", "sparse", "dense")

_OF_ALL_KINDS = ("n_features", "dtype", "multilabel", "labels", "label_dtype")
"""Input options that mean the same in every format."""

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


def as_source(
    source: Source | str | PathLike[str] | Sequence[str | PathLike[str]],
    storage_options: Mapping[str, Any] | None = None,
    kind: object = None,
) -> Source:
    """Turn a path, glob, URL or several of them into a source with default options; a source stays itself.

    Without a `kind`, "libsvm" or "parquet", names that end in .parquet, .parq or .pq, and folders of this machine with
    Parquet files in them, are a `ParquetSource`, all else is a `LibsvmSource`.

    Raises
    ------
    ConfigError
        For anything else, and for storage options beside a source that has its own.
    """
    if isinstance(source, Source):
        if storage_options is not None:
            message = f"storage_options are given twice; a {type(source).__name__} carries its own"
            raise ConfigError(message)
        return source
    if isinstance(source, str | PathLike):
        source = [source]
    if isinstance(source, Sequence) and source and all(isinstance(item, str | PathLike) for item in source):
        paths = tuple(fspath(item) for item in source)
        if looks_like_parquet(paths) if kind is None else kind == ParquetSource.kind:
            return ParquetSource(paths, storage_options=storage_options)
        return LibsvmSource(paths, storage_options=storage_options)
    message = f"source={source!r:.100}, but it must be a path, a glob, a URL, a list of these or a source"
    raise ConfigError(message)


def as_path(path: object, name: str) -> str:
    """Text of a path or URL that was given for the setting `name`; anything else is a `ConfigError`."""
    if isinstance(path, str | PathLike) and isinstance(text := fspath(path), str):
        return text
    message = f"{name}={path!r:.100}, but it must be a path or a URL"
    raise ConfigError(message)


def open_place(place: str, options: Mapping[str, Any] | None, *, beside: object = None) -> Storage:
    """Storage at a path or URL; a local one takes no options, unless they are for the URL `beside` it."""
    if beside is not None and not is_url(place) and is_url(as_path(beside, "like")):
        options = None
    return open_storage(place, options)


def target_spec(storage: Storage) -> dict[str, Any] | None:
    """Spec of the data set at `storage`, or None if there is none yet."""
    try:
        return None if storage.size(SPEC) is None else read_spec(storage)
    except DkfeatError:
        raise
    except OSError as fault:
        message = f"{storage.url} cannot be read: {fault.strerror or fault}"
        raise ShardError(message) from fault


def binding_spec(storage: Storage) -> tuple[dict[str, Any] | None, str]:
    """Spec that a run into `storage` must follow, or None, and what to do where it asks for another."""
    spec = target_spec(storage)
    try:
        remedy = OTHER_TARGET if spec is None else ways_out(storage)
    except OSError as fault:
        message = f"{storage.url} cannot be read: {fault.strerror or fault}"
        raise ShardError(message) from fault
    return (None, OTHER_TARGET) if remedy is None else (spec, remedy)


def like_spec(like: str | PathLike[str], options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read the settings of a folder of shards or of a model, under the keys ``map`` and ``input``.

    Raises
    ------
    SourceNotFoundError
        If the folder is neither.
    """
    place = as_path(like, "like")
    storage = like_storage(like, options)
    if (spec := target_spec(storage)) is not None:
        return spec
    model = f"{storage.url}/{MODEL_FILE}"
    text = _model_text(place, storage)
    if text is not None:
        facts = parse_object(text, model)
        if isinstance(facts.get("map"), dict) and isinstance(facts.get("input"), dict):
            return {"map": facts["map"], "input": facts["input"]}
        message = f"{model} does not say which map and input its model was trained on; train it again"
        raise ShardError(message)
    where = shown_url(place)
    message = f"like={where!r} is neither a folder of shards ({SPEC} is missing) nor a model ({MODEL_FILE} is missing)"
    raise SourceNotFoundError(message)


def _model_text(place: str, storage: Storage) -> bytes | None:
    where = f"{storage.url}/{MODEL_FILE}"
    if "://" not in place:  # a model's own files may be links
        path = Path(place) / MODEL_FILE
        if path.is_file():
            check_length(path.stat().st_size, where)
        return path.read_bytes() if path.is_file() else None
    try:
        size = storage.size(MODEL_FILE)
        if size is not None:
            check_length(size, where)
        return None if size is None else storage.read(MODEL_FILE)
    except DkfeatError:
        raise
    except OSError as fault:
        message = f"{where} cannot be read: {fault.strerror or fault}"
        raise ShardError(message) from fault


def like_storage(like: str | PathLike[str], options: Mapping[str, Any] | None = None) -> Storage:
    """Storage of a folder of shards or of a model."""
    place = as_path(like, "like")
    return open_storage(place, options if is_url(place) else None)


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
            map = _adopt_map(map, *existing, load, way_out)
    if layout is None:
        layout = target[1]["output"]["layout"] if target is not None else None
    source, map, found = _complete(source, map, files, scan, draw)
    spec = _spec(source, map, layout or map.layout)
    if target is not None:
        _must_agree(spec, target[1], target[0], remedy)
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


def _adopt_map(
    map: FeatureMap | None,
    name: str,
    spec: Mapping[str, Any],
    load: Callable[[Mapping[str, Any]], FeatureMap],
    remedy: str,
) -> FeatureMap:
    """Make the spec's map, after checking that the one asked for is the same."""
    if map is not None:
        _must_agree({"map": map.name}, {"map": spec["map"].get("map")}, name, remedy, "map")
    existing = load(spec["map"])
    if map is None:
        return existing
    if not hasattr(map, "n_features_in_"):
        map = clone(map)
        if map.random_state is None:
            map.set_params(random_state=existing.seed_)
        map.fit_like(existing)
    _must_agree(json.loads(json.dumps(map.to_spec())), spec["map"], name, remedy, "map")
    return existing


def _must_agree(asked: Mapping[str, Any], existing: Mapping[str, Any], name: str, remedy: str, place: str = "") -> None:
    """Compare two specs key by key."""
    differing = differences(existing, asked, place)
    if differing:
        message = f"{name} was made with other settings, {'; '.join(differing)}; use the same or {remedy}"
        raise SpecConflictError(message)
