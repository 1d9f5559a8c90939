"""Segment: an immutable file with the records that one or several batches added to a data set, column by column.

Columns take less room than a list of objects, and are read without making an object for each of a million shards. A
segment has no run block and no numbers that count over the whole data set, so that equal batches give equal segments
and two segments are joined by joining their columns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dkfeat.blocks import BadCount, SourceFile, Split
from dkfeat.canonical import MAX_BYTES, Count, Name, Sha256, Undecoded, check_fields, dumps, parse_typed
from dkfeat.errors import CommitError
from dkfeat.store.manifest.records import ShardEntry, SourceEntry, check, check_order

SEGMENT_NAME = re.compile(r"segment-[0-9a-f]{64}\.json")
MOST_RECORDS = 4096
"""Number of shards and sources beyond which a segment is not merged with later ones."""
SUMS = ("rows", "nnz", "n_empty")
"""Columns of shards whose sums a manifest states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEntry:
    """Reference to a segment in a manifest, with the sums of its records."""

    sha256: Sha256
    """SHA-256 of its file, which is in its name."""
    size: Count
    """Size of its file in bytes."""
    sources: Count
    """Number of source files."""
    splits: Count
    """Number of splits."""
    shards: Count
    """Number of shards."""
    rows: Count
    """Total over its shards."""
    nnz: Count
    """Total over its shards."""
    n_empty: Count
    """Total over its shards."""

    def __post_init__(self) -> None:
        check_fields(self, "segments")

    @property
    def name(self) -> str:
        """File name inside the metadata folder."""
        return f"segment-{self.sha256}.json"

    def counts(self) -> dict[str, int]:
        """Return the numbers of records and the sums."""
        return {key: getattr(self, key) for key in (*_KINDS, *SUMS)}

    @property
    def n_records(self) -> int:
        """Number of shards and sources."""
        return self.shards + self.sources


@dataclass(slots=True, kw_only=True)
class _SourceColumns:
    """Columns of sources as they are written; one that is left out has None for all sources."""

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
    """Columns of splits as they are planned; without `n_files`, each split is of one file."""

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
    rows_by_file: dict[str, tuple[Count, ...]] = field(default_factory=dict)
    bad_rows: dict[str, tuple[BadCount, ...]] = field(default_factory=dict)
    lines: dict[str, Count] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Text:
    sources: Undecoded
    splits: Undecoded
    shards: Undecoded


_KINDS: dict[str, Any] = {"sources": _SourceColumns, "splits": _SplitColumns, "shards": _ShardColumns}
_DIGITS = {"name": 12, "sha256": 64, "source_sha256": 64}
"""Number of hexadecimal digits of each shard in a column of text."""
_LEFT_OUT = {"mtime_ns": None, "etag": None, "compression": None, "final_newline": None, "n_files": 1}
"""Columns that are not written if all values are this one."""
_LISTS = {"name", "mtime_ns", "etag", "compression", "final_newline"}
"""Columns that are no arrays, because they have text or None."""

Columns = dict[str, Any]
"""Columns by name: int64 array, list, text of hexadecimal digits, or values of few records by their positions."""


