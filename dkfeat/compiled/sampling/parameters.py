"""Parameters of GCWS in tables: random words of coordinates, and what they give for a tile of 16 components.

A parameter is a pure function of (seed, coordinate, component): four words of Philox give r and c (each -log(u1 u2) of
two uniform numbers), beta, and the bits of a mixed code. The table of a chunk of coordinates first holds their words.
Those of coordinates that may be sampled are then replaced by q = 1 / r, r, beta and h = log c - r.

Coordinates of a chunk that a row may sample are found by a bound that needs neither logarithm nor division.

A coordinate of magnitude e^l has ``a = log c - r (t + 1 - beta)`` with ``t <= l / r + beta``, so a >= log c - r - l.
By definition r = -log P and c = -log Q, where P = u1 u2 and Q = u3 u4; and -log Q >= 1 - Q. Hence

    a >= log(P (1 - Q)) - l.

For a float V = 2**e (1 + f), log V >= (e + f) log 2, which is its bit pattern as an integer, less that of 1.0, times
log(2) / 2**23. Where this bound less l is not below the smallest a so far of the row, for each of the 16 components and
each row with the coordinate, the sweep would change nothing: later on the smallest a can only decrease.

The bound must hold for a as the sweep rounds it. With u = 2**-24 and all logarithms within 2 ulp, thus 4 u relative:

* ``l q + beta`` with q = 1 / r, its floor, the difference from beta and the product by r are at most l + 5.01 u |l| +
  3.01 u r; the difference from h = log c - r, itself rounded, adds u (|l| + r + 2 |h|). As r <= 33.3, |log c| <= 16 and
  |h| <= 49.3 this is below 6.1 u |l| + 240 u.
* The logarithms in r, c and log c: 4 u r + 4 u + 64 u < 202 u.
* V is a product of two rounded numbers, above 2**-72. The integer, the factor log(2) / 2**23, their product, the
  difference below, and the sum of the smallest a and l where it is near the bound, are rounded by less than 50 u each.

For |l| <= LARGEST_LOG = 1,024, all this is below 7,000 u, and 8,192 u = 2**-11 are subtracted from the bound.
"""

from __future__ import annotations

import numpy as np

from dkfeat.compiled.jit import inlined
from dkfeat.compiled.random import STREAM_GCWS, log_normal_lanes, philox_lanes
from dkfeat.compiled.simd import (
    LANES,
    any_of,
    bits_of,
    broadcast,
    float_of,
    load,
    load_four,
    maximum,
    narrowed,
    prefetch,
    splat,
    store,
    store_four,
    to_float,
)

f32, u32, u64 = np.float32, np.uint32, np.uint64

CODE_LOW, CODE_SIGNED, CODE_MIXED, CODE_RANK = 0, 1, 2, 3
"""Rules that map a coordinate to a code; CODE_RANK is its position among those present, independent of `i_bits`."""

TABLE_ROW = 4 * LANES
"""Number of floats of a coordinate in a table: four words, or q, r, beta and h, of 16 components each."""

_STREAM = np.uint64(STREAM_GCWS)


@inlined
def fill_words(coordinates, begin, end, first, component, seed, table):
    """Write the words of ``coordinates[begin:end]`` to a table that begins with ``coordinates[first]``.

    Parameters
    ----------
    coordinates : ndarray of shape (n_present,), int64
    begin, end, first : int
    component : int
        First component of the tile.
    seed : uint64
    table : ndarray of shape (at least (end - first) * TABLE_ROW,), float32
    """
    for q in range(begin, end):
        x0, x1, x2, x3 = philox_lanes(u64(coordinates[q]), u64(component), _STREAM, seed)
        store_four(table, (q - first) * TABLE_ROW, float_of(x0), float_of(x1), float_of(x2), float_of(x3))


@inlined
def load_words(table, place):
    """Load the words of a coordinate, as u32x16."""
    x0, x1, x2, x3 = load_four(table, place * TABLE_ROW)
    return bits_of(x0), bits_of(x1), bits_of(x2), bits_of(x3)


@inlined
def _odd(bits):
    # 2 b + 1 as float32, exact, for the top 23 bits b of words
    return to_float((bits >> splat(u32(8))) | splat(u32(1)))


@inlined
def product_of_uniforms(x, y):
    """Compute u1 u2, rounded once, of the uniform numbers (2 b + 1) / 2**24 of the top 23 bits b of words."""
    return _odd(x) * _odd(y) * splat(f32(2.0**-48))  # a power of two commutes with rounding


