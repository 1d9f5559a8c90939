"""Rows in float32 for maps that project them, with their lengths where only directions count."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.arrays import owned
from dkfeat.compiled.phases import squares_of_dense, squares_of_sparse
from dkfeat.errors import InputError
from dkfeat.validation import rows_as_csr

__all__ = ["float32_rows", "rows_and_lengths"]

_LARGEST = 1e25
"""Beyond, a projection might overflow float32."""
_SHORT, _LONG = 1e-30, 1e30
"""Squares of lengths between which rows fit float32 with room for their projections."""


def rows_and_lengths(X: Any) -> tuple[NDArray[np.float32] | sp.csr_matrix, NDArray[np.float64]]:
    """Rows in float32 and their l2 norms, for values of any scale.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_samples, n_features), float32 or float64

    Returns
    -------
    rows : ndarray in C order or canonical csr_matrix, float32
        Very long and very short rows are brought near length 1 by a power of two: only directions are kept.
        Dense and sparse rows give equal values.
    lengths : ndarray of shape (n_samples,), float64
        Of these rows; 0 for all-zero ones.

    Raises
    ------
    dkfeat.errors.InputError
        NaN or infinity, with row and column.
    """
    wide: Any = rows_as_csr(X) if sp.issparse(X) else _contiguous(X)
    rows = _narrow(wide)
    squares = _squares(rows)
    odd = np.flatnonzero(~((squares > _SHORT) & (squares < _LONG)))  # NaN and infinity too
    odd = odd[np.diff(wide.indptr)[odd] > 0 if sp.issparse(wide) else wide[odd].any(axis=1)]  # all-zero rows are fine
    if len(odd):
        first = int(odd[0])
        rows_as_csr(wide[first:], first_row=first)  # raises where a value is not finite
        moderate = wide.astype(np.float64)
        for row in odd:
            values = moderate.data[slice(*moderate.indptr[row : row + 2])] if sp.issparse(wide) else moderate[row]
            largest = np.abs(values).max(initial=0.0)
            np.ldexp(values, -int(np.frexp(largest)[1]), out=values)
        rows = _narrow(moderate)
        squares = _squares(rows)
    return rows, np.sqrt(squares)


def float32_rows(X: Any) -> NDArray[np.float32] | sp.csr_matrix:
    """Rows as they are, rounded to float32.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_samples, n_features), float32 or float64

    Returns
    -------
    rows : ndarray in C order or canonical csr_matrix, float32

    Raises
    ------
    dkfeat.errors.InputError
        NaN, infinity, or a value beyond 1e25, with row and column.
    """
    rows = rows_as_csr(X) if sp.issparse(X) else _contiguous(X)
    values: Any = rows.data if sp.issparse(rows) else rows
    if values.size and not max(values.max(), -values.min()) <= _LARGEST:
        cells = rows_as_csr(rows)  # raises for what is not finite
        at = int(np.argmax(np.abs(cells.data) > _LARGEST))
        row = int(np.searchsorted(cells.indptr, at, side="right")) - 1
        column = int(cells.indices[at])
        message = (
            f"X holds {float(cells.data[at])!r} at row {row:,}, column {column:,} (counted from 0), but this kernel "
            f"takes values up to {_LARGEST:g}, so that no projection overflows float32; scale the columns first"
        )
        raise InputError(message, row=row, column=column)
    return _narrow(rows)


def _narrow(rows: Any) -> Any:
    with np.errstate(over="ignore"):  # infinity is seen to by the callers
        return rows.astype(np.float32, copy=False)


def _squares(rows: Any) -> NDArray[np.float64]:
    squares = np.empty(rows.shape[0])
    if sp.issparse(rows):
        squares_of_sparse(rows.indptr.astype(np.int64), rows.indices.astype(np.int64), owned(rows.data), squares)
    else:
        squares_of_dense(rows.reshape(-1), rows.shape[1], squares)
    return squares


def _contiguous(X: Any) -> NDArray[Any]:
    return owned(X.astype(X.dtype.newbyteorder("="), copy=False))
