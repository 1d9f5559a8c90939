"""Eight bytes of text at a time: unaligned loads and the bit operations on them.

Each operation is one machine instruction in a compiled loop. With ``NUMBA_DISABLE_JIT=1`` the same names are
plain Python functions with equal results.
"""

from __future__ import annotations

import struct
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel

# ruff: noqa: ARG001  # numba fixes the parameters of the functions below


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


ROUNDED, MALFORMED, UNDECIDED = 0, 1, 2
"""How `read_number` ended: a value, no number at all, or more digits than 128 bits decide."""

_LOWEST, _HIGHEST = -342, 308  # decimal exponents of a 19-digit integer that can give a finite, non-zero float64
_ZEROS = np.uint64(0x3030303030303030)
_SIXES = np.uint64(0x0606060606060606)
_HIGH_NIBBLES = np.uint64(0xF0F0F0F0F0F0F0F0)
_EVEN_BYTES, _EVEN_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_U0, _U1, _U3, _U8, _U9, _U10, _U11 = (np.uint64(value) for value in (0, 1, 3, 8, 9, 10, 11))
_U16, _U32, _U52, _U63, _U64, _U100, _U10000 = (np.uint64(value) for value in (16, 32, 52, 63, 64, 100, 10000))
_ALL_ONES_9 = np.uint64(0x1FF)
_TWO_53 = np.uint64(2**53)
POWERS_OF_TEN = 10.0 ** np.arange(23)  # exact in float64


def _powers_of_five() -> NDArray[np.uint64]:
    """128 leading bits of 5**q, ``q = _LOWEST .. _HIGHEST``, cut off; rounded up for -27 <= q < 0 ([1], section 5)."""
    rows = []
    for q in range(_LOWEST, _HIGHEST + 1):
        power = 5 ** abs(q)
        bits = power.bit_length()
        if q >= 0:
            top = power >> (bits - 128) if bits > 128 else power << (128 - bits)
        else:
            top = (1 << (bits + 127)) // power + (q >= -27)
        rows.append((top >> 64, top & 0xFFFFFFFFFFFFFFFF))
    return np.array(rows, dtype=np.uint64)


_POWERS = _powers_of_five()


@inlined
def count_digits(word: Any) -> Any:
    """Count the leading digits among the eight characters of `word`; also the characters less ``"0"``."""
    digits = word ^ _ZEROS
    others = ((digits + _SIXES) | digits) & _HIGH_NIBBLES
    return trailing_zeros(others) >> 3, digits


@inlined
def eight_digits(digits: Any, n: Any) -> Any:
    """Integer that the first `n` (1 to 8) of the digits from `count_digits` spell."""
    digits = digits << (_U64 - (np.uint64(n) << _U3))
    digits = (digits * _U10 + (digits >> _U8)) & _EVEN_BYTES
    digits = (digits * _U100 + (digits >> _U16)) & _EVEN_PAIRS
    return (digits * _U10000 + (digits >> _U32)) & np.uint64(0xFFFFFFFF)


@kernel
def nearest_float(integer: Any, exponent: Any) -> Any:
    """Float64 nearest to ``integer * 10**exponent`` for an integer in 1 .. 2**64 - 1 ([1], algorithm 1)."""
    if exponent < _LOWEST:
        return 0.0
    if exponent > _HIGHEST:
        return np.inf
    shift = bit_length_gap(integer)
    integer = integer << np.uint64(shift)
    row = exponent - _LOWEST
    high = high_product(integer, _POWERS[row, 0])
    low = integer * _POWERS[row, 0]
    if high & _ALL_ONES_9 == _ALL_ONES_9:
        carry = high_product(integer, _POWERS[row, 1])
        low = low + carry
        if low < carry:
            high = high + _U1
    top = high >> _U63
    mantissa = high >> (top + _U9)  # 53 bits and one to round by
    binary = ((217706 * exponent) >> 16) + 63 + np.int64(top) - shift + 1023
    if binary <= 0:  # subnormal
        if binary < -62:
            return 0.0
        mantissa = mantissa >> np.uint64(1 - binary)
        mantissa = (mantissa + (mantissa & _U1)) >> _U1
        return as_float(mantissa)  # a carry into bit 52 is the exponent of the least normal number
    exact = low <= _U1 and -4 <= exponent <= 23 and (mantissa & _U3) == _U1
    if exact and (mantissa << (top + _U9)) == high:  # half-way: to even
        mantissa = mantissa - _U1
    mantissa = (mantissa + (mantissa & _U1)) >> _U1
    if mantissa == _TWO_53:
        mantissa = mantissa >> _U1
        binary += 1
    if binary >= 2047:
        return np.inf
    return as_float((np.uint64(binary) << _U52) | (mantissa & np.uint64(0xFFFFFFFFFFFFF)))


@kernel
def read_number(text: Any, start: Any) -> Any:
    """Read the number that begins at byte `start`.

    Parameters
    ----------
    text : ndarray of uint8
        Ends in a byte that belongs to no number, with eight spare bytes behind it.
    start : int

    Returns
    -------
    value : float
        Correctly rounded float64; infinite where the number is beyond the range.
    stop : int
        First byte that is not part of the number; `start` where there is none.
    status : int
        `ROUNDED`, `MALFORMED` or `UNDECIDED`.
    """
    i = start
    sign = byte_at(text, i)
    if sign == 45 or sign == 43:
        i += 1
    integer, kept, exponent, seen, cut, fraction = _U0, 0, 0, False, False, False
    while True:
        c = byte_at(text, i)
        if 48 <= c <= 57:
            seen = True
            if kept < 19:
                exponent -= fraction
                if c != 48 or kept > 0:
                    integer = integer * _U10 + np.uint64(c - 48)
                    kept += 1
            else:
                exponent += not fraction
                cut = cut or c != 48
        elif c == 46 and not fraction:
            fraction = True
        else:
            break
        i += 1
    if not seen:
        return 0.0, start, MALFORMED
    if c == 101 or c == 69:
        i += 1
        c = byte_at(text, i)
        negative = c == 45
        if negative or c == 43:
            i += 1
            c = byte_at(text, i)
        if not 48 <= c <= 57:
            return 0.0, start, MALFORMED
        power = 0
        while 48 <= c <= 57:
            if power < 1_000_000_000_000:  # beyond any exponent that digits before it could bring back
                power = power * 10 + (c - 48)
            i += 1
            c = byte_at(text, i)
        exponent += -power if negative else power
    if integer == _U0:
        value = 0.0
    elif not cut and integer <= _TWO_53 and -22 <= exponent <= 22:
        value = np.float64(integer)
        value = value / POWERS_OF_TEN[-exponent] if exponent < 0 else value * POWERS_OF_TEN[exponent]
    else:
        value = nearest_float(integer, exponent)
        if cut and nearest_float(integer + _U1, exponent) != value:
            return 0.0, i, UNDECIDED
    return (-value if sign == 45 else value), i, ROUNDED
