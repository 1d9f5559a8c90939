"""Tasks that find similar pairs: rows that share a band of codes, by files of hashes, and then exact comparisons."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np
import scipy.sparse as sp

from dkfeat.compiled.sampling.bands import band_keys, shared_keys
from dkfeat.compiled.sampling.codes import count_pair_matches, countable_bits, in_whole_bytes
from dkfeat.engine.runners.base import Stopped, until_stopped
from dkfeat.errors import CommitError
from dkfeat.neighbors.deduplication.work_files import FoundPairs, PairFiles, PairTask, Part, WorkFolder, pair_keys
from dkfeat.neighbors.scan import first_row, numbered_codes
from dkfeat.store.storage.base import faults_as
from dkfeat.theory.bands import Bands

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.maps._kernel_estimates import Codes
    from dkfeat.maps._sampled import SampledMap
    from dkfeat.neighbors.exact import RowsOfSource

MAX_COMPARISONS = 16
"""Maximum number of comparisons in a band for each row of the data set."""
PARTITION_ROWS = 1 << 22
"""Maximum number of rows in a partition, on average."""
_BLOCK_ROWS = 65_536  # rows whose keys are a file
_PAIRS = 65_536  # pairs for which the file of codes is mapped at a time: the pages that they touch count as memory
_CODES, _IS_COPY = "codes", "is-copy"


@dataclass(frozen=True, slots=True)
class BandFiles:
    """Codes of all rows in one file, and for each block of rows a file with the keys of its bands and of all codes.

    A key has the high bits of a band's hash, and the row in its low bits; rows with equal high bits are a bucket. All
    codes are a further band, the last one, whose buckets hold copies. The keys of a band are sorted if there are
    several partitions. Empty rows have no keys. The codes of a block have their place in the file, which does not
    change, and they are on disk before its keys are.
    """

    work: WorkFolder
    n_rows: int
    n_components: int
    bits: int
    """Bits of a code in the shards."""
    bands: Bands
    part_bits: int
    """Number of high bits of a key that tell its partition."""
    firsts: Sequence[int]
    """First row of each block; a block has `block_rows` rows, and also ends with its shard."""
    block_rows: int

    @classmethod
    def of(cls, work: WorkFolder, data: ShardDataset, codes: Codes, bands: Bands) -> Self:
        """Choose the number of partitions and the blocks, and create the file of codes."""
        part_bits = (max(0, data.n_rows - 1) // PARTITION_ROWS).bit_length()
        work.path(_CODES).touch()
        shards = pairwise(data.first_rows.tolist())
        firsts = [first for start, stop in shards for first in range(start, stop, _BLOCK_ROWS)]
        return cls(work, data.n_rows, codes.n_components, codes.bits, bands, part_bits, firsts, _BLOCK_ROWS)

    @property
    def n_parts(self) -> int:
        """Number of partitions."""
        return 1 << self.part_bits

    def add(self, first_row: int, codes: NDArray[np.uint8], empty: NDArray[np.bool_]) -> None:
        """Write the codes and keys of consecutive rows."""
        codes, bits = in_whole_bytes(codes, self.n_components, self.bits)
        path = self.work.path(_CODES)
        with faults_as(CommitError, f"{path} cannot be written"), path.open("r+b") as file:
            file.seek(first_row * codes.shape[1])
            file.write(np.ascontiguousarray(codes).data)
            file.flush()
            if self.work.storage.durable:
                os.fsync(file.fileno())
        for at in range(0, len(codes), self.block_rows):
            some, first = slice(at, at + self.block_rows), first_row + at
            self.work.write(_keys_name(first), self._keys(first, codes[some], ~empty[some], bits))

    def add_shard(self, data: ShardDataset, split: Split, stopped: Callable[[], bool]) -> None:  # noqa: ARG002 - a shard is short
        """Write the codes and keys of a shard, unless they are written."""
        if not self.has(first_row(data, split), split.stop):
            first, codes = numbered_codes(data, split)
            self.add(first, codes.codes, codes.empty)

    def has(self, first_row: int, n_rows: int) -> bool:
        """Return True if the codes and keys of consecutive rows are written."""
        firsts = range(first_row, first_row + n_rows, self.block_rows)
        return all(self.work.has(_keys_name(first)) for first in firsts)

    def mark_copies(self, copies: NDArray[np.bool_]) -> None:
        """Write which rows are copies of a lower row."""
        self.work.write(_IS_COPY, copies)

    def are_copies(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows are copies of a lower row."""
        copies: NDArray[np.bool_] = self.work.values(_IS_COPY, np.bool_)[rows]
        return copies

    def buckets(self, band: int, part: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Read the keys of a band in a partition; return the hashes and rows of buckets with several rows, in order."""
        shift = 64 - self.part_bits
        first, last = (np.array(key, np.uint64) for key in (part << shift, ((part + 1) << shift) - 1))
        runs = [np.empty(0, np.uint64)]
        for row in self.firsts:
            run = self.work.values(_keys_name(row), np.uint64).reshape(self.bands.n_bands + 1, -1)[band]
            runs.append(np.array(run[np.searchsorted(run, first) : np.searchsorted(run, last, side="right")]))
        keys = shared_keys(np.concatenate(runs), self._row_mask)
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

    def _keys(
        self, first_row: int, codes: NDArray[np.uint8], filled: NDArray[np.bool_], bits: int
    ) -> NDArray[np.uint64]:
        divisions, row_bits = (self.bands, (1, self.n_components)), (self.n_rows - 1).bit_length()
        keys = np.concatenate([band_keys(codes, bits, *bands, first_row, row_bits) for bands in divisions])
        if not filled.all():
            keys = keys.compress(filled, axis=1)
        if self.part_bits:  # partitions are searched for, one is not
            keys.sort(axis=1)
        return keys

    @property
    def _row_mask(self) -> np.uint64:
        return np.uint64((1 << (self.n_rows - 1).bit_length()) - 1)


def _keys_name(first_row: int) -> str:
    return f"keys-{first_row}"


@dataclass(frozen=True, slots=True)
class FindCopies(PairTask):
    """Task that finds the rows of a partition whose codes are all equal; each is paired with the lowest of them."""

    files: BandFiles
    similarity: float
    """Estimate for equal codes."""

    def find(self, part: Part, stopped: Callable[[], bool]) -> FoundPairs:
        """See `PairTask.find`."""
        hashes, rows = self.files.buckets(self.files.bands.n_bands, part.number)
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
        return FoundPairs(found, np.full(len(found), self.similarity), len(found), len(found))


@dataclass(frozen=True, slots=True)
class FindPairs(PairTask):
    """Task that compares the rows of each bucket of a band in a partition, copies left out.

    If there are too many pairs, only those that are closest in their bucket are compared.
    """

    files: BandFiles
    similarities: NDArray[np.float64]
    """Estimate for each number of equal codes."""
    least_count: int
    """Number of equal codes of the pairs that are found, at least."""

    def find(self, part: Part, stopped: Callable[[], bool]) -> FoundPairs:
        """See `PairTask.find`."""
        hashes, rows = self._buckets(part.number)
        keys, similarities = [np.empty(0, np.uint64)], [np.empty(0)]
        n_compared = 0
        near = _neighbors(hashes, MAX_COMPARISONS * (self.files.n_rows // self.files.n_parts))
        for left, right in until_stopped(_batches(near), stopped):
            found = self.files.count_matches(rows[left], rows[right])
            kept = found >= self.least_count
            keys.append(pair_keys(rows[left[kept]], rows[right[kept]]))
            similarities.append(self.similarities[found[kept]])
            n_compared += len(found)
        return FoundPairs(np.concatenate(keys), np.concatenate(similarities), _count_pairs(hashes), n_compared)

    def _buckets(self, number: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Read the hashes and rows of the buckets of a task, without copies."""
        hashes, rows = self.files.buckets(*divmod(number, self.files.n_parts))
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


def _neighbors(hashes: NDArray[np.uint64], most: int) -> Iterator[NDArray[np.int64]]:
    """Yield positions of pairs with equal hashes, of sorted ones: neighbours, then farther pairs up to `most` in all.

    An array has a pair in each column.

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
        yield np.stack([left, left + distance])


def _batches(pairs: Iterable[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    """Join pairs, of which few may be given at a time, to batches of `_PAIRS` or more."""
    held, n_held = [np.empty((2, 0), np.int64)], 0
    for some in pairs:
        held.append(some)
        n_held += some.shape[1]
        if n_held >= _PAIRS:
            yield np.concatenate(held, axis=1)
            held, n_held = held[:1], 0
    yield np.concatenate(held, axis=1)


STANDARD_ERRORS = 3.0
"""Number of standard errors by which the estimate of a pair that is compared exactly may lie below the threshold."""
_COMPARED = 1 << 13  # pairs whose rows are in memory at a time
_WANTED = "wanted"


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows in files, each of them with the wanted rows of a block of consecutive ones."""

    work: WorkFolder
    n_features: int
    firsts: NDArray[np.int64]
    """Number of the first row of each block, ascending."""

    def want(self, rows: NDArray[np.bool_]) -> None:
        """Write which rows will be compared."""
        self.work.write(_WANTED, rows)

    def has(self, first: int, n_rows: int) -> bool:
        """Return True if the wanted rows of a block are stored."""
        return self.work.has(_rows_name(first)) or not len(self._wanted(first, n_rows))

    def add(self, first: int, X: sp.csr_matrix) -> None:
        """Store the wanted rows of a block; `X` has all its rows."""
        wanted = self._wanted(first, X.shape[0])
        if len(wanted):
            some = X[wanted]
            head = np.array([len(wanted), some.nnz], np.int64)
            columns = [head, first + wanted, some.indptr.astype(np.int64), some.indices.astype(np.int64)]
            self.work.write(_rows_name(first), np.concatenate([*columns, some.data.astype(np.float64).view(np.int64)]))

    def add_split(self, source: RowsOfSource, split: Split, stopped: Callable[[], bool]) -> None:
        """Read a split of the source again, and store its wanted rows, unless they are stored."""
        if not all(self.has(first, entry.rows) for first, entry in source.pieces[split.number]):
            for first, X in source.read(split, stopped):
                self.add(first, X)

    def take(self, rows: NDArray[np.int64]) -> sp.csr_matrix:
        """Return rows by their numbers, which ascend."""
        blocks = np.searchsorted(self.firsts, rows, side="right") - 1
        parts = [self._of_block(int(self.firsts[block]), rows[blocks == block]) for block in np.unique(blocks).tolist()]
        return sp.vstack(parts, format="csr")

    def _wanted(self, first: int, n_rows: int) -> NDArray[np.int64]:
        """Return the rows of a block that are wanted, counted from its first row."""
        return np.flatnonzero(self.work.values(_WANTED, np.bool_)[first : first + n_rows])

    def _of_block(self, first: int, rows: NDArray[np.int64]) -> sp.csr_matrix:
        values = self.work.values(_rows_name(first), np.int64)
        n, nnz = values[:2].tolist()
        numbers, indptr, indices, data = np.split(values[2:], np.cumsum([n, n + 1, nnz]))
        at = np.searchsorted(numbers, rows)
        starts, lengths = indptr[at], indptr[at + 1] - indptr[at]
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.repeat(starts - bounds[:-1], lengths) + np.arange(bounds[-1])
        found = (data[positions].view(np.float64), indices[positions], bounds)
        return sp.csr_matrix(found, shape=(len(rows), self.n_features))


def _rows_name(first: int) -> str:
    return f"rows-{first}"


@dataclass(frozen=True, slots=True)
class CompareExactly(PairTask):
    """Task that keeps the pairs of a range of rows whose exact similarity is at least the threshold."""

    candidates: PairFiles
    rows: StoredRows
    fitted: SampledMap
    threshold: float

    def find(self, part: Part, stopped: Callable[[], bool]) -> FoundPairs:
        """See `PairTask.find`."""
        found = self.candidates.between(part.start, part.stop)
        lower, higher = found.rows
        exact = np.empty(len(lower))
        for at in until_stopped(range(0, len(lower), _COMPARED), stopped):
            some = slice(at, at + _COMPARED)
            numbers, positions = np.unique(np.concatenate([lower[some], higher[some]]), return_inverse=True)
            left, right = np.split(positions.ravel(), 2)
            X = self.rows.take(numbers)
            exact[some] = self.fitted.exact_pairs(X, X, left, right)
        kept = exact >= self.threshold
        return FoundPairs(found.keys[kept], exact[kept], len(exact), len(exact))
