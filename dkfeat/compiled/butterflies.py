"""Butterflies of the Walsh-Hadamard transform on vectors in registers.

A group is 2, 4, 8 or 16 vectors f32x16, held in registers as a tuple. With the JIT disabled it is an array of shape
(size, 16), and the functions below are plain NumPy with equal results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from dkfeat.compiled.simd import LANES, Vector, f32x16

__all__ = ["across", "load_2", "load_4", "load_8", "load_16", "store_group", "times", "within"]

_F32, _I32 = ir.FloatType(), ir.IntType(32)


def _addresses(context: Any, builder: Any, kind: Any, array: Any, at: Any, step: Any, size: int) -> list:
    """Pointers to vectors that begin at ``array[at + i * step]``."""
    data = context.make_array(kind)(context, builder, array).data
    places = []
    for _ in range(size):
        places.append(builder.bitcast(builder.gep(data, [at]), f32x16.backend.as_pointer()))
        at = builder.add(at, step)
    return places


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


def _register_loader(function: Callable, size: int) -> None:
    class _Load(AbstractTemplate):
        def generic(self, args: tuple, kws: dict) -> Any:
            assert not kws
            return signature(types.UniTuple(f32x16, size), args[0], types.intp, types.intp)

    def lower(context: Any, builder: Any, sig: Any, args: tuple) -> Any:
        array, at, step = args
        places = _addresses(context, builder, sig.args[0], array, at, step, size)
        return cgutils.pack_array(builder, [builder.load(place, align=4) for place in places])

    infer_global(function)(_Load)
    lower_builtin(function, types.Array, types.intp, types.intp)(lower)


for _function, _size in ((load_2, 2), (load_4, 4), (load_8, 8), (load_16, 16)):
    _register_loader(_function, _size)


def store_group(array: Any, at: Any, step: Any, group: Any) -> None:
    """Write a group's vectors to ``array[at]``, ``array[at + step]``, ... ."""
    for i in range(len(group)):
        array[at + i * step : at + i * step + LANES] = group[i]


@infer_global(store_group)
class _Store(AbstractTemplate):
    def generic(self, args: tuple, kws: dict) -> Any:
        assert not kws
        return signature(types.none, args[0], types.intp, types.intp, args[3])


@lower_builtin(store_group, types.Array, types.intp, types.intp, types.UniTuple)
def _lower_store(context: Any, builder: Any, sig: Any, args: tuple) -> Any:
    array, at, step, group = args
    vectors = cgutils.unpack_tuple(builder, group)
    places = _addresses(context, builder, sig.args[0], array, at, step, len(vectors))
    for place, vector in zip(places, vectors, strict=True):
        builder.store(vector, place, align=4)
    return context.get_dummy_value()


def times(group: Any, other: Any) -> Any:
    """Products of two groups of one size, vector by vector."""
    return group * other


@infer_global(times)
class _Times(AbstractTemplate):
    def generic(self, args: tuple, kws: dict) -> Any:
        assert not kws
        return signature(args[0], *args)


@lower_builtin(times, types.UniTuple, types.UniTuple)
def _lower_times(_: Any, builder: Any, __: Any, args: tuple) -> Any:
    pairs = zip(*(cgutils.unpack_tuple(builder, group) for group in args), strict=True)
    return cgutils.pack_array(builder, [builder.fmul(x, y) for x, y in pairs])


def across(group: Any) -> Any:
    """Walsh-Hadamard transform, not normalised, of each lane's column of a group."""
    step = 1
    while step < len(group):
        halves = group.reshape(-1, 2, step, LANES)
        low, high = halves[:, 0], halves[:, 1]
        group = np.stack([low + high, low - high], axis=1).reshape(-1, LANES)
        step *= 2
    return group


@infer_global(across)
class _Across(AbstractTemplate):
    def generic(self, args: tuple, kws: dict) -> Any:
        assert not kws
        return signature(args[0], args[0])


@lower_builtin(across, types.UniTuple)
def _lower_across(_: Any, builder: Any, __: Any, args: tuple) -> Any:
    vectors = cgutils.unpack_tuple(builder, args[0])
    step = 1
    while step < len(vectors):
        for i in range(len(vectors)):
            if not i & step:
                low, high = vectors[i], vectors[i + step]
                vectors[i], vectors[i + step] = builder.fadd(low, high), builder.fsub(low, high)
        step *= 2
    return cgutils.pack_array(builder, vectors)


def within(group: Any) -> Any:
    """Walsh-Hadamard transform, not normalised, of the 16 lanes of each vector of a group."""
    step = 1
    while step < LANES:
        halves = group.reshape(-1, 2, step)
        low, high = halves[:, 0], halves[:, 1]
        group = np.stack([low + high, low - high], axis=1).reshape(-1, LANES)
        step *= 2
    return group


@infer_global(within)
class _Within(_Across):
    pass


@lower_builtin(within, types.UniTuple)
def _lower_within(_: Any, builder: Any, __: Any, args: tuple) -> Any:
    # low + high and low - high are partner + (+-1) * own: the product is exact, so that fused and separate agree
    kind: Vector = f32x16
    muladd = ir.FunctionType(kind.backend, [kind.backend] * 3)
    name = f"llvm.fmuladd.v{LANES}f32"
    function = builder.module.globals.get(name) or ir.Function(builder.module, muladd, name)
    vectors = cgutils.unpack_tuple(builder, args[0])
    step = 1
    while step < LANES:
        partner = ir.Constant(ir.VectorType(_I32, LANES), [lane ^ step for lane in range(LANES)])
        sign = ir.Constant(kind.backend, [ir.Constant(_F32, -1.0 if lane & step else 1.0) for lane in range(LANES)])
        undefined = ir.Constant(kind.backend, ir.Undefined)
        vectors = [
            builder.call(function, [vector, sign, builder.shuffle_vector(vector, undefined, partner)])
            for vector in vectors
        ]
        step *= 2
    return cgutils.pack_array(builder, vectors)
