"""Philox4x32-10, a counter-based generator of random numbers, and the numbers of the streams drawn from it.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.

Every random number that a row's features depend on is a function of ``(seed, coordinate, component, stream)``: the seed
is the key, the rest the counter. Each use of random numbers has its own stream, so that two uses never share a number.
The numbers of streams are part of the meaning of a seed: none is ever reused or changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.simd.registration import I64, Code, register
from dkfeat.compiled.simd.vector import count_up, emit_multiply_low, interleave, multiply_low, repeat, splat64, u64x8

STREAM_GCWS = 0
"""Parameters of consistent weighted sampling and the mixed code of a coordinate."""
STREAM_CODE_SHIFT = 1
"""Shift between the codes of positive and negative coordinates, one for each component."""
STREAM_DART = 2
"""Keys of the tiles of darts."""
STREAM_DENSE = 16
"""Gaussian entries of a dense projection."""
STREAM_CIRCULANT = 17
"""First columns of circulant matrices."""
STREAM_SIGN = 18
"""Sign flips of the input of a structured projection."""
STREAM_MIXTURE = 19
"""Choice of the circulant from which a column takes its weights."""
STREAM_FASTFOOD = 20
"""Gaussian diagonal of Fastfood."""
STREAM_PERMUTATION = 21
"""Permutation of Fastfood."""
STREAM_LENGTH = 22
"""Row lengths of Fastfood."""
STREAM_PHASE = 23
"""Phases of random Fourier features."""
STREAM_LANDMARK = 48
"""Numbers of the rows that are the landmarks of Nyström features."""
STREAM_LAPLACE_DENSE = 40
"""Positive entries of a dense projection of Laplace features."""
STREAM_LAPLACE_CIRCULANT = 41
"""First columns of circulant matrices of positive entries."""
STREAM_LAPLACE_MIXTURE = 42
"""Choice of the circulant of positive entries from which a column takes its weights."""
STREAM_MACLAURIN_DEGREE = 32
"""Degrees of random Maclaurin features."""
STREAM_MACLAURIN_SIGN = 33
"""Random signs of random Maclaurin features."""
STREAM_MACLAURIN_INNER = 34
"""Seeds of the inner maps of compositional kernels."""
STREAM_MACLAURIN_SAMPLE = 35
"""Signs of the samples of an inner map."""
STREAM_HELD_OUT = 56
"""Choice of the rows that are held out of training."""


# Multipliers and the steps of the key, from the paper's Table 2; words are held in uint64, in which their products fit.
_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEP_0, _STEP_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_WORD, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@inlined
def philox(c0, c1, c2, c3, k0, k1):
    """Compute four random words from a counter.

    Parameters
    ----------
    c0, c1, c2, c3 : uint64 scalars below 2**32
        Counter.
    k0, k1 : uint64 scalars below 2**32
        Key.

    Returns
    -------
    x0, x1, x2, x3 : uint64 scalars below 2**32
    """
    for _ in range(10):
        p0, p1 = _MULTIPLY_0 * c0, _MULTIPLY_1 * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1 & _WORD, (p0 >> _HALF) ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + _STEP_0) & _WORD, (k1 + _STEP_1) & _WORD
    return c0, c1, c2, c3


def _rounds(c0, c1, c2, c3, k0, k1):
    # eight rounds of u64x8; upper halves of lanes hold bits of earlier products
    for _ in range(8):
        p0, p1 = multiply_low(splat64(_MULTIPLY_0), c0), multiply_low(splat64(_MULTIPLY_1), c2)
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ k0, p1, (p0 >> _HALF) ^ c3 ^ k1, p0
        k0, k1 = (k0 + _STEP_0) & _WORD, (k1 + _STEP_1) & _WORD
    return c0, c1, c2, c3


def _emit_rounds(code: Code, c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> list:
    # no loop, which LLVM would keep for AVX2 and spend a third of its time on keys
    builder, vector = code.builder, u64x8.backend

    def splatted(value: Any) -> Any:
        return ir.Constant(vector, [int(value)] * vector.count)

    for _ in range(8):
        p0 = emit_multiply_low(code, c0, splatted(_MULTIPLY_0))
        p1 = emit_multiply_low(code, c2, splatted(_MULTIPLY_1))
        x0, x2 = (builder.xor(c, repeat(builder, vector, k)) for c, k in ((c1, k0), (c3, k1)))
        c0, c2 = (builder.xor(builder.lshr(p, splatted(_HALF)), x) for p, x in ((p1, x0), (p0, x2)))
        c1, c3 = p1, p0
        k0, k1 = (builder.and_(builder.add(k, I64(int(s))), I64(int(_WORD))) for k, s in ((k0, _STEP_0), (k1, _STEP_1)))
    return [c0, c1, c2, c3]


register(_rounds, (u64x8, u64x8, u64x8, u64x8, types.uint64, types.uint64), _emit_rounds, types.UniTuple(u64x8, 4))


@inlined
def half_of_lanes(c0, c1, c2, c3, k0, k1):
    """Compute four random words of 8 counters, each a u64x8; the upper half of a lane has no meaning, in and out.

    A counter is four vectors u64x8, the key two scalars below 2**32. `multiply_low` ignores upper halves, and
    `interleave` and `joined` drop them.
    """
    half, m0, m1 = splat64(_HALF), splat64(_MULTIPLY_0), splat64(_MULTIPLY_1)
    for _ in range(2):
        p0, p1 = multiply_low(m0, c0), multiply_low(m1, c2)
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ splat64(k0), p1, (p0 >> half) ^ c3 ^ splat64(k1), p0
        k0, k1 = (k0 + _STEP_0) & _WORD, (k1 + _STEP_1) & _WORD
    return _rounds(c0, c1, c2, c3, k0, k1)


@inlined
def _half_of_components(low, high, components, stream, k0, k1):
    # in each of the first two rounds, one product is that of scalars
    half, s0, p1 = splat64(_HALF), _MULTIPLY_0 * low, multiply_low(splat64(_MULTIPLY_1), components)
    c0, s2 = (p1 >> half) ^ splat64(high ^ k0), (s0 >> _HALF) ^ stream ^ k1
    k0, k1 = (k0 + _STEP_0) & _WORD, (k1 + _STEP_1) & _WORD
    s1, p0 = _MULTIPLY_1 * s2, multiply_low(splat64(_MULTIPLY_0), c0)
    c0, c2 = p1 ^ splat64((s1 >> _HALF) ^ k0), (p0 >> half) ^ splat64(s0 ^ k1)
    return _rounds(c0, splat64(s1), c2, p0, (k0 + _STEP_0) & _WORD, (k1 + _STEP_1) & _WORD)


@inlined
def philox_lanes(coordinate, component, stream, seed):
    """Compute four random words of one coordinate for each of 16 consecutive components.

    Parameters
    ----------
    coordinate : uint64 scalar
    component : uint64 scalar
        First component; lane j has ``component + j``.
    stream : uint64 scalar below 2**32
    seed : uint64 scalar

    Returns
    -------
    x0, x1, x2, x3 : u32x16
    """
    k0, k1 = seed & _WORD, seed >> _HALF
    low, high = coordinate & _WORD, coordinate >> _HALF
    even = splat64(component) + count_up(_TWO)
    a0, a1, a2, a3 = _half_of_components(low, high, even, stream, k0, k1)
    b0, b1, b2, b3 = _half_of_components(low, high, even + splat64(_ONE), stream, k0, k1)
    return interleave(a0, b0), interleave(a1, b1), interleave(a2, b2), interleave(a3, b3)


@kernel
def draw_words(coordinate, stream, seed, words):
    """Write the random words of one coordinate for components 0, 1, ... .

    Parameters
    ----------
    coordinate, stream, seed : uint64
    words : ndarray of shape (n_components, 4), uint32
        Filled by the call.
    """
    low, high = coordinate & _WORD, coordinate >> _HALF
    for j in range(words.shape[0]):
        x = philox(low, high, np.uint64(j), stream, seed & _WORD, seed >> _HALF)
        words[j, 0], words[j, 1], words[j, 2], words[j, 3] = x
