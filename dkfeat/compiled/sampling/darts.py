"""Darts: samples of rows for the min-max kernel, from lists of the points that can win.

Each coordinate has a Poisson process of points (weight, rank, component), and a row owns the points below its weights.
The sample of a component is the owned point of least rank. Decision 0034 defines every number.

The points of a row with ranks below tau are listed, for a tile of up to 512 components at a time; tau grows until each
component has one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel, owned
from dkfeat.compiled.random.philox import STREAM_DART, draw_words
from dkfeat.compiled.sampling.dart_lists import (
    DEEPEST,
    LISTED,
    MOST_NEW,
    NO_SAMPLE,
    Lanes,
    Listed,
    Row,
    Tile,
    describe_blocks,
    draw,
    limit_octaves,
    scan,
)
from dkfeat.compiled.sampling.octaves import ABSENT
from dkfeat.compiled.sampling.packing import pack_row
from dkfeat.compiled.simd.vector import LANES, float_of, load, select, splat, store

TILE = 512
"""Largest number of components of a tile."""
MARGIN, GROWTH = 2.25, 1.4
"""Rules of tau, on which no sample depends: first (log(components) + MARGIN) / sum(weights), then GROWTH times more."""

f32, f64, i64, u32, u64 = np.float32, np.float64, np.int64, np.uint32, np.uint64
_WORD, _HALF = u64(0xFFFFFFFF), u64(32)


@inlined
def _sample_tile(row, n, largest, tau, growth, size, live, key, limits, blocks, lanes, listed, tile):
    # find the samples of the first `live` components of a tile of `size`
    k0, k1 = key & _WORD, key >> _HALF
    tile.best[:] = NO_SAMPLE
    n_groups = (n + LANES - 1) // LANES
    missing = live
    while missing:
        depth = limit_octaves(tau, limits)
        n_steps = n_groups * describe_blocks(limits, depth, largest, blocks)
        count = 0
        for step in range(n_steps + 1):
            if step < n_steps:
                down, base = step // n_groups, step % n_groups * LANES
                count = scan(row, base, (largest >> 4) - down, largest, blocks, 8 * down, k0, k1, lanes, listed, count)
            if step == n_steps or count > LISTED - MOST_NEW:
                count = draw(listed, count, step == n_steps, largest, f32(tau), size, k0, k1, lanes, tile)
        missing = 0
        for component in range(live):
            missing += tile.best[component] == NO_SAMPLE
        tau *= growth


@inlined
def _read_row(columns, exponents, fractions, negative, begin, end, row, lanes):
    # copy the entries other than zeros; returns their number, the largest octave, and the sum of weights in its unit
    largest = i64(ABSENT)
    for p in range(begin, end):
        largest = max(largest, i64(exponents[p]))
    n = 0
    for p in range(begin, end):
        row.coordinates[n] = u64(2 * i64(columns[p]) + negative[p])
        depth = largest - i64(exponents[p]) + 1
        row.depths[n] = u32((depth if depth < 255 else 255) * 0x01010101)
        row.fractions[n] = fractions[p]
        n += exponents[p] != ABSENT
    row.depths[n : n + LANES] = u32(0xFFFFFFFF)
    weights = splat(f32(0))
    for p in range(0, n, LANES):
        depths = load(row.depths, p) & splat(u32(0xFF))
        fraction = load(row.fractions, p) >> splat(u32(9))
        weight = float_of(((splat(u32(128)) - depths) << splat(u32(23))) | fraction)
        weights = weights + select(depths < splat(u32(100)), weight, splat(f32(0)))
    store(lanes.sums, 0, weights)
    return n, largest, f64(lanes.sums.sum())


@kernel
def _sample_rows(
    indptr,
    columns,
    exponents,
    fractions,
    negative,
    n_components,
    bits,
    margin,
    growth,
    keys,
    packed,
    empty,
    i_star,
    darts,
):
    n_rows, n_tiles, full = indptr.shape[0] - 1, keys.shape[0], i_star.shape[0] > 0
    size, row_bytes = -(-n_components // n_tiles), packed.shape[0] // max(n_rows, 1)
    longest = 0
    for i in range(n_rows):
        longest = max(longest, indptr[i + 1] - indptr[i])
    room = longest + LANES
    row = Row(np.zeros(room, np.uint64), np.zeros(room, np.uint32), np.zeros(room, np.uint32))
    room = LISTED + LANES
    listed = Listed(
        np.zeros(room, np.uint64),
        np.zeros(room, np.uint64),
        np.zeros(room, np.float32),
        np.zeros(room, np.uint32),
        np.zeros(room, np.uint32),
    )
    lanes = Lanes(
        np.empty(LANES, np.uint32),
        np.empty(LANES, np.float32),
        np.empty(LANES, np.float32),
        np.empty(LANES, np.uint32),
        np.empty(LANES, np.uint32),
        np.empty(4 * LANES, np.uint32),
        np.empty(4, np.uint64),
    )
    n_sampled = size if full else 0
    tile = Tile(np.empty(size, np.uint64), np.zeros(n_sampled, np.uint64), np.zeros(n_sampled, np.uint64))
    limits, blocks = np.empty(DEEPEST, np.uint64), np.empty(DEEPEST // 2 + 16, np.uint32)
    codes = np.empty(size * n_tiles, np.uint16)
    for i in range(n_rows):
        n, largest, weight = _read_row(columns, exponents, fractions, negative, indptr[i], indptr[i + 1], row, lanes)
        empty[i] = n == 0
        if n == 0:
            codes[:] = 0
        for t in range(n_tiles if n else 0):
            first = t * size
            live = min(size, n_components - first)
            tau = size * (np.log(f64(live)) + margin) / weight
            _sample_tile(row, n, largest, tau, growth, size, live, keys[t], limits, blocks, lanes, listed, tile)
            for component in range(live):
                codes[first + component] = (tile.best[component] & _WORD) >> u64(32 - bits)
                if full:
                    at = i * n_components + first + component
                    i_star[at] = i64(tile.coordinates[component])
                    arrival = tile.arrivals[component]
                    darts[at] = (i64(arrival << _HALF) + i64(arrival >> _HALF)) - 1
        pack_row(codes, n_components, bits, i * row_bytes, packed)


def encode(
    indptr: NDArray,
    columns: NDArray,
    exponents: NDArray[np.int32],
    fractions: NDArray[np.uint32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
    bits: int,
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Compute the packed codes of rows.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int
        Row i has entries ``indptr[i]`` to ``indptr[i + 1] - 1``, as in a CSR matrix.
    columns : ndarray of shape (nnz,), int
        In [0, 2**40), each at most once in a row, in any order.
    exponents, fractions, negative : ndarrays of shape (nnz,), int32, uint32 and bool
        From `dkfeat.compiled.sampling.octaves.signed_octaves`. A zero counts as absent.
    n_components : int
        At least 1.
    seed : int
        In [0, 2**64).
    bits : int
        Bits of a code, 1 to 16.

    Returns
    -------
    packed : ndarray of shape (n_rows, ceil(n_components * bits / 8)), uint8
        Codes in component order, least significant bit first; zeros for a row without entries.
    empty : ndarray of shape (n_rows,), bool
        Rows without entries.

    Examples
    --------
    >>> from dkfeat.compiled.sampling.octaves import signed_octaves
    >>> octaves = signed_octaves(np.array([3.0, -1.0]))
    >>> packed, empty = encode(np.array([0, 2, 2]), np.array([4, 9]), *octaves, 6, seed=0, bits=8)
    >>> packed.shape, len(set(packed[0].tolist())) > 2, empty.tolist()
    ((2, 6), True, [False, True])
    """
    packed = np.empty((len(indptr) - 1, -(-n_components * bits // 8)), np.uint8)
    nothing = np.empty(0, np.int64)
    return packed, _run(
        indptr, columns, exponents, fractions, negative, n_components, seed, bits, packed, nothing, nothing
    )


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
    >>> from dkfeat.compiled.sampling.octaves import signed_octaves
    >>> octaves = signed_octaves(np.array([3.0, -1.0]))
    >>> i_star, dart = sample(np.array([0, 2, 2]), np.array([4, 9]), *octaves, 6, seed=0)
    >>> sorted(set(i_star[0].tolist()) - {8, 19}), i_star[1].tolist()
    ([], [-1, -1, -1, -1, -1, -1])
    """
    n_rows = len(indptr) - 1
    i_star, dart = np.full((n_rows, n_components), -1, np.int64), np.zeros((n_rows, n_components), np.int64)
    packed = np.empty((n_rows, -(-n_components // 8)), np.uint8)
    _run(indptr, columns, exponents, fractions, negative, n_components, seed, 1, packed, i_star, dart)
    return i_star, dart


def _run(
    indptr: NDArray,
    columns: NDArray,
    exponents: NDArray[np.int32],
    fractions: NDArray[np.uint32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
    bits: int,
    packed: NDArray[np.uint8],
    i_star: NDArray[np.int64],
    dart: NDArray[np.int64],
) -> NDArray[np.bool_]:
    # fill `packed`, and `i_star` and `dart` unless they are empty; returns which rows have no entries
    n_tiles = -(-n_components // TILE)
    keys = np.empty(n_tiles, np.uint64)
    for tile in range(n_tiles):
        words = np.empty((1, 4), np.uint32)
        draw_words(u64(tile), u64(STREAM_DART), u64(seed), words)
        keys[tile] = int(words[0, 0]) | int(words[0, 1]) << 32
    indptr, columns = owned(indptr, np.int64), owned(columns, np.int32 if columns.dtype == np.int32 else np.int64)
    empty = np.empty(len(indptr) - 1, np.bool_)
    entries = owned(exponents, np.int32), owned(fractions, np.uint32), owned(negative, np.bool_)
    out = packed.reshape(-1), empty, i_star.reshape(-1), dart.reshape(-1)
    _sample_rows(indptr, columns, *entries, n_components, bits, MARGIN, GROWTH, keys, *out)
    return empty
