"""Exact generalized min-max kernels GMM, pGMM and eGMM, and the resemblance.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, §1.1-1.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.jit import owned
from dkfeat.compiled.products.minmax import SplitRows, minmax_of_pairs, minmax_similarities, mirror_lower, split_rows
from dkfeat.compiled.products.rows import sum_magnitudes
from dkfeat.kernels._rows import HeldColumns, check_widths, inner_products, paired_rows, row_numbers
from dkfeat.validation import MAX_POWER, check_real, rows_as_csr

_TILE = 64
_SPAN = 2200
"""Maximum difference of exponents: 2^2200 and 2^-2200 are beyond every float64."""


def gmm(X: Any, Y: Any = None, p: float = 1.0) -> NDArray[np.float64]:
    r"""Gram block of the generalized min-max kernel (GMM), or of pGMM if p is not 1.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Rows of any sign with finite values; any real dtype, any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    p : float, default=1.0
        Power of pGMM, above 0 and at most 1,000, without unit.

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64
        In [0, 1]. The diagonal of ``gmm(X)`` is exactly 1, except for all-zero rows.

    Raises
    ------
    dkfeat.errors.InputError
        If X and Y differ in width, or a value is NaN or infinite; the error has ``row`` and ``column``.
    dkfeat.errors.ConfigError
        If p is out of range.

    See Also
    --------
    dkfeat.GCWSFeatures, dkfeat.DartFeatures : Feature maps whose inner products estimate this kernel, in linear time.
    egmm : Exponential of this kernel.
    resemblance : Value of this kernel for rows of zeros and ones.

    Notes
    -----
    Every value is split by sign into two non-negative coordinates, giving
    :math:`\tilde x \in \mathbb{R}_{\ge 0}^{2 n}` (§1.1), and

    .. math:: k(x, y) = \frac{\sum_j \min(\tilde x_j^p, \tilde y_j^p)}{\sum_j \max(\tilde x_j^p, \tilde y_j^p)}.

    Two all-zero rows give 0 by convention. Dense and sparse input of equal values give equal bits.

    Time is proportional to the pairs of nonzeros that share a column and a sign, plus n_x * n_y; memory to the
    nonzeros plus the result, for any n_features. For a Gram matrix larger than memory, call it on blocks of rows.

    Each row is scaled by a power of two, which is exact, before it is raised to p, and two rows are brought to the same
    scale before they are compared. So nothing overflows, from 1e-308 to 1e308 and for every p. A value whose p-th power
    is below about 1e-300 of the row's largest counts as zero, and a similarity below about 1e-300 may become zero.

    References
    ----------
    .. [1] "Linearized GMM Kernels and Normalized Random Fourier Features", P. Li, KDD 2017.
    .. [2] "Tunable GMM Kernels", P. Li, arXiv:1701.02046, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> gmm(np.array([[1.0, -2.0]]), np.array([[1.0, 2.0], [2.0, -4.0]]))
    array([[0.2, 0.5]])
    """
    p = check_real(p, "p", above=0, high=MAX_POWER)
    if Y is not None:
        return GmmColumns.of(rows_as_csr(Y, name="Y"), p).similarities(rows_as_csr(X))
    columns = GmmColumns.of(rows_as_csr(X), p)
    similarities = columns.fill(columns.rows, lower_only=True)
    mirror_lower(similarities, _TILE)
    return similarities


@dataclass(frozen=True, slots=True, eq=False)
class GmmColumns:
    """Rows Y of a Gram block of the GMM kernel, prepared once for many blocks of rows X."""

    rows: SplitRows
    p: float
    n_features: int
    held: HeldColumns
    """Coordinates that occur."""
    by_column: sp.csc_matrix
    """Values by row and position of the coordinate; columns that many rows hold have zeros for the others."""

    @classmethod
    def of(cls, rows: sp.csr_matrix, p: float) -> GmmColumns:
        """Prepare canonical rows."""
        split = _split(rows, p)
        coordinates, columns = np.unique(split.coordinates, return_inverse=True)
        by_row = sp.csr_matrix((split.values, columns, split.indptr), shape=(rows.shape[0], len(coordinates)))
        held = HeldColumns(coordinates, np.arange(len(coordinates), dtype=np.int32), 2 * rows.shape[1])
        return cls(split, p, rows.shape[1], held, _with_zeros(by_row.tocsc()))

    def similarities(self, X: sp.csr_matrix) -> NDArray[np.float64]:
        """Compute the Gram block of canonical rows and these; see `gmm`."""
        check_widths(X.shape[1], self.n_features)
        return self.fill(_split(X, self.p))

    def fill(self, left: SplitRows, *, lower_only: bool = False) -> NDArray[np.float64]:
        """Compute the Gram block of rows after the sign split, or its lower triangle if the rows are these."""
        right = self.rows
        similarities = np.zeros((len(left.indptr) - 1, len(right.indptr) - 1))
        columns = self.by_column.indptr.astype(np.int64), self.by_column.indices.astype(np.int64), self.by_column.data
        positions = self.held.positions(left.coordinates)
        minmax_similarities(left, positions, right, columns, _powers_of_two(), lower_only, similarities)
        return similarities


def gmm_pairs(
    X: Any, Y: Any, left: NDArray[np.integer], right: NDArray[np.integer], p: float = 1.0
) -> NDArray[np.float64]:
    """GMM kernel of single pairs of rows: ``gmm(X, Y, p)[left, right]``, the same bits, without the other pairs.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Rows of any sign with finite values.
    Y : like X, of shape (n_y, n_features)
    left, right : ndarray of shape (n_pairs,), int
        Row of X and row of Y of each pair.
    p : float, default=1.0
        Power of pGMM, above 0 and at most 1,000, without unit.

    Returns
    -------
    similarities : ndarray of shape (n_pairs,), float64

    Raises
    ------
    dkfeat.errors.InputError, dkfeat.errors.ConfigError
        As from `gmm`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, -2.0], [1.0, 2.0], [2.0, -4.0]])
    >>> gmm_pairs(X, X, np.array([0, 0]), np.array([1, 2]))
    array([0.2, 0.5])
    """
    p = check_real(p, "p", above=0, high=MAX_POWER)
    x, y = rows_as_csr(X), rows_as_csr(Y, name="Y")
    check_widths(x.shape[1], y.shape[1])
    similarities = np.empty(len(left))
    pairs = owned(left, np.int64), owned(right, np.int64)
    minmax_of_pairs(_split(x, p), _split(y, p), *pairs, 2 * x.shape[1], _powers_of_two(), similarities)
    return similarities


def egmm(X: Any, Y: Any = None, gamma: float = 1.0, p: float = 1.0) -> NDArray[np.float64]:
    r"""Gram block of the exponentiated GMM kernel, :math:`e^{-\gamma (1 - \mathrm{GMM})}`.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Rows of any sign with finite values; any real dtype, any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    gamma : float, default=1.0
        Factor in the exponent, above 0, without unit.
    p : float, default=1.0
        Power of pGMM, above 0 and at most 1,000, without unit.

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64
        In [exp(-gamma), 1]; the diagonal of ``egmm(X)`` is exactly 1, except for all-zero rows, whose GMM is 0.

    Raises
    ------
    dkfeat.errors.InputError
        If X and Y differ in width, or a value is NaN or infinite; the error has ``row`` and ``column``.
    dkfeat.errors.ConfigError
        If gamma or p is out of range.

    See Also
    --------
    gmm : Kernel in the exponent.

    References
    ----------
    .. [1] "Tunable GMM Kernels", P. Li, arXiv:1701.02046, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> egmm(np.array([[1.0, -2.0]]), np.array([[2.0, -4.0]]), gamma=np.log(4))
    array([[0.5]])
    """
    gamma = check_real(gamma, "gamma", above=0)
    return exponentiated(gmm(X, Y, p), gamma)


def exponentiated(similarities: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """Compute eGMM from GMM, in its place."""
    similarities -= 1
    similarities *= gamma
    return np.exp(similarities, out=similarities)


def resemblance(X: Any, Y: Any = None) -> NDArray[np.float64]:
    r"""Gram block of the resemblance (Jaccard similarity): the share of columns nonzero in both rows.

    It is the number of columns that are nonzero in both rows divided by the number of those nonzero in either row.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Sets as rows: a column is a member if its value is not 0, whatever the value.
    Y : like X, of shape (n_y, n_features), default=X

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64
        In [0, 1], each correctly rounded. Two empty sets give 0 by convention.

    Raises
    ------
    dkfeat.errors.InputError
        If X and Y differ in width, or a value is NaN or infinite; the error has ``row`` and ``column``.

    See Also
    --------
    gmm : Kernel of weighted sets, which is equal to the resemblance for rows of zeros and ones (§1).

    Examples
    --------
    >>> import numpy as np
    >>> resemblance(np.array([[1, 1, 0]]), np.array([[0, 1, 1], [1, 1, 0], [0, 0, 0]])).round(3)
    array([[0.333, 1.   , 0.   ]])
    """
    x, y = paired_rows(X, Y)
    left = (x != 0).astype(np.float64)
    right = left if y is x else (y != 0).astype(np.float64)
    common = inner_products(left, right)  # integer counts, exact
    sizes = [np.asarray(rows.sum(axis=1)).reshape(-1) for rows in (left, right)]
    either = sizes[0][:, None] + sizes[1] - common
    return np.divide(common, either, out=np.zeros_like(common), where=either > 0)


def _with_zeros(by_column: sp.csc_matrix) -> sp.csc_matrix:
    """Fill up the columns that a quarter of the rows holds, over which loops are then faster."""
    n_rows, n_columns = by_column.shape
    counts = np.diff(by_column.indptr).astype(np.int64)
    filled = 4 * counts >= n_rows
    if (counts[filled] == n_rows).all():
        return by_column
    sizes = np.where(filled, n_rows, counts)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    indices = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    columns = np.repeat(np.arange(n_columns), counts)
    places = np.arange(by_column.nnz) - np.repeat(by_column.indptr[:-1], counts)
    to = starts[columns] + np.where(filled[columns], by_column.indices, places)
    indices[to], values = by_column.indices, np.zeros(starts[-1])
    values[to] = by_column.data
    return sp.csc_matrix((values, indices, starts), shape=by_column.shape)


def _split(rows: sp.csr_matrix, p: float) -> SplitRows:
    indptr, exponents, totals = rows.indptr.astype(np.int64), np.empty(rows.shape[0], np.int64), np.empty(rows.shape[0])
    coordinates, values = np.empty(rows.nnz, np.int64), np.empty(rows.nnz)
    split_rows(indptr, owned(rows.indices), owned(rows.data), coordinates, values, exponents)
    if p != 1:
        # (w * 2^e)^p = w^p * 2^(pe - n) * 2^n with n = floor(pe)
        whole = np.floor(p * exponents)
        values = values**p * np.exp2(p * exponents - whole)[row_numbers(rows)]
        exponents = whole.astype(np.int64)
    sum_magnitudes(indptr, values, totals)
    kept = values > 0  # a power may underflow
    if not kept.all():
        indptr = np.concatenate([[0], np.cumsum(kept)])[indptr]
        coordinates, values = coordinates[kept], values[kept]
    return SplitRows(indptr, coordinates, values, exponents, totals)


@cache
def _powers_of_two() -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # infinity is intended
        return np.exp2(np.arange(-_SPAN, _SPAN + 1.0))
