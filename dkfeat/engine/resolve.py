"""Resolution of a run's settings before it starts: source options, the fitted map, and the spec with both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from dkfeat.canonical import fingerprint
from dkfeat.engine.open import as_path, open_location
from dkfeat.engine.runners.defaults import with_configured_blocksize
from dkfeat.engine.tasks.landmarks import load_map
from dkfeat.errors import ConfigError, DkfeatError, ShardError, SourceNotFoundError, SpecConflictError, cause_of
from dkfeat.filesystems.urls import is_url, shown_url
from dkfeat.maps import FEATURE_MAPS, FeatureMap
from dkfeat.sources.base import Scan, Source
from dkfeat.store.manifest.batch_plan import OTHER_TARGET
from dkfeat.store.manifest.metadata import differences, read_spec, spec_conflict_remedy, spec_text
from dkfeat.store.manifest.model_folder import MODEL_FILE, open_model_folder, parse_model_file, read_model_file
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import SPEC, Storage
from dkfeat.validation import check_choice

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile


PIECE_BYTES = 64 << 20
"""Encoded bytes after which a piece ends, whatever the length of its text."""

LAYOUTS = ("codes", "sparse", "dense")

DROPPED = "drop_duplicates"
"""Key that is in the spec of a data set if it is a copy of others without duplicates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Settings of a run as far as arguments, existing specs and file metadata determine them."""

    source: Source
    """Source whose index base, width and label type may still be unknown."""
    files: tuple[SourceFile, ...]
    """Files of the source, as they were listed."""
    map: FeatureMap
    """Feature map, fitted or to be fitted to the source."""
    layout: str
    """Shard layout."""
    existing: Existing
    """Specs of the target and of `like`, which the settings follow."""

    @property
    def needs_rows(self) -> bool:
        """True if the map must still be fitted to rows of the source."""
        return self.map._needs_rows and not _is_fitted(self.map)

    @property
    def needs_scan(self) -> bool:
        """True if the whole source must be read once, to find unknown options or to count its rows."""
        return self.needs_rows or not self.source.is_resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Settings of a run, complete in everything that affects values."""

    source: Source
    """Source with known index base, width and label type."""
    files: tuple[SourceFile, ...]
    """Files of the source, as they were listed."""
    map: FeatureMap
    """Fitted feature map."""
    spec: Mapping[str, Any]
    """Plain JSON values of all settings that affect the shards' bytes, and no others."""

    @property
    def spec_fp(self) -> str:
        """Fingerprint of the spec."""
        return fingerprint(self.spec)


def make_draft(
    source: Source,
    map: FeatureMap | None,
    files: Sequence[SourceFile],
    *,
    existing: Existing | None = None,
    layout: str | None = None,
) -> Draft:
    """Take unset options from the target's spec, then from `like`, then from the files' metadata.

    Every option of the source with its default value is taken from an existing spec. All other options must agree with
    the target's spec, and, except `blocksize` and `layout`, with the spec of `like`.

    Parameters
    ----------
    source : Source
        Source as the caller passed it.
    map : FeatureMap or None
        Feature map, fitted or not; it is never changed. None: the map of the existing spec. An unfitted map is cloned,
        and takes the seed of the existing spec if its `random_state` is None.
    files : sequence of SourceFile
        Files of the source, as they were listed.
    existing : Existing or None
        Specs to follow; None: there are none.
    layout : str or None
        Shard layout; None: the target's layout, else the map's own.

    Raises
    ------
    SpecConflictError
        If the caller's settings differ from existing ones; the message names both values.
    ConfigError
        If there is no map, or it is not a feature map, or the layout is unknown.
    """
    existing = existing or Existing()
    if existing.target is not None:
        check_has_source(*existing.target)
    if map is not None and not isinstance(map, FeatureMap):
        raise ConfigError(f"map={map!r:.100}, but it must be a feature map ({', '.join(FEATURE_MAPS)}) or None")
    check_choice(layout, "layout", (None, *LAYOUTS))
    for named, in_full in ((existing.target, True), (existing.like, False)):
        if named is not None:
            remedy = existing.remedy if in_full else OTHER_TARGET
            source = inherit_source(source, *named, in_full=in_full, remedy=remedy)
            map = inherit_map(map, *named, existing.folders, remedy)
    if map is None:
        raise ConfigError("no feature map is given; pass one, or `like` with a folder or model whose map is taken over")
    if existing.target is None and existing.like is None:
        source = with_configured_blocksize(source)
    if layout is None:
        layout = map.layout if existing.target is None else existing.target[1]["output"]["layout"]
    if not _is_fitted(map):
        map._check_params()
    elif source.n_features is None:
        source = source.replaced(n_features=map.n_features_in_)
    if not source.is_resolved:
        source = source.inspect(files)
    return Draft(source=source, files=tuple(files), map=map, layout=layout, existing=existing)


