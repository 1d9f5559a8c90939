"""Products of dense and sparse rows with a table of weights, summed over columns in ascending order.

Rows, weights and sums are all float32 or all float64. Each term is added by a fused multiply-add if the CPU has one. A
zero adds nothing, so dense and sparse rows give equal bits, in blocks of any size. Products are added to the output, so
columns may be processed in parts, in ascending order.

Products of float32 may also be added to float64: then the terms of each 64 columns are summed in float32, and these
sums in float64, so that parts must begin at multiples of 64. If no terms cancel, the rounding error is about that of
one float32, at nearly twice the speed of float64.

A table has the shape (n_tiles, n_columns, 64): components are in tiles of 64, as `dkfeat.compiled.random` draws
them.

Sparse rows are also multiplied with other sparse rows that are kept column by column.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from dkfeat.compiled.jit import kernel
from dkfeat.compiled.random import TILE
from dkfeat.compiled.simd import I64, Code, call_intrinsic, emit_prefetch, register, repeat

AHEAD = 8
"""Number of nonzeros by which the prefetch of weights is ahead."""

_ROWS = 6
"""Number of rows multiplied at a time: with four vectors of weights, 24 sums fill the 32 registers of AVX-512. AVX2 has
16 registers of half the size, for one vector of weights and its sums."""
_ROW_BLOCK = 384
"""Number of rows for which all tiles are read; a block of them stays in the caches."""
_WEIGHTS_BYTES = 1 << 15
"""Bytes of a tile's weights that stay in the first-level cache for a block of rows."""
_COLUMNS_AT_ONCE = 64
"""Number of columns that are summed in float32 before they are added to float64."""
_LINE = 64
"""Bytes of a vector, which is also a cache line."""


def _add(x: Any, at: Any, step: Any, weights: Any, out: Any, to: Any, out_step: Any, rows: int) -> None:
    for row in range(rows):
        sums = out[to + row * out_step : to + row * out_step + TILE]
        _add_row(x[at + row * step :], weights, sums)


def _add_row(x: Any, weights: Any, out: Any) -> None:
    sums = out if out.dtype == x.dtype else np.zeros(len(out), x.dtype)
    for k in range(len(weights)):
        sums += x[k] * weights[k]
    if sums is not out:
        out += sums


def multiply_1(x, at, step, table, begin, count, out, to, out_step, width):  # noqa: ARG001 - saves time in machine code
    """Add the product of ``x[at:at + count]`` and ``table[begin:]``, 64 wide, to ``out[to:to + 64]``.

    Only the first `width` components need to be right.
    """
    _add(x, at, step, table[begin : begin + count * TILE].reshape(count, TILE), out, to, out_step, 1)


def multiply_6(x, at, step, table, begin, count, out, to, out_step, width):  # noqa: ARG001 - as in multiply_1
    """Apply `multiply_1` to 6 rows, `step` apart in x and `out_step` apart in out."""
    _add(x, at, step, table[begin : begin + count * TILE].reshape(count, TILE), out, to, out_step, _ROWS)


def multiply_listed(x, at, positions, table, begin, count, out, to, width):  # noqa: ARG001 - as in multiply_1
    """Apply `multiply_1` with row ``positions[at + k]`` of the table for ``x[at + k]``."""
    _add_row(x[at:], table[begin:].reshape(-1, TILE)[positions[at : at + count]], out[to : to + TILE])


def _emit(code: Code, rows: list, weights_at: Callable, count: Any, outputs: list, n_components: Any) -> None:
    """Loop over k: ``outputs[row] += rows[row](k) * weights_at(k)``, for as many components as have sums in registers.

    `weights_at` also receives the first component and the number of components. Components from `n_components` on are
    left out, except those that share registers with others.
    """
    builder, lanes = code.builder, _LINE // (code.kinds[0].dtype.bitwidth // 8)
    vector = ir.VectorType(outputs[0].type.pointee, lanes)
    width = lanes * (4 if len(rows) == 1 or code.has_avx512 else 1)
    for first in range(0, TILE, width):
        is_needed = builder.icmp_signed("<", I64(first), n_components)
        with builder.if_then(is_needed, likely=True):
            starts = [[builder.gep(output, [I64(first + at)]) for at in range(0, width, lanes)] for output in outputs]
            targets = [[builder.bitcast(start, vector.as_pointer()) for start in row] for row in starts]
            _emit_pass(code, rows, partial(weights_at, first=first, width=width), count, targets)


