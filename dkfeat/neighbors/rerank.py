"""Exact similarities of candidates, and their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.maps._sampled import SampledMap

_PAIRS = 1 << 20
"""Number of pairs of rows that are compared at a time."""


def exact_similarities(fitted: SampledMap, queries: Any, X: Any, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute the exact kernel of queries and their candidates.

    Parameters
    ----------
    fitted : SampledMap
    queries : array or sparse matrix of shape (n_queries, n_features)
    X : array or sparse matrix of shape (n_rows, n_features)
    rows : ndarray of shape (n_queries, n_candidates), int64
        Rows of X.

    Returns
    -------
    similarities : ndarray of shape (n_queries, n_candidates), float64
    """
    similarities = np.empty(rows.shape)
    step = max(1, _PAIRS // rows.shape[1])
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        held, positions = np.unique(some, return_inverse=True)
        left = np.repeat(np.arange(len(some)), some.shape[1])
        part = fitted.exact_pairs(queries[first : first + step], X[held], left, positions.reshape(-1))
        similarities[first : first + step] = part.reshape(some.shape)
    return similarities


def ordered(
    similarities: NDArray[np.float64], rows: NDArray[np.int64], n: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the `n` most similar candidates of each query in descending order, of equal ones the lower row first.

    Examples
    --------
    >>> ordered(np.array([[0.1, 0.9, 0.9]]), np.array([[4, 3, 2]]), 2)
    (array([[0.9, 0.9]]), array([[2, 3]]))
    """
    order = np.lexsort((rows, -similarities), axis=1)[:, :n]
    return np.take_along_axis(similarities, order, axis=1), np.take_along_axis(rows, order, axis=1)
