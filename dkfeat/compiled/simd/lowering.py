"""Groups of vectors f64x8: functions that numba lowers to LLVM's instructions, with NumPy twins for a disabled JIT."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from dkfeat.compiled.simd.vector import Vector

WIDTH = 8
"""Lanes of a vector of float64."""
F32, F64, I16, I32 = ir.FloatType(), ir.DoubleType(), ir.IntType(16), ir.IntType(32)
f64x8 = Vector("f64x8", F64, WIDTH)
F64X8, F32X8, I16X8 = f64x8.backend, ir.VectorType(F32, WIDTH), ir.VectorType(I16, WIDTH)


class Code(NamedTuple):
    """LLVM's builder, with the context and the argument types of a call."""

    context: Any
    builder: Any
    kinds: tuple

    def place(self, argument: int, array: Any, at: Any, vector: ir.VectorType) -> Any:
        """Pointer to the vector that begins at ``array[at]``; `argument` is the array's number in the call."""
        data = self.context.make_array(self.kinds[argument])(self.context, self.builder, array).data
        return self.builder.bitcast(self.builder.gep(data, [at]), vector.as_pointer())

    def steps(self, at: Any, step: Any, size: int) -> list:
        """Offsets `at`, `at` + `step`, ... ."""
        places = [at]
        for _ in range(size - 1):
            places.append(self.builder.add(places[-1], step))
        return places

    def load(self, argument: int, array: Any, places: list, vector: ir.VectorType) -> list:
        """Vectors of this type, aligned as their elements."""
        align = {F64: 8, F32: 4, I16: 2}[vector.element]
        return [self.builder.load(self.place(argument, array, at, vector), align=align) for at in places]

    def numbers(self, argument: int, array: Any, at: Any, step: Any, size: int) -> list:
        """Vectors of a group of complex numbers."""
        places = self.steps(at, step, size)
        imaginary = [self.builder.add(at, ir.IntType(64)(WIDTH)) for at in places]
        return self.load(argument, array, places + imaginary, F64X8)


def register(function: Callable, kinds: tuple, emit: Callable, result: Callable) -> None:
    """Teach numba a function of arguments of these kinds, lowered by ``emit(code, *values)``."""

    class _Template(AbstractTemplate):
        def generic(self, args: tuple, kws: dict) -> Any:
            assert not kws
            return signature(result(*args), *(types.intp if isinstance(a, types.Integer) else a for a in args))

    def lower(context: Any, builder: Any, sig: Any, args: tuple) -> Any:
        values = [
            cgutils.unpack_tuple(builder, value) if isinstance(kind, types.UniTuple) else value
            for kind, value in zip(sig.args, args, strict=True)
        ]
        done = emit(Code(context, builder, sig.args), *values)
        return context.get_dummy_value() if done is None else cgutils.pack_array(builder, done)

    infer_global(function)(_Template)
    lower_builtin(function, *kinds)(lower)


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


def _loader(size: int) -> Callable:
    def load(array: Any, at: Any, step: Any) -> Any:
        return load_group(array, at, step, size)

    load.__name__ = f"load_{size}"  # numba looks a function up by its name
    return load


load_3, load_4, load_5, load_8, load_9, load_16 = (_loader(size) for size in (3, 4, 5, 8, 9, 16))
"""Groups of the vectors at ``array[at]``, ``array[at + step]``, ..., float64."""


def _dealer(size: int) -> Callable:
    def deal(row: Any, choice: Any, at: Any, step: Any, first: Any) -> Any:
        values, chosen = _places(row, at, step, size), _places(choice, at, step, size)
        return np.concatenate([np.where(chosen == k, values, np.float32(0)) for k in (first, first + 1)]).astype(float)

    deal.__name__ = f"deal_{size}"
    return deal


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


deal_4, deal_8, deal_16 = (_dealer(size) for size in (4, 8, 16))
"""Groups of a float32 row's numbers: real where `choice`, uint16, is `first`, imaginary where the next, else 0."""


def store(array: Any, at: Any, step: Any, group: Any) -> None:
    """Write a group's vectors to ``array[at]``, ``array[at + step]``, ... ."""
    size = len(group) // 2
    for i in range(size):
        array[at + i * step : at + i * step + 2 * WIDTH] = group[[i, i + size]].reshape(-1)


def store_single(array: Any, at: Any, step: Any, vectors: Any) -> None:
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
    for size, load in zip((3, 4, 5, 8, 9, 16), (load_3, load_4, load_5, load_8, load_9, load_16), strict=True):
        kind = types.UniTuple(f64x8, 2 * size)
        register(load, (array, index, index), lambda c, *a, s=size: c.numbers(0, *a, s), lambda *_, k=kind: k)
    for size, deal in zip((4, 8, 16), (deal_4, deal_8, deal_16), strict=True):
        kind = types.UniTuple(f64x8, 2 * size)
        emit = partial(_emit_deal, size=size)
        register(deal, (array, array, index, index, index), emit, lambda *_, k=kind: k)
    register(swapped, (group,), _emit_swapped, lambda x: x)
    register(transposed, (group,), _emit_transposed, lambda x: x)
    register(plus_mirrored, (group, group), _emit_plus_mirrored, lambda x, _: x)
    for function, emit_store in ((store, _emit_store), (store_single, _emit_store_single)):
        register(function, (array, index, index, group), emit_store, lambda *_: types.none)


_register_all()