def _emit_pass(code: Code, rows: list, weights_at: Callable, count: Any, targets: list) -> None:
    """Loop over k with the sums of each row's targets, which are vectors, in registers."""
    builder, align, out_align = code.builder, *(code.kinds[at].dtype.bitwidth // 8 for at in (0, 6))
    vector = ir.VectorType(code.element(0), _LINE // align)
    is_wider = out_align > align

    def initial(target: Any) -> Any:
        return ir.Constant(vector, None) if is_wider else builder.load(target, align=out_align)

    sums = [[cgutils.alloca_once_value(builder, initial(target)) for target in row] for row in targets]
    with cgutils.for_range(builder, count) as loop:
        pointer = builder.bitcast(weights_at(loop.index), vector.as_pointer())
        weights = [builder.load(builder.gep(pointer, [I64(v)]), align=align) for v in range(len(targets[0]))]
        for row, totals in zip(rows, sums, strict=True):
            value = repeat(builder, vector, builder.load(row(loop.index)))
            for weight, total in zip(weights, totals, strict=True):
                builder.store(call_intrinsic(builder, "fmuladd", value, weight, builder.load(total)), total)
    for row_targets, totals in zip(targets, sums, strict=True):
        for target, total in zip(row_targets, totals, strict=True):
            result = builder.load(total)
            if is_wider:
                added = builder.fpext(result, target.type.pointee)
                result = builder.fadd(builder.load(target, align=out_align), added)
            builder.store(result, target, align=out_align)


_OFFSETS = types.Array(types.int64, 1, "C")


def _emit_rows(code: Code, *values: Any, n_rows: int) -> None:
    x, at, step, table, begin, count, out, to, out_step, n_components = values
    builder, kind = code.builder, code.element(0)
    starts = [code.pointer(0, x, start, kind) for start in code.offsets(at, step, n_rows)]
    outputs = [code.pointer(6, out, start, code.element(6)) for start in code.offsets(to, out_step, n_rows)]
    first_weight = code.pointer(3, table, begin, kind)
    rows = [lambda k, start=start: builder.gep(start, [k]) for start in starts]

    def weights_at(k: Any, first: int, width: int) -> Any:  # noqa: ARG001 - as in _emit_listed
        return builder.gep(first_weight, [builder.add(builder.mul(k, I64(TILE)), I64(first))])

    _emit(code, rows, weights_at, count, outputs, n_components)


def _emit_listed(code: Code, *values: Any) -> None:
    x, at, positions, table, begin, count, out, to, n_components = values
    builder, kind = code.builder, code.element(0)
    start, first_position = code.pointer(0, x, at, kind), code.pointer(2, positions, at, I64)
    first_weight, output = code.pointer(3, table, begin, kind), code.pointer(6, out, to, code.element(6))

    def weights_at(k: Any, first: int, width: int) -> Any:
        column = builder.load(builder.gep(first_position, [k]))
        later = builder.load(builder.gep(first_position, [builder.add(k, I64(AHEAD))]))
        for line in range(first, first + width, _LINE // (code.kinds[0].dtype.bitwidth // 8)):
            offset = builder.add(builder.mul(later, I64(TILE)), I64(line))
            emit_prefetch(builder, builder.gep(first_weight, [offset]), for_write=False)
        return builder.gep(first_weight, [builder.add(builder.mul(column, I64(TILE)), I64(first))])

    _emit(code, [lambda k: builder.gep(start, [k])], weights_at, count, [output], n_components)


_FLOAT32, _FLOAT64 = (types.Array(_type, 1, "C") for _type in (types.float32, types.float64))
for _numbers, _out in ((_FLOAT32, _FLOAT32), (_FLOAT64, _FLOAT64), (_FLOAT32, _FLOAT64)):
    for _function, _n_rows in ((multiply_1, 1), (multiply_6, _ROWS)):
        _kinds = *(_numbers, types.intp, types.intp) * 2, _out, types.intp, types.intp, types.intp
        register(_function, _kinds, partial(_emit_rows, n_rows=_n_rows), types.none)
    _listed = (_numbers, types.intp, _OFFSETS, _numbers, types.intp, types.intp, _out, types.intp, types.intp)
    register(multiply_listed, _listed, _emit_listed, types.none)


@kernel
def multiply_dense(x, n_samples, n_columns, table, n_components, out, to, step):
    """Add products of dense rows and the table to `out`.

    Parameters
    ----------
    x : ndarray of shape (n_samples * n_columns,), float32 or float64
    n_samples, n_columns : int
    table : ndarray of shape (n_tiles * n_columns * 64,), of the same dtype
    n_components : int
        Number of components, of which the last tile may have fewer than 64; its other sums are arbitrary.
    out : ndarray, flat, of the same dtype, or float64
        Row i is added to ``out[to + i * step:][:n_tiles * 64]``.
    to, step : int
    """
    column_block = _WEIGHTS_BYTES // (TILE * x.itemsize) if x.itemsize == out.itemsize else _COLUMNS_AT_ONCE
    for first in range(0, n_samples, _ROW_BLOCK):
        last = min(first + _ROW_BLOCK, n_samples)
        for done in range(0, n_components, TILE):
            width = n_components - done
            for column in range(0, n_columns, column_block):
                begin, count = done * n_columns + column * TILE, min(column_block, n_columns - column)
                i = first
                while i < last:
                    at, target = i * n_columns + column, to + i * step + done
                    if i + _ROWS <= last:
                        multiply_6(x, at, n_columns, table, begin, count, out, target, step, width)
                        i += _ROWS
                    else:
                        multiply_1(x, at, n_columns, table, begin, count, out, target, step, width)
                        i += 1


@kernel
def multiply_sparse(indptr, positions, values, n_columns, table, n_components, out, to, step):
    """Add products of sparse rows and the table to `out`.

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), int64
    positions : ndarray of shape (nnz + AHEAD,), int64
        Position in the table of each value's column, ascending in a row; the last AHEAD are arbitrary.
    values : ndarray of shape (nnz,), float32 or float64
    n_columns, n_components : int
        As in `multiply_dense`.
    table : ndarray of shape (n_tiles * n_columns * 64,), of the same dtype
    out : ndarray, flat, of the same dtype, or float64
        Row i is added to ``out[to + i * step:][:n_tiles * 64]``.
    to, step : int
    """
    for done in range(0, n_components, TILE):
        begin, width = done * n_columns, n_components - done
        for i in range(indptr.shape[0] - 1):
            at, last, target = indptr[i], indptr[i + 1], to + i * step + done
            while at < last:
                end = last
                if values.itemsize < out.itemsize:
                    limit = (positions[at] // _COLUMNS_AT_ONCE + 1) * _COLUMNS_AT_ONCE
                    end = at + np.searchsorted(positions[at : min(last, at + _COLUMNS_AT_ONCE)], limit)
                multiply_listed(values, at, positions, table, begin, end - at, out, target, width)
                at = end


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
