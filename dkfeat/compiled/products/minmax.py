"""Sums of minima over the coordinates that two rows share, for the min-max kernels.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, §1.1-1.3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import kernel


@kernel
def minmax_similarities(
    indptr: NDArray[np.int64],
    positions: NDArray[np.int64],
    values: NDArray[np.float64],
    x_exponents: NDArray[np.int64],
    x_totals: NDArray[np.float64],
    colptr: NDArray[np.int64],
    rows: NDArray[np.int64],
    column_values: NDArray[np.float64],
    y_exponents: NDArray[np.int64],
    y_totals: NDArray[np.float64],
    powers_of_two: NDArray[np.float64],
    lower_only: bool,
    similarities: NDArray[np.float64],
) -> None:
    """Fill `similarities` with sum(min) / sum(max) of every x row and every y row.

    A row is its positive values times ``2^exponent``. A y row is scaled to the exponent of the x row, which is exact,
    so that no sum overflows: a far larger row becomes infinite and gives 0, a far smaller one becomes 0.

    Parameters
    ----------
    indptr : ndarray of shape (n_x + 1,), int64
        Row bounds of x in CSR order.
    positions : ndarray of shape (nnz_x,), int64
        Column of the y side with the same coordinate; -1 if y has none.
    values : ndarray of shape (nnz_x,), float64
        In (0, 2).
    x_exponents, y_exponents : ndarray of shape (n_x,) and (n_y,), int64
    x_totals, y_totals : ndarray of shape (n_x,) and (n_y,), float64
        Each row's sum of values, added in ascending order of coordinate.
    colptr, rows, column_values : ndarray, int64, int64, float64
        The y side, column by column; rows ascend within a column.
    powers_of_two : ndarray of shape (2 * span + 1,), float64
        ``2^(d - span)`` at position d; differences of exponents are limited to the span.
    lower_only : bool
        True if y is x: fill only the lower triangle and the diagonal.
    similarities : ndarray of shape (n_x, n_y), float64
        Zeros on entry; the result on return. 0 if a row has no values.
    """
    n_x, n_y = similarities.shape
    span = powers_of_two.shape[0] // 2
    scales = np.empty(n_y, np.float64)
    for i in range(n_x):
        bound = i + 1 if lower_only else n_y
        for j in range(bound):
            scales[j] = powers_of_two[span + min(max(y_exponents[j] - x_exponents[i], -span), span)]
        sums = similarities[i]
        for at in range(indptr[i], indptr[i + 1]):
            position = positions[at]
            if position >= 0:
                x = values[at]
                start, stop = colptr[position], colptr[position + 1]
                if stop - start == n_y:  # every row has it: a loop over contiguous values, which is vectorized
                    for j in range(bound):
                        y = column_values[start + j] * scales[j]
                        sums[j] += x if x < y else y
                    continue
                for entry in range(start, stop):
                    j = rows[entry]
                    if j >= bound:
                        break
                    y = column_values[entry] * scales[j]
                    sums[j] += x if x < y else y
        for j in range(bound):
            total = x_totals[i] + y_totals[j] * scales[j]
            if total > 0.0:
                sums[j] = min(sums[j] / (total - sums[j]), 1.0)


@kernel
def minmax_of_pairs(
    indptr: NDArray[np.int64],
    coordinates: NDArray[np.int64],
    values: NDArray[np.float64],
    exponents: NDArray[np.int64],
    totals: NDArray[np.float64],
    y_indptr: NDArray[np.int64],
    y_coordinates: NDArray[np.int64],
    y_values: NDArray[np.float64],
    y_exponents: NDArray[np.int64],
    y_totals: NDArray[np.float64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    powers_of_two: NDArray[np.float64],
    similarities: NDArray[np.float64],
) -> None:
    """Fill `similarities` with sum(min) / sum(max) of pairs of an x row and a y row, with the bits of the Gram block.

    Parameters
    ----------
    indptr, coordinates, values, exponents, totals : ndarray
        Rows x, as in `minmax_similarities`; coordinates ascend in a row.
    y_indptr, y_coordinates, y_values, y_exponents, y_totals : ndarray
        Rows y.
    left, right : ndarray of shape (n_pairs,), int64
        Row x and row y of each pair.
    powers_of_two : ndarray of shape (2 * span + 1,), float64
        As in `minmax_similarities`.
    similarities : ndarray of shape (n_pairs,), float64
    """
    span = powers_of_two.shape[0] // 2
    for pair in range(left.shape[0]):
        i, j = left[pair], right[pair]
        scale = powers_of_two[span + min(max(y_exponents[j] - exponents[i], -span), span)]
        at, stop = indptr[i], indptr[i + 1]
        y_at, y_stop = y_indptr[j], y_indptr[j + 1]
        common = 0.0
        while at < stop and y_at < y_stop:
            coordinate, other = coordinates[at], y_coordinates[y_at]
            if coordinate == other:
                x, y = values[at], y_values[y_at] * scale
                common += x if x < y else y
            at += coordinate <= other
            y_at += other <= coordinate
        total = totals[i] + y_totals[j] * scale
        similarities[pair] = min(common / (total - common), 1.0) if total > 0.0 else 0.0


@kernel
def mirror_lower(square: NDArray[np.float64], tile: int) -> None:
    """Copy the lower triangle onto the upper, tile by tile: columns of a large matrix do not fit a cache."""
    n = square.shape[0]
    for top in range(0, n, tile):
        for left in range(0, top + 1, tile):
            for i in range(top, min(top + tile, n)):
                for j in range(left, min(left + tile, i)):
                    square[j, i] = square[i, j]
