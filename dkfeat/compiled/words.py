"""Eight bytes of text at a time: unaligned loads and the bit operations on them.

Each operation is one machine instruction in a compiled loop. With ``NUMBA_DISABLE_JIT=1`` the same names are
plain Python functions with equal results.
"""
# ruff: noqa: ARG001  # numba fixes the parameters of the functions below

from __future__ import annotations

import struct
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["as_float", "bit_length_gap", "byte_at", "high_product", "trailing_zeros", "word_at"]

if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]  # numba sets it from the environment

    def byte_at(text: Any, i: Any) -> Any:
        """Load byte `i` of the array as int64."""
        return int(text[i])

    def word_at(text: Any, i: Any) -> Any:
        """Load bytes ``i .. i + 7`` as one uint64, the first byte lowest."""
        return np.uint64(int.from_bytes(text[i : i + 8].tobytes(), "little"))

    def trailing_zeros(word: Any) -> Any:
        """Count the zero bits below the lowest one bit of a uint64, as int64; 64 for zero."""
        word = int(word)
        return (word & -word).bit_length() - 1 if word else 64

    def bit_length_gap(word: Any) -> Any:
        """Count the zero bits above the highest one bit of a uint64, as int64; 64 for zero."""
        return 64 - int(word).bit_length()

    def high_product(a: Any, b: Any) -> Any:
        """Upper 64 bits of the 128-bit product of two uint64."""
        return np.uint64((int(a) * int(b)) >> 64)

    def as_float(bits: Any) -> Any:
        """Reinterpret 64 bits as a float64."""
        return struct.unpack("<d", struct.pack("<Q", int(bits)))[0]

else:
    _I64, _I128 = ir.IntType(64), ir.IntType(128)

    def _load(context: Any, builder: Any, signature: Any, args: Any, integer: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.gep(builder.bitcast(array.data, cgutils.voidptr_t), [args[1]])
        return builder.load(builder.bitcast(place, integer.as_pointer()), align=1)

    @intrinsic
    def byte_at(typing_context: Any, text: Any, i: Any) -> Any:
        """Load byte `i` of the array as int64."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.zext(_load(context, builder, signature, args, ir.IntType(8)), _I64)

        return types.int64(text, types.int64), generate

    @intrinsic
    def word_at(typing_context: Any, text: Any, i: Any) -> Any:
        """Load bytes ``i .. i + 7`` as one uint64, the first byte lowest."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _load(context, builder, signature, args, _I64)

        return types.uint64(text, types.int64), generate

    @intrinsic
    def trailing_zeros(typing_context: Any, word: Any) -> Any:
        """Count the zero bits below the lowest one bit of a uint64, as int64; 64 for zero."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.cttz(args[0], ir.IntType(1)(0))

        return types.int64(types.uint64), generate

    @intrinsic
    def bit_length_gap(typing_context: Any, word: Any) -> Any:
        """Count the zero bits above the highest one bit of a uint64, as int64; 64 for zero."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.ctlz(args[0], ir.IntType(1)(0))

        return types.int64(types.uint64), generate

    @intrinsic
    def high_product(typing_context: Any, a: Any, b: Any) -> Any:
        """Upper 64 bits of the 128-bit product of two uint64."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            product = builder.mul(builder.zext(args[0], _I128), builder.zext(args[1], _I128))
            return builder.trunc(builder.lshr(product, _I128(64)), _I64)

        return types.uint64(types.uint64, types.uint64), generate

    @intrinsic
    def as_float(typing_context: Any, bits: Any) -> Any:
        """Reinterpret 64 bits as a float64."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], ir.DoubleType())

        return types.float64(types.uint64), generate
