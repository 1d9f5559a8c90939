"""Exact kernels of the difference of two rows (RBF), and of the sum of two non-negative rows (semigroup kernels).

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, §2. Y. Mukuta, Y. Ushiku and
T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018, §1-2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
    # by scaling rows with a power of two, which is exact, gamma comes close to 1: a square that overflows is then a
    # similarity of 0, and one that underflows has no effect
    exponent = math.frexp(gamma)[1] // 2
    return _of_distances(_squared_distances(x, y, math.ldexp(1.0, exponent)), math.ldexp(gamma, -2 * exponent))


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
    return _of_distances(_squared_distances(left, right), gamma / 2)


def _of_distances(distances: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    distances *= -gamma
    return np.exp(distances, out=distances)


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


def _squared_distances(x: Rows, y: Rows, scale: float = 1.0) -> NDArray[np.float64]:
    """Compute squared distances of rows times a power of two; infinite if they overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        left = x if scale == 1 else x * scale
        right = left if y is x else y if scale == 1 else y * scale
        distances = inner_products(left, right)
        distances *= -2
        x_squares = _squared_lengths(left)
        y_squares = x_squares if y is x else _squared_lengths(right)
        for i, row in enumerate(distances):
            total = x_squares[i] + y_squares
            row += total
            cancelled = ~(row >= _CANCELLED * total)  # also differences of infinities
            if y is x:
                cancelled[i] = False
            close = np.flatnonzero(cancelled)
            if len(close):
                row[close] = _distances_of_close(x, i, y, close, scale)
    if y is x:
        np.fill_diagonal(distances, 0.0)
    return distances


