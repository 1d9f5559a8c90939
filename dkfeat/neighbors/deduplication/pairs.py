"""Tasks that find similar pairs: rows that share a band of codes, by files of hashes, and then exact comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from dkfeat.engine.runners.base import Stopped, until_stopped
from dkfeat.neighbors.deduplication.groups import Groups
from dkfeat.neighbors.deduplication.work_files import Counts, FoundPairs, PairFiles, Part, WorkFolder, pair_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.maps._sampled import SampledMap
    from dkfeat.neighbors.deduplication.runs import BandRuns
    from dkfeat.neighbors.exact import RowsOfSource

MAX_COMPARISONS = 16
"""Maximum number of comparisons in a band for each row of the data set."""
_BATCH = 65_536  # pairs that are compared at a time


def find_copies(
    files: BandRuns, groups: Groups, similarity: float, part: Part, stopped: Callable[[], bool]
) -> FoundPairs:
    """Find the rows of a partition whose codes are all equal; each is paired with the lowest of them.

    `groups` has the copies that are known; pairs get the similarity, which is the estimate for equal codes.
    """
    keys = [np.empty(0, np.uint64)]
    with files.opened() as opened:
        hashes, rows = _without_copies(groups, opened.buckets(files.bands.n_bands, part.number))
        while len(rows):  # a second time only where rows with other codes have the same hash
            if stopped():
                raise Stopped
            begins = np.concatenate([[True], hashes[1:] != hashes[:-1]])
            left, right = rows[begins][np.cumsum(begins) - 1][~begins], rows[~begins]
            equal = opened.count_matches(left, right) == files.n_components
            is_new = equal & (right >= files.n_former)
            keys.append(pair_keys(left[is_new], right[is_new]))
            hashes, rows = hashes[~begins][~equal], right[~equal]
    found = np.concatenate(keys)
    return FoundPairs(found, np.full(len(found), similarity))


def find_pairs(
    files: BandRuns,
    groups: Groups,
    similarities: NDArray[np.float64],
    least_count: int,
    part: Part,
    stopped: Callable[[], bool],
) -> FoundPairs:
    """Compare the rows of each bucket of a band in a partition, copies left out, by their numbers of equal codes.

    If there are too many pairs, only those that are closest in their bucket are compared. `similarities` has the
    estimate for each number of equal codes; pairs are found that have `least_count` of these or more.
    """
    keys, estimates = [np.empty(0, np.uint64)], [np.empty(0)]
    n_compared = n_candidates = 0
    most = MAX_COMPARISONS * (files.n_rows // files.n_parts)
    with files.opened() as opened:

        def near() -> Iterator[NDArray[np.int64]]:
            nonlocal n_candidates
            for number in range(part.start, part.stop):
                hashes, rows = _without_copies(groups, opened.buckets(*divmod(number, files.n_parts)))
                is_new = rows >= files.n_former
                n_candidates += _count_pairs(hashes) - _count_pairs(hashes[~is_new])
                yield from (rows[pairs] for pairs in _neighbors(hashes, is_new, most))

        for left, right in until_stopped(_batches(near()), stopped):
            found = opened.count_matches(left, right)
            kept = found >= least_count
            keys.append(pair_keys(left[kept], right[kept]))
            estimates.append(similarities[found[kept]])
            n_compared += len(found)
    return FoundPairs(np.concatenate(keys), np.concatenate(estimates), Counts(n_candidates, n_compared))


def _without_copies(
    groups: Groups, buckets: tuple[NDArray[np.uint64], NDArray[np.int64]]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Leave out the rows that are known to be copies."""
    hashes, rows = buckets
    known = np.flatnonzero(rows < groups.n_rows)
    distinct = np.ones(len(rows), np.bool_)
    distinct[known] = ~groups.are_copies(rows[known])
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


def _neighbors(hashes: NDArray[np.uint64], is_new: NDArray[np.bool_], most: int) -> Iterator[NDArray[np.int64]]:
    """Yield positions of pairs with equal hashes, of sorted ones: neighbours, then farther pairs up to `most` in all.

    An array has a pair in each column; the second one is new.

    Examples
    --------
    >>> hashes = np.array([1, 2, 2, 2, 5])
    >>> for left, right in _neighbors(hashes, hashes > 0, most=10):
    ...     print(left.tolist(), right.tolist())
    [1, 2] [2, 3]
    [1] [3]
    >>> [pairs.tolist() for pairs in _neighbors(hashes, np.arange(5) > 2, most=10)]
    [[[2], [3]], [[1], [3]]]
    >>> len(list(_neighbors(np.array([2, 2, 2, 2]), np.ones(4, bool), most=1)))  # neighbours always
    1
    """
    right = np.flatnonzero(is_new)
    for distance in range(1, len(hashes)):
        right = right[np.searchsorted(right, distance) :]
        right = right[hashes[right] == hashes[right - distance]]
        most -= len(right)
        if not len(right) or (most < 0 and distance > 1):
            return
        yield np.stack([right - distance, right])


def _batches(pairs: Iterable[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    """Join pairs, of which few may be given at a time, to batches of `_BATCH` or more."""
    held, n_held = [np.empty((2, 0), np.int64)], 0
    for some in pairs:
        held.append(some)
        n_held += some.shape[1]
        if n_held >= _BATCH:
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
        self.work.write(_WANTED, [rows])

    def add(self, first: int, X: sp.csr_matrix) -> None:
        """Store the wanted rows of a block; `X` has all its rows."""
        wanted = self._wanted(first, X.shape[0])
        if len(wanted):
            some = X[wanted]
            head = np.array([len(wanted), some.nnz], np.int64)
            columns = [head, first + wanted, some.indptr.astype(np.int64), some.indices.astype(np.int64)]
            self.work.write(_rows_name(first), [*columns, some.data.astype(np.float64)])

    def add_split(self, source: RowsOfSource, split: Split, stopped: Callable[[], bool]) -> None:
        """Read a split of the source again, and store its wanted rows, unless they are stored."""
        blocks = [first for first, entry in source.pieces[split.number] if len(self._wanted(first, entry.rows))]
        if not all(self.work.has(_rows_name(first)) for first in blocks):
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


def compare_exactly(
    candidates: PairFiles,
    rows: StoredRows,
    fitted: SampledMap,
    threshold: float,
    part: Part,
    stopped: Callable[[], bool],
) -> FoundPairs:
    """Return the pairs of a range of rows whose exact similarity is at least the threshold."""
    found = candidates.between(part.start, part.stop)
    lower, higher = found.rows
    exact = np.empty(len(lower))
    for at in until_stopped(range(0, len(lower), _COMPARED), stopped):
        some = slice(at, at + _COMPARED)
        numbers, positions = np.unique(np.concatenate([lower[some], higher[some]]), return_inverse=True)
        left, right = np.split(positions.ravel(), 2)
        X = rows.take(numbers)
        exact[some] = fitted.exact_pairs(X, X, left, right)
    kept = exact >= threshold
    return FoundPairs(found.keys[kept], exact[kept])
