"""Products of sparse rows with other sparse rows that are kept column by column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types

from dkfeat.compiled.jit import kernel
from dkfeat.compiled.simd.registration import Code, register
from dkfeat.compiled.simd.vector import call_intrinsic


def multiply_add(x, y, total):
    """Compute ``x * y + total`` of float64, fused if the CPU has such an instruction, as in dense products."""
    return x * y + total


def _emit_multiply_add(code: Code, *values: Any) -> Any:
    return call_intrinsic(code.builder, "fmuladd", *values)


register(multiply_add, (types.float64,) * 3, _emit_multiply_add, types.float64)


@kernel
def multiply_columns(indptr, positions, values, n_common, bounds, rows, column_values, out, common):
    """Add products with the y rows in rare columns to `out`, and collect the values in common ones.

    Parameters
    ----------
    indptr : ndarray of shape (n_x + 1,), int64
        Row bounds of x in CSR order.
    positions : ndarray of shape (nnz_x,), int32
        Position of each value's column: below `n_common` for a common one, from `n_common` for a rare one, and -1 for
        a column that y does not have.
    values : ndarray of shape (nnz_x,), float64
    n_common : int
    bounds : ndarray of shape (n_rare + 1,), uint64
        Bounds of the values of y in each rare column.
    rows, column_values : ndarray, uint32, float64
        Row and value, by rare column.
    out : ndarray of shape (n_x, at least n_y), float64
    common : tuple of ndarray of shape (n_x + 1,), (nnz_x,) and (nnz_x,), int64, int64 and float64
        Results: row bounds, positions and values of x in common columns.
    """
    common_indptr, common_positions, common_values = common
    longest = 0
    for i in range(indptr.shape[0] - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    rare, factors = np.empty(longest + 1, np.int64), np.empty(longest + 1, np.float64)
    n_taken = 0
    for i in range(indptr.shape[0] - 1):
        common_indptr[i] = n_taken
        n_rare = 0
        for at in range(indptr[i], indptr[i + 1]):  # without branches, because they would often be mispredicted
            position, value = np.int64(positions[at]), values[at]
            common_positions[n_taken], common_values[n_taken] = position, value
            n_taken += (position >= 0) & (position < n_common)
            rare[n_rare], factors[n_rare] = position - n_common, value
            n_rare += position >= n_common
        sums = out[i]
        for at in range(n_rare):
            value = factors[at]
            for entry in range(bounds[rare[at]], bounds[rare[at] + 1]):
                j = rows[entry]
                sums[j] = multiply_add(value, column_values[entry], sums[j])
    common_indptr[indptr.shape[0] - 1] = n_taken