class Segment:
    """Records of source files, their splits and the shards made from these, in order.

    Parameters
    ----------
    sources, splits, shards : dict
        Columns by name. ``splits["source"]`` is the position of a split's first file among the sources,
        ``splits["pieces"]`` the number of its shards.
        `shards` may be a function that returns the columns when they are first used.
    what : str or None
        Name for error messages; None for parts of checked segments, which are not checked again.

    Raises
    ------
    ShardError
        If the columns contradict each other.
    """

    def __init__(
        self,
        sources: Columns,
        splits: Columns,
        shards: Columns | Callable[[], Columns],
        what: str | None = "segment",
    ) -> None:
        self.sources, self.splits, self._what = sources, splits, what
        self.n_sources, self.n_splits, self.n_shards = (
            len(sources["size"]),
            len(splits["source"]),
            int(splits["pieces"].sum()),
        )
        if what is not None:
            self._check_splits(what)
        self._shards = shards
        if not callable(shards):
            self._shards = self._checked(shards)

    def __reduce__(self) -> tuple[Any, ...]:
        return Segment, (self.sources, self.splits, self.shards, None)

    @property
    def shards(self) -> Columns:
        """Columns of the shards."""
        shards = self._shards
        if callable(shards):
            shards = self._shards = self._checked(shards())
        return shards

    def _checked(self, shards: Columns) -> Columns:
        if self._what is not None:
            self._check_shards(shards, self._what)
        return shards

    def _check_splits(self, what: str) -> None:
        splits, n_sources = self.splits, self.n_sources
        _check_columns(self.sources, n_sources, f"{what}: sources")
        _check_columns(splits, self.n_splits, f"{what}: splits")
        source, n_files, pieces = splits["source"], splits["n_files"], splits["pieces"]
        inside = (source < n_sources) & (n_files >= 1) & (n_files <= n_sources - source)
        check(bool(inside.all()), f"{what}: a split is of no files that are listed")
        check(bool((np.diff(source) >= 0).all()), f"{what}: its splits are not in the order of its sources")
        check(bool((splits["start"] <= splits["stop"]).all()), f"{what}: a split runs backwards")
        check(bool((pieces >= 1).all()), f"{what}: a split has no shards")

    def _check_shards(self, shards: Columns, what: str) -> None:
        pieces, count = self.splits["pieces"], len(shards["size"])
        whole = count == self.n_shards and bool((pieces <= count).all())
        check(whole, f"{what}: the pieces of its splits are not its {count:,} shards")
        _check_columns(shards, count, f"{what}: shards")
        n_files = np.repeat(self.splits["n_files"], pieces)
        check(bool((shards["n_empty"] <= shards["rows"]).all()), f"{what}: a shard has more empty rows than rows")
        check(bool((shards["start"] <= shards["stop"]).all()), f"{what}: the range of a shard runs backwards")
        groups = np.flatnonzero(n_files > 1).tolist()
        check(groups == sorted(shards["rows_by_file"]), f"{what}: rows_by_file are not those of its groups of files")
        for place, counts in shards["rows_by_file"].items():
            agrees = len(counts) == n_files[place] and sum(counts) == shards["rows"][place]
            check(agrees, f"{what}: shard {place:,}: its files have {sum(counts):,} rows of {shards['rows'][place]:,}")
        for place, bad in shards["bad_rows"].items():
            last = max((file for file, _, _ in bad), default=0)
            check(
                last < n_files[place], f"{what}: shard {place:,}: bad_rows counts file {last:,} of {n_files[place]:,}"
            )

    @classmethod
    def of(
        cls,
        shards: Sequence[ShardEntry],
        sources: Sequence[SourceEntry],
        splits: Sequence[Split],
        files: Sequence[SourceFile],
        what: str = "segment",
    ) -> Segment:
        """Make the segment of records.

        Parameters
        ----------
        shards : sequence of ShardEntry
            Records in order.
        sources : sequence of SourceEntry
            Records in order.
        splits : sequence of Split
            Splits from which the shards were made, as they were planned.
        files : sequence of SourceFile
            Files of the sources, as they were planned.
        what : str
            Name for error messages.

        Raises
        ------
        ShardError
            If the shards are not all pieces of the splits.
        """
        pieces = check_order(shards, splits[0].number if splits else 0, what)
        check(len(pieces) == len(splits), f"{what}: has shards of {len(pieces):,} splits, {len(splits):,} were planned")
        positions = {source.name: position for position, source in enumerate(sources)}
        plain = ("name", "size", "mtime_ns", "etag", "rows", "final_newline")
        of_sources: Columns = {key: [getattr(source, key) for source in sources] for key in plain}
        of_sources["compression"] = [file.compression for file in files]
        of_sources["bad_rows"] = {place: dict(each.bad_rows) for place, each in enumerate(sources) if each.bad_rows}
        of_splits: Columns = {key: [getattr(split, key) for split in splits] for key in ("start", "stop")}
        of_splits["source"] = [positions[split.file.name] for split in splits]
        of_splits["n_files"] = [len(split.files) for split in splits]
        of_splits["pieces"] = pieces
        of_shards: Columns = {
            key: [getattr(entry, key) for entry in shards] for key in ("size", "rows", "nnz", "n_empty")
        }
        of_shards["start"], of_shards["stop"] = ([entry.range[end] for entry in shards] for end in (0, 1))
        of_shards["name"] = "".join(entry.name.removesuffix(".parquet")[-_DIGITS["name"] :] for entry in shards)
        for key in ("sha256", "source_sha256"):
            of_shards[key] = "".join(getattr(entry, key) for entry in shards)
        for key in ("rows_by_file", "bad_rows", "lines"):
            values = {place: getattr(entry, key) for place, entry in enumerate(shards)}
            of_shards[key] = {place: value for place, value in values.items() if value not in ((), None)}
        return cls(_as_arrays(of_sources), _as_arrays(of_splits), _as_arrays(of_shards), what)

    @classmethod
    def from_json(
        cls, data: bytes, what: str = "segment", *, stated: SegmentEntry | None = None, later: bool = False
    ) -> Segment:
        """Read and check the text of a segment.

        Parameters
        ----------
        data : bytes
            Bytes of the file.
        what : str
            Name for error messages.
        stated : SegmentEntry, optional
            Reference of a manifest, whose counts and sums are compared.
        later : bool, default=False
            Read and check the columns of shards when they are first used.

        Raises
        ------
        ShardError
            If the text is damaged or inconsistent.
        """
        text = parse_typed(data, _Text, what)
        wrong = f"{what}: a manifest that lists it states other sums"

        def shards() -> Columns:
            columns = _columns(text.shards, "shards", what)
            sums = {key: int(columns[key].sum()) for key in SUMS}
            check(stated is None or sums == {key: getattr(stated, key) for key in SUMS}, wrong)
            return columns

        sources, splits = _columns(text.sources, "sources", what), _columns(text.splits, "splits", what)
        segment = cls(sources, splits, shards if later else shards(), what)
        for group in _KINDS if stated is not None else ():
            check(getattr(segment, f"n_{group}") == getattr(stated, group), wrong)
        return segment

    def to_json(self) -> bytes:
        """Return the text of the file, which `from_json` reads."""
        groups: dict[str, Columns] = {}
        for group in _KINDS:
            columns: Columns = {}
            for name, column in getattr(self, group).items():
                values = column.tolist() if isinstance(column, np.ndarray) else column
                if isinstance(values, dict):
                    values = {str(place): value for place, value in sorted(values.items())}
                if values != {} and not (name in _LEFT_OUT and all(value == _LEFT_OUT[name] for value in values)):
                    columns[name] = values
            groups[group] = {name: columns[name] for name in _KINDS[group].__slots__ if name in columns}
        return dumps({"format": 1, **groups})

    def entry(self, text: bytes) -> SegmentEntry:
        """Make the reference to the segment, whose text this is."""
        return SegmentEntry(sha256=hashlib.sha256(text).hexdigest(), size=len(text), **self.counts())

    def counts(self) -> dict[str, int]:
        """Return the numbers of records and the sums that a reference states."""
        counts = {group: getattr(self, f"n_{group}") for group in _KINDS}
        return counts | {key: int(self.shards[key].sum()) for key in SUMS}

    @classmethod
    def joined(cls, parts: Sequence[Segment]) -> Segment:
        """Join the records of several segments, in order."""
        if len(parts) == 1:
            return parts[0]

        def group(name: str) -> Columns:
            firsts = np.cumsum([0, *(getattr(part, f"n_{name}") for part in parts)]).tolist()
            return {
                key: _joined([getattr(part, name)[key] for part in parts], firsts) for key in _KINDS[name].__slots__
            }

        splits = group("splits")
        n_before = np.cumsum([0, *(part.n_sources for part in parts)])[:-1]
        splits["source"] = splits["source"] + np.repeat(n_before, [part.n_splits for part in parts])
        return cls(group("sources"), splits, lambda: group("shards"), what=None)

    def files(self) -> list[tuple[SegmentEntry, bytes]]:
        """Return references and texts of the files that hold the records, in order.

        If one file would be longer than `from_json` accepts, there are several, cut between sources.

        Raises
        ------
        CommitError
            If the records of a single source are too long.
        """
        text = self.to_json()
        if len(text) <= MAX_BYTES:
            return [(self.entry(text), text)]
        source, pieces = self.splits["source"], self.splits["pieces"]
        firsts = np.cumsum(pieces) - pieces
        places = np.flatnonzero(np.diff(source)) + 1
        if not len(places):
            raise CommitError(
                f"source {self.sources['name'][0]!a} gave {self.n_shards:,} shards, whose records take {len(text):,} "
                f"bytes, but at most {MAX_BYTES:,} can be read; raise blocksize, or divide the file, and choose "
                "another target"
            )
        del text  # before the texts of the halves are made
        middle = places[np.argmin(np.abs(2 * firsts[places] - self.n_shards))]
        cut = {"sources": source[middle], "splits": middle, "shards": firsts[middle]}
        return [file for is_last in (False, True) for file in self._half(cut, is_last=is_last).files()]

    def _half(self, cut: Mapping[str, int], *, is_last: bool) -> Segment:
        """Return the records before these positions, at which a source begins, or those from there."""
        groups = {
            group: {name: _half(column, name, place, is_last) for name, column in getattr(self, group).items()}
            for group, place in cut.items()
        }
        if is_last:
            groups["splits"]["source"] = groups["splits"]["source"] - cut["sources"]
        return Segment(**groups, what=None)


