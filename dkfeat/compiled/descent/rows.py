"""Rows of a batch for the descent: products with weights, and additions to them.

Sums over columns are float32 in a fixed order: values are added to four partial sums in turn, or to sixteen for dense
rows of a single lane and for squared lengths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dkfeat.compiled.jit import inlined
from dkfeat.compiled.sampling.packing import unpack_row
from dkfeat.compiled.simd.vector import LANES, broadcast, load, prefetch, splat, store

_LEAST, _MOST = 1e-30, 1e38
"""Limits within which a sum of squares in float32 loses no digits."""


class BatchRows(NamedTuple):
    """Features of a batch as arrays."""

    indptr: Any
    """Shape (n_rows + 1,), int64 or int32."""
    indices: Any
    """Columns of the stored values; empty for dense rows, which store all columns, and for codes, whose columns are
    computed in its type. Indices of an unsigned type need no check for negative ones, which takes as long as a sum."""
    values: Any
    """Stored values, float32; empty for codes, which stand for columns of `value`."""
    codes: Any
    """Packed codes, shape (n_rows, row_bytes), uint8; empty for other rows."""
    bits: Any
    """Bits of a code; 0 for other rows."""
    value: Any
    """Factor of all stored values, float64."""


@inlined
def first_columns(rows, start):
    """Make the arguments `columns` and `ahead` of `next_columns` for row `start`."""
    if rows.bits == 0:
        return rows.indices, rows.indices
    most, dtype = 8 * rows.codes.shape[1], rows.indices.dtype
    columns, ahead = np.zeros(most, dtype), np.zeros(most, dtype)
    unpack_row(rows.codes, start, rows.indptr[start + 1] - rows.indptr[start], rows.bits, ahead, 0)
    return columns, ahead


@inlined
def next_columns(rows, row, columns, ahead):
    """Return columns of a row, those of the next row if rows are codes, and the range of the row in its columns."""
    begin, end = np.int64(rows.indptr[row]), np.int64(rows.indptr[row + 1])
    if rows.bits == 0:
        return columns, ahead, begin, end
    if row + 2 < len(rows.indptr):
        unpack_row(rows.codes, row + 1, rows.indptr[row + 2] - end, rows.bits, columns, 0)
    return ahead, columns, np.int64(0), end - begin


@inlined
def squared_length(rows, begin, end, parts):
    """Compute the sum of the squares of a row's stored values; `parts` is a buffer of 16 float32."""
    values = rows.values
    if len(values) == 0:
        return (end - begin) * rows.value * rows.value
    whole = begin + (end - begin) // LANES * LANES
    sums, total = splat(np.float32(0.0)), np.float32(0.0)
    for j in range(begin, whole, LANES):
        found = load(values, j)
        sums = sums + found * found
    store(parts, 0, sums)
    for part in parts:
        total += part
    for j in range(whole, end):
        total += values[j] * values[j]
    exact = np.float64(total)
    if not _LEAST < exact < _MOST:
        exact = np.float64(0.0)
        for j in range(begin, end):
            exact += np.float64(values[j]) * np.float64(values[j])
    return exact * rows.value * rows.value


@inlined
def _four(columns, j):
    # columns of codes from position j on; an unsigned position is not checked for a negative value
    return columns[j], columns[np.uint64(j + 1)], columns[np.uint64(j + 2)], columns[np.uint64(j + 3)]