@inlined
def fill_parameters(coordinates, first, places, begin, end, mode, i_bits, shift, table, codes):
    """Replace the words of some coordinates by their parameters, and write their codes.

    Parameters
    ----------
    coordinates : ndarray of shape (n_present,), int64
    first : int
        Coordinate with which the table begins.
    places : ndarray of int64
        ``places[begin:end]`` are the places of the coordinates in the table.
    begin, end : int
    mode, i_bits : int
        One of the CODE_ constants and the bits of a code, 1 to 16.
    shift : u32x16
        For CODE_SIGNED: shifts of the codes of negative coordinates.
    table : ndarray of float32
        Filled by `fill_words`.
    codes : ndarray of uint8, uint16 or uint32
        16 codes for each place.
    """
    zero, one, low9 = splat(f32(0)), splat(f32(1)), splat(u32(511))
    mask, drop = splat(u32((1 << i_bits) - 1)), splat(u32(16 - i_bits))
    for i in range(begin, end):
        place = places[i]
        x0, x1, x2, x3 = load_words(table, place)
        r = zero - log_normal_lanes(product_of_uniforms(x0, x1))
        rest = (x0 << splat(u32(23))) | ((x1 & low9) << splat(u32(14))) | ((x2 & splat(u32(0x1F0))) << splat(u32(5)))
        beta, c = _odd(rest) * splat(f32(2.0**-24)), zero - log_normal_lanes(product_of_uniforms(x2, x3))
        store_four(table, place * TABLE_ROW, one / r, r, beta, c)
        rank = first + place
        key = coordinates[rank]
        if mode == CODE_MIXED:
            code = (((x3 & low9) << splat(u32(7))) | (x2 & splat(u32(127)))) >> drop
        elif mode == CODE_SIGNED:
            code = (splat(u32(key >> 1)) + splat(u32(key & 1)) * shift) & mask
        elif mode == CODE_LOW:
            code = splat(u32(key & 0xFFFF)) & mask
        else:
            code = splat(u32(rank))
        store(codes, place * LANES, narrowed(code, codes))
    # log c in a pass of its own: short chains of dependent steps overlap better than a long one
    for i in range(begin, end):
        at = places[i] * TABLE_ROW
        store(table, at + 3 * LANES, log_normal_lanes(load(table, at + 3 * LANES)) - load(table, at + LANES))


LARGEST_LOG = 1024.0
"""Largest magnitude of a logarithm for which the bound holds."""
MOST_USES = 4
"""Largest number of entries of a coordinate that is compared; `list_candidates` loads as many without branches."""

_MARGIN, _LOG_2, _BITS_OF_ONE = f32(2.0**-11), f32(np.log(2) * 2.0**-23), u32(0x3F800000)
_INFINITY = f32(np.inf)
_PAGE = 1024  # numbers of four bytes in a page of memory, at whose end processors stop to read ahead
_ONE, _TWO = u64(1), u64(2)


@inlined
def least_a(table, place):
    """Compute lower bounds of a + l of a coordinate, in 16 components, from its words in a table."""
    x0, x1, x2, x3 = load_words(table, place)
    v = product_of_uniforms(x0, x1) * (splat(f32(1)) - product_of_uniforms(x2, x3))
    return to_float(bits_of(v) - splat(_BITS_OF_ONE)) * splat(_LOG_2) - splat(_MARGIN)


@inlined
def list_candidates(begin, end, first, starts, offsets, logs, best, rare_uses, table, places, n_listed):
    """Append to a list the coordinates that may be sampled.

    Parameters
    ----------
    begin, end, first : int
        Coordinates begin to end - 1 are examined; the table begins with coordinate `first`.
    starts, offsets, logs
        Fields of a `FeatureMajor` of one block, with all logarithms within LARGEST_LOG.
    best : ndarray of shape (n_rows * 16,), float32
        Smallest a of each row so far.
    rare_uses : int
        Coordinates with more entries are all listed; at most MOST_USES.
    table : ndarray of float32
        Words of the coordinates.
    places : ndarray of int64
        The list: places of coordinates in the table. Needs space for all, and for one more.
    n_listed : int

    Returns
    -------
    n_listed : int
    """
    for q in range(begin, end):
        places[n_listed] = q - first
        low, high = starts[0, q], starts[0, q + 1] - 1
        prefetch(offsets, 2 * low + _PAGE)
        # the same four entries for one to four: the processor would often guess a branch wrongly
        reach = splat(_INFINITY if high - low >= rare_uses else -_INFINITY)
        for entry in (low, min(low + 1, high), max(high - 1, low), high):
            p = u64(entry)
            a = load(best, np.intp(offsets[_TWO * p]))
            reach = maximum(reach, a + broadcast(logs, np.intp(_TWO * p + _ONE)))
        n_listed += any_of(least_a(table, q - first) < reach)
    return n_listed
