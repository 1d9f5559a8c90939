"""Sixteen lanes as a type: vectors that numba lowers to the widest registers of the CPU at hand.

A loop written with these vectors reads like the formula and runs like C. LLVM splits each operation into what the CPU
has, AVX-512, AVX2, SSE or NEON. Operations are strict IEEE: a product and a sum stay apart, so every CPU gives the same
bits.

====== ============================================== ==================================
vector lanes                                          NumPy twin
====== ============================================== ==================================
f32x16 float32                                        float32 array of shape (16,)
u32x16 uint32, wrapping                               uint32 array of shape (16,)
u16x16 uint16: only loaded, stored and selected       uint16 array of shape (16,)
u8x16  uint8: only loaded, stored and selected        uint8 array of shape (16,)
u64x8  uint64: half as many, for products of 32 bits  uint64 array of shape (8,)
mask16 truth values, from comparisons                 bool array of shape (16,)
====== ============================================== ==================================

Operators: ``+ - * /`` and ``< ==`` on f32x16; ``+ - * & | ^ << >>`` on u32x16 and u64x8, ``< ==`` on
u32x16, where a shift takes the same count for each lane from a vector. Both operands are vectors of one kind; `splat`
and `splat64` make one of a scalar.

Every function here is plain NumPy, and that is what runs when the JIT is disabled. Inside a compiled loop, numba
replaces it by the LLVM instructions registered below it. Arrays are flat and offsets count elements; nothing checks
bounds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import AbstractTemplate, ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

LANES = 16
"""Lanes of a vector of 32-bit elements."""

_I1, _I8, _I32, _I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)


class Vector(types.Type):
    """Numba's type of a vector."""

    def __init__(self, name: str, element: ir.Type, lanes: int = LANES) -> None:
        super().__init__(name=name)
        self.backend = ir.VectorType(element, lanes)


f32x16 = Vector("f32x16", ir.FloatType())
u32x16 = Vector("u32x16", _I32)
u16x16 = Vector("u16x16", ir.IntType(16))
u8x16 = Vector("u8x16", _I8)
u64x8 = Vector("u64x8", _I64, LANES // 2)
mask16 = Vector("mask16", _I1)

_OF_ELEMENT = {
    types.float32: f32x16,
    types.uint32: u32x16,
    types.uint16: u16x16,
    types.uint8: u8x16,
}


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Vector) -> None:
        super().__init__(manager, fe_type, fe_type.backend)


def _register(function: Callable, cases: list, emit: Callable) -> None:
    """Teach numba that `function` has the signatures `cases`, lowered by ``emit(builder, signature, *values)``."""
    template = type("_Template", (ConcreteTemplate,), {"cases": cases})
    infer_global(function)(template)
    for case in cases:
        lower_builtin(function, *case.args)(lambda _, builder, sig, args: emit(builder, sig, *args))


def _register_operators() -> None:
    def on(vector: Vector, result: Vector | None = None) -> list:
        return [signature(result or vector, vector, vector)]

    floats = {"add": "fadd", "sub": "fsub", "mul": "fmul", "truediv": "fdiv"}
    whole = {
        "add": "add",
        "sub": "sub",
        "mul": "mul",
        "and_": "and_",
        "or_": "or_",
        "xor": "xor",
        "lshift": "shl",
        "rshift": "lshr",
    }
    for name, instruction in floats.items():
        cases = on(f32x16)
        _register(getattr(operator, name), cases, lambda b, _, x, y, i=instruction: getattr(b, i)(x, y))
    for vector in (u32x16, u64x8):
        for name, instruction in whole.items():
            _register(getattr(operator, name), on(vector), lambda b, _, x, y, i=instruction: getattr(b, i)(x, y))
    for name, sign in (("lt", "<"), ("eq", "==")):
        compare = getattr(operator, name)
        _register(compare, on(f32x16, mask16), lambda b, _, x, y, s=sign: b.fcmp_ordered(s, x, y))
        _register(compare, on(u32x16, mask16), lambda b, _, x, y, s=sign: b.icmp_unsigned(s, x, y))


_register_operators()


def load(array: Any, offset: Any) -> Any:
    """Vector of ``array[offset:offset + 16]``, whose kind follows the array's dtype."""
    return array[offset : offset + LANES].copy()


def broadcast(array: Any, offset: Any) -> Any:
    """Vector with ``array[offset]`` in each lane, of the kind that `load` gives."""
    return np.full(LANES, array[offset])


