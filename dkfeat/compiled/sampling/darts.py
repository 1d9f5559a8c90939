"""Darts: samples of rows for the min-max kernel, from lists of the points that can win.

Each coordinate has a Poisson process of points (weight, rank, component), and a row owns the points below its weights.
The sample of a component is the owned point of least rank. Decision 0034 defines every number.

The points of a row with ranks below tau are listed, for a tile of up to 512 components at a time; tau grows until each
component has one.

Magnitudes are written as 2^e (1 + f), of octave e and fraction f, with the same bits on every CPU.

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

from dkfeat.compiled.jit import aligned, inlined, kernel, owned
from dkfeat.compiled.random import STREAM_DART, draw_words, exponential_lanes, half_of_lanes, log_scalar
from dkfeat.compiled.sampling.codes import pack_row
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

ABSENT = -(2**31)
"""Exponent of a zero."""

f32, f64, i32, i64, u32, u64 = np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64
_LN2, _ONE_OVER_LN2 = float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.71547652b82fep+0")
_MAGNITUDE, _SMALLEST_NORMAL = i64(0x7FFFFFFFFFFFFFFF), i64(0x0010000000000000)
_TERMS = 16  # of the series of exp on [0, log 2): the first one left out is below 2^-53


@inlined
def _exact_octave(x):
    # exponent and 32 bits of fraction of |x|, not 0
    magnitude = f64(x).view(i64) & _MAGNITUDE
    offset = i64(1023)
    if magnitude < _SMALLEST_NORMAL:
        magnitude = f64(magnitude).view(i64)  # as an integer, times 2^-1074
        offset = i64(1023 + 1074)
    return i32((magnitude >> i64(52)) - offset), u32((magnitude >> i64(20)) & i64(0xFFFFFFFF))


@inlined
def _octave_of_power(x, power):
    level = power * (log_scalar(abs(f64(x))) * _ONE_OVER_LN2)
    exponent = np.floor(level)
    y = (level - exponent) * _LN2
    series = 1.0
    for term in range(_TERMS, 1, -1):
        series = 1.0 + series * (y / term)
    return i32(exponent), u32(min(y * series * 4294967296.0, 4294967295.0))


@kernel
def _octaves(values, power, exponents, fractions, negative):
    for i in range(values.shape[0]):
        negative[i] = values[i] < 0.0
        exponents[i], fractions[i] = ABSENT, u32(0)
        if values[i] != 0.0:
            exponents[i], fractions[i] = (
                _exact_octave(values[i]) if power == 1.0 else _octave_of_power(values[i], power)
            )


def signed_octaves(
    values: NDArray, power: float = 1.0
) -> tuple[NDArray[np.int32], NDArray[np.uint32], NDArray[np.bool_]]:
    """Write magnitudes as 2^e (1 + f), and find the signs.

    Parameters
    ----------
    values : ndarray of shape (nnz,), float32 or float64
        Finite.
    power : float, default=1.0
        Power p of the pGMM kernel; magnitudes are those of ``abs(value)**p``.

    Returns
    -------
    exponents : ndarray of shape (nnz,), int32
        Octaves e; ABSENT for a zero.
    fractions : ndarray of shape (nnz,), uint32
        Fractions f in units of 2^-32, rounded down. Exact for float32 values and a power of 1.
    negative : ndarray of shape (nnz,), bool

    Examples
    --------
    >>> exponents, fractions, negative = signed_octaves(np.array([1.0, -12.0]))
    >>> exponents.tolist(), (fractions / 2**32).tolist(), negative.tolist()
    ([0, 3], [0.0, 0.5], [False, True])
    """
    values = owned(values, np.float32 if values.dtype == np.float32 else np.float64)
    n = len(values)
    exponents, fractions, negative = np.empty(n, np.int32), np.empty(n, np.uint32), np.empty(n, np.bool_)
    _octaves(values, float(power), exponents, fractions, negative)
    return exponents, fractions, negative


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


TILE = 512
"""Largest number of components of a tile."""
MARGIN, GROWTH = 2.25, 1.4
"""Rules of tau, on which no sample depends: first (log(components) + MARGIN) / sum(weights), then GROWTH times more."""


class _Entries(NamedTuple):
    indptr: NDArray[np.int64]
    columns: NDArray[np.integer]
    exponents: NDArray[np.int32]
    fractions: NDArray[np.uint32]
    negative: NDArray[np.bool_]


class _Results(NamedTuple):
    packed: NDArray[np.uint8]
    empty: NDArray[np.bool_]
    i_star: NDArray[np.int64]
    dart: NDArray[np.int64]


@inlined
def _sample_tile(n, largest, tau, growth, live, key, buffers):
    # find the samples of the first `live` components of a tile
    best, octaves = buffers.tile.best, buffers.octaves
    k0, k1 = key & _WORD, key >> _HALF
    for component in range(best.shape[0]):
        best[component] = NO_SAMPLE
    n_groups = (n + LANES - 1) // LANES
    missing = live
    while missing:
        depth = limit_octaves(tau, octaves)
        n_steps = n_groups * describe_blocks(depth, largest, octaves)
        count = i64(0)
        for step in range(n_steps + 1):
            if step < n_steps:
                block, base = (largest >> 4) - step // n_groups, step % n_groups * LANES
                count = scan(base, block, largest, k0, k1, count, buffers)
            if step == n_steps or count > LISTED - MOST_NEW:
                count = draw(count, step == n_steps, largest, f32(tau), k0, k1, buffers)
        missing = 0
        for component in range(live):
            missing += best[component] == NO_SAMPLE
        tau *= growth


@inlined
def _read_row(entries, begin, end, row, sums):
    # copy the entries other than zeros; returns their number, the largest octave, and the sum of weights in its unit
    largest = i64(ABSENT)
    for p in range(begin, end):
        if entries.exponents[p] > largest:
            largest = i64(entries.exponents[p])
    n = 0
    for p in range(begin, end):
        exponent = i64(entries.exponents[p])
        depth = largest - exponent + 1
        row.coordinates[n] = u64(2 * i64(entries.columns[p]) + entries.negative[p])
        row.depths[n] = u32((depth if depth < 255 else 255) * 0x01010101)
        row.fractions[n] = entries.fractions[p]
        n += exponent != ABSENT
    store(row.depths, n, splat(u32(0xFFFFFFFF)))
    weights = splat(f32(0))
    for p in range(0, n, LANES):
        depths = load(row.depths, p) & splat(u32(0xFF))
        fraction = load(row.fractions, p) >> splat(u32(9))
        weight = float_of(((splat(u32(128)) - depths) << splat(u32(23))) | fraction)
        weights = weights + select(depths < splat(u32(100)), weight, splat(f32(0)))
    store(sums, 0, weights)
    total = 0.0
    for lane in range(LANES):
        total += sums[lane]
    return n, largest, total


@kernel
def _sample_rows(entries, n_components, bits, margin, growth, keys, codes, buffers, results):
    n_rows, n_tiles, tile = entries.indptr.shape[0] - 1, keys.shape[0], buffers.tile
    size, row_bytes = tile.best.shape[0], results.packed.shape[0] // n_rows
    for i in range(n_rows):
        begin, end = entries.indptr[i], entries.indptr[i + 1]
        n, largest, weight = _read_row(entries, begin, end, buffers.row, buffers.lanes.sums)
        results.empty[i] = n == 0
        for t in range(n_tiles):
            first = t * size
            live = min(size, n_components - first)
            if n:
                tau = size * (math.log(f64(live)) + margin) / weight
                _sample_tile(n, largest, tau, growth, live, keys[t], buffers)
            for component in range(live):
                codes[first + component] = (tile.best[component] & _WORD) >> u64(32 - bits) if n else u64(0)
                if n and tile.coordinates.shape[0]:
                    at = i * n_components + first + component
                    results.i_star[at] = i64(tile.coordinates[component])
                    arrival = tile.arrivals[component]
                    results.dart[at] = i64(arrival << _HALF) + i64(arrival >> _HALF) - 1
        pack_row(codes, n_components, bits, i * row_bytes, results.packed)


def encode(
    indptr: NDArray,
    columns: NDArray,
    exponents: NDArray[np.int32],
    fractions: NDArray[np.uint32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
    bits: int,
    i_star: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Compute the packed codes of rows.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int
        Row i has entries ``indptr[i]`` to ``indptr[i + 1] - 1``, as in a CSR matrix.
    columns : ndarray of shape (nnz,), int
        In [0, 2**62), each at most once in a row, in any order.
    exponents, fractions, negative : ndarrays of shape (nnz,), int32, uint32 and bool
        From `dkfeat.compiled.sampling.darts.signed_octaves`. A zero counts as absent.
    n_components : int
        At least 1.
    seed : int
        In [0, 2**64).
    bits : int
        Bits of a code, 1 to 16.
    i_star : ndarray of shape (n_rows, n_components), int64, or None
        Filled with the sampled coordinates, except in rows without entries.

    Returns
    -------
    packed : ndarray of shape (n_rows, ceil(n_components * bits / 8)), uint8
        Codes in component order, least significant bit first; zeros for a row without entries.
    empty : ndarray of shape (n_rows,), bool
        Rows without entries.

    Examples
    --------
    >>> from dkfeat.compiled.sampling.darts import signed_octaves
    >>> octaves = signed_octaves(np.array([3.0, -1.0]))
    >>> packed, empty = encode(np.array([0, 2, 2]), np.array([4, 9]), *octaves, 6, seed=0, bits=8)
    >>> packed.shape, len(set(packed[0].tolist())) > 2, empty.tolist()
    ((2, 6), True, [False, True])
    """
    n_rows = len(indptr) - 1
    packed, sampled = np.empty((n_rows, -(-n_components * bits // 8)), np.uint8), i_star
    sampled = np.empty((0, 0), np.int64) if sampled is None else sampled
    results = _Results(packed, np.empty(n_rows, np.bool_), sampled, np.empty_like(sampled))
    _run(_Entries(indptr, columns, exponents, fractions, negative), n_components, seed, bits, results)
    return packed, results.empty


def sample(
    indptr: NDArray,
    columns: NDArray,
    exponents: NDArray[np.int32],
    fractions: NDArray[np.uint32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the sampled point of each row in each component.

    Parameters
    ----------
    indptr, columns, exponents, fractions, negative, n_components, seed
        As in `encode`.

    Returns
    -------
    i_star : ndarray of shape (n_rows, n_components), int64
        ``2 * column + negative`` of the sampled entry; -1 for a row without entries.
    dart : ndarray of shape (n_rows, n_components), int64
        Its point: 2^32 times the octave, plus the number of the arrival; 0 for a row without entries.

    Examples
    --------
    >>> from dkfeat.compiled.sampling.darts import signed_octaves
    >>> octaves = signed_octaves(np.array([3.0, -1.0]))
    >>> i_star, dart = sample(np.array([0, 2, 2]), np.array([4, 9]), *octaves, 6, seed=0)
    >>> sorted(set(i_star[0].tolist()) - {8, 19}), i_star[1].tolist()
    ([], [-1, -1, -1, -1, -1, -1])
    """
    n_rows = len(indptr) - 1
    i_star, dart = np.full((n_rows, n_components), -1, np.int64), np.zeros((n_rows, n_components), np.int64)
    results = _Results(np.empty((n_rows, -(-n_components // 8)), np.uint8), np.empty(n_rows, np.bool_), i_star, dart)
    _run(_Entries(indptr, columns, exponents, fractions, negative), n_components, seed, 1, results)
    return i_star, dart


def _run(given: _Entries, n_components: int, seed: int, bits: int, results: _Results) -> None:
    of_columns = np.int32 if given.columns.dtype == np.int32 else np.int64
    entries = _Entries(*map(owned, given, (np.int64, of_columns, np.int32, np.uint32, np.bool_)))
    n_tiles = -(-n_components // TILE)
    size = -(-n_components // n_tiles)
    keys = np.array([_key(seed, tile) for tile in range(n_tiles)], np.uint64)
    buffers = make_buffers(np.diff(entries.indptr).max(initial=0), size, full=len(results.i_star) > 0)
    packed, i_star, dart = results.packed.reshape(-1), results.i_star.reshape(-1), results.dart.reshape(-1)
    codes = np.empty(n_tiles * size, np.uint16)
    if len(results.empty):
        flat = _Results(packed, results.empty, i_star, dart)
        _sample_rows(entries, n_components, bits, MARGIN, GROWTH, keys, codes, buffers, flat)


def _key(seed: int, tile: int) -> int:
    words = np.empty((1, 4), np.uint32)
    draw_words(u64(tile), u64(STREAM_DART), u64(seed), words)
    return int(words[0, 0]) | int(words[0, 1]) << 32
