"""Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw (2011), for one counter and for 16.

A call turns a counter of four 32-bit words and a key of two into four random words. It keeps no state: the words are a
pure function of counter and key, so any worker can draw the numbers of any (coordinate, component) when it needs them.

The counter is ``(coordinate low, coordinate high, component, stream)`` and the key is ``(seed low, seed high)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.simd import count_up, interleave, multiply_low, splat64

__all__ = ["draw_words", "philox", "philox_lanes"]

# Multipliers and the steps of the key, from the paper's Table 2; words travel in uint64, where products fit.
_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEP_0, _STEP_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_WORD, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@inlined
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Four random words of one counter.

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


@inlined
def _half_of_lanes(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    # The high half of a lane holds leftovers of products: multiply_low ignores it, and interleave drops it.
    half, m0, m1 = splat64(_HALF), splat64(_MULTIPLY_0), splat64(_MULTIPLY_1)
    for _ in range(10):
        p0, p1 = multiply_low(m0, c0), multiply_low(m1, c2)
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ splat64(k0), p1, (p0 >> half) ^ c3 ^ splat64(k1), p0
        k0, k1 = (k0 + _STEP_0) & _WORD, (k1 + _STEP_1) & _WORD
    return c0, c1, c2, c3


@inlined
def philox_lanes(low: Any, high: Any, component: Any, stream: Any, k0: Any, k1: Any) -> Any:
    """Four random words of one coordinate for 16 components in a row.

    Parameters
    ----------
    low, high : uint64 scalars below 2**32
        Halves of the coordinate.
    component : uint64 scalar
        First component; lane j has ``component + j``.
    stream : uint64 scalar below 2**32
    k0, k1 : uint64 scalars below 2**32
        Key.

    Returns
    -------
    x0, x1, x2, x3 : u32x16
    """
    c0, c1, c3 = splat64(low), splat64(high), splat64(stream)
    even = splat64(component) + count_up(_TWO)
    a0, a1, a2, a3 = _half_of_lanes(c0, c1, even, c3, k0, k1)
    b0, b1, b2, b3 = _half_of_lanes(c0, c1, even + splat64(_ONE), c3, k0, k1)
    return interleave(a0, b0), interleave(a1, b1), interleave(a2, b2), interleave(a3, b3)


@kernel
def draw_words(coordinate: Any, stream: Any, seed: Any, words: Any) -> None:
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
