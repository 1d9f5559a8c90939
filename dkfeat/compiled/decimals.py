"""Decimal numbers in text, read eight bytes at a time, and the bit operations for this.

Each operation is one machine instruction in a compiled loop. With ``NUMBA_DISABLE_JIT=1`` the plain Python functions
run, with equal results.

[1] D. Lemire, "Number Parsing at a Gigabyte per Second", Software: Practice and Experience 51, 2021.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.simd import I1, I8, I64, Code, register


def byte_at(text, i):
    """Load byte `i` of the array as int64."""
    return int(text[i])


def word_at(text, i):
    """Load bytes ``i .. i + 7`` as one uint64, the first byte lowest."""
    return np.uint64(int.from_bytes(text[i : i + 8].tobytes(), "little"))


def trailing_zeros(word):
    """Count the zero bits below the lowest one bit of a uint64, as int64; 64 for zero."""
    word = int(word)
    return (word & -word).bit_length() - 1 if word else 64


def leading_zeros(word):
    """Count the zero bits above the highest one bit of a uint64, as int64; 64 for zero."""
    return 64 - int(word).bit_length()


def high_product(a, b):
    """Return the upper 64 bits of the 128-bit product of two uint64."""
    return np.uint64((int(a) * int(b)) >> 64)


def as_float(bits):
    """Reinterpret 64 bits as a float64."""
    return struct.unpack("<d", struct.pack("<Q", int(bits)))[0]


def _emit_byte_at(code: Code, text: Any, i: Any) -> Any:
    return code.builder.zext(code.builder.load(code.pointer(0, text, i, I8)), I64)


def _emit_word_at(code: Code, text: Any, i: Any) -> Any:
    return code.builder.load(code.pointer(0, text, i, I64), align=1)


def _emit_high_product(code: Code, a: Any, b: Any) -> Any:
    builder, wide = code.builder, ir.IntType(128)
    product = builder.mul(builder.zext(a, wide), builder.zext(b, wide))
    return builder.trunc(builder.lshr(product, wide(64)), I64)


def _register_all() -> None:
    text, word = (types.Array, types.intp), types.uint64
    register(byte_at, text, _emit_byte_at, types.int64)
    register(word_at, text, _emit_word_at, word)
    register(trailing_zeros, (word,), lambda code, x: code.builder.cttz(x, I1(0)), types.int64)
    register(leading_zeros, (word,), lambda code, x: code.builder.ctlz(x, I1(0)), types.int64)
    register(high_product, (word, word), _emit_high_product, word)
    register(as_float, (word,), lambda code, bits: code.builder.bitcast(bits, ir.DoubleType()), types.float64)


_register_all()


ROUNDED, MALFORMED, UNDECIDED = 0, 1, 2
"""Statuses of `read_number`: a value, no number, or more digits than 128 bits can round correctly."""

_LOWEST, _HIGHEST = -342, 308  # decimal exponents of a 19-digit integer that can give a finite, non-zero float64
_ZEROS = np.uint64(0x3030303030303030)
_SIXES = np.uint64(0x0606060606060606)
_HIGH_NIBBLES = np.uint64(0xF0F0F0F0F0F0F0F0)
_EVEN_BYTES, _EVEN_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_U0, _U1, _U3, _U8, _U9, _U10 = (np.uint64(value) for value in (0, 1, 3, 8, 9, 10))
_U16, _U32, _U52, _U63, _U64, _U100, _U10000 = (np.uint64(value) for value in (16, 32, 52, 63, 64, 100, 10000))
_ALL_ONES_9 = np.uint64(0x1FF)
_TWO_53 = np.uint64(2**53)
POWERS_OF_TEN = 10.0 ** np.arange(23)  # exact in float64


def _powers_of_five() -> NDArray[np.uint64]:
    """Compute 128 leading bits of 5**q, ``q = _LOWEST .. _HIGHEST``; rounded up for -27 <= q < 0 ([1], section 5)."""
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
def count_digits(word):
    """Count the leading digits among the eight characters of `word`; also return the characters xor ``"0"``."""
    digits = word ^ _ZEROS
    others = ((digits + _SIXES) | digits) & _HIGH_NIBBLES
    return trailing_zeros(others) >> 3, digits


@inlined
def eight_digits(digits, n):
    """Return the integer of the first `n` (1 to 8) of the digits from `count_digits`."""
    digits = digits << (_U64 - (np.uint64(n) << _U3))
    digits = (digits * _U10 + (digits >> _U8)) & _EVEN_BYTES
    digits = (digits * _U100 + (digits >> _U16)) & _EVEN_PAIRS
    return (digits * _U10000 + (digits >> _U32)) & np.uint64(0xFFFFFFFF)


@kernel
def nearest_float(integer, exponent):
    """Return the float64 nearest to ``integer * 10**exponent`` for an integer in 1 .. 2**64 - 1 ([1], algorithm 1)."""
    if exponent < _LOWEST:
        return 0.0
    if exponent > _HIGHEST:
        return np.inf
    shift = leading_zeros(integer)
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
    mantissa = high >> (top + _U9)  # 53 bits, and one bit for rounding
    binary = ((217706 * exponent) >> 16) + 63 + np.int64(top) - shift + 1023
    if binary <= 0:  # subnormal
        if binary < -62:
            return 0.0
        mantissa = mantissa >> np.uint64(1 - binary)
        mantissa = (mantissa + (mantissa & _U1)) >> _U1
        return as_float(mantissa)  # a carry into bit 52 gives the smallest normal number
    exact = low <= _U1 and -4 <= exponent <= 23 and (mantissa & _U3) == _U1
    if exact and (mantissa << (top + _U9)) == high:  # half-way between two floats: round to even
        mantissa = mantissa - _U1
    mantissa = (mantissa + (mantissa & _U1)) >> _U1
    if mantissa == _TWO_53:
        mantissa = mantissa >> _U1
        binary += 1
    if binary >= 2047:
        return np.inf
    return as_float((np.uint64(binary) << _U52) | (mantissa & np.uint64(0xFFFFFFFFFFFFF)))


@kernel
def read_number(text, start):
    """Read the number that begins at byte `start`.

    Parameters
    ----------
    text : ndarray of uint8
        Text that ends in a byte that belongs to no number, followed by eight spare bytes.
    start : int

    Returns
    -------
    value : float
        Correctly rounded float64; infinite if the number is out of range.
    stop : int
        First byte that is not part of the number; `start` if there is no number.
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
            if power < 1_000_000_000_000:  # beyond this the value is 0 or infinite, whatever the digits
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
