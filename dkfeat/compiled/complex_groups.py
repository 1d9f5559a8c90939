"""Groups of complex vectors in registers, in float64: read from memory, shuffled and written.

A group is some vectors of eight complex numbers, held in registers as a tuple: the vectors of real parts, then those
of imaginary parts. With the JIT disabled it is an array of shape (2 * size, 8). In memory, a vector's real parts stand
before its imaginary parts, 16 float64 in all; arrays are flat and nothing checks bounds.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from dkfeat.compiled.group_lowering import F32X8, F64X8, I16, I16X8, I32, WIDTH, Code, f64x8, register

__all__ = [
    "deal_4",
    "deal_8",
    "deal_16",
    "load_3",
    "load_4",
    "load_5",
    "load_8",
    "load_9",
    "load_16",
    "load_group",
    "plus_mirrored",
    "store",
    "store_single",
    "swapped",
    "transposed",
]


def plus_mirrored(group: Any, other: Any) -> Any:
    """Sum of a group and the conjugate of another of which vectors and lanes are in reverse order."""
    size = len(group) // 2
    return np.concatenate([group[:size] + other[:size][::-1, ::-1], group[size:] - other[size:][::-1, ::-1]])


def swapped(group: Any) -> Any:
    """Group with imaginary parts for real ones and vice versa."""
    return np.roll(group, len(group) // 2, axis=0)


def transposed(group: Any) -> Any:
    """Group of 8 with vectors for lanes and vice versa."""
    return group.reshape(2, WIDTH, WIDTH).swapaxes(1, 2).reshape(-1, WIDTH)


def _places(array: Any, at: Any, step: Any, size: int) -> Any:
    return np.stack([array[at + i * step : at + i * step + WIDTH] for i in range(size)])


def load_group(array: Any, at: Any, step: Any, size: int) -> Any:
    """Group of the vectors at ``array[at]``, ``array[at + step]``, ..., with the JIT disabled."""
    return np.concatenate([_places(array, at, step, size), _places(array, at + WIDTH, step, size)])


def _deal(row: Any, choice: Any, at: Any, step: Any, first: Any, size: int) -> Any:
    values, chosen = _places(row, at, step, size), _places(choice, at, step, size)
    return np.concatenate([np.where(chosen == k, values, np.float32(0)) for k in (first, first + 1)]).astype(float)


def load_3(array: Any, at: Any, step: Any) -> Any:
    """Group of the 3 vectors at ``array[at]``, ``array[at + step]``, ... ."""
    return load_group(array, at, step, 3)


def load_5(array: Any, at: Any, step: Any) -> Any:
    """Group of the 5 vectors at ``array[at]``, ``array[at + step]``, ... ."""
    return load_group(array, at, step, 5)


def load_9(array: Any, at: Any, step: Any) -> Any:
    """Group of the 9 vectors at ``array[at]``, ``array[at + step]``, ... ."""
    return load_group(array, at, step, 9)


def load_4(array: Any, at: Any, step: Any) -> Any:
    """Group of the 4 vectors at ``array[at]``, ``array[at + step]``, ..., float64."""
    return load_group(array, at, step, 4)


def load_8(array: Any, at: Any, step: Any) -> Any:
    """Group of the 8 vectors at ``array[at]``, ``array[at + step]``, ... ."""
    return load_group(array, at, step, 8)


def load_16(array: Any, at: Any, step: Any) -> Any:
    """Group of the 16 vectors at ``array[at]``, ``array[at + step]``, ... ."""
    return load_group(array, at, step, 16)


def deal_4(row: Any, choice: Any, at: Any, step: Any, first: Any) -> Any:
    """Group of a float32 row's numbers: real where `choice` is `first`, imaginary where it is the next, else 0.

    Vectors are at ``row[at]``, ``row[at + step]``, ... ; `choice` is uint16.
    """
    return _deal(row, choice, at, step, first, 4)


def deal_8(row: Any, choice: Any, at: Any, step: Any, first: Any) -> Any:
    """Deal 8 vectors; see `deal_4`."""
    return _deal(row, choice, at, step, first, 8)


def deal_16(row: Any, choice: Any, at: Any, step: Any, first: Any) -> Any:
    """Deal 16 vectors; see `deal_4`."""
    return _deal(row, choice, at, step, first, 16)


def store(array: Any, at: Any, step: Any, group: Any) -> None:
    """Write a group's vectors to ``array[at]``, ``array[at + step]``, ... ."""
    size = len(group) // 2
    for i in range(size):
        array[at + i * step : at + i * step + 2 * WIDTH] = group[[i, i + size]].reshape(-1)


def store_single(array: Any, at: Any, step: Any, vectors: Any) -> None:
    """Write vectors of real numbers, rounded to float32, to ``array[at]``, ``array[at + step]``, ... ."""
    for i, vector in enumerate(vectors):
        array[at + i * step : at + i * step + WIDTH] = vector


def _emit_deal(code: Code, row: Any, choice: Any, at: Any, step: Any, first: Any, size: int) -> list:
    builder, places, parts = code.builder, code.steps(at, step, size), []
    values, chosen = code.load(0, row, places, F32X8), code.load(1, choice, places, I16X8)
    zero = ir.Constant(F32X8, [0.0] * WIDTH)
    for k in (first, builder.add(first, first.type(1))):
        one = builder.insert_element(ir.Constant(I16X8, ir.Undefined), builder.trunc(k, I16), I32(0))
        all_k = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, WIDTH), None))
        parts += [
            builder.fpext(builder.select(builder.icmp_unsigned("==", c, all_k), v, zero), F64X8)
            for v, c in zip(values, chosen, strict=True)
        ]
    return parts


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
    for i, place in enumerate(code.steps(at, step, size)):
        code.builder.store(group[i], code.place(0, array, place, F64X8), align=8)
        imaginary = code.builder.add(place, ir.IntType(64)(WIDTH))
        code.builder.store(group[i + size], code.place(0, array, imaginary, F64X8), align=8)


def _emit_store_single(code: Code, array: Any, at: Any, step: Any, vectors: list) -> None:
    for value, place in zip(vectors, code.steps(at, step, len(vectors)), strict=True):
        single = code.builder.fptrunc(value, F32X8)
        code.builder.store(single, code.place(0, array, place, F32X8), align=4)


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
    for size, load in ((3, load_3), (4, load_4), (5, load_5), (8, load_8), (9, load_9), (16, load_16)):
        kind = types.UniTuple(f64x8, 2 * size)
        register(load, (array, index, index), lambda c, *a, s=size: c.numbers(0, *a, s), lambda *_, k=kind: k)
    for size, deal in ((4, deal_4), (8, deal_8), (16, deal_16)):
        kind = types.UniTuple(f64x8, 2 * size)
        emit = partial(_emit_deal, size=size)
        register(deal, (array, array, index, index, index), emit, lambda *_, k=kind: k)
    register(swapped, (group,), _emit_swapped, lambda x: x)
    register(transposed, (group,), _emit_transposed, lambda x: x)
    register(plus_mirrored, (group, group), _emit_plus_mirrored, lambda x, _: x)
    for function, emit_store in ((store, _emit_store), (store_single, _emit_store_single)):
        register(function, (array, index, index, group), emit_store, lambda *_: types.none)


_register_all()
