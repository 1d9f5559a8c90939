"""Rows for random Maclaurin features: in float32, with the number that brings each to its place in the domain."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.arrays import owned
from dkfeat.compiled.phases import squares_of_dense, squares_of_sparse
from dkfeat.compiled.rows import sum_magnitudes
from dkfeat.errors import InputError
from dkfeat.maps._directions import float32_rows, rows_and_lengths
from dkfeat.validation import rows_as_csr

__all__ = ["refuse_long_rows", "rows_and_multipliers"]

_SLACK = 1e-5
"""Part by which a row may exceed the radius: rows of length 1 are so up to rounding only."""


def rows_and_multipliers(
    X: Any, normalize: Literal["l1", "l2"] | None
) -> tuple[NDArray[np.float32] | sp.csr_matrix, NDArray[np.float32]]:
    """Rows in float32 and what each is to be multiplied by.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_samples, n_features), float32 or float64
    normalize : {"l1", "l2"} or None

    Returns
    -------
    rows : ndarray in C order or canonical csr_matrix, float32
        To normalise, very long and very short ones are brought near length 1 by a power of two.
    multipliers : ndarray of shape (n_samples,), float32
        1, or 1 / norm; 0 for all-zero rows.

    Raises
    ------
    dkfeat.errors.InputError
        NaN or infinity, and beyond 1e25 where rows are not normalised, with row and column.
    """
    if normalize is None:
        return float32_rows(X), np.ones(X.shape[0], np.float32)
    rows, norms = rows_and_lengths(X)
    if normalize == "l1":
        held = rows_as_csr(rows)
        norms = np.empty(X.shape[0])
        sum_magnitudes(held.indptr.astype(np.int64), owned(held.data), norms)
    return rows, np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)


def refuse_long_rows(rows: Any, scale: float, radius: float) -> None:
    """Raise InputError naming the first row whose l2 norm times `scale` exceeds `radius`."""
    squares = np.empty(rows.shape[0])
    if sp.issparse(rows):
        squares_of_sparse(rows.indptr.astype(np.int64), rows.indices.astype(np.int64), owned(rows.data), squares)
    else:
        squares_of_dense(rows.reshape(-1), rows.shape[1], squares)
    lengths = np.sqrt(squares) * scale
    long = ~(lengths <= radius * (1 + _SLACK))
    if long.any():
        row = int(long.argmax())
        times = f" times scale={scale:g}" if scale != 1 else ""
        message = (
            f"row {row:,} (counted from 0) has the l2 norm {lengths[row] / scale:g}{times}, but rows are taken up to "
            f"radius={radius:g}; set normalize='l2', a smaller scale or, where the series converges, a larger radius"
        )
        raise InputError(message, row=row)
