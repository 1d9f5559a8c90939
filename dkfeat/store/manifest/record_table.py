"""Records of a data set as one Parquet table: a row for each source file, with its splits and their shards.

Sequences of the records are made from the table when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from itertools import chain
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dkfeat.archives import check_footer
from dkfeat.blocks import SourceFile, Split
from dkfeat.canonical import MAX_BYTES
from dkfeat.errors import CommitError, ShardError
from dkfeat.store.manifest.records import ShardEntry, SourceEntry, check, check_order

_FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, MemoryError)

Columns = dict[str, Any]
"""Columns by name: an int64 array, or an Arrow array of another type or with missing values."""
SUMS = ("rows", "nnz", "n_empty")
"""Columns of shards whose sums a manifest states."""
_MOST_GROUPS = 1024
"""Maximum number of row groups in a file; a group is written for a million source files."""
_ENCODINGS = {"PLAIN", "RLE", "BIT_PACKED"}
"""Encodings in a file, for which the size limits that of the values in memory."""
_OPTIONAL = {"mtime_ns", "etag", "compression", "final_newline", "lines"}


def _struct(**kinds: pa.DataType) -> pa.StructType:
    return pa.struct([pa.field(name, kind, nullable=name in _OPTIONAL) for name, kind in kinds.items()])


def _list(kind: pa.DataType) -> pa.ListType:
    return pa.list_(pa.field("element", kind, nullable=False))


_INT, _TEXT, _DIGEST = pa.int64(), pa.string(), pa.binary(32)
SHARD = _struct(
    name=pa.binary(6),  # what tells a name from others; the numbers in it follow from the order
    size=_INT,
    sha256=_DIGEST,
    rows=_INT,
    nnz=_INT,
    n_empty=_INT,
    start=_INT,
    stop=_INT,
    source_sha256=_DIGEST,
    rows_by_file=_list(_INT),
    bad_rows=_list(_struct(file=_INT, reason=_TEXT, count=_INT)),
    lines=_INT,
)
_SPLIT = _struct(n_files=_INT, start=_INT, stop=_INT, shards=_list(SHARD))
_SOURCE = _struct(
    name=_TEXT,
    size=_INT,
    mtime_ns=_INT,
    etag=_TEXT,
    compression=_TEXT,
    rows=_INT,
    final_newline=pa.bool_(),
    bad_rows=_list(_struct(reason=_TEXT, count=_INT)),
    splits=_list(_SPLIT),
)
SCHEMA = pa.schema(list(_SOURCE))
"""Columns of the file. A split of a group of files belongs to the first of them; the others follow it."""


class Records:
    """Records of source files, their splits and the shards made from these, in order.

    Parameters
    ----------
    table : pyarrow.Table
        Table of schema `SCHEMA`.
    what : str or None
        Name for error messages; None for parts of checked records, which are not checked again.

    Raises
    ------
    ShardError
        If the records contradict each other.
    """

    def __init__(self, table: pa.Table, what: str | None = "records") -> None:
        self.table = table
        if what is not None:
            self._check(what)

    def __reduce__(self) -> tuple[Any, ...]:
        return Records, (self.table, None)

    @cached_property
    def _split_lists(self) -> pa.ListArray:
        return _one(self.table["splits"])

    @cached_property
    def _shard_lists(self) -> pa.ListArray:
        return self._split_lists.flatten().field("shards")

    @cached_property
    def sources(self) -> Columns:
        """Columns of the source files."""
        return {name: _column(_one(self.table[name])) for name in self.table.column_names if name != "splits"}

    @cached_property
    def splits(self) -> Columns:
        """Columns of the splits, ``source`` (position of the first file) and ``pieces`` (number of shards) included."""
        splits = self._split_lists.flatten()
        counts = _lengths(self._split_lists)
        columns = {name: _column(splits.field(name)) for name in ("n_files", "start", "stop")}
        return {"source": np.repeat(np.arange(len(counts)), counts), **columns, "pieces": _lengths(self._shard_lists)}

    @cached_property
    def shards(self) -> Columns:
        """Columns of the shards."""
        shards = self._shard_lists.flatten()
        return {field.name: _column(shards.field(field.name)) for field in SHARD}

    @property
    def n_sources(self) -> int:
        """Number of source files."""
        return int(self.table.num_rows)

    @property
    def n_splits(self) -> int:
        """Number of splits."""
        return len(self.splits["source"])

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self.shards["size"])

    def sums(self) -> dict[str, int]:
        """Return the numbers of rows, nonzeros and empty rows in all shards, as in a manifest."""
        rows, nnz, n_empty = (int(self.shards[key].sum()) for key in SUMS)
        return {"rows": rows, "nnz": nnz, "n_empty_rows": n_empty}

    def _check(self, what: str) -> None:
        sources, splits, shards = self.sources, self.splits, self.shards
        for group, columns in (("sources", sources), ("splits", splits), ("shards", shards)):
            for name, column in columns.items():
                negative = isinstance(column, np.ndarray) and name != "mtime_ns" and bool((column < 0).any())
                check(not negative, f"{what}: {group} have a negative {name}")
        n_files, pieces = splits["n_files"], splits["pieces"]
        of_shard = np.repeat(n_files, np.maximum(pieces, 0))
        counts, bad = shards["rows_by_file"], shards["bad_rows"]
        n_counts, n_bad, files = _lengths(counts), _lengths(bad), bad.flatten().field("file").to_numpy()
        totals = np.concatenate([[0], np.cumsum(counts.flatten().to_numpy())])
        ends = np.cumsum(n_counts)
        sums = totals[ends] - totals[ends - n_counts]
        holds = {
            "a split is of no files that are listed": (n_files >= 1) & (n_files <= self.n_sources - splits["source"]),
            "a split runs backwards": splits["start"] <= splits["stop"],
            "a split has no shards": pieces >= 1,
            "a shard has more empty rows than rows": shards["n_empty"] <= shards["rows"],
            "the range of a shard runs backwards": shards["start"] <= shards["stop"],
            "rows_by_file are not those of its groups of files": n_counts == np.where(of_shard > 1, of_shard, 0),
            "the files of a shard have other numbers of rows than it": (of_shard <= 1) | (sums == shards["rows"]),
            "bad_rows counts a file that a shard does not have": (files >= 0) & (files < np.repeat(of_shard, n_bad)),
        }
        for message, each in holds.items():
            check(bool(each.all()), f"{what}: {message}")

    @classmethod
    def of(
        cls,
        shards: Sequence[ShardEntry],
        sources: Sequence[SourceEntry],
        splits: Sequence[Split],
        files: Sequence[SourceFile],
        what: str = "records",
    ) -> Records:
        """Make a table of records.

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
        of_sources = _attributes(sources, "name", "size", "mtime_ns", "etag", "rows", "final_newline")
        of_sources["compression"] = [file.compression for file in files]
        of_sources["bad_rows"] = [[*source.bad_rows.items()] for source in sources]
        of_splits = _attributes(splits, "start", "stop")
        of_splits["source"] = [positions[split.file.name] for split in splits]
        of_splits["n_files"] = [len(split.files) for split in splits]
        of_splits["pieces"] = pieces
        of_shards = _attributes(shards, "size", "rows", "nnz", "n_empty", "rows_by_file", "bad_rows", "lines")
        of_shards["start"], of_shards["stop"] = ([entry.range[end] for entry in shards] for end in (0, 1))
        of_shards["name"] = [bytes.fromhex(entry.name[-20:-8]) for entry in shards]
        for key in ("sha256", "source_sha256"):
            of_shards[key] = [bytes.fromhex(getattr(entry, key)) for entry in shards]
        return cls.of_columns(of_sources, of_splits, of_shards, what)

    @classmethod
    def of_columns(cls, sources: Columns, splits: Columns, shards: Columns, what: str | None = "records") -> Records:
        """Make a table of columns, which are arrays or lists; those of `splits` include ``source`` and ``pieces``."""
        source, pieces = np.asarray(splits["source"], np.int64), np.asarray(splits["pieces"], np.int64)
        n_sources, n_shards = len(sources["name"]), len(shards["size"])
        is_ordered = bool((np.diff(source) >= 0).all()) and bool(((source >= 0) & (source < n_sources)).all())
        check(is_ordered, f"{what}: its splits are not in the order of its sources")
        is_whole = bool(((pieces >= 0) & (pieces <= n_shards)).all()) and int(pieces.sum()) == n_shards
        check(is_whole, f"{what}: the pieces of its splits are not its {n_shards:,} shards")
        of_splits = _lists(_SPLIT.field("shards").type, pieces, _records(SHARD, shards))
        counts = np.bincount(source, minlength=n_sources)
        of_sources = _lists(_SOURCE.field("splits").type, counts, _records(_SPLIT, {**splits, "shards": of_splits}))
        rows = _records(_SOURCE, {**sources, "splits": of_sources})
        return cls(pa.Table.from_arrays(rows.flatten(), schema=SCHEMA), what)

    @classmethod
    def from_parquet(cls, data: bytes, what: str, *, n_sources: int) -> Records:
        """Read and check the bytes of a file of `n_sources` source files.

        Raises
        ------
        ShardError
            If the file is damaged or inconsistent.
        """
        file = open_parquet(data, what, page_checksums=False)  # the whole file has a SHA-256
        check(file.metadata.num_rows == n_sources, f"{what}: its manifest states another number of source files")
        check(file.schema_arrow.equals(SCHEMA), f"{what}: its columns are not those of records")
        n_groups = file.metadata.num_row_groups
        check(n_groups <= _MOST_GROUPS, f"{what}: {n_groups:,} row groups, too many")
        check_columns(file, len(data), range(file.metadata.num_columns), what)
        groups = [file.metadata.row_group(number) for number in range(n_groups)]
        columns = [[group.column(place) for place in range(group.num_columns)] for group in groups]
        size = sum(group.total_byte_size for group in groups)
        check(size <= 4 * MAX_BYTES, f"{what}: {size:,} bytes, too many")
        values = sum(max(column.num_values for column in group) for group in columns)
        check(values <= 4096 + 8 * len(data), f"{what}: {values:,} values, too many for its size")
        encodings = {encoding for group in columns for column in group for encoding in column.encodings}
        check(encodings <= _ENCODINGS, f"{what}: its values are encoded as {sorted(encodings)}, not as dkfeat does")
        table = read_table(file, None, what)
        with _faults_in(what):
            table.validate(full=True)
        return cls(table, what)

    def to_parquet(self) -> bytes:
        """Return the bytes of the file that `from_parquet` reads.

        Raises
        ------
        CommitError
            If they are more than a reader accepts.
        """
        sink = pa.BufferOutputStream()
        pq.write_table(
            self.table.combine_chunks(), sink, compression="lz4", use_dictionary=False, write_statistics=False
        )
        data: bytes = sink.getvalue().to_pybytes()
        if len(data) > MAX_BYTES:
            raise CommitError(
                f"the records of {self.n_shards:,} shards take {len(data):,} bytes, but at most {MAX_BYTES:,} can be "
                "read; raise blocksize, or divide the source into several targets"
            )
        return data

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """Join records, in order."""
        return parts[0] if len(parts) == 1 else cls(pa.concat_tables([part.table for part in parts]), None)


