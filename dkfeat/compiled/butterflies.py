"""Butterflies of the Walsh-Hadamard transform on vectors in registers.

A group is 2, 4, 8 or 16 vectors f32x16, held in registers as a tuple. With the JIT disabled it is an array of shape
(size, 16), and the functions below are plain NumPy with equal results.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from dkfeat.compiled.group_lowering import F32, I32, Code, register
from dkfeat.compiled.simd import LANES, f32x16

__all__ = ["across", "load_2", "load_4", "load_8", "load_16", "store_group", "times", "within"]

_F32X16 = f32x16.backend


def _stack(array: Any, at: Any, step: Any, size: int) -> Any:
    return np.stack([array[at + i * step : at + i * step + LANES] for i in range(size)])


def load_2(array: Any, at: Any, step: Any) -> Any:
    """Group of the 2 vectors at ``array[at]`` and ``array[at + step]``, float32."""
    return _stack(array, at, step, 2)


def load_4(array: Any, at: Any, step: Any) -> Any:
    """Group of the 4 vectors at ``array[at]``, ``array[at + step]``, ... ."""
    return _stack(array, at, step, 4)


def load_8(array: Any, at: Any, step: Any) -> Any:
    """Group of the 8 vectors at ``array[at]``, ``array[at + step]``, ... ."""
    return _stack(array, at, step, 8)


def load_16(array: Any, at: Any, step: Any) -> Any:
    """Group of the 16 vectors at ``array[at]``, ``array[at + step]``, ... ."""
    return _stack(array, at, step, 16)


def store_group(array: Any, at: Any, step: Any, group: Any) -> None:
    """Write a group's vectors to ``array[at]``, ``array[at + step]``, ... ."""
    for i in range(len(group)):
        array[at + i * step : at + i * step + LANES] = group[i]


def times(group: Any, other: Any) -> Any:
    """Products of two groups of one size, vector by vector."""
    return group * other


def across(group: Any) -> Any:
    """Walsh-Hadamard transform, not normalised, of each lane's column of a group."""
    step = 1
    while step < len(group):
        halves = group.reshape(-1, 2, step, LANES)
        low, high = halves[:, 0], halves[:, 1]
        group = np.stack([low + high, low - high], axis=1).reshape(-1, LANES)
        step *= 2
    return group


def within(group: Any) -> Any:
    """Walsh-Hadamard transform, not normalised, of the 16 lanes of each vector of a group."""
    step = 1
    while step < LANES:
        halves = group.reshape(-1, 2, step)
        low, high = halves[:, 0], halves[:, 1]
        group = np.stack([low + high, low - high], axis=1).reshape(-1, LANES)
        step *= 2
    return group


def _emit_load(code: Code, array: Any, at: Any, step: Any, size: int) -> list:
    return code.load(0, array, code.steps(at, step, size), _F32X16)


def _emit_store(code: Code, array: Any, at: Any, step: Any, group: list) -> None:
    for value, place in zip(group, code.steps(at, step, len(group)), strict=True):
        code.builder.store(value, code.place(0, array, place, _F32X16), align=4)


def _emit_times(code: Code, group: list, other: list) -> list:
    return [code.builder.fmul(x, y) for x, y in zip(group, other, strict=True)]


def _emit_across(code: Code, group: list) -> list:
    vectors, step = list(group), 1
    while step < len(vectors):
        for i in range(len(vectors)):
            if not i & step:
                low, high = vectors[i], vectors[i + step]
                vectors[i], vectors[i + step] = code.builder.fadd(low, high), code.builder.fsub(low, high)
        step *= 2
    return vectors


def _emit_within(code: Code, group: list) -> list:
    # low + high and low - high are partner + (+-1) * own: the product is exact, so that fused and separate agree
    builder = code.builder
    muladd = ir.FunctionType(_F32X16, [_F32X16] * 3)
    name = f"llvm.fmuladd.v{LANES}f32"
    function = builder.module.globals.get(name) or ir.Function(builder.module, muladd, name)
    undefined = ir.Constant(_F32X16, ir.Undefined)
    vectors, step = list(group), 1
    while step < LANES:
        partner = ir.Constant(ir.VectorType(I32, LANES), [lane ^ step for lane in range(LANES)])
        sign = ir.Constant(_F32X16, [ir.Constant(F32, -1.0 if lane & step else 1.0) for lane in range(LANES)])
        vectors = [
            builder.call(function, [vector, sign, builder.shuffle_vector(vector, undefined, partner)])
            for vector in vectors
        ]
        step *= 2
    return vectors


def _register_all() -> None:
    group, array, index = types.UniTuple, types.Array, types.intp
    for size, load in ((2, load_2), (4, load_4), (8, load_8), (16, load_16)):
        kind = types.UniTuple(f32x16, size)
        register(load, (array, index, index), partial(_emit_load, size=size), lambda *_, k=kind: k)
    register(store_group, (array, index, index, group), _emit_store, lambda *_: types.none)
    register(times, (group, group), _emit_times, lambda x, _: x)
    register(across, (group,), _emit_across, lambda x: x)
    register(within, (group,), _emit_within, lambda x: x)


_register_all()
