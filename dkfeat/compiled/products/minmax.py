"""Sums of minima over the coordinates that two rows share, for the min-max kernels.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, §1.1-1.3.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel

_SPARSITY = 8
"""Minimum number of slots for each value of a row that is spread over a table."""
_LOW_HALF, _GOLDEN = np.uint64(0xFFFFFFFF), np.uint64(0x9E3779B9)
_EMPTY = -2
_AT_ONCE = 4
"""Number of columns whose minima are added before a sum goes back to memory."""


class SplitRows(NamedTuple):
    """Rows after the sign split, raised to the power p; each scaled by a power of two, so that no value overflows."""

    indptr: NDArray[np.int64]
    coordinates: NDArray[np.int64]
    """``2 * feature``, plus 1 for the negative part; ascending in each row."""
    values: NDArray[np.float64]
    """In (0, 2)."""
    exponents: NDArray[np.int64]
    """A row is its values times ``2^exponent``."""
    totals: NDArray[np.float64]
    """Each row's sum of values, added in ascending order of coordinate."""


@kernel
def split_rows(
    indptr: NDArray[np.int64],
    indices: NDArray[np.integer],
    data: NDArray[np.floating],
    coordinates: NDArray[np.int64],
    magnitudes: NDArray[np.float64],
    exponents: NDArray[np.int64],
) -> None:
    """Split rows by sign, and scale each by a power of two, so that its largest magnitude is in [0.5, 1).

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int64
    indices : ndarray of shape (nnz,), int32 or int64
    data : ndarray of shape (nnz,), float32 or float64
        Finite, without zeros.
    coordinates : ndarray of shape (nnz,), int64
        Result: ``2 * index``, plus 1 for a negative value.
    magnitudes : ndarray of shape (nnz,), float64
        Result: magnitudes divided by ``2^exponent``. A value below about 1e-308 of the row's largest may become zero.
    exponents : ndarray of shape (n_rows,), int64
        Result; 0 for a row without values.
    """
    for i in range(indptr.shape[0] - 1):
        largest = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            magnitude = abs(np.float64(data[at]))
            largest = magnitude if magnitude > largest else largest
        exponent = math.frexp(largest)[1]
        half = exponent // 2  # one factor of 2^-exponent might overflow
        scale, other = math.ldexp(1.0, -half), math.ldexp(1.0, half - exponent)
        for at in range(indptr[i], indptr[i + 1]):
            value = np.float64(data[at])
            coordinates[at] = 2 * np.int64(indices[at]) + (value < 0.0)
            magnitudes[at] = abs(value) * scale * other
        exponents[i] = exponent


@inlined
def _smaller(x, y):
    return x if x < y else y


@inlined
def _is_full(colptr, position, n_rows):
    """Return True if the column at a position, -1 for none, has a value in every row."""
    return position >= 0 and colptr[position + 1] - colptr[position] == n_rows


@inlined
def _column(values, colptr, position):
    return values[colptr[position] : colptr[position + 1]]


@kernel
def minmax_similarities(
    x_rows: SplitRows,
    positions: NDArray[np.int32],
    y_rows: SplitRows,
    columns: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]],
    powers_of_two: NDArray[np.float64],
    lower_only: bool,
    similarities: NDArray[np.float64],
) -> None:
    """Fill `similarities` with sum(min) / sum(max) of every x row and every y row.

    A y row is scaled to the exponent of the x row, which is exact, so that no sum overflows: a far larger row becomes
    infinite and gives 0, a far smaller one becomes 0.

    Parameters
    ----------
    x_rows : SplitRows
    positions : ndarray of shape (nnz_x,), int32
        Column of the y side with the same coordinate; -1 if y has none.
    y_rows : SplitRows
    columns : tuple of ndarray, int64, int64, float64
        The y side, column by column: bounds, rows, which ascend in a column, and values. Zeros are allowed.
    powers_of_two : ndarray of shape (2 * span + 1,), float64
        ``2^(d - span)`` at position d; differences of exponents are limited to the span.
    lower_only : bool
        True if y is x: fill only the lower triangle and the diagonal.
    similarities : ndarray of shape (n_x, n_y), float64
        Zeros on entry; the result on return. 0 if a row has no values.
    """
    indptr, values, x_exponents, x_totals = x_rows.indptr, x_rows.values, x_rows.exponents, x_rows.totals
    y_exponents, y_totals = y_rows.exponents, y_rows.totals
    colptr, rows, column_values = columns
    n_x, n_y = similarities.shape
    span = powers_of_two.shape[0] // 2
    scales = np.empty(n_y, np.float64)
    for i in range(n_x):
        bound = i + 1 if lower_only else n_y
        for j in range(bound):
            scales[j] = powers_of_two[span + min(max(y_exponents[j] - x_exponents[i], -span), span)]
        sums = similarities[i]
        at, end = indptr[i], indptr[i + 1]
        while at < end:
            n_full = 0  # of the next values, in columns that every row holds: loops over contiguous values
            while n_full < _AT_ONCE and at + n_full < end and _is_full(colptr, positions[at + n_full], n_y):
                n_full += 1
            if n_full == _AT_ONCE:
                x0, x1, x2, x3 = values[at], values[at + 1], values[at + 2], values[at + 3]
                y0 = _column(column_values, colptr, positions[at])
                y1 = _column(column_values, colptr, positions[at + 1])
                y2 = _column(column_values, colptr, positions[at + 2])
                y3 = _column(column_values, colptr, positions[at + 3])
                for j in range(bound):
                    scale = scales[j]
                    total = sums[j] + _smaller(x0, y0[j] * scale)
                    total += _smaller(x1, y1[j] * scale)
                    total += _smaller(x2, y2[j] * scale)
                    sums[j] = total + _smaller(x3, y3[j] * scale)
                at += _AT_ONCE
                continue
            position, x = positions[at], values[at]
            at += 1
            if n_full:
                y = _column(column_values, colptr, position)
                for j in range(bound):
                    sums[j] += _smaller(x, y[j] * scales[j])
            elif position >= 0:
                for entry in range(colptr[position], colptr[position + 1]):
                    j = rows[entry]
                    if j >= bound:
                        break
                    sums[j] += _smaller(x, column_values[entry] * scales[j])
        for j in range(bound):
            total = x_totals[i] + y_totals[j] * scales[j]
            if scales[j] == np.inf:  # zeros have become NaN
                sums[j] = 0.0
            elif total > 0.0:
                sums[j] = min(sums[j] / (total - sums[j]), 1.0)


