"""Random numbers: Philox, the streams drawn from it, logarithm and cosine, and tables of weights and signs.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.

Every random number that a row's features depend on is a function of ``(seed, coordinate, component, stream)``: the seed
is the key, the rest the counter. Each use of random numbers has its own stream, so that two uses never share a number.
The numbers of streams are part of the meaning of a seed: none is ever reused or changed.

**Functions.** Logarithm, sine and cosine are strict IEEE arithmetic, with the same bits on every CPU and with every
compiler. The mathematics libraries of systems differ in the last bit, so a feature map whose codes must agree between
machines cannot use them. Both logarithms write ``x = 2**e * (1 + f)`` with ``1 + f`` in [0.707, 1.415) by integer
operations on the bit pattern, then evaluate a minimax polynomial with separate products and sums. Errors stay below 1
ulp (measured, see the tests; 2 ulp is guaranteed); log(1) is 0. In float64 log(0) is -inf, the log of a negative number
is NaN, and subnormals are decomposed as integers, so that the results do not depend on whether a CPU flushes them to
zero.

**Tables** of random weights and signs have the same bits on every CPU. Entry (coordinate, component) of a law's stream,
with ``q = component // 64``, ``i = component % 64 // 16`` and ``lane = component % 16``, comes from the Philox words x0
... x3 of (coordinate, 16 q + lane, stream). Each operation is rounded once to float32, in strict IEEE arithmetic; log
is `log_normal_lanes`.

Gaussian: Box and Muller's transform of (x0, x1) gives i = 0 from the cosine and i = 1 from the sine, that of (x2, x3)
gives i = 2 and 3. The radius is ``sqrt(-2 log u)`` with ``u = ((x0 >> 1) | 1) * 2**-31``, the angle ``x1 * 2**-32``
turns, taken as a signed number.

Exponential, mean 1: ``-log(1 - u)`` with ``u = ((x_i >> 1) | 1) * 2**-31``, precise near 0 as well.

Lévy, scale 1/2: ``1 / (2 Z**2)`` of a standard Gaussian Z. Box and Muller's transform makes two numbers from two words:
with E exponential from x0 and v uniform from x1, ``1 / (4 E sin(pi/2 v)**2)`` is i = 0 and ``1 / (4 E cos(pi/2 v)**2)``
is i = 1; x2 and x3 give i = 2 and 3. Numbers lie between 0.011 and 1.1e27: none is infinite, and the law has a
probability below 2**-31 beyond these limits.

Signs are packed: one Philox call gives 128, one bit each. A superblock is 2,048 signs of one coordinate. With
``s = factor // 2048``, ``i = factor % 2048 // 512``, ``lane = factor % 512 // 32`` and ``bit = factor % 32``, the sign
of (coordinate, factor) is bit number ``bit`` of the Philox word x_i of (coordinate, 16 s + lane, stream): -1 if it is
set. So a superblock is 16 calls in 16 lanes, and its words are in the order of the factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.simd import (
    I64,
    LANES,
    Code,
    bits_of,
    count_up,
    emit_multiply_low,
    float_of,
    floor,
    interleave,
    minimum,
    multiply_low,
    register,
    repeat,
    select,
    splat,
    splat64,
    square_root,
    store_four,
    to_float,
    u64x8,
)

STREAM_GCWS = 0
"""Parameters of consistent weighted sampling and the mixed code of a coordinate."""
STREAM_CODE_SHIFT = 1
"""Shift between the codes of positive and negative coordinates, one for each component."""
STREAM_DART = 2
"""Keys of the tiles of darts."""
STREAM_MINHASH = 3
"""Keys of the hashes of similarity sketches."""
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
STREAM_TABLE = 49
"""Numbers of the rows to which an encoder of tables is fitted."""
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
f32, f64, i64, u32, u64 = np.float32, np.float64, np.int64, np.uint32, np.uint64
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


_BATCH = 1024
"""Numbers drawn at a time; another value would give other rows for the same seed."""


def choose_rows(seed: int, n_rows: int, n_chosen: int, stream: int = STREAM_LANDMARK) -> NDArray[np.int64]:
    """Draw row numbers uniformly without replacement; they depend only on these arguments.

    Random 64-bit numbers times n_rows / 2^64 are drawn until enough of them differ, so the rows of a smaller n_chosen
    are among those of a larger one.

    Parameters
    ----------
    seed : int
    n_rows : int
        Rows to choose from, 0 to 2^62.
    n_chosen : int
        If there are fewer rows, all are chosen.
    stream : int
        A constant of `dkfeat.compiled.random`.

    Returns
    -------
    rows : ndarray of shape (min(n_rows, n_chosen),), int64
        Ascending.

    Examples
    --------
    >>> choose_rows(0, 3, 10).tolist(), len(choose_rows(0, 10**15, 5))
    ([0, 1, 2], 5)
    """
    if n_chosen >= n_rows:
        return np.arange(n_rows)
    chosen: set[int] = set()
    words = np.empty((_BATCH, 4), np.uint32)
    batch = 0
    while len(chosen) < n_chosen:
        draw_words(np.uint64(batch), np.uint64(stream), np.uint64(seed), words)
        for low, high in words[:, :2].tolist():
            chosen.add((((high << 32) | low) * n_rows) >> 64)
            if len(chosen) == n_chosen:
                break
        batch += 1
    return np.array(sorted(chosen), np.int64)


# float32: log(1 + f) = f + f**2 Q(f) with relative error 2**-27.3; even and odd powers of Q are summed separately.
_C0, _C1, _C2 = f32(-0.5), f32(0.3333333134651184), f32(-0.2500082552433014)
_C3, _C4, _C5 = f32(0.20001237094402313), f32(-0.16623146831989288), f32(0.1420135349035263)
_C6, _C7, _C8 = f32(-0.13161973655223846), f32(0.12765531241893768), f32(-0.07634587585926056)
_UNIT, _QUARTER = f32(1), f32(0.25)
# The exponent stays multiplied by 2**23, as in the bit pattern; log(2) is in two parts, and e times the first is exact.
_LN2_HIGH, _LN2_LOW = f32(0.693145751953125 * 2.0**-23), f32(1.428606765330187e-06 * 2.0**-23)
_TWO_31 = u32(1 << 31)
_OFFSET, _EXPONENT = u32(0x3F3504F3), u32(0xFF800000)


@inlined
def _log_of_parts(f, e):
    # log(1 + f) + (e / 2**23) * log(2), with 1 + f in [0.707, 1.415)
    z = f * f
    even = splat(_C0) + z * (splat(_C2) + z * (splat(_C4) + z * (splat(_C6) + z * splat(_C8))))
    odd = splat(_C1) + z * (splat(_C3) + z * (splat(_C5) + z * splat(_C7)))
    tail = z * (even + f * odd) + e * splat(_LN2_LOW)
    return (f + tail) + e * splat(_LN2_HIGH)


@inlined
def log_normal_lanes(x):
    """Compute the logarithms of a f32x16 of normal, positive, finite numbers."""
    bits = bits_of(x)
    shifted = (bits - splat(_OFFSET)) & splat(_EXPONENT)
    return _log_of_parts(float_of(bits - shifted) - splat(_UNIT), to_float(shifted))


@inlined
def minus_log_complement_lanes(u, complement):
    """Compute -log(1 - u) to float32's relative precision, also near 0.

    Parameters
    ----------
    u, complement : f32x16
        Normal numbers in (0, 1), and 1 - u rounded from its exact value.
    """
    bits = bits_of(complement)
    shifted = (bits - splat(_OFFSET)) & splat(_EXPONENT)
    small = u < splat(_QUARTER)
    f = select(small, splat(f32(0)) - u, float_of(bits - shifted) - splat(_UNIT))
    return splat(f32(0)) - _log_of_parts(f, select(small, splat(f32(0)), to_float(shifted)))


@inlined
def odd_of_31_bits(x):
    """Compute odd numbers below 2**31 from the top 31 bits of a u32x16."""
    return (x >> splat(u32(1))) | splat(u32(1))


@inlined
def exponential_lanes(x):
    """Compute exponential numbers of mean 1, from 2**-31 to 21.5, from the random words of a u32x16."""
    k = odd_of_31_bits(x)
    step = splat(f32(2.0**-31))
    return minus_log_complement_lanes(to_float(k) * step, to_float(splat(_TWO_31) - k) * step)


# float64: log(1 + f) = 2 s + s**3 P(s**2), s = f / (2 + f), with relative error 2**-59.5.
_P0, _P1, _P2, _P3 = 0.6666666666666735, 0.399999999994111, 0.285714287432611, 0.2222219847613049
_P4, _P5, _P6 = 0.1818356973286965, 0.15313903414252622, 0.1479750610850075
_LN2_HIGH_64, _LN2_LOW_64 = float.fromhex("0x1.62e42fefa3000p-1"), float.fromhex("0x1.3de6af278ece6p-42")
_OFFSET_64 = i64(0x3FE6A09E667F3BCD)
_INFINITY_64, _SMALLEST_NORMAL_64 = i64(0x7FF0000000000000), i64(0x0010000000000000)
_MAGNITUDE_64 = i64(0x7FFFFFFFFFFFFFFF)


@inlined
def log_scalar(x):
    """Compute the logarithm of any float64."""
    bits = f64(x).view(i64)
    magnitude = bits & _MAGNITUDE_64
    subnormal = magnitude < _SMALLEST_NORMAL_64
    normal = f64(magnitude).view(i64) if subnormal else magnitude
    shifted = normal - _OFFSET_64
    exponent = shifted >> i64(52)
    f = i64(normal - (exponent << i64(52))).view(f64) - 1.0
    e = f64(np.int32(exponent)) - (1074.0 if subnormal else 0.0)
    s = f / (2.0 + f)
    z = s * s
    half = 0.5 * f * f
    series = z * (_P0 + z * (_P1 + z * (_P2 + z * (_P3 + z * (_P4 + z * (_P5 + z * _P6))))))
    y = e * _LN2_HIGH_64 - ((half - (s * (half + series) + e * _LN2_LOW_64)) - f)
    y = y if magnitude < _INFINITY_64 else x
    y = y if bits >= i64(0) else f64(np.nan)
    return y if magnitude > i64(0) else f64(-np.inf)


# sin(2 pi s) / s as a polynomial in s**2 for s in [-1/4, 1/4], relative error 1.1e-10
_S0, _S1, _S2 = f32(6.2831854820251465), f32(-41.34170150756836), f32(81.605224609375)
_S3, _S4, _S5 = f32(-76.70427703857422), f32(42.00978088378906), f32(-14.393966674804688)


@inlined
def sine_of_quarter(s):
    """Compute sin(2 pi s) of a f32x16 in [-1/4, 1/4], to float32's relative precision."""
    z = s * s
    even = splat(_S0) + (z * z) * (splat(_S2) + (z * z) * splat(_S4))
    odd = splat(_S1) + (z * z) * (splat(_S3) + (z * z) * splat(_S5))
    return s * (even + z * odd)