def resolve(draft: Draft, scan: Scan | None = None, fitted: FeatureMap | None = None) -> Resolved:
    """Complete a draft with the results of a pass over the source.

    Parameters
    ----------
    draft : Draft
        Settings known before the pass.
    scan : Scan or None
        Scan of the draft's source and files; required if the draft needs one.
    fitted : FeatureMap or None
        The draft's map, fitted to rows of the source; required if it needs rows.

    Raises
    ------
    SpecConflictError
        If the scanned settings differ from the target's, or the map was fitted to another width.
    ConfigError
        If the map still needs rows, or the settings are too long for a spec.
    """
    source, map = draft.source, draft.map if fitted is None else fitted
    if not source.is_resolved:
        assert scan is not None  # because `needs_scan` is true
        source = source.resolve(scan)
    if not _is_fitted(map):
        if map._needs_rows:
            raise ConfigError(
                f"{type(map).__name__} learns from rows of the source; fit it first, or use dkfeat.featurize"
            )
        map = clone(map).fit_width(source.n_features)
    elif map.n_features_in_ != source.n_features:
        raise SpecConflictError(
            f"n_features={source.n_features:,} is requested, but the map was fitted on {map.n_features_in_:,}"
        )
    spec = _spec(source, map, draft.layout)
    if draft.existing.target is not None:
        name, existing = draft.existing.target
        must_agree(spec, existing, name, draft.existing.remedy)
    return Resolved(source=source, files=draft.files, map=map, spec=spec)


def _is_fitted(map: FeatureMap) -> bool:
    return hasattr(map, "n_features_in_")


