"""Metadata of a data set: its spec, its newest manifest checked against spec and plans, and ``_SUCCESS``.

Arrays that are too large for a spec are in sidecar files, whose SHA-256 is in the spec.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypedDict

from numpy.typing import NDArray

from dkfeat import canonical as strict_json
from dkfeat.archives import MAX_BYTES, unpack_arrays
from dkfeat.canonical import Count, Name, Positive, Sha256, fingerprint, typed
from dkfeat.errors import ConfigError, DkfeatError, ShardError
from dkfeat.html import MARK
from dkfeat.store.manifest import former
from dkfeat.store.manifest.batch_plan import OTHER_TARGET, BatchPlan, plan_name, read_plan
from dkfeat.store.manifest.manifest import MANIFEST_NAME, Head, Manifest, check_format, manifest_name, parse_head
from dkfeat.store.manifest.record_table import Records
from dkfeat.store.manifest.records import check
from dkfeat.store.shards.columns import TABLES
from dkfeat.store.storage.base import DATA, META, SPEC, SUCCESS, TMP, Storage, read_existing, read_listed, read_required

KEPT = 16
"""Number of the newest manifests that are kept; a later version may keep more of them, but not fewer."""
_MAX_SMALL_FILE = 1 << 24  # bytes of a spec or of _SUCCESS
_ABSENT: Any = object()
_MOST_SHOWN = 60
"""Characters of the longest value in a message about differences."""
FORMAT_OF_TABLES = 2
"""Format of specs with an encoder or with words as labels; that of others is 1, so that version 0.2 reads them."""
MODEL_FILE = "model.json"
ARRAY_NAME = re.compile(r"(coef|intercept)-[0-9a-f]{12}\.npy")
DUPLICATES_FILE = "duplicates.json"
CHECKPOINT_FILES = ("checkpoint", "checkpoint.former")
CHECKPOINT_START = b'{"format":'
_LOCAL_RECORDS = (
    (DUPLICATES_FILE, b'"threshold"', "duplicates"),
    *((name, CHECKPOINT_START, "a checkpoint") for name in CHECKPOINT_FILES),
    ("evaluation.html", MARK.encode(), "an evaluation"),
    ("comparison.json", b'"row_bytes"', "a comparison"),
)
"""Name of a file in a local folder, a part of its beginning, and the kind of the folder that has it."""
_SHOWN = {"neighbors": "neighbours"}
_SHOWN |= {name: f"{name} of duplicates" for name in ("pairs", "groups")}
_SHOWN |= {"rows": "rows of a source without duplicates", "lines": "lines of a source without duplicates"}
SIDECAR_NAME = re.compile(r"[a-z]+-[0-9a-f]{64}\.npz")
_SIDECARS = {"landmarks": ("map", "landmarks"), "encoder": ("encoder", "knots"), "model": ("model", "sha256")}
"""Kinds of sidecar files, with the part of a spec that names them, and the key there."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIDECAR_HINTS = {
    "landmarks": "it holds the landmarks of the map, which can be made again only from their source; restore it from "
    "a copy, or featurize into another folder",
    "encoder": "it holds the knots of the encoder, which can be made again only from their source; restore it from a "
    "copy, or featurize into another folder",
    "model": "it holds the weights that made these predictions; restore it from a copy, or predict into another folder",
}


class SpecMap(TypedDict, total=False):
    """Spec of a map; the map checks its settings."""

    map: Name
    version: Count
    n_features: Count | None
    params: dict[str, Any]


class SpecInput(TypedDict, total=False):
    """Options with which rows were read, those that every source has; the source checks them all."""

    kind: Name
    n_features: Count | None
    dtype: Literal["float32", "float64"]
    labels: list[int | float] | None
    label_dtype: Literal["auto", "int64", "float64"]
    multilabel: bool


class _Split(TypedDict, total=False):
    blocksize: Count
    max_piece_rows: Positive


class _Output(TypedDict, total=False):
    layout: Name
    n_features_out: Positive
    row_bytes: Positive


class _Spec(TypedDict, total=False):
    map: SpecMap
    input: SpecInput
    split: _Split
    output: _Output
    model: dict[str, Any]
    neighbors: dict[str, Any]
    pairs: dict[str, Any]
    groups: dict[str, Any]


