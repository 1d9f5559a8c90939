"""Shards, sources and splits of a data set as sequences of records, which are made from columns when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from dkfeat.blocks import SourceFile, Split
from dkfeat.store.manifest.records import ShardEntry, SourceEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.store.manifest.segment import Segment

Record = TypeVar("Record")
_AT_A_TIME = 4096
"""Number of records that an iteration makes at a time."""


class _Records(Sequence[Record]):
    """Immutable sequence whose records are made by `_make`; equal to any sequence of equal records."""

    _count: int

    def _make(self, start: int, stop: int) -> Iterator[Record]:
        raise NotImplementedError

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Record, ...]: ...
    def __getitem__(self, index: int | slice) -> Record | tuple[Record, ...]:
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
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_equal, self, other))

    __hash__ = None  # type: ignore[assignment]


def _equal(one: object, other: object) -> bool:
    return one == other


class Shards(_Records[ShardEntry]):
    """Records of the shards of a data set.

    Parameters
    ----------
    segment : Segment
        Columns of the whole data set.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment, self._count = segment, segment.n_shards

    @cached_property
    def _splits(self) -> NDArray[np.int64]:
        """Number of the split of each shard."""
        return np.repeat(np.arange(self.segment.n_splits), self.segment.splits["pieces"])

    @cached_property
    def _pieces(self) -> NDArray[np.int64]:
        """Position of each shard within its split."""
        pieces = self.segment.splits["pieces"]
        return np.arange(self._count) - np.repeat(np.cumsum(pieces) - pieces, pieces)

    @cached_property
    def names(self) -> list[str]:
        """File names of all shards."""
        return self._names(0, self._count)

    def _names(self, start: int, stop: int) -> list[str]:
        digits, numbers = self.segment.shards["name"], self._splits[start:stop].tolist()
        pieces, places = self._pieces[start:stop].tolist(), range(12 * start, 12 * stop, 12)
        return [
            "part-%06d-%04d-%s.parquet" % (split, piece, digits[at : at + 12])  # noqa: UP031 - half the time of an f-string
            for split, piece, at in zip(numbers, pieces, places, strict=True)
        ]

    def _make(self, start: int, stop: int) -> Iterator[ShardEntry]:
        columns, splits = self.segment.shards, self.segment.splits
        numbers, pieces = self._splits[start:stop], self._pieces[start:stop]
        last = (splits["pieces"][numbers] == pieces + 1).tolist()
        files = splits["source"][numbers].tolist()
        plain = [columns[key][start:stop].tolist() for key in ("size", "rows", "nnz", "n_empty", "start", "stop")]
        sources, sha256, source_sha256 = self.segment.sources["name"], columns["sha256"], columns["source_sha256"]
        rows_by_file, bad_rows, lines = columns["rows_by_file"], columns["bad_rows"], columns["lines"]
        found = zip(numbers.tolist(), pieces.tolist(), last, self._names(start, stop), files, *plain, strict=True)
        for place, (split, piece, is_last, name, file, size, rows, nnz, n_empty, first, end) in enumerate(found, start):
            digits = slice(64 * place, 64 * place + 64)
            counts = rows, nnz, n_empty, sources[file], (first, end), source_sha256[digits]
            few = rows_by_file.get(place, ()), bad_rows.get(place, ()), lines.get(place)
            yield _made(ShardEntry, (split, piece, is_last, name, size, sha256[digits], *counts, *few))


class Sources(_Records[SourceEntry]):
    """Records of the source files of a data set.

    Parameters
    ----------
    segment : Segment
        Columns of the whole data set.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment, self._count = segment, segment.n_sources

    def _make(self, start: int, stop: int) -> Iterator[SourceEntry]:
        columns = self.segment.sources
        keys = ("name", "size", "mtime_ns", "etag", "rows", "final_newline")
        values = (columns[key][start:stop] for key in keys)
        found = zip(*(each.tolist() if isinstance(each, np.ndarray) else each for each in values), strict=True)
        for place, (name, size, mtime_ns, etag, rows, final_newline) in enumerate(found, start):
            bad_rows = columns["bad_rows"].get(place, _NO_BAD_ROWS)
            yield _made(SourceEntry, (name, size, mtime_ns, etag, rows, bad_rows, final_newline))


_NO_BAD_ROWS: dict[str, int] = {}


def planned_splits(segment: Segment, numbers: Iterable[int] | None = None) -> Iterator[Split]:
    """Yield the splits of a data set as they were planned, all or those of some numbers; their files have no URLs."""
    sources, splits = segment.sources, segment.splits
    keys = ("name", "size", "mtime_ns", "etag", "compression")

    def file_at(place: int) -> SourceFile:
        values: dict[str, Any] = {key: sources[key][place] for key in keys}
        return SourceFile(**values | {"size": int(values["size"])}, url="")

    for number in range(segment.n_splits) if numbers is None else sorted(numbers):
        first, n_files, start, stop = (int(splits[key][number]) for key in ("source", "n_files", "start", "stop"))
        file, *others = map(file_at, range(first, first + n_files))
        yield Split(number=number, file=file, others=tuple(others), start=start, stop=stop)


def _made(kind: type[Record], values: Sequence[object]) -> Record:
    """Make a frozen record of values, in the order of its fields, that the segment has checked already."""
    record = object.__new__(kind)
    for name, value in zip(kind.__slots__, values, strict=True):  # type: ignore[attr-defined]
        object.__setattr__(record, name, value)
    return record