def store(array: Any, offset: Any, vector: Any) -> None:
    """Write a vector to ``array[offset:offset + 16]``."""
    array[offset : offset + LANES] = vector


def prefetch(array: Any, offset: Any) -> None:
    """Ask for the cache line of ``array[offset]``, which will be read and written soon; has no other effect."""


def _address(context: Any, builder: Any, array: types.Array, value: Any, offset: Any, kind: ir.Type) -> Any:
    data = context.make_array(array)(context, builder, value).data
    return builder.bitcast(builder.gep(data, [offset]), kind.as_pointer())


@infer_global(load)
class _Load(AbstractTemplate):
    def generic(self, args: tuple, kws: dict) -> Any:
        assert not kws
        array, _ = args
        return signature(_OF_ELEMENT[array.dtype], array, types.intp)


@infer_global(broadcast)
class _Broadcast(_Load):
    pass


@infer_global(store)
class _Store(AbstractTemplate):
    def generic(self, args: tuple, kws: dict) -> Any:
        assert not kws
        array, _, _ = args
        return signature(types.none, array, types.intp, _OF_ELEMENT[array.dtype])


@infer_global(prefetch)
class _Prefetch(AbstractTemplate):
    def generic(self, args: tuple, kws: dict) -> Any:
        assert not kws
        return signature(types.none, args[0], types.intp)


