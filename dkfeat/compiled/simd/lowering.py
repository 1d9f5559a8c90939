"""Functions of groups of vectors f64x8, which numba lowers to LLVM's instructions.

A group is the real parts of some vectors of complex numbers, then their imaginary parts. If the JIT is disabled, the
functions are plain NumPy, with equal results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from dkfeat.compiled.simd.registration import I16, I32, I64, Code, Vector, register

WIDTH = 8
"""Lanes of a vector of float64."""
f64x8 = Vector("f64x8", ir.DoubleType(), WIDTH)
F64X8, F32X8, I16X8 = f64x8.backend, ir.VectorType(ir.FloatType(), WIDTH), ir.VectorType(I16, WIDTH)


def load_numbers(code: Code, argument: int, array: Any, at: Any, step: Any, size: int) -> list:
    """Load the vectors of a group of complex numbers."""
    offsets = code.offsets(at, step, size)
    imaginary = [code.builder.add(at, I64(WIDTH)) for at in offsets]
    return code.load(argument, array, offsets + imaginary, F64X8)


def plus_mirrored(group, other):
    """Add to a group the conjugate of another group, with vectors and lanes in reverse order."""
    size = len(group) // 2
    return np.concatenate([group[:size] + other[:size][::-1, ::-1], group[size:] - other[size:][::-1, ::-1]])


def swapped(group):
    """Swap the real and imaginary parts of a group."""
    return np.roll(group, len(group) // 2, axis=0)


def transposed(group):
    """Transpose the vectors and lanes of a group of 8."""
    return group.reshape(2, WIDTH, WIDTH).swapaxes(1, 2).reshape(-1, WIDTH)


def _load_parts(array: Any, at: Any, step: Any, size: int) -> Any:
    return np.stack([array[at + i * step : at + i * step + WIDTH] for i in range(size)])


def load_group(array: Any, at: Any, step: Any, size: int) -> Any:
    """Load the group of vectors at ``array[at]``, ``array[at + step]``, ..., with the JIT disabled."""
    return np.concatenate([_load_parts(array, at, step, size), _load_parts(array, at + WIDTH, step, size)])


def _loader(size: int) -> Callable:
    def load(array, at, step):
        return load_group(array, at, step, size)

    load.__name__ = f"load_{size}"  # numba looks a function up by its name
    return load


load_3, load_4, load_5, load_8, load_9, load_16 = (_loader(size) for size in (3, 4, 5, 8, 9, 16))
"""Functions that load the group of float64 vectors at ``array[at]``, ``array[at + step]``, ... ."""


def _emit_numbers(code: Code, array: Any, at: Any, step: Any, size: int) -> list:
    return load_numbers(code, 0, array, at, step, size)


def _choosing_loader(size: int) -> Callable:
    def load_chosen(row, choice, at, step, first):
        values, chosen = _load_parts(row, at, step, size), _load_parts(choice, at, step, size)
        return np.concatenate([np.where(chosen == k, values, np.float32(0)) for k in (first, first + 1)]).astype(float)

    load_chosen.__name__ = f"load_chosen_{size}"
    return load_chosen


def _emit_load_chosen(code: Code, row: Any, choice: Any, at: Any, step: Any, first: Any, size: int) -> list:
    builder, offsets, parts = code.builder, code.offsets(at, step, size), []
    values, chosen = code.load(0, row, offsets, F32X8), code.load(1, choice, offsets, I16X8)
    zero = ir.Constant(F32X8, [0.0] * WIDTH)
    for k in (first, builder.add(first, first.type(1))):
        one = builder.insert_element(ir.Constant(I16X8, ir.Undefined), builder.trunc(k, I16), I32(0))
        all_k = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, WIDTH), None))
        parts += [
            builder.fpext(builder.select(builder.icmp_unsigned("==", c, all_k), v, zero), F64X8)
            for v, c in zip(values, chosen, strict=True)
        ]
    return parts


load_chosen_4, load_chosen_8, load_chosen_16 = (_choosing_loader(size) for size in (4, 8, 16))
"""Functions that load a float32 row as a group: real parts if `choice` is `first`, imaginary if `first + 1`, else 0."""


def store(array, at, step, group):
    """Write a group's vectors to ``array[at]``, ``array[at + step]``, ... ."""
    size = len(group) // 2
    for i in range(size):
        array[at + i * step : at + i * step + 2 * WIDTH] = group[[i, i + size]].reshape(-1)


def store_single(array, at, step, vectors):
    """Write vectors of real numbers, rounded to float32, to ``array[at]``, ``array[at + step]``, ... ."""
    for i, vector in enumerate(vectors):
        array[at + i * step : at + i * step + WIDTH] = vector


def _emit_transposed(code: Code, group: list) -> list:
    vectors, lanes = list(group), range(WIDTH)
    for step in (1, 2, 4):
        low = [lane if not lane & step else WIDTH + (lane ^ step) for lane in lanes]
        high = [lane ^ step if not lane & step else WIDTH + lane for lane in lanes]
        for i in range(2 * WIDTH):
            if not i & step:
                pair = vectors[i], vectors[i + step]
                for to, mask in ((i, low), (i + step, high)):
                    mask = ir.Constant(ir.VectorType(I32, WIDTH), mask)
                    vectors[to] = code.builder.shuffle_vector(*pair, mask)
    return vectors


def _emit_store(code: Code, array: Any, at: Any, step: Any, group: list) -> None:
    size = len(group) // 2
    for real, imaginary, offset in zip(group[:size], group[size:], code.offsets(at, step, size), strict=True):
        code.store(array, [offset, code.builder.add(offset, I64(WIDTH))], [real, imaginary])


def _emit_store_single(code: Code, array: Any, at: Any, step: Any, vectors: list) -> None:
    singles = [code.builder.fptrunc(vector, F32X8) for vector in vectors]
    code.store(array, code.offsets(at, step, len(vectors)), singles)


def _emit_plus_mirrored(code: Code, group: list, other: list) -> list:
    size, builder = len(group) // 2, code.builder
    backwards = ir.Constant(ir.VectorType(I32, WIDTH), list(range(WIDTH))[::-1])
    mirrored = [builder.shuffle_vector(x, x, backwards) for x in other[:size][::-1] + other[size:][::-1]]
    pairs = list(zip(group, mirrored, strict=True))
    return [builder.fadd(*pair) for pair in pairs[:size]] + [builder.fsub(*pair) for pair in pairs[size:]]


def _emit_swapped(_: Code, group: list) -> list:
    half = len(group) // 2
    return group[half:] + group[:half]


def _register_all() -> None:
    group, array, index = types.UniTuple, types.Array, types.intp
    for size, load in zip((3, 4, 5, 8, 9, 16), (load_3, load_4, load_5, load_8, load_9, load_16), strict=True):
        kind = types.UniTuple(f64x8, 2 * size)
        register(load, (array, index, index), partial(_emit_numbers, size=size), kind)
    for size, load_chosen in zip((4, 8, 16), (load_chosen_4, load_chosen_8, load_chosen_16), strict=True):
        kind = types.UniTuple(f64x8, 2 * size)
        emit = partial(_emit_load_chosen, size=size)
        register(load_chosen, (array, array, index, index, index), emit, kind)
    register(swapped, (group,), _emit_swapped, lambda x: x)
    register(transposed, (group,), _emit_transposed, lambda x: x)
    register(plus_mirrored, (group, group), _emit_plus_mirrored, lambda x, _: x)
    for function, emit_store in ((store, _emit_store), (store_single, _emit_store_single)):
        register(function, (array, index, index, group), emit_store, types.none)


_register_all()
