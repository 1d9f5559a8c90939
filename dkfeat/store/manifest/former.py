"""Records of data sets that earlier versions wrote, read only: listed in manifests (0.1), or in segments of JSON (0.2).

The next commit to such a data set writes all of its records in the present form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import pyarrow as pa

from dkfeat.canonical import Count, Sha256, parse_typed, typed
from dkfeat.errors import ShardError
from dkfeat.store.manifest.batch_plan import read_plan
from dkfeat.store.manifest.manifest import Head
from dkfeat.store.manifest.record_table import SCHEMA, SHARD, Columns, Records
from dkfeat.store.manifest.records import ShardEntry, SourceEntry, check
from dkfeat.store.storage.base import META, Storage, read_listed


@dataclass(slots=True, kw_only=True)
class _Listed:
    shards: tuple[ShardEntry, ...]
    sources: tuple[SourceEntry, ...]


@dataclass(slots=True, kw_only=True)
class _SegmentEntry:
    sha256: Sha256
    size: Count


_Group = dict[str, list[Any] | dict[str, Any] | str | None]


class _Segment(TypedDict):
    sources: _Group
    splits: _Group
    shards: _Group


_KINDS: dict[str, list[pa.Field]] = {
    "sources": [*SCHEMA][:-1],
    "splits": [pa.field(key, pa.int64(), nullable=False) for key in ("source", "n_files", "start", "stop", "pieces")],
    "shards": [*SHARD],
}
"""Columns of a segment; the last one of `SCHEMA` has the splits."""
_ELSE: Columns = {"n_files": 1, "bad_rows": (), "rows_by_file": ()}
"""Values of records for which a column states none, if not None."""


def read_records(storage: Storage, head: Head, values: Mapping[str, Any]) -> Records:
    """Read the records of an earlier version's manifest, whose file has these values.

    Raises
    ------
    ShardError
        If they are missing, damaged or contradict the manifest or a plan.
    """
    where = f"{storage.url}/{META}/{head.name}"
    if "segments" not in values:
        return _listed_records(storage, head.number, typed(values, _Listed, where), where)
    entries = typed(values["segments"], list[_SegmentEntry], where)
    check(bool(entries), f"{where}: lists no segments")
    return Records.joined(storage.map(lambda entry: _read_segment(storage, entry, head.name), entries))


def _listed_records(storage: Storage, number: int, listed: _Listed, where: str) -> Records:
    """Make the records that a manifest lists itself; their splits and files are those of the plans of its batches."""
    plans = storage.map(lambda each: read_plan(storage, each), range(1, number + 1))
    files = [file for plan in plans for file in plan.files]
    planned = [file.identity for file in files]
    check(planned == [source.identity for source in listed.sources], f"{where}: lists other sources than its plans")
    return Records.of(listed.shards, listed.sources, [split for plan in plans for split in plan.splits], files, where)


def _read_segment(storage: Storage, entry: _SegmentEntry, manifest: str) -> Records:
    name = f"{META}/segment-{entry.sha256}.json"
    where = f"{storage.url}/{name}"
    segment: Mapping[str, Any] = parse_typed(
        read_listed(storage, name, manifest, entry.size, entry.sha256), _Segment, where
    )
    groups = {group: _columns(segment[group], kinds, f"{where}: {group}") for group, kinds in _KINDS.items()}
    return Records.of_columns(**groups, what=where)


def _columns(group: Mapping[str, Any], kinds: Iterable[pa.Field], what: str) -> Columns:
    """Return columns of these kinds, with a value for each record.

    In a segment, hexadecimal digits follow one another without a separator; a column is left out, or has the values of
    a few records by their positions, if that of all others is in `_ELSE` or None.
    """
    count = len(group.get("size") or group.get("start") or ())
    found: Columns = {}
    for kind in kinds:
        where, column = f"{what}.{kind.name}", group.get(kind.name)
        if pa.types.is_fixed_size_binary(kind.type):
            column = _binary(str(column), kind.type, where)
        elif not isinstance(column, list):
            column = _sparse(column or {}, count, _ELSE.get(kind.name), where)
        check(len(column) == count, f"{where} has length {len(column):,}, expected {count:,}")
        try:
            found[kind.name] = pa.array(column, kind.type)
        except (pa.ArrowException, OverflowError) as fault:
            raise ShardError(f"{where}: {str(fault)[:200]}") from None
        check(kind.nullable or not found[kind.name].null_count, f"{where} lacks values")
    return found


def _sparse(values: Any, count: int, none: Any, what: str) -> list[Any]:
    """Return a column of the values of a few records, by their positions."""
    check(isinstance(values, dict), f"{what} is a text")
    column = [none] * count
    for place, value in values.items():
        is_inside = place.isdecimal() and len(place) < 20 and int(place) < count
        check(is_inside, f"{what} has a position outside of {count:,}")
        items = value.items() if isinstance(value, dict) else value
        column[int(place)] = [*map(_as_tuple, items)] if isinstance(value, dict | list) else value
    return column


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _binary(text: str, kind: pa.DataType, what: str) -> pa.Array:
    """Return the values of hexadecimal digits that follow one another."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    is_hex = data.hex() == text and len(data) % kind.byte_width == 0
    check(is_hex, f"{what} has other characters than lowercase hexadecimal digits")
    return pa.Array.from_buffers(kind, len(data) // kind.byte_width, [None, pa.py_buffer(data)])
