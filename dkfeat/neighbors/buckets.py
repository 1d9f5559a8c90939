"""Pairs of rows that share a band of codes, found by sorted files of hashes in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from dkfeat.compiled.sampling.bands import band_keys, shared_keys
from dkfeat.compiled.sampling.matches import count_pair_matches, countable_bits, in_whole_bytes
from dkfeat.engine.runners.local import Stopped
from dkfeat.errors import ConfigError
from dkfeat.neighbors.nearest import numbered_codes
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
_FILE_ROWS = 65_536  # rows of a file of keys
_PAIRS = 65_536  # pairs for which the file of codes is mapped at a time: the pages that they touch count as memory


class FoundPairs(NamedTuple):
    """Pairs of rows that a task found."""

    rows: NDArray[np.int64]
    """Shape (n_pairs, 2): the lower row of each pair first."""
    counts: NDArray[np.int32]
    """Shape (n_pairs,): numbers of equal codes."""
    n_candidates: int = 0
    """Number of pairs in equal buckets."""
    n_compared: int = 0
    """Number of pairs that were compared."""


@dataclass(frozen=True, slots=True)
class BandFiles:
    """Codes of all rows in one file, and for each block of rows a file with the keys of each band.

    A key has the high bits of a band's hash, and the row in its low bits; rows with equal high bits are a bucket. After
    the bands follows a band of all codes, whose buckets hold copies. The keys of a band are sorted if there are several
    partitions. Empty rows have no keys.
    """

    folder: str
    """Folder that all workers share."""
    n_rows: int
    n_components: int
    bits: int
    """Bits of a code in the shards."""
    bands: Bands
    part_bits: int
    """Number of high bits of a key that tell its partition."""

    @classmethod
    def of(cls, folder: str, n_rows: int, fitted: SampledMap, bands: Bands) -> Self:
        """Choose the number of partitions, and create the file of codes."""
        part_bits = (max(0, n_rows - 1) // PARTITION_ROWS).bit_length()
        files = cls(folder, n_rows, fitted.n_components, fitted.code_bits, bands, part_bits)
        files._path("codes").touch()
        return files

    def add(self, first_row: int, codes: NDArray[np.uint8], empty: NDArray[np.bool_]) -> list[str]:
        """Write the codes and keys of consecutive rows; return the names of the files of keys.

        Raises
        ------
        ConfigError
            If the folder is not that of the driver.
        """
        if not self._path("codes").exists():
            raise ConfigError(
                f"a worker does not see the folder {self.folder}; set temporary-directory in Dask's configuration to a "
                "folder that all workers share"
            )
        codes, bits = in_whole_bytes(codes, self.n_components, self.bits)
        with self._path("codes").open("r+b") as file:
            file.seek(first_row * codes.shape[1])
            file.write(np.ascontiguousarray(codes).data)
        names, filled = [], ~empty
        for at in range(0, len(codes), _FILE_ROWS):
            some = slice(at, at + _FILE_ROWS)
            if filled[some].any():
                names.append(f"{first_row + at}.keys")
                with self._path(names[-1]).open("wb") as file:
                    for keys in self._keys(first_row + at, codes[some], filled[some], bits):
                        file.write(keys.data)
        return names

    def mark_copies(self, copies: NDArray[np.bool_]) -> None:
        """Write which rows are copies of a lower row."""
        np.save(self._path("copies.npy"), copies)

    def are_copies(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows are copies of a lower row."""
        copies: NDArray[np.bool_] = np.load(self._path("copies.npy"), mmap_mode="r")[rows]
        return copies

    def buckets(self, names: list[str], band: int, part: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Read the keys of a band in a partition; return the hashes and rows of buckets with several rows, in order."""
        shift = 64 - self.part_bits
        first, last = (np.array(key, np.uint64) for key in (part << shift, ((part + 1) << shift) - 1))
        runs = [np.empty(0, np.uint64)]
        for name in names:
            run = np.asarray(np.memmap(self._path(name), np.uint64, "r")).reshape(self.bands.n_bands + 1, -1)[band]
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
            mapped = np.asarray(np.memmap(self._path("codes"), np.uint8, "c", shape=(self.n_rows, row_bytes)))
            some = slice(at, at + _PAIRS)
            counts.append(count_pair_matches(mapped, left[some], right[some], self.n_components, wide))
        return np.concatenate(counts)

    def _keys(
        self, first_row: int, codes: NDArray[np.uint8], filled: NDArray[np.bool_], bits: int
    ) -> list[NDArray[np.uint64]]:
        row_bits = (self.n_rows - 1).bit_length()
        divisions = (self.bands, Bands(1, self.n_components))
        keys = [band_keys(codes, bits, *bands, first_row, row_bits) for bands in divisions]
        if not filled.all():
            keys = [of_rows.compress(filled, axis=1) for of_rows in keys]
        for of_rows in keys if self.part_bits else []:  # partitions are searched for, one is not
            of_rows.sort(axis=1)
        return keys

    @property
    def _row_mask(self) -> np.uint64:
        return np.uint64((1 << (self.n_rows - 1).bit_length()) - 1)

    def _path(self, name: str) -> Path:
        return Path(self.folder, name)


@dataclass(frozen=True, slots=True)
class WriteKeys:
    """Task that writes the codes and keys of a shard, and returns the names of the files of keys."""

    data: ShardDataset
    files: BandFiles

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> list[str]:  # noqa: ARG002 - a shard is short
        """See `dkfeat.engine.runners.local.SplitTask`."""
        first, codes = numbered_codes(self.data, split)
        return self.files.add(first, codes.codes, codes.empty)


@dataclass(frozen=True, slots=True)
class FindCopies:
    """Task that finds rows whose codes are all equal; each is paired with the lowest of them."""

    files: BandFiles
    names: list[str]

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> FoundPairs:
        """See `dkfeat.engine.runners.local.SplitTask`; the number of the split is the partition."""
        hashes, rows = self.files.buckets(self.names, self.files.bands.n_bands, split.number)
        pairs = [np.empty((0, 2), np.int64)]
        while len(rows):  # a second time only where rows with other codes have the same hash
            if stopped():
                raise Stopped
            begins = np.concatenate([[True], hashes[1:] != hashes[:-1]])
            left, right = rows[begins][np.cumsum(begins) - 1][~begins], rows[~begins]
            equal = self.files.count_matches(left, right) == self.files.n_components
            pairs.append(np.column_stack([left, right])[equal])
            hashes, rows = hashes[~begins][~equal], right[~equal]
        found = np.concatenate(pairs)
        return FoundPairs(found, np.full(len(found), self.files.n_components, np.int32), len(found), len(found))


@dataclass(frozen=True, slots=True)
class FindPairs:
    """Task that compares the rows of each bucket of a band, copies left out.

    If there are too many pairs, only those that are closest in their bucket are compared.
    """

    files: BandFiles
    names: list[str]
    least_count: int
    """Number of equal codes of the pairs that are returned, at least."""

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> FoundPairs:
        """See `dkfeat.engine.runners.local.SplitTask`; the number of the split is the band and the partition."""
        hashes, rows = self.files.buckets(self.names, *divmod(split.number, 1 << self.files.part_bits))
        distinct = ~self.files.are_copies(rows)
        hashes, rows = hashes[distinct], rows[distinct]
        pairs, counts = [np.empty((0, 2), np.int64)], [np.empty(0, np.int32)]
        n_compared = 0
        for left, right in _neighbors(hashes, MOST_COMPARISONS * (self.files.n_rows >> self.files.part_bits)):
            if stopped():
                raise Stopped
            found = self.files.count_matches(rows[left], rows[right])
            kept = found >= self.least_count
            pairs.append(np.column_stack([rows[left], rows[right]])[kept])
            counts.append(found[kept])
            n_compared += len(found)
        sizes = np.diff(np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1], [True]])))
        n_candidates = int((sizes * (sizes - 1) // 2).sum())
        return FoundPairs(np.concatenate(pairs), np.concatenate(counts), n_candidates, n_compared)


def _neighbors(hashes: NDArray[np.uint64], most: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield positions of pairs with equal hashes, of sorted ones: neighbours, then those farther apart, at most `most`.

    Examples
    --------
    >>> for left, right in _neighbors(np.array([1, 2, 2, 2, 5]), most=10):
    ...     print(left.tolist(), right.tolist())
    [1, 2] [2, 3]
    [1] [3]
    """
    left = np.arange(len(hashes))
    for distance in range(1, len(hashes)):
        left = left[: np.searchsorted(left, len(hashes) - distance)]
        left = left[hashes[left] == hashes[left + distance]]
        most -= len(left)
        if not len(left) or most < 0:
            return
        yield left, left + distance
