"""Rows of a batch for the descent: products with weights, and additions to them.

Sums over columns are float32 in a fixed order: values are added to four partial sums in turn, or to sixteen for dense
rows of a single lane and for squared lengths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dkfeat.compiled.jit import inlined
from dkfeat.compiled.simd.vector import LANES, broadcast, load, splat, store

_LEAST, _MOST = 1e-30, 1e38
"""Limits within which a sum of squares in float32 loses no digits."""


class BatchRows(NamedTuple):
    """Features of a batch as flat arrays."""

    indptr: Any
    """Shape (n_rows + 1,), int64 or int32."""
    indices: Any
    """Columns of the stored values, int32 or int64; empty for dense rows, which store all columns."""
    values: Any
    """Stored values, float32; empty if all are `value`."""
    value: Any
    """Factor of all stored values, float64."""


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
def product(rows, begin, end, coef, n_lanes, at):
    """Compute the products of the weights of 16 lanes with the row's stored values."""
    indices, values = rows.indices, rows.values
    sparse, constant = len(indices) > 0, len(values) == 0
    a = b = c = d = splat(np.float32(0.0))
    whole = begin + (end - begin) // 4 * 4
    if constant:
        for j in range(begin, whole, 4):
            a = a + load(coef, indices[j] * n_lanes + at)
            b = b + load(coef, indices[j + 1] * n_lanes + at)
            c = c + load(coef, indices[j + 2] * n_lanes + at)
            d = d + load(coef, indices[j + 3] * n_lanes + at)
        for j in range(whole, end):
            a = a + load(coef, indices[j] * n_lanes + at)
    elif sparse:
        for j in range(begin, whole, 4):
            a = a + load(coef, indices[j] * n_lanes + at) * broadcast(values, j)
            b = b + load(coef, indices[j + 1] * n_lanes + at) * broadcast(values, j + 1)
            c = c + load(coef, indices[j + 2] * n_lanes + at) * broadcast(values, j + 2)
            d = d + load(coef, indices[j + 3] * n_lanes + at) * broadcast(values, j + 3)
        for j in range(whole, end):
            a = a + load(coef, indices[j] * n_lanes + at) * broadcast(values, j)
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
def add(rows, begin, end, table, n_lanes, at, change):
    """Add a change of 16 lanes to the columns of the row's stored values, multiplied by each value."""
    indices, values = rows.indices, rows.values
    sparse, constant = len(indices) > 0, len(values) == 0
    if constant:
        for j in range(begin, end):
            to = indices[j] * n_lanes + at
            store(table, to, load(table, to) + change)
    elif sparse:
        for j in range(begin, end):
            to = indices[j] * n_lanes + at
            store(table, to, load(table, to) + change * broadcast(values, j))
    else:
        for j in range(begin, end):
            to = (j - begin) * n_lanes + at
            store(table, to, load(table, to) + change * broadcast(values, j))


@inlined
def product_of_one(rows, begin, end, coef, parts):
    """Compute `product` for a single lane; `parts` is a buffer of 16 float32."""
    indices, values = rows.indices, rows.values
    sparse, constant = len(indices) > 0, len(values) == 0
    a = b = c = d = np.float32(0.0)
    if constant or sparse:
        whole = begin + (end - begin) // 4 * 4
        if constant:
            for j in range(begin, whole, 4):
                a += coef[indices[j]]
                b += coef[indices[j + 1]]
                c += coef[indices[j + 2]]
                d += coef[indices[j + 3]]
            for j in range(whole, end):
                a += coef[indices[j]]
        else:
            for j in range(begin, whole, 4):
                a += coef[indices[j]] * values[j]
                b += coef[indices[j + 1]] * values[j + 1]
                c += coef[indices[j + 2]] * values[j + 2]
                d += coef[indices[j + 3]] * values[j + 3]
            for j in range(whole, end):
                a += coef[indices[j]] * values[j]
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
def add_to_one(rows, begin, end, table, change):
    """Apply `add` to a single lane."""
    indices, values = rows.indices, rows.values
    if len(values) == 0:
        for j in range(begin, end):
            table[indices[j]] += change
    elif len(indices) > 0:
        for j in range(begin, end):
            table[indices[j]] += change * values[j]
    else:
        for k in range(end - begin):
            table[k] += change * values[begin + k]