@inlined
def magnitude(x):
    """Compute the absolute values of a f32x16."""
    return float_of(bits_of(x) & splat(u32(0x7FFFFFFF)))


@inlined
def cosine_of_turns(t):
    """Compute cos(2 pi t) of a f32x16, with an absolute error below 2e-7."""
    r = t - floor(t + splat(f32(0.5)))
    return sine_of_quarter(splat(f32(0.25)) - magnitude(r))


TILE = 4 * LANES
"""Number of components drawn at a time."""

_GAUSSIAN, _EXPONENTIAL, _LEVY = range(3)


@inlined
def _box_muller(x, y):
    u = to_float(odd_of_31_bits(x)) * splat(f32(2.0**-31))
    radius = square_root(splat(f32(-2)) * log_normal_lanes(u))
    r = to_float(y) * splat(f32(2.0**-32))
    a = magnitude(r)
    sine = sine_of_quarter(minimum(a, splat(f32(0.5)) - a))
    sign = bits_of(r) & splat(u32(0x80000000))
    cosine = sine_of_quarter(splat(f32(0.25)) - a)
    return radius * cosine, radius * float_of(bits_of(sine) ^ sign)


@inlined
def _levy_pair(x, y):
    k = odd_of_31_bits(y)
    step = splat(f32(2.0**-33))
    sine, cosine = sine_of_quarter(to_float(k) * step), sine_of_quarter(to_float(splat(_TWO_31) - k) * step)
    e, quarter = exponential_lanes(x), splat(f32(0.25))
    return quarter / (e * (sine * sine)), quarter / (e * (cosine * cosine))


