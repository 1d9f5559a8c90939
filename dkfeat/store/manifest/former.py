"""Records of data sets that earlier versions wrote, read only: listed in manifests (0.1), or in segments of JSON (0.2).

The next commit to such a data set writes all of its records in the present form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dkfeat.blocks import BadCount
from dkfeat.canonical import Count, Name, Sha256, parse_typed, typed
from dkfeat.store.manifest.batch_plan import read_plan
from dkfeat.store.manifest.manifest import Head
from dkfeat.store.manifest.records import Columns, Records, ShardEntry, SourceEntry, check
from dkfeat.store.storage.base import META, Storage, read_listed


@dataclass(slots=True, kw_only=True)
class _Listed:
    shards: tuple[ShardEntry, ...]
    sources: tuple[SourceEntry, ...]


@dataclass(slots=True, kw_only=True)
class _SegmentEntry:
    sha256: Sha256
    size: Count


@dataclass(slots=True, kw_only=True)
class _Segments:
    segments: tuple[_SegmentEntry, ...]


@dataclass(slots=True, kw_only=True)
class _SourceColumns:
    """Columns of sources; one that is left out has None for all sources."""

    name: list[Name]
    size: list[Count]
    mtime_ns: list[int | None] | None = None
    etag: list[str | None] | None = None
    compression: list[str | None] | None = None
    rows: list[Count]
    final_newline: list[bool | None] | None = None
    bad_rows: dict[str, dict[str, Count]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _SplitColumns:
    """Columns of splits; without `n_files`, each split is of one file."""

    source: list[Count]
    n_files: list[Count] | None = None
    start: list[Count]
    stop: list[Count]
    pieces: list[Count]


@dataclass(slots=True, kw_only=True)
class _ShardColumns:
    """Columns of shards; hexadecimal digits follow one another without a separator."""

    name: str
    size: list[Count]
    sha256: str
    rows: list[Count]
    nnz: list[Count]
    n_empty: list[Count]
    start: list[Count]
    stop: list[Count]
    source_sha256: str
    rows_by_file: dict[str, list[Count]] = field(default_factory=dict)
    bad_rows: dict[str, tuple[BadCount, ...]] = field(default_factory=dict)
    lines: dict[str, Count] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Segment:
    sources: _SourceColumns
    splits: _SplitColumns
    shards: _ShardColumns


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
    entries = typed(values, _Segments, where).segments
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
    segment = parse_typed(read_listed(storage, name, manifest, entry.size, entry.sha256), _Segment, where)
    sources, splits, shards = segment.sources, segment.splits, segment.shards
    return Records.of_columns(
        _columns(sources, len(sources.size), f"{where}: sources"),
        _columns(splits, len(splits.start), f"{where}: splits"),
        _columns(shards, len(shards.size), f"{where}: shards"),
        where,
    )


def _columns(group: _SourceColumns | _SplitColumns | _ShardColumns, count: int, what: str) -> Columns:
    """Return columns of `count` records: hexadecimal digits as bytes, and a value for each record in all others."""
    found: Columns = {}
    for key in group.__slots__:
        column = getattr(group, key)
        if isinstance(column, str):
            column = _binary(column, 12 if key == "name" else 64, f"{what}.{key}")
        elif not isinstance(column, list):
            column = _sparse(column or {}, count, _ELSE.get(key), f"{what}.{key}")
        check(len(column) == count, f"{what}.{key} has length {len(column):,}, expected {count:,}")
        found[key] = column
    return found


def _sparse(values: Mapping[str, Any], count: int, none: Any, what: str) -> list[Any]:
    """Return a column of the values of a few records, by their positions."""
    column = [none] * count
    for place, value in values.items():
        is_inside = place.isdecimal() and len(place) < 20 and int(place) < count
        check(is_inside, f"{what} has a position outside of {count:,}")
        column[int(place)] = [*value.items()] if isinstance(value, dict) else value
    return column


def _binary(text: str, digits: int, what: str) -> pa.Array:
    """Return the values of hexadecimal digits that follow one another."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    is_hex = data.hex() == text and len(text) % digits == 0
    check(is_hex, f"{what} has other characters than lowercase hexadecimal digits")
    return pa.Array.from_buffers(pa.binary(digits // 2), len(text) // digits, [None, pa.py_buffer(data)])
