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
from dkfeat.store.manifest.record_table import SUMS, Columns, Records
from dkfeat.store.manifest.records import ShardEntry, SourceEntry, check
from dkfeat.store.storage.base import META, Storage, read_listed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    shards: tuple[ShardEntry, ...]
    sources: tuple[SourceEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SegmentEntry:
    sha256: Sha256
    size: Count
    sources: Count
    splits: Count
    shards: Count
    rows: Count
    nnz: Count
    n_empty: Count


@dataclass(frozen=True, slots=True, kw_only=True)
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


_DIGITS = {"name": 12, "sha256": 64, "source_sha256": 64}
"""Number of hexadecimal digits of each shard in a column of text."""


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
    """Make the records that a manifest lists itself, after a check that they agree with the plans of its batches."""
    shards, sources = listed.shards, listed.sources
    plans = storage.map(lambda each: read_plan(storage, each), range(1, number + 1))
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
    return Records.of(shards, sources, splits, files, where)


def _read_segment(storage: Storage, entry: _SegmentEntry, manifest: str) -> Records:
    name = f"{META}/segment-{entry.sha256}.json"
    where = f"{storage.url}/{name}"
    segment = parse_typed(read_listed(storage, name, manifest, entry.size, entry.sha256), _Segment, where)
    sources = _source_columns(segment.sources, where)
    splits, shards = _split_columns(segment.splits, where), _shard_columns(segment.shards, where)
    records = Records.of_columns(sources, splits, shards, where)
    counts = {"sources": records.n_sources, "splits": records.n_splits, "shards": records.n_shards, **records.sums()}
    agrees = all(getattr(entry, key) == counts[key] for key in ("sources", "splits", "shards", *SUMS))
    check(agrees, f"{where}: a manifest that lists it states other sums")
    return records


def _source_columns(columns: _SourceColumns, what: str) -> Columns:
    count = len(columns.size)
    found: Columns = {key: getattr(columns, key) or [None] * count for key in columns.__slots__ if key != "bad_rows"}
    _check_lengths(found, count, f"{what}: sources")
    bad_rows = _sparse(columns.bad_rows, count, {}, f"{what}: sources.bad_rows")
    return {**found, "bad_rows": [[*counts.items()] for counts in bad_rows]}


def _split_columns(columns: _SplitColumns, what: str) -> Columns:
    count = len(columns.source)
    found = {key: getattr(columns, key) for key in columns.__slots__}
    found["n_files"] = columns.n_files or [1] * count
    _check_lengths(found, count, f"{what}: splits")
    return found


def _shard_columns(columns: _ShardColumns, what: str) -> Columns:
    count = len(columns.size)
    few: Columns = {"rows_by_file": [], "bad_rows": (), "lines": None}
    found = {key: getattr(columns, key) for key in columns.__slots__ if key not in (*few, *_DIGITS)}
    for key, digits in _DIGITS.items():
        found[key] = _binary(getattr(columns, key), digits, f"{what}: shards.{key}")
    _check_lengths(found, count, f"{what}: shards")
    sparse = {key: _sparse(getattr(columns, key), count, none, f"{what}: shards.{key}") for key, none in few.items()}
    return {**found, **sparse}


def _check_lengths(columns: Columns, count: int, what: str) -> None:
    for name, column in columns.items():
        check(len(column) == count, f"{what}.{name} has length {len(column):,}, expected {count:,}")


def _sparse(values: Mapping[str, Any], count: int, none: Any, what: str) -> list[Any]:
    """Return a column of the values of a few records, by their positions."""
    column = [none] * count
    for place, value in values.items():
        is_inside = place.isdecimal() and len(place) < 20 and int(place) < count
        check(is_inside, f"{what} has a position outside of {count:,}")
        column[int(place)] = value
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
