"""Groups of rows that pairs connect, found in ranges of rows, of which one is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.compiled.sampling.bands import find_lowest, join_pairs
from dkfeat.neighbors.deduplication.work_files import FoundPairs, PairFiles, WorkFolder, pair_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANGE_ROWS = 1 << 23
"""Number of rows that are in memory at a time."""
PIECE_ROWS = 1 << 20
"""Maximum number of rows from which a file of a table is made."""
MAX_PIECE_PAIRS = 1 << 22
"""Number of pairs that such a file should not exceed."""
BLOCK_ROWS = 1 << 10
"""Number of rows whose pairs are counted together, and fewest rows of a piece."""
_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Groups:
    """Files with the lowest row of the group of each row, which of them are copies of a lower row, and which are kept.

    Rows that are connected by pairs are a group. Ranges of rows are joined from the last one to the first: rows of a
    range are joined to each other and to lower rows, and where two lower rows are in one group thereby, their pair is
    carried to the range of the higher one. Then, from the first range to the last, the lowest rows of lower ranges are
    known.
    """

    work: WorkFolder
    n_rows: int
    n_former: int = 0
    """Number of rows that have groups from an earlier search."""
    keep_earlier: bool = False
    """Keep all rows that were kept before; otherwise the lowest row of each group alone."""

    @property
    def former(self) -> Groups:
        """The groups of the earlier search."""
        return replace(self, n_rows=self.n_former)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files."""
        names = ("groups", "copies", "kept") if self.keep_earlier else ("groups", "copies")
        return tuple(f"{name}-{self.n_rows}" for name in names)

    @property
    def _ranges(self) -> list[tuple[int, int]]:
        return [(first, min(first + RANGE_ROWS, self.n_rows)) for first in range(0, self.n_rows, RANGE_ROWS)]

    def mark_copies(self, pairs: PairFiles) -> int:
        """Write which rows are copies; return their number."""

        def marked() -> Iterator[NDArray[np.bool_]]:
            for first, stop in self._ranges:
                is_copy = np.zeros(stop - first, np.bool_)
                former = self.former.are_copies(slice(first, stop))
                is_copy[: len(former)] = former
                for some in pairs.chunks(first, stop):
                    is_copy[some.rows[1] - first] = True
                yield is_copy

        if not self.work.has(self.names[1]):  # else pairs may be merged, and their files empty
            self.work.write(self.names[1], marked())
        return sum(int(np.count_nonzero(self.are_copies(slice(*rows)))) for rows in self._ranges)

    def are_copies(self, rows: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        """Return which rows are copies of a lower row."""
        copies = self.work.values(self.names[1], np.bool_) if self.n_rows else np.empty(0, np.bool_)
        found: NDArray[np.bool_] = copies[rows]
        return found

    def find(self, pairs: PairFiles) -> tuple[dict[str, int], int]:
        """Find the groups and write them; return their numbers, and how many rows' pairs make a file of moderate size.

        The numbers are those of groups of several rows, of kept rows, and of rows in the largest group.
        """
        n_pairs = np.zeros(self.n_rows // BLOCK_ROWS + 1, np.int64)
        carried = PairFiles(self.work, ())
        n_groups, largest = 0, 0
        for first, stop in reversed(self._ranges):
            parents, sizes = np.arange(first, stop, dtype=self._dtype), np.ones(stop - first, np.int64)
            former = self.former._lowest[first:stop]
            parents[: len(former)] = former
            keys: list[NDArray[np.uint64]] = []
            for of, some in ((each, some) for each in (pairs, carried) for some in each.chunks(first, stop)):
                keys.append(pair_keys(*join_pairs(parents, first, *some.rows)))
                if of is pairs:
                    count_in_blocks(n_pairs, some.rows[1])
                else:
                    np.add.at(sizes, some.rows[1] - first, some.similarities.astype(np.int64))
                if sum(map(len, keys)) > MAX_PIECE_PAIRS:
                    carried, keys = _carry(carried, keys, _NO_ROWS, _NO_ROWS), []
            find_lowest(parents, first, sizes)
            self.work.write(f"joined-{first}", [parents])
            below = parents < first
            n_groups += int(np.count_nonzero(sizes[~below] > 1))
            largest = max(largest, int(sizes[~below].max(initial=0)))
            carried = _carry(carried, keys, parents[below], sizes[below])
        self.work.write(self.names[0], self._resolved())
        if self.keep_earlier:
            self.work.write(self.names[2], (self._new_kept(first, stop) for first, stop in self._ranges))
        n_kept = sum(int(np.count_nonzero(self.kept(first, stop))) for first, stop in self._ranges)
        return {"n_groups": n_groups, "n_kept": n_kept, "largest_group": largest}, _piece_rows(n_pairs)

    def _resolved(self) -> Iterator[NDArray[Any]]:
        """Yield the lowest row of the group of each row, range by range."""
        for first, _ in self._ranges:
            lowest = self.work.values(f"joined-{first}", self._dtype)
            below = np.flatnonzero(lowest < first)
            firsts = lowest[below] // RANGE_ROWS * RANGE_ROWS  # of ranges whose lowest rows are known
            for of_range in np.unique(firsts).tolist():
                some = below[firsts == of_range]
                lowest[some] = self.work.values(f"joined-{of_range}", self._dtype)[lowest[some] - of_range]
            if len(below):
                self.work.write(f"joined-{first}", [lowest])
            yield lowest

    def of(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return the lowest row of the group of each row in a range."""
        return self._lowest[first:stop].astype(np.int64)

    def kept(self, first: int, stop: int) -> NDArray[np.bool_]:
        """Return which rows of a range are kept."""
        if self.keep_earlier and first < stop:
            return self.work.values(self.names[2], np.bool_)[first:stop]
        return self.of(first, stop) == np.arange(first, stop)

    def _new_kept(self, first: int, stop: int) -> NDArray[np.bool_]:
        kept = self.of(first, stop) == np.arange(first, stop)
        former = self.former.kept(first, min(stop, self.n_former))
        kept[: len(former)] = former
        return kept

    def changed(self) -> Iterator[NDArray[np.int64]]:
        """Yield the former rows whose groups have a lower first row than before."""
        for first, stop in self.former._ranges:
            yield first + np.flatnonzero(self.former.of(first, stop) != self.of(first, stop))

    @property
    def _lowest(self) -> NDArray[Any]:
        return self.work.values(self.names[0], self._dtype) if self.n_rows else np.empty(0, self._dtype)

    @property
    def _dtype(self) -> type[np.signedinteger]:
        return np.int32 if self.n_rows < 1 << 31 else np.int64


def _carry(
    carried: PairFiles, keys: Iterable[NDArray[np.uint64]], rows: NDArray[Any], sizes: NDArray[np.int64]
) -> PairFiles:
    """Add a file of pairs of rows that are in one group, and of the numbers of rows that their groups have besides.

    The number of a row is in place of the similarity of a pair of this row with itself.
    """
    joined = np.unique(np.concatenate([pair_keys(_NO_ROWS, _NO_ROWS), *keys]))
    if not len(joined) + len(rows):
        return carried
    rows, places = np.unique(rows, return_inverse=True)
    numbers = np.bincount(places, weights=sizes, minlength=len(rows))
    name = f"carried-{len(carried.names)}"
    found = FoundPairs(np.append(joined, pair_keys(rows, rows)), np.append(np.zeros(len(joined)), numbers))
    carried.write(name, found)
    return replace(carried, names=(*carried.names, name))


def count_in_blocks(n_pairs: NDArray[np.int64], higher: NDArray[np.int64]) -> None:
    """Add the number of pairs whose higher row is in a block to the counts of the blocks."""
    n_pairs += np.bincount(higher // BLOCK_ROWS, minlength=len(n_pairs))


def _piece_rows(n_pairs: NDArray[np.int64]) -> int:
    """Return the number of rows, a power of two, that have at most `MAX_PIECE_PAIRS` pairs wherever they begin.

    Examples
    --------
    >>> _piece_rows(np.array([0, MAX_PIECE_PAIRS // 2, MAX_PIECE_PAIRS, 0]))
    1024
    >>> _piece_rows(np.zeros(9))
    1048576
    """
    rows, before = PIECE_ROWS, np.concatenate([[0], np.cumsum(n_pairs)])
    while rows > BLOCK_ROWS:
        n_blocks = min(rows // BLOCK_ROWS + 1, len(n_pairs))  # a piece may begin within a block
        if (before[n_blocks:] - before[:-n_blocks]).max() <= MAX_PIECE_PAIRS:
            break
        rows //= 2
    return rows