def _attributes(items: Iterable[object], *keys: str) -> Columns:
    return {key: [getattr(item, key) for item in items] for key in keys}


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _column(array: pa.Array) -> Any:
    is_plain = pa.types.is_int64(array.type) and not array.null_count
    return array.to_numpy() if is_plain else array


def _lengths(lists: pa.ListArray) -> NDArray[np.int64]:
    return np.diff(lists.offsets.to_numpy()).astype(np.int64)


def _lists(kind: pa.ListType, lengths: NDArray[np.int64], values: pa.Array) -> pa.ListArray:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def _records(kind: pa.StructType, columns: Columns) -> pa.StructArray:
    """Make an array of records of columns, which are arrays or lists."""
    arrays = [
        column if isinstance(column := columns[field.name], pa.Array) else pa.array(column, field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def open_parquet(data: bytes | memoryview | BinaryIO, what: str, *, page_checksums: bool = True) -> pq.ParquetFile:
    """Open a Parquet file, and read its footer.

    Raises
    ------
    ShardError
        If it is damaged or no Parquet file; the message begins with `what`.
    """
    with _faults_in(what):
        source = pa.BufferReader(pa.py_buffer(data)) if isinstance(data, bytes | memoryview) else data
        return pq.ParquetFile(source, page_checksum_verification=page_checksums, pre_buffer=False, **_LIMITS)


@contextmanager
def _faults_in(what: str) -> Iterator[None]:
    """Convert errors that reading a damaged Parquet file may raise to a `ShardError`."""
    try:
        yield
    except _FAULTS as fault:
        raise ShardError(f"{what}: damaged, not a Parquet file that can be read: {str(fault)[:200]}") from fault


def check_columns(file: pq.ParquetFile, size: int, leaves: Sequence[int], what: str) -> None:
    """Check what the footer of a file of this size states of leaf columns; required before it is read column by column.

    Raises
    ------
    ShardError
        If it is damaged; the message begins with `what`.
    """
    with _faults_in(what):
        check_footer(file.metadata, size, leaves)


def read_table(file: pq.ParquetFile, only: Sequence[str] | None, what: str) -> pa.Table:
    """Read columns of an open Parquet file.

    Raises
    ------
    ShardError
        If they are damaged; the message begins with `what`.
    """
    with _faults_in(what):
        return file.read(columns=only, use_threads=False)


Record = TypeVar("Record")
_AT_A_TIME = 4096
"""Number of records that an iteration makes at a time."""


class _Records(Sequence[Record]):
    """Immutable sequence whose records are made by `_make` when they are read; equal to any sequence of equal ones."""

    def __init__(self, records: Records, count: int) -> None:
        self.records, self._count = records, count

    def _make(self, start: int, stop: int) -> Iterator[Record]:
        raise NotImplementedError

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        places = range(self._count)[index]
        if isinstance(places, int):
            return next(self._make(places, places + 1))
        if places.step == 1:
            return tuple(self._make(places.start, max(places.start, places.stop)))
        return tuple(self[place] for place in places)

    def __iter__(self) -> Iterator[Record]:
        starts = range(0, self._count, _AT_A_TIME)
        return chain.from_iterable(self._make(start, min(start + _AT_A_TIME, self._count)) for start in starts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class Shards(_Records[ShardEntry]):
    """Records of the shards of a data set."""

    def __init__(self, records: Records) -> None:
        super().__init__(records, records.n_shards)

    @cached_property
    def _splits(self) -> NDArray[np.int64]:
        """Number of the split of each shard."""
        return np.repeat(np.arange(self.records.n_splits), self.records.splits["pieces"])

    @cached_property
    def _pieces(self) -> NDArray[np.int64]:
        """Position of each shard within its split."""
        pieces = self.records.splits["pieces"]
        return np.arange(self._count) - np.repeat(np.cumsum(pieces) - pieces, pieces)

    @cached_property
    def names(self) -> list[str]:
        """File names of all shards."""
        return self._names(0, self._count)

    def _names(self, start: int, stop: int) -> list[str]:
        numbers, pieces = self._splits[start:stop].tolist(), self._pieces[start:stop].tolist()
        digits = _hex(self.records.shards["name"][start:stop])
        return [
            "part-%06d-%04d-%s.parquet" % each  # noqa: UP031 - half the time of an f-string
            for each in zip(numbers, pieces, digits, strict=True)
        ]

    @property
    def sha256(self) -> list[str]:
        """SHA-256 of the files of all shards."""
        return _hex(self.records.shards["sha256"])

    def _make(self, start: int, stop: int) -> Iterator[ShardEntry]:
        splits, numbers, pieces = self.records.splits, self._splits[start:stop], self._pieces[start:stop]
        columns: Columns = {name: column[start:stop] for name, column in self.records.shards.items()}
        sources = self.records.sources["name"].take(pa.array(splits["source"][numbers]))
        found = zip(
            numbers.tolist(),
            pieces.tolist(),
            (splits["pieces"][numbers] == pieces + 1).tolist(),
            sources.to_pylist(),
            zip(columns["start"].tolist(), columns["stop"].tolist(), strict=True),
            _hex(columns["source_sha256"]),
            *(columns[key].tolist() for key in SUMS),
            self._names(start, stop),
            columns["size"].tolist(),
            _hex(columns["sha256"]),
            _tuples(columns["rows_by_file"]),
            _tuples(columns["bad_rows"]),
            columns["lines"].tolist(),
            strict=True,
        )
        return _made(ShardEntry, found)


class Sources(_Records[SourceEntry]):
    """Records of the source files of a data set."""

    def __init__(self, records: Records) -> None:
        super().__init__(records, records.n_sources)

    def _make(self, start: int, stop: int) -> Iterator[SourceEntry]:
        columns: Columns = {name: column[start:stop].tolist() for name, column in self.records.sources.items()}
        bad_rows = [{each["reason"]: each["count"] for each in counts} for counts in columns["bad_rows"]]
        keys = ("name", "size", "mtime_ns", "etag", "rows")
        found = zip(*(columns[key] for key in keys), bad_rows, columns["final_newline"], strict=True)
        return _made(SourceEntry, found)


def planned_splits(records: Records, numbers: Iterable[int] | None = None) -> Iterator[Split]:
    """Yield the splits of a data set as they were planned, all or those of some numbers; their files have no URLs."""
    sources, splits = records.sources, records.splits

    def file_at(place: int) -> SourceFile:
        keys = ("name", "size", "mtime_ns", "etag", "compression")
        return SourceFile(url="", **{key: _plain(sources[key][place]) for key in keys})

    for number in range(records.n_splits) if numbers is None else sorted(numbers):
        first, n_files, start, stop = (int(splits[key][number]) for key in ("source", "n_files", "start", "stop"))
        file, *others = map(file_at, range(first, first + n_files))
        yield Split(number=number, file=file, others=tuple(others), start=start, stop=stop)


def _plain(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else int(value)


def _hex(digests: pa.FixedSizeBinaryArray) -> list[str]:
    width = digests.type.byte_width
    values = memoryview(digests.buffers()[1])[digests.offset * width : (digests.offset + len(digests)) * width]
    digits = values.hex()  # of all at once: much faster than one after another
    return [digits[at : at + 2 * width] for at in range(0, len(digits), 2 * width)]


def _tuples(lists: pa.ListArray) -> list[tuple[Any, ...]]:
    """Return lists of integers or of structures as tuples."""
    if not len(lists.flatten()):
        return [()] * len(lists)
    return [
        tuple(tuple(each.values()) if isinstance(each, dict) else each for each in values)
        for values in lists.to_pylist()
    ]


def _made(kind: type[Record], found: Iterable[Sequence[object]]) -> Iterator[Record]:
    """Make frozen records of values that were checked with their columns, in the order of their fields."""
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    for values in found:
        record = object.__new__(kind)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(record, name, value)
        yield record


_LIMITS = {"thrift_string_size_limit": 1 << 24, "thrift_container_size_limit": 1 << 20}
