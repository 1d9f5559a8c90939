"""Products of dense and sparse float32 rows with a table of weights, summed over columns in ascending order.

Each term is added by a fused multiply-add if the CPU has one. A zero adds nothing, so dense and sparse rows give equal
bits, in blocks of any size. Products are added to the output, so columns may be processed in parts, in ascending order.

A table has the shape (n_tiles, n_columns, 64): components are in tiles of 64, as `dkfeat.compiled.random.tables` draws
them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from dkfeat.compiled.jit import kernel
from dkfeat.compiled.random.tables import TILE
from dkfeat.compiled.simd.registration import I64, Code, register
from dkfeat.compiled.simd.vector import LANES, call_intrinsic, emit_prefetch, f32x16, repeat

AHEAD = 8
"""Number of nonzeros by which the prefetch of weights is ahead."""

_ROWS = 6
"""Number of rows multiplied at a time: 24 sums and 4 vectors of weights fill the 32 registers of AVX-512."""
_ROW_BLOCK = 96
"""Number of rows that stay in the second-level cache while all tiles are processed."""
_COLUMN_BLOCK = 128
"""Number of columns whose weights in a tile, 32 KiB, stay in the first-level cache for a block of rows."""


def _add(x: Any, at: Any, step: Any, weights: Any, out: Any, to: Any, out_step: Any, rows: int) -> None:
    for row in range(rows):
        sums = out[to + row * out_step : to + row * out_step + TILE]
        for k in range(len(weights)):
            sums += x[at + row * step + k] * weights[k]


def multiply_1(x, at, step, table, begin, count, out, to, out_step):
    """Add the product of ``x[at:at + count]`` and ``table[begin:]``, 64 wide, to ``out[to:to + 64]``."""
    _add(x, at, step, table[begin : begin + count * TILE].reshape(count, TILE), out, to, out_step, 1)


def multiply_6(x, at, step, table, begin, count, out, to, out_step):
    """Apply `multiply_1` to 6 rows, `step` apart in x and `out_step` apart in out."""
    _add(x, at, step, table[begin : begin + count * TILE].reshape(count, TILE), out, to, out_step, _ROWS)


def multiply_listed(x, at, positions, table, begin, count, out, to):
    """Apply `multiply_1` with row ``positions[at + k]`` of the table for ``x[at + k]``."""
    chosen = table[begin:]
    sums = out[to : to + TILE]
    for k in range(at, at + count):
        sums += x[k] * chosen[positions[k] * TILE : (positions[k] + 1) * TILE]


def _emit(builder: Any, rows: list, weights_at: Callable, count: Any, outputs: list) -> None:
    """Loop over k: ``outputs[row] += rows[row](k) * weights_at(k)``, with the sums in registers."""
    kind = f32x16.backend
    vectors = TILE // LANES
    pointers = [builder.bitcast(output, kind.as_pointer()) for output in outputs]
    targets = [[builder.gep(pointer, [I64(v)]) for v in range(vectors)] for pointer in pointers]
    sums = [[cgutils.alloca_once_value(builder, builder.load(target, align=4)) for target in row] for row in targets]
    with cgutils.for_range(builder, count) as loop:
        pointer = builder.bitcast(weights_at(loop.index), kind.as_pointer())
        weights = [builder.load(builder.gep(pointer, [I64(v)]), align=4) for v in range(vectors)]
        for row, totals in zip(rows, sums, strict=True):
            value = repeat(builder, kind, builder.load(row(loop.index)))
            for weight, total in zip(weights, totals, strict=True):
                builder.store(call_intrinsic(builder, "fmuladd", value, weight, builder.load(total)), total)
    for row_targets, totals in zip(targets, sums, strict=True):
        for target, total in zip(row_targets, totals, strict=True):
            builder.store(builder.load(total), target, align=4)


_FLOATS, _OFFSETS = types.Array(types.float32, 1, "C"), types.Array(types.int64, 1, "C")
_F32 = ir.FloatType()


def _emit_rows(code: Code, *values: Any, n_rows: int) -> None:
    x, at, step, table, begin, count, out, to, out_step = values
    builder = code.builder
    starts = [code.pointer(0, x, start, _F32) for start in code.offsets(at, step, n_rows)]
    outputs = [code.pointer(6, out, start, _F32) for start in code.offsets(to, out_step, n_rows)]
    first_weight = code.pointer(3, table, begin, _F32)
    rows = [lambda k, start=start: builder.gep(start, [k]) for start in starts]
    _emit(builder, rows, lambda k: builder.gep(first_weight, [builder.mul(k, I64(TILE))]), count, outputs)


def _emit_listed(code: Code, *values: Any) -> None:
    x, at, positions, table, begin, count, out, to = values
    builder = code.builder
    start, first_position = code.pointer(0, x, at, _F32), code.pointer(2, positions, at, I64)
    first_weight, output = code.pointer(3, table, begin, _F32), code.pointer(6, out, to, _F32)

    def weights_at(k):
        column = builder.load(builder.gep(first_position, [k]))
        later = builder.load(builder.gep(first_position, [builder.add(k, I64(AHEAD))]))
        for line in range(0, TILE, LANES):
            offset = builder.add(builder.mul(later, I64(TILE)), I64(line))
            emit_prefetch(builder, builder.gep(first_weight, [offset]), for_write=False)
        return builder.gep(first_weight, [builder.mul(column, I64(TILE))])

    _emit(builder, [lambda k: builder.gep(start, [k])], weights_at, count, [output])


for _function, _n_rows in ((multiply_1, 1), (multiply_6, _ROWS)):
    register(_function, (_FLOATS, types.intp, types.intp) * 3, partial(_emit_rows, n_rows=_n_rows), types.none)
_LISTED = (_FLOATS, types.intp, _OFFSETS, _FLOATS, types.intp, types.intp, _FLOATS, types.intp)
register(multiply_listed, _LISTED, _emit_listed, types.none)


@kernel
def multiply_dense(x, n_samples, n_columns, table, n_tiles, out, to, step):
    """Add products of dense rows and the table to `out`.

    Parameters
    ----------
    x : ndarray of shape (n_samples * n_columns,), float32
    n_samples, n_columns, n_tiles : int
    table : ndarray of shape (n_tiles * n_columns * 64,), float32
    out : ndarray, flat, float32
        Row i is added to ``out[to + i * step:][:n_tiles * 64]``.
    to, step : int
    """
    for first in range(0, n_samples, _ROW_BLOCK):
        last = min(first + _ROW_BLOCK, n_samples)
        for tile in range(n_tiles):
            for column in range(0, n_columns, _COLUMN_BLOCK):
                begin, count = (tile * n_columns + column) * TILE, min(_COLUMN_BLOCK, n_columns - column)
                i = first
                while i < last:
                    at, target = i * n_columns + column, to + i * step + tile * TILE
                    if i + _ROWS <= last:
                        multiply_6(x, at, n_columns, table, begin, count, out, target, step)
                        i += _ROWS
                    else:
                        multiply_1(x, at, n_columns, table, begin, count, out, target, step)
                        i += 1


@kernel
def multiply_sparse(indptr, positions, values, n_columns, table, n_tiles, out, to, step):
    """Add products of sparse rows and the table to `out`.

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), int64
    positions : ndarray of shape (nnz + AHEAD,), int64
        Position in the table of each value's column, ascending in a row; the last AHEAD are arbitrary.
    values : ndarray of shape (nnz,), float32
    n_columns, n_tiles : int
    table : ndarray of shape (n_tiles * n_columns * 64,), float32
    out : ndarray, flat, float32
        Row i is added to ``out[to + i * step:][:n_tiles * 64]``.
    to, step : int
    """
    for tile in range(n_tiles):
        begin = tile * n_columns * TILE
        for i in range(indptr.shape[0] - 1):
            at, target = indptr[i], to + i * step + tile * TILE
            multiply_listed(values, at, positions, table, begin, indptr[i + 1] - at, out, target)


_COLUMNS = 64
"""Number of columns of the table summed at a time; their sums for four rows stay in the first-level cache."""
_ROWS_AT_ONCE = 4


@kernel
def multiply_rows(x, n_samples, n_inner, table, n_columns, out):
    """Write the product of rows and a table.

    Parameters
    ----------
    x : ndarray of shape (n_samples * n_inner,), float64
    n_samples, n_inner, n_columns : int
    table : ndarray of shape (n_tiles * n_inner * 64,), float64
        Columns in tiles of 64, the last one padded with zeros.
    out : ndarray of shape (n_samples * n_columns,), float32
    """
    sums = np.empty(_ROWS_AT_ONCE * _COLUMNS, np.float64)
    for tile in range(-(-n_columns // _COLUMNS)):
        begin, width = tile * n_inner * _COLUMNS, min(_COLUMNS, n_columns - tile * _COLUMNS)
        for first in range(0, n_samples, _ROWS_AT_ONCE):
            rows = min(_ROWS_AT_ONCE, n_samples - first)
            sums[:] = 0.0
            for k in range(n_inner):
                weights = table[begin + k * _COLUMNS : begin + (k + 1) * _COLUMNS]
                for row in range(rows):
                    value = x[(first + row) * n_inner + k]
                    for column in range(_COLUMNS):
                        sums[row * _COLUMNS + column] += value * weights[column]
            for row in range(rows):
                to = (first + row) * n_columns + tile * _COLUMNS
                for column in range(width):
                    out[to + column] = np.float32(sums[row * _COLUMNS + column])