def encoder_shown(spec: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the facts of an encoder's spec, with the number of columns in place of the columns."""
    if spec is None:
        return None
    columns = spec.get("columns", ())
    n_left = sum(column["encoding"] == "left out" for column in columns)
    facts = {name: spec[name] for name in ("encoder", "version", "seed")}
    n_columns = len(columns) or spec["n_features"]
    return {**facts, "columns": n_columns, "left_out": n_left, **spec["params"]}


class Named(dict[str, Any]):
    """Object in a file `where`, with those inside it: a missing key is an error of the file."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        inner = {key: Named(value, f"{where}.{key}") for key, value in values.items() if isinstance(value, dict)}
        super().__init__({**values, **inner})
        self.where = where

    def __missing__(self, key: str) -> Any:
        raise ShardError(f"{self.where}: key {key!r} is missing")


def kind_of(folder: Storage) -> str | None:
    """Return what dkfeat keeps in a folder, by the record that each kind has; None if it is not one of its folders.

    Returns
    -------
    kind : str or None
        Layout of a table, such as "predictions"; "features"; "a model", "a checkpoint", "duplicates", "an evaluation"
        or "a comparison". "a data set" if its spec is damaged or may be replaced, "a run" if it has no spec yet.
    """
    for name, part, kind in () if folder.is_remote else _LOCAL_RECORDS:
        with suppress(OSError):  # a missing file, or what is no file
            if part in folder.read(name, 4096):
                return kind
    with suppress(OSError):  # a missing folder, or one that cannot be read
        if not folder.is_remote and None not in map(folder.size, ("work", f"groups/{META}")):
            return "duplicates"  # without a record, as their search was interrupted
        if folder.size(MODEL_FILE) is not None and any(map(ARRAY_NAME.fullmatch, folder.list(""))):
            return "a model"
        names = folder.list(META, sizes=False)
        if Path(SPEC).name not in names:
            return "a run" if Path(TMP).name in names else None
        with suppress(DkfeatError, TypeError, KeyError):
            layout = read_spec(folder)["output"]["layout"]
            if spec_conflict_remedy(folder) is not None:
                return layout if layout in TABLES else "features"
        return "a data set"
    return None


def show_kind(kind: str) -> str:
    """Return the words for a kind of `kind_of`."""
    return _SHOWN.get(kind, kind)


def no_data_set(storage: Storage) -> ShardError:
    """Make the error to raise for a folder without a spec, which says what the folder is instead."""
    kind = kind_of(storage)
    if kind not in (None, "a run"):
        tables = f"; its tables are {storage.url}/groups and {storage.url}/pairs" if kind == "duplicates" else ""
        return ShardError(
            f"{storage.url} holds {show_kind(kind)}, not a data set as `dkfeat featurize` writes it{tables}"
        )
    if not storage.is_remote and not Path(storage.url).exists():
        return ShardError(f"{storage.url}: there is no such folder")
    return ShardError(
        f"{storage.url}/{SPEC} is missing: this is not a data set of dkfeat, as `dkfeat featurize` writes it"
    )


class _Success(TypedDict):
    manifest: str
    sha256: Sha256


def read_spec(storage: Storage) -> dict[str, Any]:
    """Read the spec of a data set, which has all settings that affect its values.

    Raises
    ------
    ShardError
        If the spec is missing or damaged.
    SpecConflictError
        If a newer version of dkfeat wrote it.
    """
    where = f"{storage.url}/{SPEC}"
    text = read_existing(storage, SPEC, _MAX_SMALL_FILE)
    if text is None:
        raise no_data_set(storage)
    spec = strict_json.parse_object(text, where, max_bytes=_MAX_SMALL_FILE)
    check_format(spec, where, FORMAT_OF_TABLES)
    typed(spec, _Spec, where)
    return Named(spec, where)


def spec_conflict_remedy(storage: Storage) -> str | None:
    """Return the remedy for a message if a data set has another spec than the requested one.

    It is None if nothing was planned, committed or published under the existing spec, which may then be replaced.
    """
    names = []
    with suppress(FileNotFoundError):
        names = [*storage.list(META, sizes=False)]
    if any(map(MANIFEST_NAME.fullmatch, names)):
        return OTHER_TARGET
    if plan_name(1) in names:
        return f"abort the batch that was begun there, of which nothing is committed, with `dkfeat abort {storage.url}`"
    try:
        left = storage.list(DATA)
    except FileNotFoundError:
        left = {}
    return f"delete the shards of dead runs there with `dkfeat clean {storage.url}`" if left else None


def spec_text(spec: Mapping[str, Any]) -> bytes:
    """Return the text of a spec's file, which `read_spec` reads.

    Raises
    ------
    ConfigError
        If it would be too long for `read_spec`.
    """
    text = strict_json.dumps(dict(spec))
    if len(text) > _MAX_SMALL_FILE:
        raise ConfigError(
            f"the settings of a data set take {len(text):,} bytes as text, but at most {_MAX_SMALL_FILE:,} are "
            "allowed; give a long list, such as `center`, with fewer digits, or center the source's values themselves"
        )
    return text


def read_manifest(storage: Storage) -> Manifest:
    """Read the newest committed manifest, with all checks that need no shard.

    The checks are: its predecessor is there, with the bytes that it names; spec, records and totals agree with it; and
    ``_SUCCESS``, if it exists, names this manifest. It is missing while a batch runs or after a batch failed.

    Raises
    ------
    ShardError
        If nothing was committed, or a check fails.
    SpecConflictError
        If a newer version of dkfeat wrote it.
    """
    manifest = _newest(storage, any_mark=False)
    if manifest is None:
        raise ShardError(
            f"{storage.url}: no batch was committed here yet; repeat the run of featurize or predict until it succeeds"
        )
    return manifest


def newest_manifest(storage: Storage) -> Manifest | None:
    """Read the newest manifest with the checks of `read_manifest`; None if nothing was committed.

    ``_SUCCESS`` may name an earlier manifest here, also one that was removed since, because a run that lost the target
    to another run may have written it.

    Raises
    ------
    ShardError
        If a check fails.
    SpecConflictError
        If a newer version of dkfeat wrote it.
    """
    return _newest(storage, any_mark=True)


def _newest(storage: Storage, *, any_mark: bool) -> Manifest | None:
    while True:
        success, numbers = read_success(storage), _numbers(storage)
        try:
            manifest = _read_last(storage, numbers) if numbers else None
        except ShardError:
            if _numbers(storage)[-1:] != numbers[-1:]:  # a run committed meanwhile, and removed what it superseded
                continue
            raise
        if success is None or (manifest is not None and success == (manifest.name, manifest.sha256)):
            return manifest
        name, sha256 = success
        match = MANIFEST_NAME.fullmatch(name)
        is_earlier = manifest is not None and match is not None and 0 < int(match[1]) < manifest.number
        if is_earlier and any_mark:
            return manifest
        if read_success(storage) == success:  # otherwise a batch began or was committed meanwhile
            if manifest is None or (name != manifest.name and not is_earlier):
                raise ShardError(
                    f"{storage.url}/{SUCCESS} exists, but the manifest that it names does not; restore that from a "
                    f"copy, or delete {SUCCESS} and repeat the run that wrote it"
                )
            remedy = "a file was changed after it was committed; restore it from a copy"
            if is_earlier:
                remedy = "repeat the run that wrote it, which writes _SUCCESS anew"
            raise ShardError(
                f"{storage.url}/{SUCCESS} names {name} with SHA-256 {sha256[:12]}, but the newest is {manifest.name} "
                f"with {manifest.sha256[:12]}; {remedy}"
            )


def _numbers(storage: Storage) -> list[int]:
    """Return the numbers of all manifests, in ascending order."""
    try:
        names = storage.list(META, sizes=False)
    except OSError as fault:
        raise no_data_set(storage) from fault
    return sorted(int(match[1]) for match in map(MANIFEST_NAME.fullmatch, names) if match is not None)


def _read_last(storage: Storage, numbers: Sequence[int]) -> Manifest:
    """Read the manifest of the highest number, and compare it with the spec and with its predecessor."""
    check(numbers[-1] - 1 in (0, *numbers[-2:-1]), f"{storage.url}: manifests {numbers[-5:]} have a gap")
    spec = read_spec(storage)
    n_features = spec.get("map", {}).get("n_features")
    head, values = _read_head(storage, numbers[-1])
    where = f"{storage.url}/{META}/{head.name}"
    check(head.spec_fp == fingerprint(spec), f"{where}: made for another spec than {SPEC}")
    check(n_features in (None, head.n_features), f"{where}: n_features is not {n_features!r:.40}, as in {SPEC}")
    if head.previous is not None:
        name = f"{META}/{head.previous.name}"
        found = hashlib.sha256(read_required(storage, name, "a manifest went missing while it was read")).hexdigest()
        check(found == head.previous.sha256, f"{storage.url}/{name}: changed since {head.name} was written")
    return _with_records(storage, head, values)


def _read_head(storage: Storage, number: int) -> tuple[Head, dict[str, Any]]:
    """Read a manifest without its records, and all values of its file."""
    name = f"{META}/{manifest_name(number)}"
    where = f"{storage.url}/{name}"
    head, values = parse_head(read_required(storage, name, "a manifest went missing while it was read"), where)
    check(head.number == number, f"{where}: holds manifest {head.number}")
    return head, values


def _with_records(storage: Storage, head: Head, values: dict[str, Any]) -> Manifest:
    """Read the records of a manifest, whose file has these values."""
    if head.records_file is None:
        return Manifest.of(head, former.read_records(storage, head, values))
    name, stated = f"{META}/{head.records_name}", head.records_file
    where = f"{storage.url}/{name}"
    data = read_listed(storage, name, head.name, stated.size, stated.sha256)
    records = Records.from_parquet(data, where, n_sources=stated.sources)
    counts = (records.n_splits, records.n_shards)
    check(counts == (stated.splits, stated.shards), f"{where}: its manifest states other numbers of records")
    return Manifest.of(head, records)


def read_numbered(storage: Storage, number: int, sha256: str) -> Manifest:
    """Read a manifest that was read before, without the checks of `read_manifest`.

    Raises
    ------
    ShardError
        If it is missing or has another hash.
    """
    head, values = _read_head(storage, number)
    check(head.sha256 == sha256, f"{storage.url}/{META}/{head.name}: changed since it was first read")
    return _with_records(storage, head, values)


def next_batch(storage: Storage, manifest: Manifest | None) -> tuple[int, BatchPlan | None]:
    """Return the number of the batch that follows a manifest, and its plan if the batch was begun."""
    number = manifest.number + 1 if manifest else 1
    if storage.size(f"{META}/{plan_name(number)}") is None:
        return number, None
    try:
        return number, read_plan(storage, number)
    except ShardError as fault:
        raise ShardError(
            f"{fault}; the batch is not committed: delete this file and run again, which keeps its complete shards"
        ) from fault


def sidecar_name(kind: str, sha256: object, where: str = "the spec") -> str:
    """Return the name of a sidecar file, without its folder.

    Parameters
    ----------
    kind : {"landmarks", "encoder", "model"}
        Landmarks of a map, knots of an encoder, or the weights that made predictions.
    sha256 : str
        SHA-256 of the file, as recorded in the file `where`.
    where : str
        File name for error messages.

    Raises
    ------
    ShardError
        If `sha256` is not a SHA-256.

    Examples
    --------
    >>> sidecar_name("landmarks", "0" * 64)[:15]
    'landmarks-00000'
    """
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ShardError(f"{where}: its {kind} file is named by {sha256!r:.80}, which is not a SHA-256")
    return f"{kind}-{sha256}.npz"


def read_sidecar(storage: Storage, kind: str, sha256: object, folder: str = META) -> dict[str, NDArray[Any]]:
    """Read the arrays of a sidecar file and check its SHA-256.

    Parameters
    ----------
    storage : Storage
        Storage of the data set, or of a model's folder.
    kind, sha256 : str
        As in `sidecar_name`.
    folder : str
        Folder of the file; "" for the root.

    Raises
    ------
    ShardError
        If the file is missing or damaged; the message names it.
    """
    base = sidecar_name(kind, sha256, storage.url)
    name = f"{folder}/{base}" if folder else base
    return unpack_arrays(
        read_required(storage, name, _SIDECAR_HINTS[kind], MAX_BYTES), str(sha256), f"{storage.url}/{name}"
    )


def sidecars_of(spec: Mapping[str, Any]) -> dict[str, object]:
    """Return the SHA-256 of each sidecar file that the spec of a data set, or a ``model.json``, names, by its kind."""
    parts = {kind: spec.get(part) for kind, (part, _) in _SIDECARS.items()}
    named = {kind: part.get(_SIDECARS[kind][1]) for kind, part in parts.items() if isinstance(part, Mapping)}
    return {kind: sha256 for kind, sha256 in named.items() if sha256 is not None}


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """List the keys in which two specs differ, each with its old and new value, if these are short.

    Examples
    --------
    >>> differences({"map": {"seed": 0, "p": 1.0}}, {"map": {"seed": 1, "p": 1.0}})
    ['map.seed: 0 there, 1 asked']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in sorted(old.keys() | new.keys())
            for line in differences(old.get(key, _ABSENT), new.get(key, _ABSENT), f"{path}.{key}" if path else key)
        ]
    if _ABSENT not in (old, new) and fingerprint(old) == fingerprint(new):
        return []
    there, asked = ("nothing" if value is _ABSENT else json.dumps(value) for value in (old, new))
    there, asked = (there, asked) if max(len(there), len(asked)) <= _MOST_SHOWN else ("a value", "another")
    return [f"{path}: {there} there, {asked} asked"]


def read_success(storage: Storage) -> tuple[str, str] | None:
    """Return the name and SHA-256 of the manifest that ``_SUCCESS`` names; None if it does not exist."""
    data = read_existing(storage, SUCCESS, _MAX_SMALL_FILE)
    if data is None:
        return None
    where = f"{storage.url}/{SUCCESS}"
    try:
        named = typed(strict_json.parse_object(data, where, max_bytes=_MAX_SMALL_FILE), _Success, where)
    except ShardError as fault:
        raise ShardError(f"{fault}; restore it from a copy, or delete it and repeat the run") from None
    return named["manifest"], named["sha256"]
