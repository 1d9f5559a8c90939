"""Products of dense and sparse float32 rows with a table of weights, column after column in one order.

Each result is a sum over the columns in ascending order, multiplied and added in one step where the CPU can. A
zero adds nothing, so dense and sparse rows give equal bits, in blocks of any size.

A table has the shape (n_tiles, n_columns, 64): components are kept in tiles of 64, as `dkfeat.compiled.normal` draws
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin

from dkfeat.compiled._jit import kernel
from dkfeat.compiled.normal import TILE
from dkfeat.compiled.simd import LANES, f32x16

__all__ = ["multiply_dense", "multiply_sparse"]

_ROWS = 6
"""Rows that are multiplied together: 24 sums and 4 vectors of weights fill the 32 registers of AVX-512."""
_ROW_BLOCK = 96
"""Rows that stay in cache while all tiles pass."""


def _product(x: Any, at: Any, step: Any, table: Any, begin: Any, count: Any, rows: int) -> Any:
    weights = table[begin : begin + count * TILE].reshape(count, TILE)
    return np.stack([
        sum((x[at + row * step + k] * weights[k] for k in range(count)), np.zeros(TILE, np.float32))
        for row in range(rows)
    ])  # fmt: skip


def _store(out: Any, to: Any, out_step: Any, sums: Any) -> None:
    for row in range(len(sums)):
        out[to + row * out_step : to + row * out_step + TILE] = sums[row]


def multiply_1(
    x: Any, at: Any, step: Any, table: Any, begin: Any, count: Any, out: Any, to: Any, out_step: Any
) -> None:
    """Write the product of ``x[at:at + count]`` and ``table[begin:]``, 64 wide, to ``out[to:to + 64]``."""
    _store(out, to, out_step, _product(x, at, step, table, begin, count, 1))


def multiply_6(
    x: Any, at: Any, step: Any, table: Any, begin: Any, count: Any, out: Any, to: Any, out_step: Any
) -> None:
    """Do what `multiply_1` does for 6 rows, `step` apart in x and `out_step` apart in out."""
    _store(out, to, out_step, _product(x, at, step, table, begin, count, _ROWS))


def multiply_listed(x: Any, at: Any, places: Any, table: Any, begin: Any, count: Any, out: Any, to: Any) -> None:
    """Do what `multiply_1` does where ``x[at + k]`` belongs to row ``places[at + k]`` of the table."""
    chosen = table[begin:]
    total = np.zeros(TILE, np.float32)
    for k in range(at, at + count):
        total = total + x[k] * chosen[places[k] * TILE : (places[k] + 1) * TILE]
    out[to : to + TILE] = total


def _multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    name, kind = f"llvm.fmuladd.v{LANES}f32", f32x16.backend
    function = builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(function, [x, y, z])


def _splat(builder: Any, value: Any) -> Any:
    undefined = ir.Constant(f32x16.backend, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.IntType(32)(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), None))


def _emit(builder: Any, rows: list, weights_at: Callable, count: Any, outputs: list) -> None:
    """Loop over k: ``sums[row] += rows[row](k) * weights_at(k)``, then write the sums to the outputs."""
    kind = f32x16.backend
    vectors = TILE // LANES
    sums = [[cgutils.alloca_once_value(builder, ir.Constant(kind, None)) for _ in range(vectors)] for _ in rows]
    with cgutils.for_range(builder, count) as loop:
        place = builder.bitcast(weights_at(loop.index), kind.as_pointer())
        weights = [builder.load(builder.gep(place, [ir.IntType(64)(v)]), align=4) for v in range(vectors)]
        for row, totals in zip(rows, sums, strict=True):
            value = _splat(builder, builder.load(row(loop.index)))
            for weight, total in zip(weights, totals, strict=True):
                builder.store(_multiply_add(builder, value, weight, builder.load(total)), total)
    for output, totals in zip(outputs, sums, strict=True):
        place = builder.bitcast(output, kind.as_pointer())
        for v, total in enumerate(totals):
            builder.store(builder.load(total), builder.gep(place, [ir.IntType(64)(v)]), align=4)


_FLOATS = types.Array(types.float32, 1, "C")
_PLACES = types.Array(types.int64, 1, "C")


def _register(function: Callable, case: Any, lower: Callable) -> None:
    infer_global(function)(type("_Template", (ConcreteTemplate,), {"cases": [case]}))
    lower_builtin(function, *case.args)(lower)


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def _register_rows(function: Callable, n_rows: int) -> None:
    def lower(context: Any, builder: Any, _: Any, args: tuple) -> Any:
        x, at, step, table, begin, count, out, to, out_step = args
        x, table, out = (_data(context, builder, _FLOATS, array) for array in (x, table, out))
        starts = [builder.gep(x, [builder.add(at, builder.mul(step, step.type(i)))]) for i in range(n_rows)]
        outputs = [builder.gep(out, [builder.add(to, builder.mul(out_step, to.type(i)))]) for i in range(n_rows)]
        table = builder.gep(table, [begin])
        rows = [lambda k, start=start: builder.gep(start, [k]) for start in starts]
        _emit(builder, rows, lambda k: builder.gep(table, [builder.mul(k, k.type(TILE))]), count, outputs)
        return context.get_dummy_value()

    whole = types.intp
    case = signature(types.none, _FLOATS, whole, whole, _FLOATS, whole, whole, _FLOATS, whole, whole)
    _register(function, case, lower)


_register_rows(multiply_1, 1)
_register_rows(multiply_6, _ROWS)


def _lower_listed(context: Any, builder: Any, _: Any, args: tuple) -> Any:
    x, at, places, table, begin, count, out, to = args
    x, table, out = (_data(context, builder, _FLOATS, array) for array in (x, table, out))
    places = builder.gep(_data(context, builder, _PLACES, places), [at])
    x, table = builder.gep(x, [at]), builder.gep(table, [begin])

    def weights_at(k: Any) -> Any:
        place = builder.load(builder.gep(places, [k]))
        return builder.gep(table, [builder.mul(place, place.type(TILE))])

    _emit(builder, [lambda k: builder.gep(x, [k])], weights_at, count, [builder.gep(out, [to])])
    return context.get_dummy_value()


_register(
    multiply_listed,
    signature(types.none, _FLOATS, types.intp, _PLACES, _FLOATS, types.intp, types.intp, _FLOATS, types.intp),
    _lower_listed,
)


@kernel
def multiply_dense(
    x: Any, n_samples: Any, n_columns: Any, table: Any, n_tiles: Any, out: Any, to: Any, step: Any
) -> None:
    """Products of dense rows.

    Parameters
    ----------
    x : ndarray of shape (n_samples * n_columns,), float32
    n_samples, n_columns, n_tiles : int
    table : ndarray of shape (n_tiles * n_columns * 64,), float32
    out : ndarray, flat, float32
        Row i goes to ``out[to + i * step:][:n_tiles * 64]``.
    to, step : int
    """
    for first in range(0, n_samples, _ROW_BLOCK):
        last = min(first + _ROW_BLOCK, n_samples)
        for tile in range(n_tiles):
            begin = tile * n_columns * TILE
            i = first
            while i + _ROWS <= last:
                at, place = i * n_columns, to + i * step + tile * TILE
                multiply_6(x, at, n_columns, table, begin, n_columns, out, place, step)
                i += _ROWS
            while i < last:
                at, place = i * n_columns, to + i * step + tile * TILE
                multiply_1(x, at, n_columns, table, begin, n_columns, out, place, step)
                i += 1


@kernel
def multiply_sparse(
    indptr: Any, places: Any, values: Any, n_columns: Any, table: Any, n_tiles: Any, out: Any, to: Any, step: Any
) -> None:
    """Products of sparse rows.

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), int64
    places : ndarray of shape (nnz,), int64
        Columns of the table, ascending in a row.
    values : ndarray of shape (nnz,), float32
    n_columns, n_tiles : int
    table : ndarray of shape (n_tiles * n_columns * 64,), float32
    out : ndarray, flat, float32
        Row i goes to ``out[to + i * step:][:n_tiles * 64]``.
    to, step : int
    """
    for tile in range(n_tiles):
        begin = tile * n_columns * TILE
        for i in range(indptr.shape[0] - 1):
            at = indptr[i]
            multiply_listed(values, at, places, table, begin, indptr[i + 1] - at, out, to + i * step + tile * TILE)
