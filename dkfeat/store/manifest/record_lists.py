"""Sequences of the records of a data set, which are made from their table when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dkfeat.blocks import SourceFile, Split
from dkfeat.store.manifest.record_table import SUMS, Columns, Records
from dkfeat.store.manifest.records import ShardEntry, SourceEntry

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
