"""How numba lowers functions of groups of vectors to LLVM's instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

from dkfeat.compiled.simd import Vector

__all__ = ["F32", "F32X8", "F64X8", "I16", "I16X8", "I32", "WIDTH", "Code", "f64x8", "register"]

WIDTH = 8
"""Lanes of a vector of float64."""
F32, F64, I16, I32 = ir.FloatType(), ir.DoubleType(), ir.IntType(16), ir.IntType(32)
f64x8 = Vector("f64x8", F64, WIDTH)
F64X8, F32X8, I16X8 = f64x8.backend, ir.VectorType(F32, WIDTH), ir.VectorType(I16, WIDTH)


class Code(NamedTuple):
    """Where LLVM's instructions go."""

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