def _spec(source: Source, map: FeatureMap, layout: str) -> dict[str, Any]:
    if "codes" in (layout, map.layout) and layout not in ("sparse", map.layout):
        raise ConfigError(
            f"layout={layout!r} cannot store the features of {type(map).__name__}; use {map.layout!r} or 'sparse'"
        )
    row_bytes = map.encoded_row_bytes if layout == map.layout else _sparse_row_bytes(map)
    mapping = source.to_mapping()
    output = {"schema": 1, "layout": layout, "n_features_out": map.n_features_out, "row_bytes": row_bytes}
    if layout == "sparse":
        output["values"] = map.layout != "codes"  # the values of one-hot rows are 1 and are left out
    spec = {
        "format": 1,
        "map": map.to_spec(),
        "input": mapping,
        "split": {"blocksize": mapping["blocksize"], "max_piece_rows": max(1, PIECE_BYTES // row_bytes)},
        "output": output,
    }
    plain: dict[str, Any] = json.loads(spec_text(spec))  # tuples become lists, as in a spec that is read
    return plain


def _sparse_row_bytes(map: FeatureMap) -> int:
    """Maximum memory of a row's column numbers and values, in bytes."""
    nonzeros = getattr(map, "n_components", map.n_features_out) if map.layout == "codes" else map.n_features_out
    return int(nonzeros) * (8 if map.n_features_out <= 2**31 - 1 else 12)


_OF_ALL_KINDS = ("n_features", "dtype", "multilabel", "labels", "label_dtype")
"""Input options that mean the same in every format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """Specs that a run follows, each with the name to use in messages."""

    target: tuple[str, Mapping[str, Any]] | None = None
    """Name and spec of the target; every setting must agree with it."""
    like: tuple[str, Mapping[str, Any]] | None = None
    """Name and spec of `like`; every setting but blocksize and layout must agree with it."""
    folders: tuple[Storage, ...] = ()
    """Storages that may hold the landmarks of these maps."""
    remedy: str = OTHER_TARGET
    """Advice in messages about a target with other settings."""


def read_existing(
    storage: Storage | None, like: str | PathLike[str] | None, options: Mapping[str, Any] | None
) -> Existing:
    """Read the specs of a target and of `like`, if they exist."""
    target, remedy = None, OTHER_TARGET
    if storage is not None:
        spec, remedy = binding_spec(storage)
        target = None if spec is None else (storage.url, spec)
    folders = () if storage is None else (storage,)
    if like is None:
        return Existing(target=target, folders=folders, remedy=remedy)
    taken = shown_url(as_path(like, "like")), like_spec(like, options)
    return Existing(target=target, like=taken, folders=(*folders, like_storage(like, options)), remedy=remedy)


def inherit_source(
    source: Source, name: str, spec: Mapping[str, Any], *, in_full: bool, remedy: str = OTHER_TARGET
) -> Source:
    """Take options with default values from a spec; raise an error if the others disagree with it."""
    mappings = (dict(spec["input"]), source.to_mapping(), source.defaults())
    existing, requested, plain = (json.loads(json.dumps(mapping)) for mapping in mappings)
    kind = existing.pop("kind", None)
    if kind != requested.pop("kind"):
        if in_full:
            made = f"{name} was made from another kind of source, {kind!r}, than the requested {source.kind!r}"
            raise SpecConflictError(f"{made}; {remedy}")
        if source.zero_based == "auto":
            raise ConfigError(f"{name} was made from {kind!r}, which has no index base for text; pass zero_based")
        existing = {key: existing[key] for key in _OF_ALL_KINDS if key in existing}
    taken: dict[str, Any] = {}
    for key, value in existing.items():
        if key in source.row_options and not in_full:
            continue
        if key not in requested:
            raise SpecConflictError(
                f"{name} has the input option {key!r}, which this dkfeat does not know; update dkfeat"
            )
        if requested[key] == plain[key]:
            taken[key] = tuple(value) if isinstance(value, list) else value
        elif requested[key] != value and (in_full or key != "blocksize"):
            raise SpecConflictError(
                f"{key}={requested[key]!r} is requested, but {name} has {key}={value!r}; leave it out or {remedy}"
            )
    return source.replaced(**taken)


def inherit_row_options(
    source: Source,
    name: str,
    options: Mapping[str, Any],
    label_dtype: str,
    files: Sequence[SourceFile] | None = None,
) -> Source:
    """Take the options by which other rows were read, except those of labels, for rows that need no labels.

    Labels get `label_dtype` unless the source sets another type; a column of labels that the source does not name, and
    its files do not have, is left out. `files` are those of the source, if they were listed.

    Raises
    ------
    SpecConflictError
        If the source sets another option than those rows have.
    """
    left_out = source.label_options
    if source.label_dtype == "auto":
        source = source.replaced(label_dtype=label_dtype)
    options = {key: value for key, value in options.items() if key not in left_out}
    if options:
        source = inherit_source(source, name, {"input": options}, in_full=False)
    return source if "label" in left_out else source.without_absent_label(files)


def inherit_map(
    map: FeatureMap | None, name: str, spec: Mapping[str, Any], folders: Sequence[Storage], remedy: str
) -> FeatureMap:
    """Load the spec's map; raise an error if the requested map differs from it."""
    if map is not None:
        must_agree({"map": map.name}, {"map": spec["map"].get("map")}, name, remedy, "map")
    existing = load_map(spec["map"], *folders)
    if map is None:
        return existing
    if not _is_fitted(map):
        map = clone(map)._fit_like(existing)  # as sources, it inherits what it does not set
    must_agree(json.loads(json.dumps(map.to_spec())), spec["map"], name, remedy, "map")
    return existing


def must_agree(
    requested: Mapping[str, Any], existing: Mapping[str, Any], name: str, remedy: str, key: str = ""
) -> None:
    """Raise `SpecConflictError` that lists every differing key, if two specs differ."""
    differing = differences(existing, requested, key)
    if differing:
        raise SpecConflictError(
            f"{name} was made with other settings, {'; '.join(differing)}; use the same or {remedy}"
        )


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turn errors of the storage into a `ShardError` that names the unreadable file or folder."""
    try:
        yield
    except DkfeatError:
        raise
    except OSError as fault:
        raise ShardError(f"{name} cannot be read: {cause_of(fault)}") from fault


def binding_spec(storage: Storage) -> tuple[dict[str, Any] | None, str]:
    """Return the spec that a run into `storage` must follow, if any, and the advice for a run with other settings."""
    with _readable(storage.url):
        spec = None if storage.size(SPEC) is None else read_spec(storage)
        remedy = OTHER_TARGET if spec is None else spec_conflict_remedy(storage)
    return (None, OTHER_TARGET) if remedy is None else (spec, remedy)


def check_has_source(name: str, spec: Mapping[str, Any]) -> None:
    """Raise `SpecConflictError` if a data set was not made from rows of a source, but copied from other shards."""
    if DROPPED in spec:
        raise SpecConflictError(
            f"{name} is a copy of other shards without duplicates: rows of a source are neither added to it nor "
            f"compared with it; use those shards, or {OTHER_TARGET}"
        )


def has_binding_spec(target: str | PathLike[str], options: Mapping[str, Any] | None = None) -> bool:
    """Return True if runs into a target must follow a spec, which then names their feature map."""
    return binding_spec(open_location(as_path(target, "target"), options))[0] is not None


def like_spec(like: str | PathLike[str], options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read the settings of a folder of shards or of a model, as a mapping with the keys ``map`` and ``input``.

    Raises
    ------
    SourceNotFoundError
        If the folder is neither, or its first run has planned no shards yet.
    """
    storage = like_storage(like, options)
    spec, _ = binding_spec(storage)
    if spec is not None:
        return spec
    model = f"{storage.url}/{MODEL_FILE}"
    with _readable(model):
        text = read_model_file(open_model_folder(like, options))
        has_spec = storage.size(SPEC) is not None
    if text is not None:
        facts = parse_model_file(text, model)
        if isinstance(facts.get("map"), dict) and isinstance(facts.get("input"), dict):
            return {"map": facts["map"], "input": facts["input"]}
        raise ShardError(f"{model} does not say which map and input its model was trained on; train it again")
    where = shown_url(fspath(like))
    if has_spec:
        raise SourceNotFoundError(
            f"like={where!r}: nothing was made there yet, so its settings may still change; run featurize there first"
        )
    raise SourceNotFoundError(
        f"like={where!r} is neither a folder of shards ({SPEC} is missing) nor a model ({MODEL_FILE} is missing)"
    )


def like_storage(like: str | PathLike[str], options: Mapping[str, Any] | None = None) -> Storage:
    """Open the storage of a folder of shards or of a model."""
    folder = as_path(like, "like")
    return open_storage(folder, options if is_url(folder) else None)
