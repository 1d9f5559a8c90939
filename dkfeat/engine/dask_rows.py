"""Rows of Dask arrays whose blocks are numpy arrays or sparse matrices: counted, and taken by their numbers."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.base import compute
from dask.delayed import delayed
from numpy.typing import NDArray

from dkfeat.errors import InputError

__all__ = ["count_rows", "take_rows", "with_whole_rows"]


def with_whole_rows(X: Any) -> da.Array:
    """Two-dimensional Dask array whose blocks hold all columns; anything else is an `InputError`."""
    if not isinstance(X, da.Array) or X.ndim != 2:
        got = f"{type(X).__name__} of {getattr(X, 'ndim', '?')} dimensions"
        message = (
            f"a {got} came where a two-dimensional Dask array is needed; convert it, for instance by to_dask_array"
        )
        raise InputError(message)
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def count_rows(X: da.Array) -> tuple[da.Array, int]:
    """Array of whole rows whose row chunks are known, and the number of its rows.

    Unknown chunks are counted, which computes every block once.
    """
    X = with_whole_rows(X)
    if np.isnan(X.shape[0]):
        X = X.copy().compute_chunk_sizes()  # which changes the array that it is called on
    return X, int(X.shape[0])


def take_rows(X: da.Array, numbers: NDArray[np.int64]) -> sp.csr_matrix:
    """Rows of some numbers, which ascend; only the blocks that hold them are computed.

    Parameters
    ----------
    X : dask.array.Array of shape (n_samples, n_features)
        From `count_rows`.
    numbers : ndarray of shape (n_taken,), int64

    Returns
    -------
    rows : csr_matrix of shape (n_taken, n_features)

    Examples
    --------
    >>> X = da.arange(12, chunks=4).reshape(6, 2)
    >>> take_rows(X, np.array([0, 5])).toarray().tolist()
    [[0, 1], [10, 11]]
    """
    starts = np.cumsum([0, *X.chunks[0]])
    cuts = np.searchsorted(numbers, starts)
    blocks = X.to_delayed()[:, 0]
    parts = [
        delayed(_take)(blocks[i], numbers[cuts[i] : cuts[i + 1]] - starts[i])
        for i in range(len(blocks))
        if cuts[i] < cuts[i + 1]
    ]
    return sp.vstack(compute(*parts), format="csr")


def _take(block: Any, places: NDArray[np.int64]) -> sp.csr_matrix:
    return sp.csr_matrix(block[places])
