"""Lists of the points that can win a component of a tile: the two steps of darts.

The *scan* lists the octaves of coordinates whose first arrival may have a rank below tau, sixteen octaves of sixteen
nonzeros at a time. The *draw* takes the next arrivals of sixteen listed octaves at a time, improves the samples of
their components, and keeps in the list the octaves whose next arrival may still count.

Octaves are counted down from the largest one of the row, and so are blocks of sixteen octaves. Ranks are in the unit
that docs/decisions/gcws-and-darts.md names.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import aligned, inlined
from dkfeat.compiled.random import exponential_lanes, half_of_lanes
from dkfeat.compiled.simd import (
    LANES,
    bits_of,
    bytes_at_most,
    float_of,
    joined,
    load,
    load64,
    lowest_bit,
    select,
    splat,
    splat64,
    store,
    store_four,
    to_float,
)

f32, i64, u32, u64 = np.float32, np.int64, np.uint32, np.uint64

LISTED = 1024
"""Octaves in a list, which then fits a first-level cache."""
MOST_NEW = 16 * LANES
"""Octaves that a step of the scan may append."""
DEEPEST = 64
"""Octaves from the largest one of a row down that may count, with room: tau is below 2^32."""
NO_SAMPLE = np.uint64(0x7F800000 << 32)
"""A rank of infinity, with the lowest code."""

_WORD, _BYTE, _HALF, _ONE, _THREE, _HEAD = u64(0xFFFFFFFF), u64(0xFF), u64(32), u64(1), u64(3), u64(24)
_NEXT, _ALL_PLACES = u64(1 << 32), u64(1 << 31)


class Row(NamedTuple):
    """Entries of a row other than zeros, with room for 16 more."""

    coordinates: NDArray[np.uint64]
    depths: NDArray[np.uint32]
    """Four equal bytes: octaves from the row's largest one down to that of the entry, both included; at most 255."""
    fractions: NDArray[np.uint32]


class Listed(NamedTuple):
    """Octaves of coordinates whose next arrival may count."""

    coordinates: NDArray[np.uint64]
    arrivals: NDArray[np.uint64]
    """Octave in the low half, as a signed number, and number of the next arrival, from 1, in the high half."""
    sums: NDArray[np.float32]
    """Sums of the gaps before."""
    heads: NDArray[np.uint32]
    """Top byte of the words of the next gap."""
    places: NDArray[np.uint32]
    """Number of places that the row owns, of 2^31."""


class Tile(NamedTuple):
    """Samples of the components of a tile."""

    best: NDArray[np.uint64]
    """Rank in the high half, code in the low half."""
    coordinates: NDArray[np.uint64]
    """Empty, as is `arrivals`, if only the codes are asked for."""
    arrivals: NDArray[np.uint64]


class Lanes(NamedTuple):
    """Results of a step of the scan, or of sixteen draws."""

    words: NDArray[np.uint32]
    hits: NDArray[np.uint64]
    ranks: NDArray[np.uint32]
    sums: NDArray[np.float32]
    next_ranks: NDArray[np.float32]
    components: NDArray[np.uint32]
    codes: NDArray[np.uint32]


class Octaves(NamedTuple):
    """What the scan asks of the octaves of a row and a tile."""

    limits: NDArray[np.uint64]
    """Largest first byte that may count, from the largest octave down."""
    blocks: NDArray[np.uint32]
    """Pairs for each word of each block: limits and depths of its four octaves. The largest octave has depth 1, an
    excluded one 0."""


class Buffers(NamedTuple):
    """Memory of a thread."""

    row: Row
    listed: Listed
    tile: Tile
    lanes: Lanes
    octaves: Octaves


