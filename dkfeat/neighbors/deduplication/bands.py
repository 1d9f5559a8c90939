"""Pairs of rows that share a band of codes, found by files of hashes in a work folder."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np

from dkfeat.compiled.sampling.bands import band_keys, shared_keys
from dkfeat.compiled.sampling.codes import count_pair_matches, countable_bits, in_whole_bytes
from dkfeat.engine.runners.local import Stopped
from dkfeat.neighbors.deduplication.pairs import Counts, FoundPairs, PairFiles, pair_keys
from dkfeat.neighbors.deduplication.work_files import WorkFolder
from dkfeat.neighbors.scan import first_row, numbered_codes
from dkfeat.theory.bands import Bands

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps._sampled import SampledMap

MOST_COMPARISONS = 16
"""Maximum number of comparisons in a band for each row of the data set."""
PARTITION_ROWS = 1 << 22
"""Maximum number of rows in a partition, on average."""
_BLOCK_ROWS = 65_536  # rows whose keys are a file
_PAIRS = 65_536  # pairs for which the file of codes is mapped at a time: the pages that they touch count as memory
_CODES, _IS_COPY = "codes", "is-copy"


@dataclass(frozen=True, slots=True)
class BandFiles:
    """Codes of all rows in one file, and for each block of rows files with the keys of bands and of all codes.

    A key has the high bits of a band's hash, and the row in its low bits; rows with equal high bits are a bucket. All
    codes are a band too, whose buckets hold copies. The keys of a band are sorted if there are several partitions.
    Empty rows have no keys. The codes of a block have their place in the file, which does not change, and they are on
    disk before its keys are.
    """

    work: WorkFolder
    n_rows: int
    n_components: int
    bits: int
    """Bits of a code in the shards."""
    bands: Bands
    part_bits: int
    """Number of high bits of a key that tell its partition."""
    block_rows: int
    """Maximum number of rows in a block; a block also ends with its shard."""

    @classmethod
    def of(cls, work: WorkFolder, n_rows: int, fitted: SampledMap, bands: Bands) -> Self:
        """Choose the number of partitions, and create the file of codes."""
        part_bits = (max(0, n_rows - 1) // PARTITION_ROWS).bit_length()
        work.path(_CODES).touch()
        return cls(work, n_rows, fitted.n_components, fitted.code_bits, bands, part_bits, _BLOCK_ROWS)

    def add(self, first_row: int, codes: NDArray[np.uint8], empty: NDArray[np.bool_]) -> None:
        """Write the codes and keys of consecutive rows."""
        codes, bits = in_whole_bytes(codes, self.n_components, self.bits)
        with self.work.path(_CODES).open("r+b") as file:
            file.seek(first_row * codes.shape[1])
            file.write(np.ascontiguousarray(codes).data)
            file.flush()
            if self.work.storage.durable:
                os.fsync(file.fileno())
        for at in range(0, len(codes), self.block_rows):
            some, first = slice(at, at + self.block_rows), first_row + at
            for name, bands in self._divisions(first).items():
                self.work.write(name, self._keys(first, codes[some], ~empty[some], bits, bands))

    def has(self, first_row: int, n_rows: int) -> bool:
        """Return True if the codes and keys of consecutive rows are written."""
        firsts = self._firsts(first_row, n_rows)
        return all(self.work.has(name) for first in firsts for name in self._divisions(first))

    def first_rows(self, data: ShardDataset) -> list[int]:
        """Return the number of the first row of each block."""
        return [
            first for start, stop in pairwise(data.first_rows.tolist()) for first in self._firsts(start, stop - start)
        ]

    def mark_copies(self, copies: NDArray[np.bool_]) -> None:
        """Write which rows are copies of a lower row."""
        self.work.write(_IS_COPY, copies)

    def are_copies(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows are copies of a lower row."""
        copies: NDArray[np.bool_] = self.work.values(_IS_COPY, np.bool_)[rows]
        return copies

    def buckets(
        self, firsts: Sequence[int], band: int | None, part: int
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Read the keys of a band in a partition; return the hashes and rows of buckets with several rows, in order.

        `firsts` has the first row of each block, and the band is None for that of all codes.
        """
        shift = 64 - self.part_bits
        first, last = (np.array(key, np.uint64) for key in (part << shift, ((part + 1) << shift) - 1))
        runs = [np.empty(0, np.uint64)]
        for row in firsts:
            name, bands = list(self._divisions(row).items())[band is None]
            run = self.work.values(name, np.uint64).reshape(bands.n_bands, -1)[band or 0]
            runs.append(np.array(run[np.searchsorted(run, first) : np.searchsorted(run, last, side="right")]))
        keys = np.concatenate(runs)
        keys.sort()
        keys = shared_keys(keys, self._row_mask)
        return keys & ~self._row_mask, (keys & self._row_mask).astype(np.int64)

    def count_matches(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int32]:
        """Count the equal codes of pairs of rows."""
        wide = countable_bits(self.bits)
        row_bytes = (self.n_components * wide + 7) // 8
        counts = [np.empty(0, np.int32)]
        for at in range(0, len(left), _PAIRS):
            # private pages are writeable, so that no loop copies them
            path = str(self.work.path(_CODES))  # numpy takes long to resolve a Path
            mapped = np.asarray(np.memmap(path, np.uint8, "c", shape=(self.n_rows, row_bytes)))
            some = slice(at, at + _PAIRS)
            counts.append(count_pair_matches(mapped, left[some], right[some], self.n_components, wide))
        return np.concatenate(counts)

    def _firsts(self, first_row: int, n_rows: int) -> range:
        """Return the first rows of the blocks of a shard."""
        return range(first_row, first_row + n_rows, self.block_rows)

    def _divisions(self, first_row: int) -> dict[str, Bands]:
        """Return the names of the two files of keys of a block, with their bands."""
        return {f"{first_row}-bands": self.bands, f"{first_row}-all": Bands(1, self.n_components)}

    def _keys(
        self, first_row: int, codes: NDArray[np.uint8], filled: NDArray[np.bool_], bits: int, bands: Bands
    ) -> NDArray[np.uint64]:
        keys = band_keys(codes, bits, *bands, first_row, (self.n_rows - 1).bit_length())
        if not filled.all():
            keys = keys.compress(filled, axis=1)
        if self.part_bits:  # partitions are searched for, one is not
            keys.sort(axis=1)
        return keys

    @property
    def _row_mask(self) -> np.uint64:
        return np.uint64((1 << (self.n_rows - 1).bit_length()) - 1)


@dataclass(frozen=True, slots=True)
class WriteKeys:
    """Task that writes the codes and keys of a shard, unless they are written."""

    data: ShardDataset
    files: BandFiles

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> None:  # noqa: ARG002 - a shard is short
        """See `dkfeat.engine.runners.local.SplitTask`."""
        self.files.work.check_seen()
        first = first_row(self.data, split)
        if not self.files.has(first, split.stop):
            first, codes = numbered_codes(self.data, split)
            self.files.add(first, codes.codes, codes.empty)


@dataclass(frozen=True, slots=True)
class FindTask:
    """Task that finds pairs in a partition, and writes them into a file, unless it is written."""

    files: BandFiles
    firsts: Sequence[int]
    """First row of each block that has keys."""
    pairs: PairFiles
    """Files of the tasks, in the order of the splits' numbers."""
    similarities: NDArray[np.float64]
    """Estimate for each number of equal codes."""

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> Counts:
        """See `dkfeat.engine.runners.local.SplitTask`."""
        self.files.work.check_seen()
        name = self.pairs.names[split.number]
        if self.files.work.has(name):
            return self.pairs.counts(name)
        return self.pairs.write(name, self.find(split.number, stopped))

    @abstractmethod
    def find(self, number: int, stopped: Callable[[], bool]) -> FoundPairs:
        """Find the pairs of the split with this number."""


@dataclass(frozen=True, slots=True)
class FindCopies(FindTask):
    """Task that finds rows whose codes are all equal; each is paired with the lowest of them."""

    def find(self, number: int, stopped: Callable[[], bool]) -> FoundPairs:
        """Find the copies in a partition."""
        hashes, rows = self.files.buckets(self.firsts, None, number)
        keys = [np.empty(0, np.uint64)]
        while len(rows):  # a second time only where rows with other codes have the same hash
            if stopped():
                raise Stopped
            begins = np.concatenate([[True], hashes[1:] != hashes[:-1]])
            left, right = rows[begins][np.cumsum(begins) - 1][~begins], rows[~begins]
            equal = self.files.count_matches(left, right) == self.files.n_components
            keys.append(pair_keys(left[equal], right[equal]))
            hashes, rows = hashes[~begins][~equal], right[~equal]
        found = np.concatenate(keys)
        return FoundPairs(found, np.full(len(found), self.similarities[-1]), len(found), len(found))


@dataclass(frozen=True, slots=True)
class FindPairs(FindTask):
    """Task that compares the rows of each bucket of a band, copies left out.

    If there are too many pairs, only those that are closest in their bucket are compared.
    """

    least_count: int
    """Number of equal codes of the pairs that are found, at least."""

    def find(self, number: int, stopped: Callable[[], bool]) -> FoundPairs:
        """Find the pairs in a partition of a band."""
        hashes, rows = self._buckets(number)
        keys, similarities = [np.empty(0, np.uint64)], [np.empty(0)]
        n_compared = 0
        for left, right in _neighbors(hashes, MOST_COMPARISONS * (self.files.n_rows >> self.files.part_bits)):
            if stopped():
                raise Stopped
            found = self.files.count_matches(rows[left], rows[right])
            kept = found >= self.least_count
            keys.append(pair_keys(rows[left[kept]], rows[right[kept]]))
            similarities.append(self.similarities[found[kept]])
            n_compared += len(found)
        return FoundPairs(np.concatenate(keys), np.concatenate(similarities), _count_pairs(hashes), n_compared)

    def expect(self) -> tuple[float, float]:
        """Estimate the number of candidates in all splits from those in two; also return its standard error.

        The splits have hashes of equal quality of the same rows, so the mean of any is unbiased. The error is that of
        the mean of two, and rough.
        """
        n_splits = len(self.pairs.names)
        counts = [_count_pairs(self._buckets(number)[0]) for number in {0, n_splits - 1}]
        spread = abs(counts[0] - counts[-1]) / 2 * math.sqrt(max(0, n_splits - 2) / n_splits)
        return n_splits * sum(counts) / len(counts), n_splits * spread

    def _buckets(self, number: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Read the hashes and rows of the buckets in a partition of a band, without copies."""
        hashes, rows = self.files.buckets(self.firsts, *divmod(number, 1 << self.files.part_bits))
        distinct = ~self.files.are_copies(rows)
        return hashes[distinct], rows[distinct]


def _count_pairs(hashes: NDArray[np.uint64]) -> int:
    """Count the pairs of equal hashes, which are sorted.

    Examples
    --------
    >>> _count_pairs(np.array([1, 2, 2, 2, 5, 5]))
    4
    """
    sizes = np.diff(np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1], [True]])))
    return int((sizes * (sizes - 1) // 2).sum())


def _neighbors(hashes: NDArray[np.uint64], most: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield positions of pairs with equal hashes, of sorted ones: neighbours, then farther pairs up to `most` in all.

    Examples
    --------
    >>> for left, right in _neighbors(np.array([1, 2, 2, 2, 5]), most=10):
    ...     print(left.tolist(), right.tolist())
    [1, 2] [2, 3]
    [1] [3]
    >>> len(list(_neighbors(np.array([2, 2, 2, 2]), most=1)))  # neighbours always
    1
    """
    left = np.arange(len(hashes))
    for distance in range(1, len(hashes)):
        left = left[: np.searchsorted(left, len(hashes) - distance)]
        left = left[hashes[left] == hashes[left + distance]]
        most -= len(left)
        if not len(left) or (most < 0 and distance > 1):
            return
        yield left, left + distance
