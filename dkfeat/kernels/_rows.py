"""Checks of the rows on both sides of a Gram block, their inner products, and the columns that sparse rows hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.errors import InputError
from dkfeat.validation import cell_error, rows_as_csr

Rows: TypeAlias = Any
"""A float64 ndarray, or a csr_matrix in canonical form; scipy's types cannot express that."""

_PAIRS = 1 << 22
"""Maximum pairs of rows in one sparse product; its result takes twice the memory of a dense one."""


def paired_rows(X: Any, Y: Any, *, non_negative: bool = False) -> tuple[Rows, Rows]:
    """Convert both sides to finite float64, both dense or both canonical CSR of equal width; Y=None gives x twice.

    If there are far more columns than values, columns without values are removed, so that width costs nothing.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Rows of the first side; never changed.
    Y : like X, or None
        Rows of the second side; None: those of X.
    non_negative : bool, default=False
        Raise an error for negative values.

    Returns
    -------
    x, y : ndarray or csr_matrix, float64
        Converted rows; CSR if either side is sparse.

    Raises
    ------
    dkfeat.errors.InputError
        For other shapes or dtypes, unequal widths, NaN, infinity or negative values; the message names the cell.
    """
    sparse = sp.issparse(X) or sp.issparse(Y)
    x = _checked(X, "X", sparse=sparse)
    y = x if Y is None else _checked(Y, "Y", sparse=sparse)
    check_widths(x.shape[1], y.shape[1])
    if non_negative:
        check_non_negative(x)
        if y is not x:
            check_non_negative(y, name="Y")
    if sparse and x.shape[1] > x.nnz + y.nnz:
        return _narrowed(x, y)
    return x, y


def check_widths(n_features_x: int, n_features_y: int) -> None:
    """Raise InputError unless both sides have the same number of columns."""
    if n_features_x != n_features_y:
        raise InputError(
            f"X has {n_features_x:,} features and Y has {n_features_y:,}, but both need the same; pad the narrower one"
        )


def check_non_negative(rows: Rows, *, name: str = "X") -> None:
    """Raise InputError that names the first negative value, if there is one; the message begins like scikit-learn's.

    Parameters
    ----------
    rows : ndarray or csr_matrix of shape (n_samples, n_features)
        Rows to check.
    name : str, default="X"
        Name of the array in the message.

    Examples
    --------
    >>> check_non_negative(np.array([[0.0, 1.0], [-2.0, 1.0]]))
    Traceback (most recent call last):
    ...
    dkfeat.errors.InputError: Negative values in data: X holds -2 at row 1, column 0 (counted from 0), but ...
    """
    negative = (rows.data if sp.issparse(rows) else rows.reshape(-1)) < 0
    if negative.any():
        remedy = "semigroup kernels are defined for values of at least 0; shift the columns, or choose another kernel"
        name = f"Negative values in data: {name}"
        raise cell_error(rows, int(negative.argmax()), remedy, name=name)


