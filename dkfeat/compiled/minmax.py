"""Sums of minima over the coordinates that two rows share, for the min-max kernels.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, eq. (1)-(5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled._jit import kernel

__all__ = ["minmax_similarities"]


@kernel
def minmax_similarities(
    indptr: NDArray[np.int64],
    coordinates: NDArray[np.int64],
    values: NDArray[np.float64],
    x_exponents: NDArray[np.int64],
    x_totals: NDArray[np.float64],
    colptr: NDArray[np.int64],
    rows: NDArray[np.int64],
    column_values: NDArray[np.float64],
    y_exponents: NDArray[np.int64],
    y_totals: NDArray[np.float64],
    scales: NDArray[np.float64],
    is_symmetric: bool,
    similarities: NDArray[np.float64],
) -> None:
    """Fill `similarities` with sum(min) / sum(max) of every x row against every y row.

    A row is its non-negative values times ``2^(p * exponent)``: two rows meet at the larger of their
    exponents, so no sum overflows and only what is below 1e-300 of its row vanishes.

    Parameters
    ----------
    indptr : ndarray of shape (n_x + 1,), int64
        Row bounds of x in CSR order.
    coordinates : ndarray of shape (nnz_x,), int64
        Column of the y side that holds the same coordinate; -1 where y has none.
    values : ndarray of shape (nnz_x,), float64
        Non-negative, scaled.
    x_exponents, y_exponents : ndarray of shape (n_x,) and (n_y,), int64
    x_totals, y_totals : ndarray of shape (n_x,) and (n_y,), float64
        Each row's sum of scaled values, added in ascending order of coordinate.
    colptr, rows, column_values : ndarray, int64, int64, float64
        The y side, column by column; rows ascend within a column.
    scales : ndarray, float64
        ``scales[d] = 2^(-p * d)`` for every difference d of exponents.
    is_symmetric : bool
        Whether y is x: then one half is computed and mirrored.
    similarities : ndarray of shape (n_x, n_y), float64
        Zeros on entry; the result on return. 0 where both rows are all zero.
    """
    n_x, n_y = similarities.shape
    x_scales = np.ones(n_y, np.float64)
    y_scales = np.ones(n_y, np.float64)
    for i in range(n_x):
        bound = i + 1 if is_symmetric else n_y
        for j in range(bound):
            difference = x_exponents[i] - y_exponents[j]
            x_scales[j] = scales[-difference] if difference < 0 else 1.0
            y_scales[j] = scales[difference] if difference > 0 else 1.0
        sums = similarities[i]
        for at in range(indptr[i], indptr[i + 1]):
            column = coordinates[at]
            if column >= 0:
                value = values[at]
                for place in range(colptr[column], colptr[column + 1]):
                    j = rows[place]
                    if j >= bound:
                        break
                    x = value * x_scales[j]
                    y = column_values[place] * y_scales[j]
                    sums[j] += x if x < y else y
        for j in range(bound):
            total = x_totals[i] * x_scales[j] + y_totals[j] * y_scales[j]
            if total > 0.0:
                sums[j] = min(sums[j] / (total - sums[j]), 1.0)
            if is_symmetric:
                similarities[j, i] = sums[j]