def _distances_of_close(x: Rows, i: int, y: Rows, close: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """Compute squared distances of row i of x from some rows of y, without cancellation."""
    if sp.issparse(x):
        return _squared_lengths(sp.csr_matrix(y[close] - repeated_row(x, i, len(close))) * scale)
    step = max(1, _DIFFERENCES // max(1, x.shape[1]))
    parts = [y[close[at : at + step]] - x[i] for at in range(0, len(close), step)]
    return np.concatenate([_squared_lengths(part * scale) for part in parts])


_SUMS = 1 << 18
"""Maximum number of sums of two values in memory at a time."""

Elementwise = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def exponential_semigroup(X: Any, Y: Any = None, beta: float = 1.0) -> NDArray[np.float64]:
    r"""Gram block of :math:`e^{-\beta \sum_j \sqrt{x_j + y_j}}`, for histograms and other non-negative rows.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Finite, at least 0; any real dtype, any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    beta : float, default=1.0
        Above 0, in 1 / √(unit of the values).

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64
        In [0, 1], exactly symmetric for Y = X. The diagonal is not 1: a row's similarity with itself falls with its
        size.

    Raises
    ------
    dkfeat.errors.InputError
        If a value is negative, NaN or infinite (the error has ``row`` and ``column``), or X and Y differ in width.
    dkfeat.errors.ConfigError
        If beta is out of range.

    See Also
    --------
    reciprocal_semigroup : Kernel of the same rows with a heavier tail.

    Notes
    -----
    This is the mean of :math:`e^{-w^\top (x + y)}` over independent Lévy weights of scale :math:`\beta^2 / 2`. For
    sparse rows the exponent is the sum of each row's exponent and a correction for the shared columns, so time
    is proportional to the shared pairs plus n_x * n_y; dense and sparse input agree to rounding of the exponent.

    Examples
    --------
    >>> import numpy as np
    >>> exponential_semigroup(np.array([[1.0, 0.0]]), np.array([[3.0, 4.0]]), beta=np.log(2))
    array([[0.0625]])
    """
    beta = check_real(beta, "beta", above=0)
    costs = _sums_over_columns(X, Y, np.sqrt)
    with np.errstate(over="ignore"):  # an infinite cost is a similarity of 0
        costs *= -beta
    return np.exp(costs, out=costs)


def reciprocal_semigroup(X: Any, Y: Any = None, rate: float = 1.0) -> NDArray[np.float64]:
    r"""Gram block of :math:`\prod_j \frac{\lambda}{x_j + y_j + \lambda}`, for histograms and other non-negative rows.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_x, n_features)
        Finite, at least 0; any real dtype, any sparse format.
    Y : like X, of shape (n_y, n_features), default=X
    rate : float, default=1.0
        :math:`\lambda`, above 0, in the unit of the values.

    Returns
    -------
    similarities : ndarray of shape (n_x, n_y), float64
        In [0, 1], exactly symmetric for Y = X. The diagonal is not 1: a row's similarity with itself falls with its
        size.

    Raises
    ------
    dkfeat.errors.InputError
        If a value is negative, NaN or infinite (the error has ``row`` and ``column``), or X and Y differ in width.
    dkfeat.errors.ConfigError
        If rate is out of range.

    See Also
    --------
    exponential_semigroup : Kernel of the same rows with square roots in the exponent.

    Notes
    -----
    This is the mean of :math:`e^{-w^\top (x + y)}` over independent exponential weights of rate :math:`\lambda`. It is
    computed as the exponential of a sum of logarithms. Time, and the agreement of dense and sparse input, are those of
    `exponential_semigroup`.

    Examples
    --------
    >>> import numpy as np
    >>> reciprocal_semigroup(np.array([[1.0, 0.0]]), np.array([[2.0, 1.0]])).round(12)
    array([[0.125]])
    """
    rate = check_real(rate, "rate", above=0)

    def cost(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        ratios = sums / rate
        if np.isinf(ratios).any():
            return np.where(np.isinf(ratios), np.log(np.maximum(sums, rate)) - np.log(rate), np.log1p(ratios))
        return np.log1p(ratios)

    costs = _sums_over_columns(X, Y, cost)
    return np.exp(np.negative(costs, out=costs), out=costs)


def _sums_over_columns(X: Any, Y: Any, cost: Elementwise) -> NDArray[np.float64]:
    """Sum of cost(x_j + y_j) over the columns, for a cost that is 0 at 0, concave and increasing."""
    x, y = paired_rows(X, Y, non_negative=True)
    sums = np.empty((x.shape[0], y.shape[0]))
    with np.errstate(over="ignore"):  # an infinite sum is a similarity of 0
        (_fill_sparse if sp.issparse(x) else _fill_dense)(x, y, cost, sums)
    return sums


def _fill_dense(x: NDArray[np.float64], y: NDArray[np.float64], cost: Elementwise, sums: NDArray[np.float64]) -> None:
    step = max(1, _SUMS // max(1, x.shape[1]))
    for i, row in enumerate(x):
        stop = i if y is x else len(y)
        for at in range(0, stop, step):
            part = slice(at, min(at + step, stop))
            sums[i, part] = cost(y[part] + row).sum(axis=1)
        if y is x:
            sums[i, i] = cost(row + row).sum()
            sums[:i, i] = sums[i, :i]


def _fill_sparse(x: sp.csr_matrix, y: sp.csr_matrix, cost: Elementwise, sums: NDArray[np.float64]) -> None:
    x_alone, y_alone = row_sums(x, cost(x.data)), row_sums(y, cost(y.data))
    columns = y.tocsc()
    for i in range(x.shape[0]):
        entries = slice(x.indptr[i], x.indptr[i + 1])
        shared = columns[:, x.indices[entries]]
        values = np.repeat(x.data[entries], np.diff(shared.indptr))
        # from minus half of what it corrects to 0, so that no digits cancel
        corrections = cost(values + shared.data) - (cost(values) + cost(shared.data))
        sums[i] = np.bincount(shared.indices, weights=corrections, minlength=y.shape[0])
        sums[i] += x_alone[i] + y_alone