def make_buffers(longest: int, size: int, *, full: bool) -> Buffers:
    """Make the buffers for rows of at most `longest` entries and tiles of `size` components."""
    room, listed, sampled = longest + LANES, LISTED + LANES, size if full else 0
    row = Row(aligned(room, u64), aligned(room, u32), aligned(room, u32))
    words = aligned(listed, u64), aligned(listed, u64), aligned(listed, f32), aligned(listed, u32), aligned(listed, u32)
    tile = Tile(aligned(size, u64), np.zeros(sampled, u64), np.zeros(sampled, u64))
    ranks, sums, next_ranks = aligned(LANES, u32), aligned(LANES, f32), aligned(LANES, f32)
    codes = aligned(LANES, u32), aligned(LANES, u32)
    lanes = Lanes(aligned(4 * LANES, u32), aligned(4, u64), ranks, sums, next_ranks, *codes)
    octaves = Octaves(aligned(DEEPEST, u64), aligned(DEEPEST // 2 + 16, u32))
    return Buffers(row, Listed(*words), tile, lanes, octaves)


@inlined
def limit_octaves(tau, octaves):
    """Fill the limits for arrivals before tau; return their number."""
    depth = 0
    x = tau * (1.0 + 2.0**-20)
    while x >= 2.0**-31 and depth < DEEPEST:
        octaves.limits[depth] = u64(min(-256.0 * math.expm1(-x) + 2.0**-10, 255.0))
        depth += 1
        x *= 0.5
    return depth


@inlined
def describe_blocks(depth, largest, octaves):
    """Fill the blocks of `depth` octaves from the largest one down; return the number of blocks."""
    top = largest >> 4
    n_blocks = top - ((largest - depth + 1) >> 4) + 1
    for word in range(4 * n_blocks):
        word_limits, word_depths = u64(0), u64(0)
        for j in range(4):
            d = largest - (16 * (top - word // 4) + word % 4 * 4 + j)
            if 0 <= d < depth:
                word_limits |= octaves.limits[d] << u64(8 * j)
                word_depths |= u64(d + 1) << u64(8 * j)
        octaves.blocks[2 * word], octaves.blocks[2 * word + 1] = word_limits, word_depths
    return n_blocks


@inlined
def _list_octave(listed, at, coordinate, arrival, total, head, places):
    listed.coordinates[at], listed.arrivals[at] = coordinate, arrival
    listed.sums[at], listed.heads[at], listed.places[at] = total, head, places


@inlined
def scan(base, block, largest, k0, k1, count, buffers):
    """Append to a list of `count` octaves those of a block, of 16 nonzeros, that may count; return the new count."""
    row, listed, lanes, blocks = buffers.row, buffers.listed, buffers.lanes, buffers.octaves.blocks
    at = 8 * ((largest >> 4) - block)
    first, last = load64(row.coordinates, base), load64(row.coordinates, base + LANES // 2)
    half, zero, at_block = splat64(_HALF), splat64(u64(0)), splat64(u64(block))
    a0, a1, a2, a3 = half_of_lanes(first, first >> half, at_block, zero, k0, k1)
    b0, b1, b2, b3 = half_of_lanes(last, last >> half, at_block, zero, k0, k1)
    x0, x1, x2, x3 = joined(a0, b0), joined(a1, b1), joined(a2, b2), joined(a3, b3)
    d = load(row.depths, base)
    lanes.hits[0] = bytes_at_most(x0, splat(blocks[at])) & bytes_at_most(d, splat(blocks[at + 1]))
    lanes.hits[1] = bytes_at_most(x1, splat(blocks[at + 2])) & bytes_at_most(d, splat(blocks[at + 3]))
    lanes.hits[2] = bytes_at_most(x2, splat(blocks[at + 4])) & bytes_at_most(d, splat(blocks[at + 5]))
    lanes.hits[3] = bytes_at_most(x3, splat(blocks[at + 6])) & bytes_at_most(d, splat(blocks[at + 7]))
    store_four(lanes.words, 0, x0, x1, x2, x3)
    for word in range(4):
        left, depth = lanes.hits[word], u64(largest - (16 * block + 4 * word) + 1)
        while left:
            bit = lowest_bit(left)
            left &= left - _ONE
            entry, j = base + (bit >> 2), u64(bit & 3)
            own = (u64(row.depths[entry]) & _BYTE) == depth - j
            arrival = (u64(16 * block + 4 * word + (bit & 3)) & _WORD) | _NEXT
            head = u32(u64(lanes.words[LANES * word + (bit >> 2)]) >> (j << _THREE) << _HEAD)
            places = u32(u64(row.fractions[entry]) >> _ONE if own else _ALL_PLACES)
            _list_octave(listed, count, row.coordinates[entry], arrival, f32(0), head, places)
            count += 1
    return count


@inlined
def _is_before(key, coordinate, arrival, tile, component):
    # compare a point with the sample of a component
    old = tile.best[component]
    if key != old:
        return key < old
    if coordinate != tile.coordinates[component]:
        return coordinate < tile.coordinates[component]
    return arrival < tile.arrivals[component]


@inlined
def draw(count, final, largest, tau, k0, k1, buffers):
    """Draw arrivals of listed octaves until fewer than 16 octaves are left, or none if `final`; return their number."""
    listed, lanes, tile = buffers.listed, buffers.lanes, buffers.tile
    size = u64(tile.best.shape[0])
    half, infinite, limit = splat64(_HALF), splat(f32(np.inf)), splat(tau)
    one_exponent = splat(u32((largest + 127) & i64(0xFFFFFFFF)))
    full = tile.coordinates.shape[0] > 0
    while count >= (1 if final else LANES):
        kept, end = 0, count if final else count - count % LANES
        for at in range(0, end, LANES):
            first_c, last_c = load64(listed.coordinates, at), load64(listed.coordinates, at + LANES // 2)
            first_a, last_a = load64(listed.arrivals, at), load64(listed.arrivals, at + LANES // 2)
            a0, a1, a2, a3 = half_of_lanes(first_c, first_c >> half, first_a, first_a >> half, k0, k1)
            b0, b1, b2, b3 = half_of_lanes(last_c, last_c >> half, last_a, last_a >> half, k0, k1)
            total = load(listed.sums, at) + exponential_lanes(
                load(listed.heads, at) | (joined(a0, b0) >> splat(u32(8)))
            )
            scale = float_of((one_exponent - joined(first_a, last_a)) << splat(u32(23)))
            rank, place, component = total * scale, joined(a1, b1) >> splat(u32(1)), joined(a2, b2)
            owned_rank = select(place < load(listed.places, at), rank, infinite)
            # the next gap is -log(1 - u), at least v + v^2 / 2 where v has only the top byte of u
            v = to_float(component & splat(u32(0xFF))) * splat(f32(2.0**-8))
            store(lanes.next_ranks, 0, (total + (v + v * v * splat(f32(0.5)))) * scale)
            store(lanes.ranks, 0, bits_of(select(rank < limit, owned_rank, infinite)))
            store(lanes.sums, 0, total)
            store(lanes.components, 0, component)
            store(lanes.codes, 0, joined(a3, b3))
            for lane in range(min(LANES, count - at)):
                word = u64(lanes.components[lane])
                c = (word * size) >> _HALF
                key = (u64(lanes.ranks[lane]) << _HALF) | u64(lanes.codes[lane])
                coordinate, arrival = listed.coordinates[at + lane], listed.arrivals[at + lane]
                if full and _is_before(key, coordinate, arrival, tile, c):
                    tile.coordinates[c], tile.arrivals[c] = coordinate, arrival
                tile.best[c] = min(tile.best[c], key)
                places = listed.places[at + lane]
                _list_octave(listed, kept, coordinate, arrival + _NEXT, lanes.sums[lane], u32(word << _HEAD), places)
                kept += lanes.next_ranks[lane] < tau
        for at in range(end, count):
            coordinate, arrival = listed.coordinates[at], listed.arrivals[at]
            _list_octave(listed, kept, coordinate, arrival, listed.sums[at], listed.heads[at], listed.places[at])
            kept += 1
        count = kept
    return count
