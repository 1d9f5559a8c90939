"""Vectors of 16 lanes for compiled loops: numba's types, the registration of functions, and the functions.

A loop with these vectors is written like the formula. LLVM splits each operation into instructions of the CPU: AVX-512,
AVX2, SSE or NEON. Operations are strict IEEE, products and sums are not fused, so every CPU gives the same bits.

====== ============================================== ==================================
vector lanes                                          NumPy equivalent
====== ============================================== ==================================
f32x16 float32                                        float32 array of shape (16,)
u32x16 uint32, wrapping                               uint32 array of shape (16,)
u16x16 uint16: only loaded, stored and selected       uint16 array of shape (16,)
u8x16  uint8: only loaded, stored and selected        uint8 array of shape (16,)
u64x8  uint64: eight lanes, for products of 32 bits   uint64 array of shape (8,)
mask16 truth values, from comparisons                 bool array of shape (16,)
====== ============================================== ==================================

Operators: ``+ - * /`` and ``< ==`` on f32x16; ``+ - * & | ^ << >>`` on u32x16 and u64x8; ``< ==`` on
u32x16. Both operands are vectors of one type, also the count of a shift; `splat` and `splat64` make a vector from a
scalar.

Every function here is plain NumPy, which runs if the JIT is disabled. Inside a compiled loop, numba replaces it by the
LLVM instructions registered below it. Arrays are flat and offsets count elements; bounds are not checked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from dkfeat.compiled.jit import inlined

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))


class Vector(types.Type):
    """numba type of a vector."""

    def __init__(self, name: str, element: ir.Type, lanes: int = 16) -> None:
        super().__init__(name=name)
        self.backend = ir.VectorType(element, lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Vector) -> None:
        super().__init__(manager, fe_type, fe_type.backend)


class Code(NamedTuple):
    """LLVM's builder, with numba's context and types of a call."""

    context: Any
    builder: Any
    kinds: tuple
    """Types of the arguments."""
    result: Any
    """Type of the result."""

    def pointer(self, argument: int, array: Any, at: Any, kind: ir.Type) -> Any:
        """Return a pointer to ``array[at]``; `argument` is the position of the array among the arguments."""
        data = self.context.make_array(self.kinds[argument])(self.context, self.builder, array).data
        return self.builder.bitcast(self.builder.gep(data, [at]), kind.as_pointer())

    def element(self, argument: int) -> ir.Type:
        """Return the LLVM type of the elements of an argument, which is an array."""
        return self.context.get_data_type(self.kinds[argument].dtype)

    @property
    def has_avx512(self) -> bool:
        """True if the code may use the 32 registers of AVX-512; others have half the size or half the number."""
        return "+avx512f" in self.context.codegen().magic_tuple()[2]

    def offsets(self, at: Any, step: Any, size: int) -> list:
        """Compute the offsets `at`, `at` + `step`, ... ."""
        offsets = [at]
        for _ in range(size - 1):
            offsets.append(self.builder.add(offsets[-1], step))
        return offsets

    def load(self, argument: int, array: Any, offsets: list, vector: ir.VectorType) -> list:
        """Load vectors of this type, aligned as the elements of the array."""
        align = self.kinds[argument].dtype.bitwidth // 8
        return [self.builder.load(self.pointer(argument, array, at, vector), align=align) for at in offsets]

    def store(self, array: Any, offsets: list, vectors: list) -> None:
        """Write vectors to the call's first argument, aligned as its elements."""
        align = self.kinds[0].dtype.bitwidth // 8
        for at, vector in zip(offsets, vectors, strict=True):
            self.builder.store(vector, self.pointer(0, array, at, vector.type), align=align)