@kernel
def _fill_law(law, coordinates, first, stream, seed, table, step):
    for q in range(coordinates.shape[0]):
        x0, x1, x2, x3 = philox_lanes(u64(coordinates[q]), u64(first // TILE * LANES), stream, seed)
        if law == _GAUSSIAN:
            g0, g1 = _box_muller(x0, x1)
            g2, g3 = _box_muller(x2, x3)
        elif law == _EXPONENTIAL:
            g0, g1, g2, g3 = exponential_lanes(x0), exponential_lanes(x1), exponential_lanes(x2), exponential_lanes(x3)
        else:
            g0, g1 = _levy_pair(x0, x1)
            g2, g3 = _levy_pair(x2, x3)
        store_four(table, q * step, g0, g1, g2, g3)


@dataclass(frozen=True, slots=True)
class Law:
    """Law of independent random numbers, one for each (coordinate, component) of a stream; call it for a table.

    Examples
    --------
    >>> table = normals(np.array([3, 5]), 2, stream=16, seed=0)
    >>> bool((normals(np.array([5]), 70, stream=16, seed=0)[0, :2] == table[1]).all())
    True
    >>> bool(abs(exponentials(np.arange(100), 100, stream=40, seed=0).mean() - 1) < 0.05)
    True
    >>> w = levy(np.arange(100), 100, stream=40, seed=0)
    >>> bool(abs(np.exp(-4 * w).mean() - np.exp(-2)) < 0.02)  # the mean of e^{-w t} is e^{-sqrt(t)}
    True
    """

    number: int

    def __call__(
        self,
        coordinates: NDArray[np.int64],
        n_components: int,
        stream: int,
        seed: int,
        first: int = 0,
        out: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """Draw a table.

        Parameters
        ----------
        coordinates : ndarray of shape (n_coordinates,), int64
            From 0 to 2^63 - 1.
        n_components : int
        stream, seed : int
            A constant of `dkfeat.compiled.random`; a seed in [0, 2^64).
        first : int, default=0
            First component, a multiple of 64.
        out : ndarray of shape (n_coordinates, n_components), float32, C order, or None
            Filled if given; n_components must then be a multiple of 64.

        Returns
        -------
        table : ndarray of shape (n_coordinates, n_components), float32
        """
        width = -(-n_components // TILE) * TILE
        table = np.empty((len(coordinates), width), np.float32) if out is None else out
        flat = table.reshape(-1)
        for at in range(0, width, TILE):
            _fill_law(self.number, coordinates, first + at, u64(stream), u64(seed), flat[at:], width)
        return table[:, :n_components]


normals = Law(_GAUSSIAN)
"""Standard Gaussian numbers."""
exponentials = Law(_EXPONENTIAL)
"""Exponential numbers of mean 1, from 4.6e-10 to 21.5."""
levy = Law(_LEVY)
"""Lévy numbers of scale 1/2, from 0.011 to 1.1e27."""


SUPERBLOCK = 2048
"""Number of signs of a coordinate drawn at a time."""
COLUMNS = 64
"""Number of coordinates whose signs of one factor are one word of `transposed_signs`."""
_WORDS = SUPERBLOCK // 32

_LAST = u64(31)


@kernel
def _fill_signs(coordinates, first, count, stream, seed, table):
    for q in range(coordinates.shape[0]):
        for s in range(count):
            x0, x1, x2, x3 = philox_lanes(u64(coordinates[q]), u64((first + s) * LANES), stream, seed)
            store_four(table, (q * count + s) * _WORDS, x0, x1, x2, x3)


def packed_signs(coordinates: NDArray[np.int64], first: int, count: int, stream: int, seed: int) -> NDArray[np.uint32]:
    """Draw the signs of some coordinates, in the order of factors.

    Parameters
    ----------
    coordinates : ndarray of shape (n_coordinates,), int64
        From 0 to 2^63 - 1.
    first, count : int
        Superblocks: factors from ``2048 * first`` to ``2048 * (first + count) - 1``.
    stream, seed : int
        A constant of `dkfeat.compiled.random`; a seed in [0, 2^64).

    Returns
    -------
    table : ndarray of shape (n_coordinates, 64 * count), uint32
        Bit ``f % 32`` of word ``f // 32`` is set if the sign of factor ``2048 * first + f`` is -1.

    Examples
    --------
    >>> table = packed_signs(np.arange(3), 0, 1, stream=33, seed=0)
    >>> table.shape, bool(900 < np.unpackbits(table[0].view(np.uint8)).sum() < 1150)
    ((3, 64), True)
    """
    table = np.empty((len(coordinates), count * _WORDS), np.uint32)
    _fill_signs(coordinates, first, count, u64(stream), u64(seed), table.reshape(-1))
    return table


@kernel
def _transpose(table, n_columns, n_words, transposed):
    square = np.empty(COLUMNS, np.uint64)
    n_factors = n_words * 32
    for block in range(-(-n_columns // COLUMNS)):
        for word in range(0, n_words, 2):
            for c in range(COLUMNS):
                column = block * COLUMNS + c
                square[c] = u64(0)
                if column < n_columns:
                    at = column * n_words + word
                    square[c] = u64(table[at]) | u64(table[at + 1]) << _HALF
            # transpose a 64 x 64 bit matrix: swap off-diagonal squares of decreasing size
            width, mask = 32, u64(0xFFFFFFFF)
            while width:
                shift = u64(width)
                for c in range(COLUMNS):
                    if not c & width:
                        swapped = (square[c] >> shift ^ square[c + width]) & mask
                        square[c] ^= swapped << shift
                        square[c + width] ^= swapped
                width >>= 1
                mask ^= mask << u64(width)
            to = block * n_factors + word * 32
            transposed[to : to + COLUMNS] = square


def transposed_signs(table: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Transpose packed signs to words of 64 coordinates, for dense rows.

    Parameters
    ----------
    table : ndarray of shape (n_columns, n_factors / 32), uint32
        From `packed_signs`.

    Returns
    -------
    transposed : ndarray of shape (ceil(n_columns / 64), n_factors), uint64
        Bit ``c % 64`` of ``transposed[c // 64, f]`` is bit ``f % 32`` of ``table[c, f // 32]``; 0 for further columns.
    """
    n_columns, n_words = table.shape
    transposed = np.empty((-(-n_columns // COLUMNS), n_words * 32), np.uint64)
    _transpose(table.reshape(-1), n_columns, n_words, transposed.reshape(-1))
    return transposed


@kernel
def signs_of_samples(i_star, t_star, stream, seed, signs):
    """Write the sign of each sample: -1 if the highest bit of a Philox word of sample and component is set.

    The key is the exclusive or of the seed and t*, so that the sign depends on the full sample (i*, t*).

    Parameters
    ----------
    i_star, t_star : ndarray of shape (n_samples, n_components), int64
        As from ``GCWSFeatures.sample`` or ``DartFeatures.sample``.
    stream, seed : uint64
    signs : ndarray of shape (n_samples, n_components), float32
        0 if there is no sample, i* = -1.
    """
    for row in range(i_star.shape[0]):
        for component in range(i_star.shape[1]):
            coordinate = i_star[row, component]
            if coordinate < 0:
                signs[row, component] = np.float32(0)
                continue
            key, at = seed ^ u64(t_star[row, component]), u64(coordinate)
            word = philox(at & _WORD, at >> _HALF, u64(component), stream, key & _WORD, key >> _HALF)[0]
            signs[row, component] = np.float32(-1) if word >> _LAST else np.float32(1)
