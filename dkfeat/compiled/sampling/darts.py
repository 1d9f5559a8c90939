"""Darts: samples of rows for the min-max kernel, from lists of the points that can win.

Each coordinate has a Poisson process of points (weight, rank, component), and a row owns the points below its weights.
The sample of a component is the owned point of least rank. Decision 0034 defines every number.

The points of a row with ranks below tau are listed, for a tile of up to 512 components at a time; tau grows until each
component has one.

Magnitudes are written as 2^e (1 + f), of octave e and fraction f, with the same bits on every CPU.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel, owned
from dkfeat.compiled.random import STREAM_DART, draw_words, log_scalar
from dkfeat.compiled.sampling.codes import pack_row
from dkfeat.compiled.sampling.dart_lists import (
    LISTED,
    MOST_NEW,
    NO_SAMPLE,
    describe_blocks,
    draw,
    limit_octaves,
    make_buffers,
    scan,
)
from dkfeat.compiled.simd import LANES, float_of, load, select, splat, store

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


_WORD, _HALF = u64(0xFFFFFFFF), u64(32)

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
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Compute the packed codes of rows.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int
        Row i has entries ``indptr[i]`` to ``indptr[i + 1] - 1``, as in a CSR matrix.
    columns : ndarray of shape (nnz,), int
        In [0, 2**40), each at most once in a row, in any order.
    exponents, fractions, negative : ndarrays of shape (nnz,), int32, uint32 and bool
        From `dkfeat.compiled.sampling.darts.signed_octaves`. A zero counts as absent.
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
    >>> from dkfeat.compiled.sampling.darts import signed_octaves
    >>> octaves = signed_octaves(np.array([3.0, -1.0]))
    >>> packed, empty = encode(np.array([0, 2, 2]), np.array([4, 9]), *octaves, 6, seed=0, bits=8)
    >>> packed.shape, len(set(packed[0].tolist())) > 2, empty.tolist()
    ((2, 6), True, [False, True])
    """
    n_rows = len(indptr) - 1
    packed, nothing = np.empty((n_rows, -(-n_components * bits // 8)), np.uint8), np.empty((0, 0), np.int64)
    results = _Results(packed, np.empty(n_rows, np.bool_), nothing, nothing)
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