@lower_builtin(load, types.Array, types.intp)
def _lower_load(context: Any, builder: Any, sig: Any, args: tuple) -> Any:
    array, offset = args
    address = _address(context, builder, sig.args[0], array, offset, sig.return_type.backend)
    return builder.load(address, align=sig.args[0].dtype.bitwidth // 8)


@lower_builtin(broadcast, types.Array, types.intp)
def _lower_broadcast(context: Any, builder: Any, sig: Any, args: tuple) -> Any:
    (array, offset), vector = args, sig.return_type.backend
    address = _address(context, builder, sig.args[0], array, offset, vector.element)
    return repeat(builder, vector, builder.load(address))


@lower_builtin(store, types.Array, types.intp, Vector)
def _lower_store(context: Any, builder: Any, sig: Any, args: tuple) -> Any:
    array, offset, vector = args
    address = _address(context, builder, sig.args[0], array, offset, sig.args[2].backend)
    builder.store(vector, address, align=sig.args[0].dtype.bitwidth // 8)
    return context.get_dummy_value()


@lower_builtin(prefetch, types.Array, types.intp)
def _lower_prefetch(context: Any, builder: Any, sig: Any, args: tuple) -> Any:
    array, offset = args
    emit_prefetch(builder, _address(context, builder, sig.args[0], array, offset, _I8), for_write=True)
    return context.get_dummy_value()


def emit_prefetch(builder: Any, address: Any, *, for_write: bool) -> None:
    """Ask for the cache line of a pointer."""
    kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
    keep_in_all_caches, data_cache = _I32(3), _I32(1)
    arguments = [builder.bitcast(address, _I8.as_pointer()), _I32(int(for_write)), keep_in_all_caches, data_cache]
    builder.call(_declared(builder, "llvm.prefetch.p0", kind), arguments)


def _declared(builder: Any, name: str, kind: ir.FunctionType) -> Any:
    return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)


def call_intrinsic(builder: Any, name: str, *vectors: Any) -> Any:
    """Call LLVM's function of this name, such as ``"floor"``, of vectors f32x16."""
    kind = ir.FunctionType(f32x16.backend, [f32x16.backend] * len(vectors))
    return builder.call(_declared(builder, f"llvm.{name}.v{LANES}f32", kind), vectors)


def repeat(builder: Any, vector: ir.VectorType, value: Any) -> Any:
    """Emit a vector with a scalar `value` in each lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, _I32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, vector.count), None))


def splat(value: Any) -> Any:
    """Vector with a float32 or uint32 `value` in each lane."""
    return np.full(LANES, value)


def splat64(value: Any) -> Any:
    """Vector u64x8 with a uint64 `value` in each lane."""
    return np.full(LANES // 2, value)


_register(
    splat,
    [signature(f32x16, types.float32), signature(u32x16, types.uint32)],
    lambda b, sig, value: repeat(b, sig.return_type.backend, value),
)
_register(splat64, [signature(u64x8, types.uint64)], lambda b, _, value: repeat(b, u64x8.backend, value))


def count_up(step: Any) -> Any:
    """Vector u64x8 of 0, `step`, ... , 7 `step`, for a uint64 `step`."""
    return np.arange(LANES // 2, dtype=np.uint64) * step


def _emit_count_up(builder: Any, _: Any, step: Any) -> Any:
    lanes = ir.Constant(u64x8.backend, list(range(LANES // 2)))
    return builder.mul(lanes, repeat(builder, u64x8.backend, step))


_register(count_up, [signature(u64x8, types.uint64)], _emit_count_up)


def multiply_low(x: Any, y: Any) -> Any:
    """Products, of 64 bits, of the low 32 bits of each lane of two u64x8."""
    low = np.uint64(0xFFFFFFFF)
    return (x & low) * (y & low)


def _emit_multiply_low(builder: Any, _: Any, x: Any, y: Any) -> Any:
    low = ir.Constant(u64x8.backend, [0xFFFFFFFF] * (LANES // 2))
    return builder.mul(builder.and_(x, low), builder.and_(y, low))


_register(multiply_low, [signature(u64x8, u64x8, u64x8)], _emit_multiply_low)


def interleave(even: Any, odd: Any) -> Any:
    """u32x16 that has the low 32 bits of two u64x8 in its even and odd lanes."""
    return np.stack([even, odd], axis=1).ravel().astype(np.uint32)


def _emit_interleave(builder: Any, _: Any, even: Any, odd: Any) -> Any:
    # in memory order the low half of the 64-bit lane i is the 32-bit lane 2 i, on little-endian machines
    low = [2 * (lane // 2) + LANES * (lane % 2) for lane in range(LANES)]
    halves = [builder.bitcast(part, u32x16.backend) for part in (even, odd)]
    return builder.shuffle_vector(*halves, ir.Constant(u32x16.backend, low))


_register(interleave, [signature(u32x16, u64x8, u64x8)], _emit_interleave)


def bits_of(x: Any) -> Any:
    """u32x16 of the bit patterns of a f32x16."""
    return x.view(np.uint32)


def float_of(bits: Any) -> Any:
    """f32x16 that has the bit patterns of a u32x16; inverse of `bits_of`."""
    return bits.view(np.float32)


def to_float(x: Any) -> Any:
    """f32x16 of the values of a u32x16 taken as signed numbers, rounded to nearest."""
    return x.view(np.int32).astype(np.float32)


_register(bits_of, [signature(u32x16, f32x16)], lambda b, sig, x: b.bitcast(x, sig.return_type.backend))
_register(float_of, [signature(f32x16, u32x16)], lambda b, sig, x: b.bitcast(x, sig.return_type.backend))
_register(to_float, [signature(f32x16, u32x16)], lambda b, sig, x: b.sitofp(x, sig.return_type.backend))


def floor(x: Any) -> Any:
    """Largest whole number that is not above each lane of a f32x16."""
    return np.floor(x)


def square_root(x: Any) -> Any:
    """Square roots of a f32x16, rounded to nearest."""
    return np.sqrt(x)


_register(floor, [signature(f32x16, f32x16)], lambda b, _, x: call_intrinsic(b, "floor", x))
_register(square_root, [signature(f32x16, f32x16)], lambda b, _, x: call_intrinsic(b, "sqrt", x))


def select(mask: Any, x: Any, y: Any) -> Any:
    """Lanes of `x` where `mask` is true and of `y` elsewhere."""
    return np.where(mask, x, y)


_register(
    select,
    [signature(kind, mask16, kind, kind) for kind in _OF_ELEMENT.values()],
    lambda b, _, mask, x, y: b.select(mask, x, y),
)


def minimum(x: Any, y: Any) -> Any:
    """``select(x < y, x, y)`` for two f32x16."""
    return np.where(x < y, x, y)


_register(minimum, [signature(f32x16, f32x16, f32x16)], lambda b, _, x, y: b.select(b.fcmp_ordered("<", x, y), x, y))


def narrowed(x: Any, array: Any) -> Any:
    """Low bits of each lane of a u32x16, in the kind that a uint8, uint16 or uint32 `array` stores."""
    return x.astype(array.dtype)


@infer_global(narrowed)
class _Narrowed(AbstractTemplate):
    def generic(self, args: tuple, kws: dict) -> Any:
        assert not kws
        return signature(_OF_ELEMENT[args[1].dtype], u32x16, args[1])


@lower_builtin(narrowed, Vector, types.Array)
def _lower_narrowed(_: Any, builder: Any, sig: Any, args: tuple) -> Any:
    kind = sig.return_type.backend
    return args[0] if kind == u32x16.backend else builder.trunc(args[0], kind)
