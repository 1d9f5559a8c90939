"""Groups of rows that are connected by pairs, with 4 bytes for each row in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dkfeat.compiled.sampling.bands import find_lowest, join_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.neighbors.deduplication.pairs import PairFiles
    from dkfeat.neighbors.deduplication.work_files import WorkFolder

PIECE_ROWS = 1 << 20
"""Maximum number of rows from which a file of a table is made."""
MOST_PAIRS = 1 << 22
"""Number of pairs that such a file should not exceed."""
BLOCK_ROWS = 1 << 10
"""Number of rows whose pairs are counted together, and fewest rows of a piece."""
_FILE = "groups"


@dataclass(frozen=True, slots=True)
class Groups:
    """Lowest row of the group of each row, in a file of a work folder."""

    work: WorkFolder
    n_rows: int

    def find(self, pairs: PairFiles) -> int:
        """Find the groups and write them; return the number of rows whose pairs make a file of moderate size."""
        parents = np.arange(self.n_rows, dtype=self._dtype)
        n_pairs = np.zeros(self.n_rows // BLOCK_ROWS + 1, np.int64)
        for some in pairs.chunks():
            lower, higher = some.rows
            join_pairs(parents, lower, higher)
            count_in_blocks(n_pairs, higher)
        find_lowest(parents)
        self.work.write(_FILE, parents)
        return _piece_rows(n_pairs)

    def of(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return the lowest row of the group of each row in a range."""
        return self.work.values(_FILE, self._dtype)[first:stop].astype(np.int64)

    def count(self) -> tuple[int, int, int]:
        """Return the number of groups of several rows, the number of all groups, and the size of the largest one."""
        sizes = np.zeros(self.n_rows, self._dtype)
        for first in range(0, self.n_rows, PIECE_ROWS):
            lowest, counts = np.unique(self.of(first, first + PIECE_ROWS), return_counts=True)
            sizes[lowest] += counts.astype(sizes.dtype)
        return int(np.count_nonzero(sizes > 1)), int(np.count_nonzero(sizes)), int(sizes.max(initial=0))

    @property
    def _dtype(self) -> type[np.signedinteger]:
        return np.int32 if self.n_rows < 1 << 31 else np.int64


def count_in_blocks(n_pairs: NDArray[np.int64], higher: NDArray[np.int64]) -> None:
    """Add the number of pairs whose higher row is in a block to the counts of the blocks."""
    n_pairs += np.bincount(higher // BLOCK_ROWS, minlength=len(n_pairs))


def _piece_rows(n_pairs: NDArray[np.int64]) -> int:
    """Return the number of rows, a power of two, that have at most `MOST_PAIRS` pairs wherever they begin.

    Examples
    --------
    >>> _piece_rows(np.array([0, MOST_PAIRS // 2, MOST_PAIRS, 0]))
    1024
    >>> _piece_rows(np.zeros(9))
    1048576
    """
    rows, before = PIECE_ROWS, np.concatenate([[0], np.cumsum(n_pairs)])
    while rows > BLOCK_ROWS:
        n_blocks = min(rows // BLOCK_ROWS + 1, len(n_pairs))  # a piece may begin within a block
        if (before[n_blocks:] - before[:-n_blocks]).max() <= MOST_PAIRS:
            break
        rows //= 2
    return rows