def register(function: Callable, kinds: tuple, emit: Callable, result: Any) -> None:
    """Register a function with numba for arguments of these kinds, lowered by ``emit(code, *values)``.

    Parameters
    ----------
    function : callable
        Function that runs if the JIT is disabled.
    kinds : tuple
        Types or classes of types; any integer is converted to an intp.
    emit : callable
        Receives a `Code` and LLVM values, a list for a tuple; returns a value, a list for a tuple, or None.
    result : numba type or callable
        Type of the result, or a function that returns it for the argument types; None if they are invalid.
    """

    def is_of(argument: Any, kind: Any) -> bool:
        if kind == types.intp:
            return isinstance(argument, types.Integer)
        return isinstance(argument, kind) if isinstance(kind, type) else argument == kind

    class _Template(AbstractTemplate):
        def generic(self, args: tuple, kws: dict) -> Any:
            assert not kws
            if len(args) != len(kinds) or not all(map(is_of, args, kinds)):
                return None
            given = [types.intp if kind == types.intp else arg for arg, kind in zip(args, kinds, strict=True)]
            returned = result if isinstance(result, types.Type) else result(*given)
            return None if returned is None else signature(returned, *given)

    def lower(context: Any, builder: Any, sig: Any, args: tuple) -> Any:
        values = [
            cgutils.unpack_tuple(builder, value) if isinstance(kind, types.UniTuple) else value
            for kind, value in zip(sig.args, args, strict=True)
        ]
        done = emit(Code(context, builder, sig.args, sig.return_type), *values)
        if done is None:
            return context.get_dummy_value()
        return cgutils.pack_array(builder, done) if isinstance(done, list) else done

    infer_global(function)(_Template)
    lower_builtin(function, *kinds)(lower)


LANES = 16
"""Lanes of a vector of 32-bit elements."""


f32x16 = Vector("f32x16", ir.FloatType())
u32x16 = Vector("u32x16", I32)
u16x16 = Vector("u16x16", I16)
u8x16 = Vector("u8x16", I8)
u64x8 = Vector("u64x8", I64, LANES // 2)
mask16 = Vector("mask16", I1)

_OF_ELEMENT = {types.float32: f32x16, types.uint32: u32x16, types.uint16: u16x16, types.uint8: u8x16}


def _instruction(name: str) -> Callable:
    return lambda code, *values: getattr(code.builder, name)(*values)


def _register_operators() -> None:
    floats = {"add": "fadd", "sub": "fsub", "mul": "fmul", "truediv": "fdiv"}
    words = {name: name for name in ("add", "sub", "mul", "and_", "or_", "xor")} | {"lshift": "shl", "rshift": "lshr"}
    for vector, instructions in ((f32x16, floats), (u32x16, words), (u64x8, words)):
        for name, instruction in instructions.items():
            register(getattr(operator, name), (vector, vector), _instruction(instruction), vector)
    for compare, sign in ((operator.lt, "<"), (operator.eq, "==")):
        register(compare, (f32x16, f32x16), lambda code, x, y, s=sign: code.builder.fcmp_ordered(s, x, y), mask16)
        register(compare, (u32x16, u32x16), lambda code, x, y, s=sign: code.builder.icmp_unsigned(s, x, y), mask16)


_register_operators()


def load(array, offset):
    """Load ``array[offset:offset + 16]`` as a vector of the array's dtype."""
    return array[offset : offset + LANES].copy()


def broadcast(array, offset):
    """Load ``array[offset]`` into each lane of a vector of the array's dtype."""
    return np.full(LANES, array[offset])


def store(array, offset, vector):
    """Write a vector to ``array[offset:offset + 16]``."""
    array[offset : offset + LANES] = vector


def prefetch(array, offset):
    """Prefetch the cache line of ``array[offset]`` for reading and writing."""


def _emit_load(code: Code, array: Any, offset: Any) -> Any:
    return code.load(0, array, [offset], code.result.backend)[0]


def _emit_broadcast(code: Code, array: Any, offset: Any) -> Any:
    vector = code.result.backend
    return repeat(code.builder, vector, code.builder.load(code.pointer(0, array, offset, vector.element)))


def _emit_store(code: Code, array: Any, offset: Any, vector: Any) -> None:
    code.store(array, [offset], [vector])


def _emit_prefetch(code: Code, array: Any, offset: Any) -> None:
    emit_prefetch(code.builder, code.pointer(0, array, offset, I8), for_write=True)


def _of_array(array: Any, *_: Any) -> Any:
    return _OF_ELEMENT[array.dtype]


def _none_if_matching(array, _, vector):
    return types.none if vector == _OF_ELEMENT[array.dtype] else None


register(load, (types.Array, types.intp), _emit_load, _of_array)
register(broadcast, (types.Array, types.intp), _emit_broadcast, _of_array)
register(store, (types.Array, types.intp, Vector), _emit_store, _none_if_matching)
register(prefetch, (types.Array, types.intp), _emit_prefetch, types.none)


@inlined
def load_four(array, at):
    """Load ``array[at:at + 64]`` as four vectors of the array's dtype."""
    return load(array, at), load(array, at + LANES), load(array, at + 2 * LANES), load(array, at + 3 * LANES)


@inlined
def store_four(array, at, x0, x1, x2, x3):
    """Write four vectors to ``array[at:at + 64]``."""
    store(array, at, x0)
    store(array, at + LANES, x1)
    store(array, at + 2 * LANES, x2)
    store(array, at + 3 * LANES, x3)


def emit_prefetch(builder: Any, address: Any, *, for_write: bool) -> None:
    """Emit a prefetch of the cache line of a pointer."""
    kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    keep_in_all_caches, data_cache = I32(3), I32(1)
    arguments = [builder.bitcast(address, I8.as_pointer()), I32(int(for_write)), keep_in_all_caches, data_cache]
    builder.call(_declared(builder, "llvm.prefetch.p0", kind), arguments)


def _declared(builder: Any, name: str, kind: ir.FunctionType) -> Any:
    return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)


