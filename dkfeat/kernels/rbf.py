"""Exact radial basis function kernels of the distance of two rows and of their cosine.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, §2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.kernels._rows import (
    Rows,
    inner_products,
    largest_magnitudes,
    paired_rows,
    repeated_row,
    row_numbers,
    row_sums,
)
from dkfeat.validation import check_real

_CANCELLED = 1e-3
"""Squared distances below this share of the squared lengths are recomputed from differences."""
_SAFE_EXPONENT = 400
"""Sums of squares of values up to 2^400 do not overflow; squares that underflow have no effect for any gamma."""
_LARGE = 712
"""Exponent of two by which rows with larger values are divided; the largest magnitude of such a row is then from 2^-312
to 2^312."""
_DIFFERENCES = 1 << 20
"""Maximum number of differences in memory at a time."""


def rbf(X: Any, Y: Any = None, gamma: float = 1.0) -> NDArray[np.float64]:
    r"""Gram block of :math:`e^{-\gamma \|x - y\|^2}`.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Finite; any real dtype, any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    gamma : float, default=1.0
        Above 0, in 1 / (unit of the values)²; scikit-learn's ``gamma``.

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64
        In [0, 1]. The diagonal of ``rbf(X)`` is exactly 1, and the matrix exactly symmetric.

    Raises
    ------
    dkfeat.errors.InputError
        If X and Y differ in width, or a value is NaN or infinite; the error has ``row`` and ``column``.
    dkfeat.errors.ConfigError
        If gamma is out of range.

    See Also
    --------
    rbf_cosine : RBF kernel of rows scaled to length 1.

    Notes
    -----
    Squared distances are computed from inner products, :math:`\|x\|^2 + \|y\|^2 - 2 x^\top y`, or from differences if
    cancellation loses more than three digits, so close rows have a relative accuracy of about 1e-12. Time for sparse
    rows is that of a sparse product. Dense and sparse input agree to about 1e-12.

    Examples
    --------
    >>> import numpy as np
    >>> rbf(np.array([[0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 1.0]]), gamma=np.log(2))
    array([[1. , 0.5]])
    """
    gamma = check_real(gamma, "gamma", above=0)
    x, y = paired_rows(X, Y)
    x_exponents = _exponents(x)
    y_exponents = x_exponents if y is x else _exponents(y)
    if not (x_exponents.any() or y_exponents.any()):
        return _of_distances(_squared_distances(x, y), gamma, 0)
    similarities = np.empty((x.shape[0], y.shape[0]))
    for a in np.unique(x_exponents):
        for b in np.unique(y_exponents):
            if y is x and b > a:
                continue  # the transpose of a later block
            # the smaller row of a pair becomes 0 if it is too small to have an effect
            rows, others, exponent = x_exponents == a, y_exponents == b, int(max(a, b))
            left = _scaled(x[rows], -exponent)
            right = left if y is x and a == b else _scaled(y[others], -exponent)
            part = _of_distances(_squared_distances(left, right), gamma, 2 * exponent)
            similarities[np.ix_(rows, others)] = part
            if y is x:
                similarities[np.ix_(others, rows)] = part.T
    return similarities


def rbf_cosine(X: Any, Y: Any = None, gamma: float = 1.0) -> NDArray[np.float64]:
    r"""Gram block of :math:`e^{-\gamma (1 - \rho)}`, with the cosine :math:`\rho` of two rows.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Finite; any real dtype, any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    gamma : float, default=1.0
        Above 0, without unit; twice scikit-learn's ``gamma`` on rows of length 1.

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64
        In [0, 1]. The diagonal of ``rbf_cosine(X)`` is exactly 1, and the matrix exactly symmetric.

    Raises
    ------
    dkfeat.errors.InputError
        If X and Y differ in width, or a value is NaN or infinite; the error has ``row`` and ``column``.
    dkfeat.errors.ConfigError
        If gamma is out of range.

    See Also
    --------
    rbf : RBF kernel of the distances of rows that are not scaled to length 1.

    Notes
    -----
    For rows scaled to length 1, :math:`1 - \rho = \|x - y\|^2 / 2`, which keeps its accuracy for close rows. An
    all-zero row has no direction and stays at the origin: its similarity is 1 with another such row and
    :math:`e^{-\gamma/2}` with all other rows, as for random Fourier features. Multiplying a row by a positive
    number has no effect, as long as its values stay between 1e-308 and 1e308 in magnitude.

    Examples
    --------
    >>> import numpy as np
    >>> rbf_cosine(np.array([[0.0, 3.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]), gamma=np.log(2))
    array([[1. , 0.5]])
    """
    gamma = check_real(gamma, "gamma", above=0)
    x, y = paired_rows(X, Y)
    left = unit_rows(x)
    right = left if y is x else unit_rows(y)
    distances = _squared_distances(left, right)
    distances *= -gamma / 2
    return np.exp(distances, out=distances)


def _of_distances(distances: NDArray[np.float64], gamma: float, exponent: int) -> NDArray[np.float64]:
    """Compute similarities from squared distances times 2^exponent."""
    mantissa, more = np.frexp(gamma)
    distances *= -mantissa
    with np.errstate(over="ignore"):  # an infinite distance is a similarity of 0
        np.ldexp(distances, exponent + more, out=distances)
    return np.exp(distances, out=distances)


def _exponents(rows: Rows) -> NDArray[np.int64]:
    """Return the exponent of two to divide each row by, so that squares do not overflow; usually 0."""
    return np.where(np.frexp(largest_magnitudes(rows))[1] > _SAFE_EXPONENT, _LARGE, 0)


def _scaled(rows: Rows, exponent: int) -> Rows:
    """Multiply rows by 2^exponent, which is exact unless a value underflows."""
    if not sp.issparse(rows):
        return np.ldexp(rows, exponent)
    return _with_data(rows, np.ldexp(rows.data, exponent))


def _with_data(rows: sp.csr_matrix, data: NDArray[np.float64]) -> sp.csr_matrix:
    other = sp.csr_matrix((data, rows.indices, rows.indptr), shape=rows.shape)
    other.has_canonical_format = True
    return other


def _squared_lengths(rows: Rows) -> NDArray[np.float64]:
    if not sp.issparse(rows):
        return np.einsum("ij,ij->i", rows, rows)
    return row_sums(rows, np.square(rows.data))


def unit_rows(rows: Rows) -> Rows:
    """Divide each row by its length; all-zero rows stay."""
    exponents = np.frexp(largest_magnitudes(rows))[1]
    if sp.issparse(rows):
        row_of = row_numbers(rows)
        scaled = _with_data(rows, np.ldexp(rows.data, -exponents[row_of]))
    else:
        scaled = np.ldexp(rows, -exponents[:, None])
    lengths = np.sqrt(_squared_lengths(scaled))
    lengths[lengths == 0] = 1.0
    return _with_data(scaled, scaled.data / lengths[row_of]) if sp.issparse(rows) else scaled / lengths[:, None]


def _squared_distances(x: Rows, y: Rows) -> NDArray[np.float64]:
    distances = inner_products(x, y)
    distances *= -2
    x_squares = _squared_lengths(x)
    y_squares = x_squares if y is x else _squared_lengths(y)
    for i, row in enumerate(distances):
        total = x_squares[i] + y_squares
        row += total
        cancelled = row < _CANCELLED * total
        if y is x:
            cancelled[i] = False
        close = np.flatnonzero(cancelled)
        if len(close):
            row[close] = _distances_of_close(x, i, y, close)
    if y is x:
        np.fill_diagonal(distances, 0.0)
    return distances


def _distances_of_close(x: Rows, i: int, y: Rows, close: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute squared distances of row i of x from some rows of y, without cancellation."""
    if not sp.issparse(x):
        step = max(1, _DIFFERENCES // max(1, x.shape[1]))
        parts = [y[close[at : at + step]] - x[i] for at in range(0, len(close), step)]
        return np.concatenate([_squared_lengths(part) for part in parts])
    return _squared_lengths(sp.csr_matrix(y[close] - repeated_row(x, i, len(close))))