def inner_products(x: Rows, y: Rows) -> NDArray[np.float64]:
    """Compute all inner products; the result is exactly symmetric for y = x.

    Parameters
    ----------
    x, y : ndarray or csr_matrix, as from `paired_rows`

    Returns
    -------
    products : ndarray of shape (n_x, n_y), float64
        Inner products; infinite or NaN if they overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # callers check the result
        if not sp.issparse(x):
            return np.asarray(x @ y.T)
        products = np.empty((x.shape[0], y.shape[0]))
        columns = y.T.tocsr()
        step = max(1, _PAIRS // max(1, y.shape[0]))
        for start in range(0, x.shape[0], step):
            (x[start : start + step] @ columns).toarray(out=products[start : start + step])
    return products


def row_numbers(rows: sp.csr_matrix) -> NDArray[np.int64]:
    """Return the row number of each stored value."""
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


def repeated_row(rows: sp.csr_matrix, i: int, count: int) -> sp.csr_matrix:
    """Repeat row `i` of canonical rows."""
    row = slice(rows.indptr[i], rows.indptr[i + 1])  # slicing a row with scipy is slow
    indices, data = rows.indices[row], rows.data[row]
    repeated = sp.csr_matrix(
        (np.tile(data, count), np.tile(indices, count), np.arange(count + 1) * len(data)), shape=(count, rows.shape[1])
    )
    repeated.has_canonical_format = True
    return repeated


def largest_magnitudes(rows: Rows) -> NDArray[np.float64]:
    """Compute the largest magnitude of each row; 0 for an all-zero row."""
    if not sp.issparse(rows):
        return np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
    largest, held = np.zeros(rows.shape[0]), np.diff(rows.indptr) > 0
    largest[held] = np.maximum.reduceat(np.abs(rows.data), rows.indptr[:-1][held]) if rows.nnz else 0
    return largest


def row_sums(rows: sp.csr_matrix, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum the values of each row one by one, in order."""
    return np.asarray(np.bincount(row_numbers(rows), weights=values, minlength=rows.shape[0]), dtype=np.float64)


def _checked(rows: Any, name: str, *, sparse: bool) -> Rows:
    if sparse:
        return rows_as_csr(rows, name=name).astype(np.float64, copy=False)
    dense: NDArray[Any] = np.asarray(rows)
    if dense.ndim != 2 or dense.dtype.kind not in "fiub":
        rows_as_csr(rows, name=name)  # raises
    finite = np.isfinite(dense).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        rows_as_csr(dense[row : row + 1], name=name, first_row=row)  # raises
    return np.ascontiguousarray(dense, dtype=np.float64)


def _narrowed(x: sp.csr_matrix, y: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    held = np.unique(x.indices if y is x else np.concatenate([x.indices, y.indices]))

    def narrow(rows: sp.csr_matrix) -> sp.csr_matrix:
        columns = np.searchsorted(held, rows.indices)
        narrower = sp.csr_matrix((rows.data, columns, rows.indptr), shape=(rows.shape[0], max(1, len(held))))
        narrower.has_canonical_format = True
        return narrower

    left = narrow(x)
    return left, left if y is x else narrow(y)


_SPARSITY = 64
"""Maximum number of columns for each one held if positions are listed for all of them."""
_FEW_COLUMNS = 1 << 16
"""Number of columns more that are listed."""


@dataclass(frozen=True, eq=False)
class HeldColumns:
    """Columns that some rows hold, and their positions in a table of these columns."""

    columns: NDArray[np.int64]
    """Ascending."""
    order: NDArray[np.int32]
    """Position of each of these columns."""
    n_columns: int
    """Number of all columns."""

    def positions(self, columns: NDArray[np.integer]) -> NDArray[np.int32]:
        """Find the position of each column; -1 if it is not held.

        Examples
        --------
        >>> HeldColumns(np.array([2, 5]), np.array([1, 0], np.int32), 2**40).positions(np.array([5, 3, 2])).tolist()
        [0, -1, 1]
        """
        if self._listed is not None:
            return self._listed[columns]
        if not len(self.columns):
            return np.full(len(columns), -1, np.int32)
        at = np.minimum(np.searchsorted(self.columns, columns), len(self.columns) - 1)
        return np.where(self.columns[at] == columns, self.order[at], np.int32(-1))

    @property
    def n_bytes(self) -> int:
        """Memory in bytes."""
        return 12 * len(self.columns) + (0 if self._listed is None else self._listed.nbytes)

    @cached_property
    def _listed(self) -> NDArray[np.int32] | None:
        """Positions of all columns; None if there are too many."""
        if self.n_columns > _SPARSITY * len(self.columns) + _FEW_COLUMNS:
            return None
        listed = np.full(self.n_columns, -1, np.int32)
        listed[self.columns] = self.order
        return listed
