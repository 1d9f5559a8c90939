"""Lists of the nearest rows of rows, which are refined by the neighbours of neighbours.

The entries of a list are the keys of a heap, see `dkfeat.compiled.sampling.codes`, whose last bit is 1 if the entry is
new. They are below 0 where no row is known yet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.sampling.codes import key_of, replace_least, row_of


@inlined
def _is_unseen(seen, stamp, row):
    # a table of rows, of which those with this stamp are in it; the row is put into it
    mask = seen.shape[0] - 1
    at = row * 0x9E3779B1 & mask
    while seen[at, 0] == stamp:
        if seen[at, 1] == row:
            return False
        at = at + 1 & mask
    seen[at, 0], seen[at, 1] = stamp, row
    return True


@kernel
def _find_candidates(first, graph, heaps, n_links, seen, left, right):
    n_found = 0
    for i in range(heaps.shape[0]):
        row, heap, stamp = first + i, heaps[i], i + 1
        _is_unseen(seen, stamp, row)
        for k in range(heap.shape[0]):
            if heap[k] >= 0:
                _is_unseen(seen, stamp, row_of(heap[k]))
        n_before = n_found
        for k in range(n_links):
            link = graph[row, k]
            if link < 0:
                break
            near = row_of(link)
            for m in range(n_links):
                other = graph[near, m]
                if other < 0:
                    break
                if (link | other) & 1 and _is_unseen(seen, stamp, row_of(other)):
                    left[n_found], right[n_found] = row, row_of(other)
                    n_found += 1
        if heap[0] < 0 and n_found - n_before < heap.shape[0]:  # few rows are near: the lowest ones fill the list
            for other in range(min(heap.shape[0] + 1, graph.shape[0])):
                if _is_unseen(seen, stamp, other):
                    left[n_found], right[n_found] = row, other
                    n_found += 1
    return n_found


def find_candidates(
    first: int, graph: NDArray[np.int64], heaps: NDArray[np.int64], n_links: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find pairs of rows and neighbours of their neighbours, of which one was not a neighbour before.

    Parameters
    ----------
    first : int
        Number of the first row.
    graph : ndarray of shape (n_all, n_kept), int64
        Lists of all rows, the highest entries first.
    heaps : ndarray of shape (n_rows, n_kept), int64
        The lists of the rows from the first one on, the lowest entries first. A pair with one of these is left out.
    n_links : int
        Number of entries of each list whose lists are looked at.

    Returns
    -------
    left, right : ndarrays of shape (n_pairs,), int64
        Pairs of different rows, each once, in the order of the rows. A row with too few neighbours has pairs with the
        lowest rows.
    """
    n_kept = heaps.shape[1]
    most = n_links * n_links + n_kept + 1
    seen = np.zeros((1 << (2 * (most + n_kept)).bit_length(), 2), np.int64)
    left, right = np.empty((2, len(heaps) * most), np.int64)
    n_found = _find_candidates(first, graph, heaps, min(n_links, n_kept), seen, left, right)
    return left[:n_found], right[:n_found]


@kernel
def _keep(first, left, right, counts, heaps):
    for i in range(left.shape[0]):
        heap, key = heaps[left[i] - first], key_of(counts[i], right[i]) | 1
        if key > heap[0]:
            replace_least(heap, key)


def refined(
    first: int, heaps: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64], counts: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Return lists of the best entries of lists and of new pairs, the highest first; `heaps` is overwritten.

    Parameters
    ----------
    first, heaps, left, right
        As for `find_candidates`; no pair is in a list before.
    counts : ndarray of shape (n_pairs,), integers
        Numbers of equal codes of the pairs.

    Examples
    --------
    >>> from dkfeat.compiled.sampling.codes import best_rows
    >>> lists = refined(4, np.full((1, 2), -1), np.array([4, 4, 4]), np.array([3, 2, 9]), np.array([5, 5, 7]))
    >>> [found.tolist() for found in best_rows(lists)]
    [[[7, 5]], [[9, 2]]]
    """
    _keep(first, left, right, counts.astype(np.int64), heaps)
    lists: NDArray[np.int64] = np.sort(heaps, axis=1)[:, ::-1]
    return lists