def to_merge(entries: Sequence[SegmentEntry], n_added: int) -> int:
    """Return the number of segments at the end of a list to which a batch of `n_added` records is joined.

    A segment is joined if it is no larger than what follows it, unless it has more than `MOST_RECORDS`. So a record is
    written again at most about twelve times, and there are at most about twelve segments below that size.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> to_merge([SimpleNamespace(n_records=n) for n in (9000, 120, 60, 30)], 30)
    3
    """
    n_merged, total = 0, n_added
    while n_merged < len(entries) and entries[-1 - n_merged].n_records <= min(total, MOST_RECORDS):
        total += entries[-1 - n_merged].n_records
        n_merged += 1
    return n_merged


def _as_arrays(columns: Columns) -> Columns:
    """Replace the lists of numbers by arrays."""
    for name, column in columns.items():
        if isinstance(column, list) and name not in _LISTS:
            columns[name] = np.array(column, np.int64)
    return columns


def _columns(text: Undecoded, group: str, what: str) -> Columns:
    """Read the columns of sources, splits or shards."""
    kind, columns = _KINDS[group], Columns()
    record = parse_typed(text, kind, f"{what}: {group}")
    count = len(record.source if group == "splits" else record.size)
    for name in kind.__slots__:
        column = getattr(record, name)
        setattr(record, name, None)  # to free a list as soon as it is an array
        if isinstance(column, dict):
            check(all(map(str.isdecimal, column)), f"{what}: {group}.{name} has a position that is no number")
            column = {int(place): value for place, value in column.items()}
        columns[name] = [_LEFT_OUT[name]] * count if column is None else column
        _as_arrays(columns)
    return columns


