"""Exact exponential- and reciprocal-semigroup kernels, functions of the sum of two non-negative rows.

Y. Mukuta, Y. Ushiku and T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018, §1-2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.kernels._rows import paired_rows, row_sums
from dkfeat.validation import check_real

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
