"""Exact comparison of candidates: their rows are stored once, then each range of pairs is compared from these files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from dkfeat.engine.runners.local import Stopped
from dkfeat.neighbors.deduplication.work_files import FoundPairs, PairFiles, PairTask, Part, WorkFolder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.maps._sampled import SampledMap
    from dkfeat.neighbors.exact import RowsOfSource

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
        return self.work.has(_name(first)) or not len(self._wanted(first, n_rows))

    def add(self, first: int, X: sp.csr_matrix) -> None:
        """Store the wanted rows of a block; `X` has all its rows."""
        wanted = self._wanted(first, X.shape[0])
        if len(wanted):
            some = X[wanted]
            head = np.array([len(wanted), some.nnz], np.int64)
            columns = [head, first + wanted, some.indptr.astype(np.int64), some.indices.astype(np.int64)]
            self.work.write(_name(first), np.concatenate([*columns, some.data.astype(np.float64).view(np.int64)]))

    def take(self, rows: NDArray[np.int64]) -> sp.csr_matrix:
        """Return rows by their numbers, which ascend."""
        blocks = np.searchsorted(self.firsts, rows, side="right") - 1
        parts = [self._of_block(int(self.firsts[block]), rows[blocks == block]) for block in np.unique(blocks).tolist()]
        return sp.vstack(parts, format="csr")

    def _wanted(self, first: int, n_rows: int) -> NDArray[np.int64]:
        """Return the rows of a block that are wanted, counted from its first row."""
        return np.flatnonzero(self.work.values(_WANTED, np.bool_)[first : first + n_rows])

    def _of_block(self, first: int, rows: NDArray[np.int64]) -> sp.csr_matrix:
        values = self.work.values(_name(first), np.int64)
        n, nnz = values[:2].tolist()
        numbers, indptr, indices, data = np.split(values[2:], np.cumsum([n, n + 1, nnz]))
        at = np.searchsorted(numbers, rows)
        starts, lengths = indptr[at], indptr[at + 1] - indptr[at]
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.repeat(starts - bounds[:-1], lengths) + np.arange(bounds[-1])
        found = (data[positions].view(np.float64), indices[positions], bounds)
        return sp.csr_matrix(found, shape=(len(rows), self.n_features))


def _name(first: int) -> str:
    return f"rows-{first}"


@dataclass(frozen=True, slots=True)
class StoreRows:
    """Task that reads a split of the source again, and stores its wanted rows."""

    source: RowsOfSource
    stored: StoredRows

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> None:
        """See `dkfeat.engine.runners.local.Runner.run`."""
        if not all(self.stored.has(first, entry.rows) for first, entry in self.source.pieces[split.number]):
            for first, X in self.source.read(split, stopped):
                self.stored.add(first, X)


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
        for at in range(0, len(lower), _COMPARED):
            if stopped():
                raise Stopped
            some = slice(at, at + _COMPARED)
            numbers, positions = np.unique(np.concatenate([lower[some], higher[some]]), return_inverse=True)
            left, right = np.split(positions.ravel(), 2)
            X = self.rows.take(numbers)
            exact[some] = self.fitted.exact_pairs(X, X, left, right)
        kept = exact >= self.threshold
        return FoundPairs(found.keys[kept], exact[kept], len(exact), len(exact))


def ranges(n_pairs: NDArray[np.int64], block_rows: int, most: int) -> Sequence[tuple[int, int]]:
    """Cut rows into ranges with at most `most` pairs, or of one block.

    Parameters
    ----------
    n_pairs : ndarray of shape (n_blocks,), int64
        Number of pairs of each block of rows.
    block_rows : int
        Number of rows of a block.
    most : int
        Number of pairs of a range, unless one block has more.

    Returns
    -------
    ranges : sequence of (start, stop)
        Rows of each range.

    Examples
    --------
    >>> ranges(np.array([2, 2, 9, 0, 1]), block_rows=10, most=4)
    [(0, 20), (20, 30), (30, 50)]
    """
    found, start, held = [], 0, 0
    for block, n in enumerate(n_pairs.tolist()):
        if held and held + n > most:
            found.append((start * block_rows, block * block_rows))
            start, held = block, 0
        held += n
    return [*found, (start * block_rows, len(n_pairs) * block_rows)]