@inlined
def _slot_of(coordinate, multiplier, shift, mask):
    """Compute the slot in which a coordinate belongs."""
    return (((np.uint64(coordinate) & _LOW_HALF) * multiplier) >> shift) & mask


@kernel
def minmax_of_pairs(
    x_rows: SplitRows,
    y_rows: SplitRows,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    n_coordinates: int,
    powers_of_two: NDArray[np.float64],
    similarities: NDArray[np.float64],
) -> None:
    """Fill `similarities` with sum(min) / sum(max) of pairs of an x row and a y row, with the bits of the Gram block.

    An x row is spread over a table, in which the values of each y row are looked up in order. So pairs with the same x
    row should be consecutive.

    Parameters
    ----------
    x_rows, y_rows : SplitRows
        Coordinates are below 2^62.
    left, right : ndarray of shape (n_pairs,), int64
        Row x and row y of each pair.
    n_coordinates : int
        Number of possible coordinates.
    powers_of_two : ndarray of shape (2 * span + 1,), float64
        As in `minmax_similarities`.
    similarities : ndarray of shape (n_pairs,), float64
        Filled by the call.

    Notes
    -----
    The table has a slot for each coordinate, if there are few; else at least 8 for each value of the row, in which
    coordinates are found by a hash. The key of a slot is twice the coordinate that the slot holds, plus 1 if another
    one belongs in it but is in one of the next slots. The value of an empty slot is 0, and adds nothing.
    """
    indptr, coordinates, values, exponents, totals = x_rows
    y_indptr, y_coordinates, y_values, y_exponents, y_totals = y_rows
    span = powers_of_two.shape[0] // 2
    longest = 0
    for pair in range(left.shape[0]):
        longest = max(longest, indptr[left[pair] + 1] - indptr[left[pair]])
    n_slots = 1
    while n_slots < min(n_coordinates, _SPARSITY * longest):
        n_slots *= 2
    keys, held = np.full(n_slots, _EMPTY, np.int64), np.zeros(n_slots, np.float64)
    row, mask, multiplier, shift = -1, np.uint64(0), np.uint64(1), np.uint64(0)
    for pair in range(left.shape[0]):
        i, j = left[pair], right[pair]
        if i != row:
            if row >= 0:
                keys[: np.int64(mask) + 1] = _EMPTY
                held[: np.int64(mask) + 1] = 0.0
            row, bits = i, 0
            wanted = min(n_coordinates, _SPARSITY * (indptr[i + 1] - indptr[i]))
            while 1 << bits < wanted:
                bits += 1
            mask = np.uint64((1 << bits) - 1)
            is_hashed = wanted < n_coordinates
            multiplier, shift = (_GOLDEN, np.uint64(max(32 - bits, 0))) if is_hashed else (np.uint64(1), np.uint64(0))
            for at in range(indptr[i], indptr[i + 1]):
                slot = home = _slot_of(coordinates[at], multiplier, shift, mask)
                while keys[slot] != _EMPTY:
                    slot = (slot + np.uint64(1)) & mask
                if slot != home:
                    keys[home] |= 1
                keys[slot], held[slot] = 2 * coordinates[at], values[at]
        scale = powers_of_two[span + min(max(y_exponents[j] - exponents[i], -span), span)]
        common = 0.0
        for at in range(y_indptr[j], y_indptr[j + 1]):
            coordinate = y_coordinates[at]
            slot = _slot_of(coordinate, multiplier, shift, mask)
            key = keys[slot]
            x = held[slot] * np.float64(key >> 1 == coordinate)  # a product, because a branch is often mispredicted
            if key & 1:
                while key != _EMPTY and key >> 1 != coordinate:
                    slot = (slot + np.uint64(1)) & mask
                    key = keys[slot]
                x = held[slot]
            y = y_values[at] * scale
            common += x if x < y else y
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
