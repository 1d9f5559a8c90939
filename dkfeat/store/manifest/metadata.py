"""Metadata of a data set: its spec, its newest manifest checked against spec and plans, and ``_SUCCESS``.

Arrays that are too large for a spec are in sidecar files, whose SHA-256 is in the spec.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypedDict

from numpy.typing import NDArray

from dkfeat import canonical as strict_json
from dkfeat.archives import MAX_BYTES, unpack_arrays
from dkfeat.canonical import Sha256, fingerprint, typed
from dkfeat.errors import ConfigError, ShardError
from dkfeat.store.manifest.batch_plan import OTHER_TARGET, BatchPlan, plan_name
from dkfeat.store.manifest.manifest import (
    MANIFEST_NAME,
    Head,
    Manifest,
    check_format,
    listed_records,
    manifest_name,
    parse_head,
)
from dkfeat.store.manifest.records import ShardEntry, SourceEntry, check
from dkfeat.store.manifest.segment import Segment, SegmentEntry
from dkfeat.store.storage.base import DATA, META, SPEC, SUCCESS, Storage, faults_as

KEPT = 16
"""Number of the newest manifests that are kept; a later version may keep more of them, but not fewer."""
_MAX_SMALL_FILE = 1 << 24  # bytes of a spec or of _SUCCESS
_ABSENT: Any = object()
SIDECAR_NAME = re.compile(r"[a-z]+-[0-9a-f]{64}\.npz")
LANDMARKS_NAME = re.compile(r"landmarks-[0-9a-f]{64}\.npz")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIDECAR_HINTS = {
    "landmarks": "it holds the landmarks of the map, which can be made again only from their source; restore it from "
    "a copy, or featurize into another folder",
    "model": "it holds the weights that made these predictions; restore it from a copy, or predict into another folder",
}


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
    text = _read(storage, SPEC, "this is not a data set of dkfeat, as `dkfeat featurize` writes it", _MAX_SMALL_FILE)
    spec = strict_json.parse_object(text, where, max_bytes=_MAX_SMALL_FILE)
    check_format(spec, where)
    return spec


def spec_conflict_remedy(storage: Storage) -> str | None:
    """Return the remedy for a message if a data set has another spec than the requested one.

    It is None if nothing was planned, committed or published under the existing spec, which may then be replaced.
    """
    names = []
    with suppress(FileNotFoundError):
        names = [*storage.list(META, sized=())]
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

    The checks are: the chain of the manifests that are kept has no gap and no changed byte; spec, segments and totals
    agree with it; and ``_SUCCESS``, if it exists, names this manifest. It is missing while a batch runs or after a
    batch failed.

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

    The records of shards are read and checked when they are first used, because a new batch does not use them.
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
            manifest, hashes = _read_chain(storage, numbers, later=any_mark)
        except ShardError:
            if _numbers(storage)[-1:] != numbers[-1:]:  # a run committed meanwhile, and removed what it superseded
                continue
            raise
        if success is None or success in (list(hashes.items()) if any_mark else list(hashes.items())[:1]):
            return manifest
        is_superseded = _is_before(success[0], hashes)
        if is_superseded and any_mark:
            return manifest
        if read_success(storage) == success:
            name, sha256 = success
            if name not in hashes and not is_superseded:
                raise ShardError(
                    f"{storage.url}/{SUCCESS} exists, but the manifest that it names does not; restore that from a "
                    f"copy, or delete {SUCCESS} and repeat the run that wrote it"
                )
            newest = next(iter(hashes))
            if is_superseded or hashes[name] == sha256:
                remedy = "repeat the run that wrote it, which writes _SUCCESS anew"
            else:
                remedy = "a file was changed after it was committed; restore it from a copy"
            raise ShardError(
                f"{storage.url}/{SUCCESS} names {name} with SHA-256 {sha256[:12]}, but the newest is {newest} with "
                f"{hashes[newest][:12]}; {remedy}"
            )
        # otherwise a batch began or was committed meanwhile


def _is_before(name: str, kept: Mapping[str, str]) -> bool:
    """Return True if a manifest is older than all that are kept, and so may have been removed."""
    asked, *numbers = (int(match[1]) if match else 0 for match in map(MANIFEST_NAME.fullmatch, (name, *kept)))
    return bool(numbers) and 0 < asked < min(numbers)


def _numbers(storage: Storage) -> list[int]:
    """Return the numbers of all manifests, in ascending order."""
    with faults_as(ShardError, f"{storage.url}: not a data set of dkfeat"):
        names = storage.list(META, sized=())
    return sorted(int(match[1]) for match in map(MANIFEST_NAME.fullmatch, names) if match is not None)


def kept_numbers(newest: int) -> range:
    """Return the numbers of the manifests that are kept when this one is the newest."""
    return range(max(1, newest - KEPT + 1), newest + 1)


def _read_chain(storage: Storage, numbers: Sequence[int], *, later: bool) -> tuple[Manifest | None, dict[str, str]]:
    """Read the newest manifest, and the SHA-256 of each that is kept by name, newest first."""
    if not numbers:
        return None, {}
    kept = kept_numbers(numbers[-1])
    check([*kept] == [*numbers[-len(kept) :]], f"{storage.url}: manifests {numbers[:5]}… have a gap")
    spec = read_spec(storage)
    spec_fp, described = fingerprint(spec), spec.get("map")
    n_features = described.get("n_features") if isinstance(described, Mapping) else None
    heads = read_heads(storage, kept[::-1])
    for place, head in enumerate(heads):
        where = f"{storage.url}/{META}/{head.name}"
        check(head.spec_fp == spec_fp, f"{where}: made for another spec than {SPEC}")
        check(n_features in (None, head.n_features), f"{where}: n_features is not {n_features!r:.40}, as in {SPEC}")
        if place:
            after = heads[place - 1]
            agrees = after.previous is not None and after.previous.sha256 == head.sha256
            check(agrees, f"{where}: changed since {after.name} was written")
    return _with_records(storage, heads[0], later=later), {head.name: head.sha256 for head in heads}


def read_heads(storage: Storage, numbers: Sequence[int]) -> list[Head]:
    """Read manifests without their records."""
    return storage.map(lambda number: _read_head(storage, number)[0], numbers)


def _read_head(storage: Storage, number: int) -> tuple[Head, dict[str, Any]]:
    """Read a manifest without the records in its segments, and all values of its file."""
    name = f"{META}/{manifest_name(number)}"
    where = f"{storage.url}/{name}"
    head, values = parse_head(_read(storage, name, "a manifest went missing while it was read"), where)
    check(head.number == number, f"{where}: holds manifest {head.number}")
    return head, values


def _with_records(storage: Storage, head: Head, *, later: bool = False) -> Manifest:
    """Read the records of a manifest, from its segments or, for an earlier version, from its text and the plans.

    With `later`, those of shards are read from the segments' texts when they are first used.
    """
    where = f"{storage.url}/{META}/{head.name}"
    if not head.segments:
        again, values = _read_head(storage, head.number)  # not kept with each head, as they take much memory
        check(again.sha256 == head.sha256, f"{where}: changed while it was read")
        plans = storage.map(lambda number: read_plan(storage, number), range(1, head.number + 1))
        return Manifest.of(head, planned_records(*listed_records(values, where), plans, where))
    return Manifest.of(head, Segment.joined(read_segments(storage, head.segments, head.name, later=later)))


def read_segments(
    storage: Storage, entries: Sequence[SegmentEntry], manifest: str, *, later: bool = False
) -> list[Segment]:
    """Read segments that a manifest lists; `later` as for `Segment.from_json`.

    Raises
    ------
    ShardError
        If one is missing or damaged.
    """

    def read(entry: SegmentEntry) -> Segment:
        name = f"{META}/{entry.name}"
        where = f"{storage.url}/{name}"
        text = _read(storage, name, f"{manifest} lists it; restore it from a copy")
        wrong = f"{where}: damaged: its SHA-256 is not that of its name; restore it from a copy"
        check(len(text) == entry.size and hashlib.sha256(text).hexdigest() == entry.sha256, wrong)
        return Segment.from_json(text, where, stated=entry, later=later)

    return storage.map(read, entries)


def listed_segments(storage: Storage) -> set[SegmentEntry]:
    """Return the segments of all manifests that exist, also of superseded ones."""
    return {entry for head in read_heads(storage, _numbers(storage)) for entry in head.segments}


def read_numbered(storage: Storage, number: int, sha256: str) -> Manifest:
    """Read a manifest that was read before, without the checks of `read_manifest`.

    Raises
    ------
    ShardError
        If it is missing or has another hash.
    """
    head = read_heads(storage, [number])[0]
    check(head.sha256 == sha256, f"{storage.url}/{META}/{head.name}: changed since it was first read")
    return _with_records(storage, head)


def read_plan(storage: Storage, number: int) -> BatchPlan:
    """Read the plan of a batch."""
    name = f"{META}/{plan_name(number)}"
    where = f"{storage.url}/{name}"
    plan = BatchPlan.from_json(_read(storage, name, "a batch's plan must stay beside its manifest"), where)
    check(plan.number == number, f"{where}: holds plan {plan.number}")
    return plan


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
    kind : {"landmarks", "model"}
        Landmarks of a map, or the weights that made predictions.
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
    return unpack_arrays(_read(storage, name, _SIDECAR_HINTS[kind], MAX_BYTES), str(sha256), f"{storage.url}/{name}")


def landmarks_of(spec: Mapping[str, Any]) -> object:
    """Return the SHA-256 of the landmarks from the spec of a data set; None for a map without landmarks."""
    described = spec.get("map")
    return described.get("landmarks") if isinstance(described, Mapping) else None


def success_text(manifest: Manifest) -> bytes:
    """Return the text of ``_SUCCESS`` for this manifest."""
    return strict_json.dumps({"manifest": manifest.name, "sha256": manifest.sha256})


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """List the keys in which two specs differ, each with its old and new value.

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
    texts = ["nothing" if value is _ABSENT else json.dumps(value)[:200] for value in (old, new)]
    if _ABSENT not in (old, new) and fingerprint(old) == fingerprint(new):
        return []
    return [f"{path}: {texts[0]} there, {texts[1]} asked"]


