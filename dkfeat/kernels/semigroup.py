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
"""Sums of two values held at once."""

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
        A negative value, NaN or infinity, with its ``row`` and ``column``; X and Y differ in width.
    dkfeat.errors.ConfigError
        beta out of range.

    See Also
    --------
    reciprocal_semigroup : The same with a heavier tail.

    Notes
    -----
    The mean of :math:`e^{-w^\top (x + y)}` over independent Lévy weights of scale :math:`\beta^2 / 2`. For sparse rows
    the exponent is that of each row alone plus a correction from the columns that two rows share, so time
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
        A negative value, NaN or infinity, with its ``row`` and ``column``; X and Y differ in width.
    dkfeat.errors.ConfigError
        rate out of range.

    See Also
    --------
    exponential_semigroup : The same with a root in the exponent.

    Notes
    -----
    The mean of :math:`e^{-w^\top (x + y)}` over independent exponential weights of rate :math:`\lambda`. Computed as
    the exponential of a sum of logarithms, in the same time and with the same agreement of dense and sparse input.

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
    """Sum of cost(x_j + y_j) over the columns, for a cost that is 0 at 0, concave and rising."""
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
        own = slice(x.indptr[i], x.indptr[i + 1])
        shared = columns[:, x.indices[own]]
        values = np.repeat(x.data[own], np.diff(shared.indptr))
        # at most 0, and at least minus half of what it corrects: nothing cancels
        corrections = cost(values + shared.data) - (cost(values) + cost(shared.data))
        sums[i] = np.bincount(shared.indices, weights=corrections, minlength=y.shape[0])
        sums[i] += x_alone[i] + y_alone
