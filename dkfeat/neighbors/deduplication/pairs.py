"""Files with the similar pairs that tasks found, and the pairs of all of them in order, each once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dkfeat.neighbors.deduplication.work_files import WorkFolder

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_ROWS = 1 << 32
"""Maximum number of rows: two row numbers fit in 64 bits."""
_ROW_BITS, _LOWER = np.uint64(32), np.uint64(MOST_ROWS - 1)
_HEAD = 16  # bytes of the two counts at the start of a file
_CHUNK = 1 << 18  # pairs that are in memory at a time, of a file that is read as a whole


class FoundPairs(NamedTuple):
    """Pairs of rows with their similarities, and how many pairs were looked at."""

    keys: NDArray[np.uint64]
    """Shape (n_pairs,): the higher row of each pair in the upper 32 bits, the lower one in the others."""
    similarities: NDArray[np.float64]
    """Shape (n_pairs,)."""
    n_candidates: int = 0
    """Number of pairs that were candidates."""
    n_compared: int = 0
    """Number of these that were compared."""

    @property
    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lower and the higher row of each pair."""
        return (self.keys & _LOWER).astype(np.int64), (self.keys >> _ROW_BITS).astype(np.int64)


def pair_keys(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the keys of pairs of rows, see `FoundPairs`."""
    keys: NDArray[np.uint64] = np.maximum(left, right).astype(np.uint64) << _ROW_BITS
    keys |= np.minimum(left, right).astype(np.uint64)
    return keys


class Counts(NamedTuple):
    """Numbers of pairs in a file, and those of `FoundPairs`."""

    n_pairs: int
    n_candidates: int
    n_compared: int


@dataclass(frozen=True, slots=True)
class PairFiles:
    """Files of pairs, sorted by their keys; a pair may be in several files, with the same similarity."""

    work: WorkFolder
    names: tuple[str, ...]

    def write(self, name: str, found: FoundPairs) -> Counts:
        """Create a file of pairs, which are in any order and different."""
        order = np.argsort(found.keys)
        head = np.array([found.n_candidates, found.n_compared], np.int64).view(np.uint64)
        similarities = found.similarities[order].view(np.uint64)
        self.work.write(name, np.concatenate([head, found.keys[order], similarities]))
        return Counts(len(found.keys), found.n_candidates, found.n_compared)

    def counts(self, name: str) -> Counts:
        """Return the counts of a file."""
        values = self.work.values(name, np.int64)
        return Counts((len(values) - 2) // 2, int(values[0]), int(values[1]))

    def chunks(self) -> Iterator[FoundPairs]:
        """Iterate over the pairs of all files, a few at a time; a pair comes once for each file that has it."""
        for name in self.names:
            keys, similarities = self._columns(name)
            for at in range(0, len(keys), _CHUNK):
                some = slice(at, at + _CHUNK)
                yield FoundPairs(np.array(keys[some]), np.array(similarities[some]))

    def between(self, first: int, stop: int) -> FoundPairs:
        """Return the pairs whose higher row is in a range, sorted by it and then by the lower row, each pair once."""
        low, high = np.array([first, max(first, stop - 1)], np.uint64) << _ROW_BITS
        parts = [FoundPairs(np.empty(0, np.uint64), np.empty(0))]
        for name in self.names if first < stop else ():
            keys, similarities = self._columns(name)
            some = slice(np.searchsorted(keys, low), np.searchsorted(keys, high | _LOWER, side="right"))
            parts.append(FoundPairs(np.array(keys[some]), np.array(similarities[some])))
        keys, order = np.unique(np.concatenate([part.keys for part in parts]), return_index=True)
        return FoundPairs(keys, np.concatenate([part.similarities for part in parts])[order])

    def _columns(self, name: str) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        values = self.work.values(name, np.uint64, _HEAD)
        n = len(values) // 2
        return values[:n], values[n:].view(np.float64)