def _check_columns(columns: Columns, count: int, what: str) -> None:
    for name, column in columns.items():
        _check_column(column, name, count, f"{what}.{name}")


def _check_column(column: Any, name: str, count: int, what: str) -> None:
    if isinstance(column, dict):
        inside = not column or (min(column) >= 0 and max(column) < count)
        check(inside, f"{what} has a position outside of {count:,}")
        return
    digits = _DIGITS[name] if isinstance(column, str) else 1
    check(len(column) == count * digits, f"{what} has length {len(column):,}, expected {count * digits:,}")
    if isinstance(column, str) and name == "name":  # part of a path; a wrong hash is noticed when it is compared
        try:
            is_hex = bytes.fromhex(column).hex() == column
        except ValueError:
            is_hex = False
        check(is_hex, f"{what} has other characters than lowercase hexadecimal digits")


def _joined(columns: Sequence[Any], firsts: Sequence[int]) -> Any:
    """Join the columns of one name; `firsts` are the positions of their first records."""
    first = columns[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(columns)
    if isinstance(first, str):
        return "".join(columns)
    if isinstance(first, dict):
        pairs = zip(columns, firsts[:-1], strict=True)
        return {place + before: value for column, before in pairs for place, value in column.items()}
    return [value for column in columns for value in column]


def _half(column: Any, name: str, cut: int, is_last: bool) -> Any:
    """Return the column of the records before position `cut`, or of those from there."""
    if isinstance(column, dict):
        return {place - cut * is_last: value for place, value in column.items() if (place >= cut) == is_last}
    cut *= _DIGITS[name] if isinstance(column, str) else 1
    return column[cut:] if is_last else column[:cut]


EMPTY = Segment.of((), (), (), ())
"""Segment without records."""