def call_intrinsic(builder: Any, name: str, *values: Any) -> Any:
    """Emit a call of an LLVM intrinsic, such as ``"floor"``, on floats or vectors of floats, all of one type."""
    kind = values[0].type
    element, lanes = (kind.element, f"v{kind.count}") if isinstance(kind, ir.VectorType) else (kind, "")
    bits = 32 if element == ir.FloatType() else 64
    function = ir.FunctionType(kind, [kind] * len(values))
    return builder.call(_declared(builder, f"llvm.{name}.{lanes}f{bits}", function), values)


def repeat(builder: Any, vector: ir.VectorType, value: Any) -> Any:
    """Emit a vector with a scalar `value` in each lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, I32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, vector.count), None))


def splat(value):
    """Make a vector with a float32 or uint32 `value` in each lane."""
    return np.full(LANES, value)


def splat64(value):
    """Make a u64x8 with a uint64 `value` in each lane."""
    return np.full(LANES // 2, value)


for _vector, _scalar in ((f32x16, types.float32), (u32x16, types.uint32)):
    register(splat, (_scalar,), lambda code, value: repeat(code.builder, code.result.backend, value), _vector)
register(splat64, (types.uint64,), lambda code, value: repeat(code.builder, u64x8.backend, value), u64x8)


def count_up(step):
    """Make a u64x8 of 0, `step`, ... , 7 `step`, for a uint64 `step`."""
    return np.arange(LANES // 2, dtype=np.uint64) * step


def _emit_count_up(code: Code, step: Any) -> Any:
    lanes = ir.Constant(u64x8.backend, list(range(LANES // 2)))
    return code.builder.mul(lanes, repeat(code.builder, u64x8.backend, step))


register(count_up, (types.uint64,), _emit_count_up, u64x8)


def multiply_low(x, y):
    """Multiply the low 32 bits of each lane of two u64x8, to 64 bits."""
    low = np.uint64(0xFFFFFFFF)
    return (x & low) * (y & low)


def emit_multiply_low(code: Code, x: Any, y: Any) -> Any:
    """Emit `multiply_low`."""
    low, builder = ir.Constant(u64x8.backend, [0xFFFFFFFF] * (LANES // 2)), code.builder
    return builder.mul(builder.and_(x, low), builder.and_(y, low))


register(multiply_low, (u64x8, u64x8), emit_multiply_low, u64x8)


def multiply_high(x, y):
    """Multiply the lanes of two u32x16 to 64 bits, and return the high 32 bits."""
    return ((x.astype(np.uint64) * y) >> np.uint64(32)).astype(np.uint32)


def _emit_multiply_high(code: Code, x: Any, y: Any) -> Any:
    builder, half = code.builder, ir.Constant(u64x8.backend, [32] * (LANES // 2))
    pairs = [builder.bitcast(vector, u64x8.backend) for vector in (x, y)]
    even = builder.lshr(emit_multiply_low(code, *pairs), half)
    odd = builder.mul(*(builder.lshr(pair, half) for pair in pairs))
    high = ir.Constant(u64x8.backend, [0xFFFFFFFF00000000] * (LANES // 2))
    return builder.bitcast(builder.or_(even, builder.and_(odd, high)), u32x16.backend)


register(multiply_high, (u32x16, u32x16), _emit_multiply_high, u32x16)


def interleave(even, odd):
    """Interleave the low 32 bits of two u64x8 as the even and odd lanes of a u32x16."""
    return np.stack([even, odd], axis=1).ravel().astype(np.uint32)


def load64(array, offset):
    """Load ``array[offset:offset + 8]`` of a uint64 array as a u64x8."""
    return array[offset : offset + LANES // 2].copy()


def load_bytes(array, offset):
    """Load ``array[offset:offset + 64]`` of a uint8 array as a u32x16."""
    return array[offset : offset + 4 * LANES].copy().view(np.uint32)


def joined(first, last):
    """Join the low 32 bits of two u64x8 to a u32x16."""
    return np.concatenate([first, last]).astype(np.uint32)


register(load64, (types.Array, types.intp), _emit_load, lambda array, _: u64x8 if array.dtype == types.uint64 else None)
register(
    load_bytes, (types.Array, types.intp), _emit_load, lambda array, _: u32x16 if array.dtype == types.uint8 else None
)


def _emit_low_halves(code: Code, first: Any, last: Any, *, lanes: list) -> Any:
    # in memory order the low half of the 64-bit lane i is the 32-bit lane 2 i, on little-endian machines
    halves = [code.builder.bitcast(part, u32x16.backend) for part in (first, last)]
    return code.builder.shuffle_vector(*halves, ir.Constant(u32x16.backend, lanes))


_IN_TURN = [2 * (lane // 2) + LANES * (lane % 2) for lane in range(LANES)]
register(interleave, (u64x8, u64x8), partial(_emit_low_halves, lanes=_IN_TURN), u32x16)
register(joined, (u64x8, u64x8), partial(_emit_low_halves, lanes=list(range(0, 2 * LANES, 2))), u32x16)


def bytes_at_most(x, limits):
    """Compare the bytes of two u32x16: bit 4 i + j of the uint64 is set if byte j of lane i is at most its limit."""
    return np.packbits(x.view(np.uint8) <= limits.view(np.uint8), bitorder="little").view(np.uint64)[0]


def equal_bytes(x, y):
    """Compare the bytes of two u32x16: bit 4 i + j of the uint64 is set if byte j of lane i is the same."""
    return np.packbits(x.view(np.uint8) == y.view(np.uint8), bitorder="little").view(np.uint64)[0]


def lowest_bit(bits):
    """Find the position of the lowest bit set in a uint64 other than 0."""
    return (int(bits) & -int(bits)).bit_length() - 1


def count_bits(bits):
    """Count the bits set in a uint64."""
    return int(bits).bit_count()


def _emit_compare_bytes(code: Code, x: Any, y: Any, *, sign: str) -> Any:
    as_bytes = [code.builder.bitcast(vector, ir.VectorType(I8, 4 * LANES)) for vector in (x, y)]
    return code.builder.bitcast(code.builder.icmp_unsigned(sign, *as_bytes), I64)


register(bytes_at_most, (u32x16, u32x16), partial(_emit_compare_bytes, sign="<="), types.uint64)
register(equal_bytes, (u32x16, u32x16), partial(_emit_compare_bytes, sign="=="), types.uint64)
register(count_bits, (types.uint64,), lambda code, bits: code.builder.ctpop(bits), types.uint64)
register(lowest_bit, (types.uint64,), lambda code, bits: code.builder.cttz(bits, I1(1)), types.int64)


def bits_of(x):
    """Reinterpret a f32x16 as u32x16."""
    return x.view(np.uint32)


def float_of(bits):
    """Reinterpret a u32x16 as f32x16; inverse of `bits_of`."""
    return bits.view(np.float32)


def to_float(x):
    """Convert the lanes of a u32x16, as signed integers, to float32, rounded to nearest."""
    return x.view(np.int32).astype(np.float32)


register(bits_of, (f32x16,), lambda code, x: code.builder.bitcast(x, u32x16.backend), u32x16)
register(float_of, (u32x16,), lambda code, bits: code.builder.bitcast(bits, f32x16.backend), f32x16)
register(to_float, (u32x16,), lambda code, x: code.builder.sitofp(x, f32x16.backend), f32x16)


def floor(x):
    """Round each lane of a f32x16 down to an integer."""
    return np.floor(x)


def square_root(x):
    """Compute the square roots of a f32x16, rounded to nearest."""
    return np.sqrt(x)


for _function, _name in ((floor, "floor"), (square_root, "sqrt")):
    register(_function, (f32x16,), lambda code, x, name=_name: call_intrinsic(code.builder, name, x), f32x16)


def select(mask, x, y):
    """Select lanes of `x` where `mask` is true, else of `y`."""
    return np.where(mask, x, y)


for _vector in _OF_ELEMENT.values():
    register(select, (mask16, _vector, _vector), _instruction("select"), _vector)


def minimum(x, y):
    """Compute ``select(x < y, x, y)`` for two f32x16."""
    return np.where(x < y, x, y)


def maximum(x, y):
    """Compute ``select(x < y, y, x)`` for two f32x16."""
    return np.where(x < y, y, x)


def _emit_smaller(code: Code, x: Any, y: Any, *, swap: bool) -> Any:
    return code.builder.select(code.builder.fcmp_ordered("<", x, y), *((y, x) if swap else (x, y)))


register(minimum, (f32x16, f32x16), partial(_emit_smaller, swap=False), f32x16)
register(maximum, (f32x16, f32x16), partial(_emit_smaller, swap=True), f32x16)


def any_of(mask):
    """Return 1 if a lane of a mask16 is true, else 0."""
    return int(mask.any())


def _emit_any_of(code: Code, mask: Any) -> Any:
    bits = code.builder.bitcast(mask, I16)
    return code.builder.zext(code.builder.icmp_unsigned("!=", bits, I16(0)), I64)


register(any_of, (mask16,), _emit_any_of, types.intp)


def narrowed(x, array):
    """Truncate each lane of a u32x16 to the dtype of a uint8, uint16 or uint32 `array`."""
    return x.astype(array.dtype)


def _emit_narrowed(code: Code, x: Any, _: Any) -> Any:
    kind = code.result.backend
    return x if kind == u32x16.backend else code.builder.trunc(x, kind)


register(narrowed, (u32x16, types.Array), _emit_narrowed, lambda _, array: _OF_ELEMENT[array.dtype])