def planned_records(
    shards: Sequence[ShardEntry], sources: Sequence[SourceEntry], plans: Sequence[BatchPlan], where: str
) -> Segment:
    """Make the records of a manifest of an earlier version, after a check that they agree with its plans."""
    splits = [split for plan in plans for split in plan.splits]
    files = [file for plan in plans for file in plan.files]
    agrees = [split.number for split in splits] == list(range(len(splits)))
    agrees = agrees and max((entry.split for entry in shards), default=-1) + 1 == len(splits)
    check(agrees, f"{where}: covers other splits than its {len(splits):,} planned ones")
    for entry in shards:
        split = splits[entry.split]
        n_files = len(split.files) if split.others else 0
        agrees = entry.source == split.file.name and len(entry.rows_by_file) == n_files
        check(agrees, f"{where}: {entry.name} of {entry.source!a} does not agree with its planned split")
    agrees = len(files) == len(sources)
    agrees = agrees and all(a.identity == b.identity for a, b in zip(files, sources, strict=True))
    check(agrees, f"{where}: lists other sources than its plans")
    return Segment.of(shards, sources, splits, files, where)


def read_success(storage: Storage) -> tuple[str, str] | None:
    """Return the name and SHA-256 of the manifest that ``_SUCCESS`` names; None if it does not exist."""
    data = _read_existing(storage, SUCCESS, _MAX_SMALL_FILE)
    if data is None:
        return None
    where = f"{storage.url}/{SUCCESS}"
    try:
        named = typed(strict_json.parse_object(data, where, max_bytes=_MAX_SMALL_FILE), _Success, where)
    except ShardError as fault:
        raise ShardError(f"{fault}; restore it from a copy, or delete it and repeat the run") from None
    return named["manifest"], named["sha256"]


def _read(storage: Storage, name: str, hint: str, max_bytes: int = strict_json.MAX_BYTES) -> bytes:
    data = _read_existing(storage, name, max_bytes)
    if data is None:
        raise ShardError(f"{storage.url}/{name} is missing: {hint}")
    return data


def _read_existing(storage: Storage, name: str, max_bytes: int) -> bytes | None:
    """Read a file of at most `max_bytes` bytes; None if it does not exist."""
    where = f"{storage.url}/{name}"
    with faults_as(ShardError, f"{where} cannot be read"), suppress(FileNotFoundError):
        strict_json.check_length(storage.size(name) or 0, where, max_bytes)
        return storage.read(name)
    return None