@inlined
def product(values, columns, begin, end, coef, lag, n_lanes, at):
    """Compute the products of the weights of 16 lanes with a row's stored values; prefetch what `add` changes."""
    sparse, constant = len(columns) > 0, len(values) == 0
    a = b = c = d = splat(np.float32(0.0))
    whole = begin + (end - begin) // 4 * 4
    if constant:  # codes, which begin at 0
        for j in range(0, whole, 4):
            first, second, third, fourth = _four(columns, j)
            prefetch(lag, first * n_lanes + at)
            prefetch(lag, second * n_lanes + at)
            prefetch(lag, third * n_lanes + at)
            prefetch(lag, fourth * n_lanes + at)
            a = a + load(coef, first * n_lanes + at)
            b = b + load(coef, second * n_lanes + at)
            c = c + load(coef, third * n_lanes + at)
            d = d + load(coef, fourth * n_lanes + at)
        for j in range(whole, end):
            a = a + load(coef, columns[j] * n_lanes + at)
    elif sparse:
        for j in range(begin, whole, 4):
            a = a + load(coef, columns[j] * n_lanes + at) * broadcast(values, j)
            b = b + load(coef, columns[j + 1] * n_lanes + at) * broadcast(values, j + 1)
            c = c + load(coef, columns[j + 2] * n_lanes + at) * broadcast(values, j + 2)
            d = d + load(coef, columns[j + 3] * n_lanes + at) * broadcast(values, j + 3)
        for j in range(whole, end):
            a = a + load(coef, columns[j] * n_lanes + at) * broadcast(values, j)
    else:
        for j in range(begin, whole, 4):
            to = (j - begin) * n_lanes + at
            a = a + load(coef, to) * broadcast(values, j)
            b = b + load(coef, to + n_lanes) * broadcast(values, j + 1)
            c = c + load(coef, to + 2 * n_lanes) * broadcast(values, j + 2)
            d = d + load(coef, to + 3 * n_lanes) * broadcast(values, j + 3)
        for j in range(whole, end):
            a = a + load(coef, (j - begin) * n_lanes + at) * broadcast(values, j)
    return (a + b) + (c + d)


@inlined
def add(values, columns, ahead, begin, end, coef, lag, n_lanes, at, change, delay):
    """Add changes of 16 lanes, multiplied by each stored value of a row, to its columns of `coef` and `lag`.

    `lag` may be empty. `ahead` has the columns of the next row of codes, whose weights are prefetched.
    """
    sparse, average = len(columns) > 0, len(lag) > 0
    if len(values) == 0:
        for j in range(end):
            to = columns[j] * n_lanes + at
            store(coef, to, load(coef, to) + change)
            if average:
                store(lag, to, load(lag, to) + delay)
            prefetch(coef, ahead[j] * n_lanes + at)
        return
    for j in range(begin, end):
        to = (columns[j] if sparse else j - begin) * n_lanes + at
        value = broadcast(values, j)
        store(coef, to, load(coef, to) + change * value)
        if average:
            store(lag, to, load(lag, to) + delay * value)


@inlined
def product_of_one(values, columns, begin, end, coef, lag, parts):
    """Compute `product` for a single lane; `parts` is a buffer of 16 float32."""
    sparse, constant = len(columns) > 0, len(values) == 0
    a = b = c = d = np.float32(0.0)
    if constant or sparse:
        whole = begin + (end - begin) // 4 * 4
        if constant:
            for j in range(0, whole, 4):
                first, second, third, fourth = _four(columns, j)
                prefetch(lag, first)
                prefetch(lag, second)
                prefetch(lag, third)
                prefetch(lag, fourth)
                a += coef[first]
                b += coef[second]
                c += coef[third]
                d += coef[fourth]
            for j in range(whole, end):
                a += coef[columns[j]]
        else:
            for j in range(begin, whole, 4):
                a += coef[columns[j]] * values[j]
                b += coef[columns[j + 1]] * values[j + 1]
                c += coef[columns[j + 2]] * values[j + 2]
                d += coef[columns[j + 3]] * values[j + 3]
            for j in range(whole, end):
                a += coef[columns[j]] * values[j]
        return (a + b) + (c + d)
    width = end - begin
    whole = width // LANES * LANES
    sums = splat(np.float32(0.0))
    for k in range(0, whole, LANES):
        sums = sums + load(coef, k) * load(values, begin + k)
    store(parts, 0, sums)
    for part in parts:
        a += part
    for k in range(whole, width):
        a += coef[k] * values[begin + k]
    return a


@inlined
def add_to_one(values, columns, ahead, begin, end, coef, lag, change, delay):
    """Apply `add` to a single lane."""
    sparse, average = len(columns) > 0, len(lag) > 0
    if len(values) == 0:
        for j in range(end):
            column = columns[j]
            coef[column] += change
            if average:
                lag[column] += delay
            prefetch(coef, ahead[j])
        return
    for j in range(begin, end):
        to = columns[j] if sparse else j - begin
        coef[to] += change * values[j]
        if average:
            lag[to] += delay * values[j]
