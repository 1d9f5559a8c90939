"""Parameters of GCWS in tables: random words of coordinates, and what they give for a tile of 16 components.

A parameter is a pure function of (seed, coordinate, component): four words of Philox give r and c (each -log(u1 u2) of
two uniform numbers), beta, and the bits of a mixed code. The table of a chunk of coordinates first holds their words.
Those of coordinates that may be sampled are then replaced by q = 1 / r, r, beta and h = log c - r.
"""

from __future__ import annotations

import numpy as np

from dkfeat.compiled.jit import inlined
from dkfeat.compiled.random.elementary import log_normal_lanes
from dkfeat.compiled.random.philox import STREAM_GCWS, philox_lanes
from dkfeat.compiled.simd.vector import LANES, bits_of, float_of, load, narrowed, splat, store, to_float

CODE_LOW, CODE_SIGNED, CODE_MIXED, CODE_RANK = 0, 1, 2, 3
"""Rules that map a coordinate to a code; CODE_RANK is its position among those present, independent of `i_bits`."""

TABLE_ROW = 4 * LANES
"""Number of floats of a coordinate in a table: four words, or q, r, beta and h, of 16 components each."""

_STREAM = np.uint64(STREAM_GCWS)

f32, u32, u64 = np.float32, np.uint32, np.uint64


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
        at = (q - first) * TABLE_ROW
        x0, x1, x2, x3 = philox_lanes(u64(coordinates[q]), u64(component), _STREAM, seed)
        store(table, at, float_of(x0))
        store(table, at + LANES, float_of(x1))
        store(table, at + 2 * LANES, float_of(x2))
        store(table, at + 3 * LANES, float_of(x3))


@inlined
def load_words(table, place):
    """Load the words of a coordinate, as u32x16."""
    at = place * TABLE_ROW
    x0, x1 = bits_of(load(table, at)), bits_of(load(table, at + LANES))
    return x0, x1, bits_of(load(table, at + 2 * LANES)), bits_of(load(table, at + 3 * LANES))


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
        at = place * TABLE_ROW
        x0, x1, x2, x3 = load_words(table, place)
        r = zero - log_normal_lanes(product_of_uniforms(x0, x1))
        rest = (x0 << splat(u32(23))) | ((x1 & low9) << splat(u32(14))) | ((x2 & splat(u32(0x1F0))) << splat(u32(5)))
        store(table, at, one / r)
        store(table, at + LANES, r)
        store(table, at + 2 * LANES, _odd(rest) * splat(f32(2.0**-24)))
        store(table, at + 3 * LANES, zero - log_normal_lanes(product_of_uniforms(x2, x3)))
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
