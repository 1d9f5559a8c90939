"""Groups of rows that are connected by pairs: union-find with one integer for each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import kernel


@kernel
def join_pairs(parents: NDArray[Any], left: NDArray[np.int64], right: NDArray[np.int64]) -> None:
    """Join the groups of pairs of rows.

    Parameters
    ----------
    parents : ndarray of shape (n_rows,), int32 or int64
        A row of the same group for each row, at most the row itself; at first ``arange(n_rows)``.
    left, right : ndarray of shape (n_pairs,), int64
        Rows of each pair.

    Examples
    --------
    >>> parents = np.arange(5)
    >>> join_pairs(parents, np.array([3, 1]), np.array([4, 4]))
    >>> find_lowest(parents)
    >>> parents.tolist()
    [0, 1, 2, 1, 1]
    """
    for i in range(len(left)):
        one, other = left[i], right[i]
        while parents[one] != one:
            parents[one] = parents[parents[one]]
            one = np.int64(parents[one])
        while parents[other] != other:
            parents[other] = parents[parents[other]]
            other = np.int64(parents[other])
        if one < other:
            parents[other] = one
        else:
            parents[one] = other


@kernel
def find_lowest(parents: NDArray[Any]) -> None:
    """Replace each row's parent by the lowest row of its group."""
    for row in range(len(parents)):  # parents are lower rows, which are done already
        parents[row] = parents[parents[row]]
