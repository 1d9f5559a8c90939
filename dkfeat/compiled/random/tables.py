"""Tables of random weights and signs from Philox, with the same bits on every CPU.

Entry (coordinate, component) of a law's stream, with ``q = component // 64``, ``i = component % 64 // 16`` and
``lane = component % 16``, comes from the Philox words x0 ... x3 of (coordinate, 16 q + lane, stream). Each operation is
rounded once to float32, in strict IEEE arithmetic; log is `dkfeat.compiled.random.elementary.log_normal_lanes`.

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

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.random.elementary import (
    exponential_lanes,
    log_normal_lanes,
    magnitude,
    odd_of_31_bits,
    sine_of_quarter,
)
from dkfeat.compiled.random.philox import philox, philox_lanes
from dkfeat.compiled.simd.vector import (
    LANES,
    bits_of,
    float_of,
    minimum,
    splat,
    square_root,
    store,
    to_float,
)

TILE = 4 * LANES
"""Number of components drawn at a time."""

f32, u32, u64 = np.float32, np.uint32, np.uint64
_GAUSSIAN, _EXPONENTIAL, _LEVY = range(3)
_TWO_31 = u32(1 << 31)


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


@inlined
def _store_words(table, at, x0, x1, x2, x3):
    store(table, at, x0)
    store(table, at + LANES, x1)
    store(table, at + 2 * LANES, x2)
    store(table, at + 3 * LANES, x3)


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
        _store_words(table, q * step, g0, g1, g2, g3)


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
            A constant of `dkfeat.compiled.random.philox`; a seed in [0, 2^64).
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

_WORD, _HALF_WORD, _LAST = u64(0xFFFFFFFF), u64(32), u64(31)


@kernel
def _fill_signs(coordinates, first, count, stream, seed, table):
    for q in range(coordinates.shape[0]):
        for s in range(count):
            x0, x1, x2, x3 = philox_lanes(u64(coordinates[q]), u64((first + s) * LANES), stream, seed)
            _store_words(table, (q * count + s) * _WORDS, x0, x1, x2, x3)


def packed_signs(coordinates: NDArray[np.int64], first: int, count: int, stream: int, seed: int) -> NDArray[np.uint32]:
    """Draw the signs of some coordinates, in the order of factors.

    Parameters
    ----------
    coordinates : ndarray of shape (n_coordinates,), int64
        From 0 to 2^63 - 1.
    first, count : int
        Superblocks: factors from ``2048 * first`` to ``2048 * (first + count) - 1``.
    stream, seed : int
        A constant of `dkfeat.compiled.random.philox`; a seed in [0, 2^64).

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
                    square[c] = u64(table[at]) | u64(table[at + 1]) << _HALF_WORD
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
            word = philox(at & _WORD, at >> _HALF_WORD, u64(component), stream, key & _WORD, key >> _HALF_WORD)[0]
            signs[row, component] = np.float32(-1) if word >> _LAST else np.float32(1)
