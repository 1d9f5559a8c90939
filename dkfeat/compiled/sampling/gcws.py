"""Generalized consistent weighted sampling: tables of parameters, and the sweep of a tile of 16 components.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, Alg. 1. For each coordinate of a row
with logarithm l of its magnitude, ``t = floor(l / r + beta)`` and ``a = log c - r (t + 1 - beta)``; the smallest a is
sampled.

A parameter is a pure function of (seed, coordinate, component): four words of Philox give r and c (each -log(u1 u2) of
two uniform numbers), beta, and the bits of a mixed code. Tables of q = 1 / r, r, beta and
h = log c - r are made for the coordinates of a block, and neither sent nor kept.

The sweep processes the rows of one coordinate after another. The accumulator of a row has the smallest a of its entries
so far, and the code, and level if needed, of the sampled pair. Coordinates ascend and only a smaller a replaces the
previous one, so ties go to the lowest coordinate. Accumulators are prefetched some entries ahead; otherwise half of the
time is spent waiting for the second-level cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import aligned, inlined, kernel, owned
from dkfeat.compiled.random.elementary import log_normal_lanes
from dkfeat.compiled.random.philox import STREAM_CODE_SHIFT, STREAM_GCWS, draw_words, philox_lanes
from dkfeat.compiled.sampling.feature_major import AHEAD, FeatureMajor, transpose_rows
from dkfeat.compiled.sampling.packing import pack_bytes, pack_tile
from dkfeat.compiled.simd.vector import (
    LANES,
    bits_of,
    broadcast,
    float_of,
    floor,
    load,
    minimum,
    narrowed,
    prefetch,
    select,
    splat,
    store,
    to_float,
)

CODE_LOW, CODE_SIGNED, CODE_MIXED, CODE_RANK = 0, 1, 2, 3
"""Rules that map a coordinate to a code; CODE_RANK is its position among those present, independent of `i_bits`."""

TABLE_ROW = 4 * LANES
"""Number of floats of a coordinate in a table: q, r, beta and h of 16 components each."""

_BATCH = 64  # coordinates per pass; their words stay in the first-level cache
_STREAM = np.uint64(STREAM_GCWS)

f32, u32, u64 = np.float32, np.uint32, np.uint64


@inlined
def _odd(bits):
    # 2 b + 1 as float32, exact, for the top 23 bits b of words
    return to_float((bits >> splat(u32(8))) | splat(u32(1)))


@inlined
def _fill_words(coordinates, begin, end, first, component, seed, table):
    for q in range(begin, end):
        at = (q - first) * TABLE_ROW
        x0, x1, x2, x3 = philox_lanes(u64(coordinates[q]), u64(component), _STREAM, seed)
        store(table, at, float_of(x0))
        store(table, at + LANES, float_of(x1))
        store(table, at + 2 * LANES, float_of(x2))
        store(table, at + 3 * LANES, float_of(x3))


@inlined
def fill_tables(coordinates, first, last, component, seed, mode, i_bits, shifts, table, codes):
    """Fill the tables of a tile of 16 components for ``coordinates[first:last]``.

    Parameters
    ----------
    coordinates : ndarray of shape (n_present,), int64
    first, last : int
    component : int
        First component of the tile.
    seed : uint64
    mode, i_bits : int
        One of the CODE_ constants and the bits of a code, 1 to 16.
    shifts : ndarray of shape (at least component + 16,), uint32
        For CODE_SIGNED: shift of the codes of negative coordinates in each component.
    table : ndarray of shape (at least (last - first) * TABLE_ROW,), float32
    codes : ndarray of shape (at least (last - first) * 16,), uint8, uint16 or uint32
    """
    zero, one, low9 = splat(f32(0)), splat(f32(1)), splat(u32(511))
    squared_unit, unit = splat(f32(2.0**-48)), splat(f32(2.0**-24))
    mask, drop = splat(u32((1 << i_bits) - 1)), splat(u32(16 - i_bits))
    shift = load(shifts, component)
    for begin in range(first, last, _BATCH):
        end = min(begin + _BATCH, last)
        # words first, stored where the parameters will be: two short chains of dependent steps overlap better
        # than a long one
        _fill_words(coordinates, begin, end, first, component, seed, table)
        for q in range(begin, end):
            at = (q - first) * TABLE_ROW
            x0, x1 = bits_of(load(table, at)), bits_of(load(table, at + LANES))
            x2, x3 = bits_of(load(table, at + 2 * LANES)), bits_of(load(table, at + 3 * LANES))
            # a power of two commutes with rounding: this is u1 * u2 rounded once
            r = zero - log_normal_lanes(_odd(x0) * _odd(x1) * squared_unit)
            c = zero - log_normal_lanes(_odd(x2) * _odd(x3) * squared_unit)
            rest = (
                (x0 << splat(u32(23))) | ((x1 & low9) << splat(u32(14))) | ((x2 & splat(u32(0x1F0))) << splat(u32(5)))
            )
            store(table, at, one / r)
            store(table, at + LANES, r)
            store(table, at + 2 * LANES, _odd(rest) * unit)
            store(table, at + 3 * LANES, log_normal_lanes(c) - r)
            key = coordinates[q]
            if mode == CODE_MIXED:
                code = (((x3 & low9) << splat(u32(7))) | (x2 & splat(u32(127)))) >> drop
            elif mode == CODE_SIGNED:
                code = (splat(u32(key >> 1)) + splat(u32(key & 1)) * shift) & mask
            elif mode == CODE_LOW:
                code = splat(u32(key & 0xFFFF)) & mask
            else:
                code = splat(u32(q))
            store(codes, (q - first) * LANES, narrowed(code, codes))


CHUNK = 512
"""Number of coordinates whose parameters are in memory at a time: 140 KB, for a second-level cache."""

_AHEAD, _ONE, _TWO = np.uint64(AHEAD), np.uint64(1), np.uint64(2)


@inlined
def _parameters(table, q):
    at = q * TABLE_ROW
    return load(table, at), load(table, at + LANES), load(table, at + 2 * LANES), load(table, at + 3 * LANES)


@inlined
def _sweep_codes(begin, end, offsets, logs, table, q, codes, best, kept):
    # process all rows of one coordinate
    inverse, r, beta, h = _parameters(table, q)
    code = load(codes, q * LANES)
    for p in range(u64(begin), u64(end)):
        row, ahead = np.intp(offsets[_TWO * p]), np.intp(offsets[_TWO * (p + _AHEAD)])
        prefetch(best, ahead)
        prefetch(kept, ahead)
        t = floor(broadcast(logs, np.intp(_TWO * p + _ONE)) * inverse + beta)
        a = h - r * (t - beta)
        old = load(best, row)
        store(kept, row, select(a < old, code, load(kept, row)))
        store(best, row, minimum(a, old))


@inlined
def _sweep_levels(begin, end, offsets, logs, table, q, codes, best, kept, levels):
    # `_sweep_codes` that also keeps t
    inverse, r, beta, h = _parameters(table, q)
    code = load(codes, q * LANES)
    for p in range(u64(begin), u64(end)):
        row, ahead = np.intp(offsets[_TWO * p]), np.intp(offsets[_TWO * (p + _AHEAD)])
        prefetch(best, ahead)
        prefetch(kept, ahead)
        prefetch(levels, ahead)
        t = floor(broadcast(logs, np.intp(_TWO * p + _ONE)) * inverse + beta)
        a = h - r * (t - beta)
        old = load(best, row)
        less = a < old
        store(kept, row, select(less, code, load(kept, row)))
        store(levels, row, select(less, t, load(levels, row)))
        store(best, row, minimum(a, old))


@kernel
def sweep_tile(
    coordinates,
    starts,
    offsets,
    logs,
    component,
    seed,
    mode,
    i_bits,
    with_levels,
    shifts,
    table,
    codes,
    best,
    kept,
    levels,
):
    """Sweep a tile of 16 components.

    Parameters
    ----------
    coordinates, starts, offsets, logs
        Fields of a `FeatureMajor`.
    component : int
        First component of the tile.
    seed : uint64
    mode, i_bits, shifts
        As in `fill_tables`.
    with_levels : bool
    table : ndarray of shape (at least min(CHUNK, n_present) * TABLE_ROW,), float32
        Buffer.
    codes : ndarray of shape (at least min(CHUNK, n_present) * 16,), of the dtype of `kept`
        Buffer.
    best : ndarray of shape (n_rows * 16,), float32
        Smallest a of each row and component; inf for a row without entries.
    kept : ndarray of shape (n_rows * 16,), uint8, uint16 or uint32
        Codes of the sampled coordinates; 0 for a row without entries.
    levels : ndarray of shape (n_rows * 16,), float32
        Sampled levels if `with_levels`; 0 for a row without entries.
    """
    best[:] = np.inf
    kept[:] = 0
    levels[:] = 0
    n = coordinates.shape[0]
    for first in range(0, n, CHUNK):
        last = min(first + CHUNK, n)
        fill_tables(coordinates, first, last, component, seed, mode, i_bits, shifts, table, codes)
        for s in range(starts.shape[0]):
            for q in range(first, last):
                begin, end = starts[s, q], starts[s, q + 1]
                if with_levels:
                    _sweep_levels(begin, end, offsets, logs, table, q - first, codes, best, kept, levels)
                else:
                    _sweep_codes(begin, end, offsets, logs, table, q - first, codes, best, kept)


CodeMode = Literal["injective", "signed", "mixed", "lowest"]
"""Rule that maps a coordinate to a code; see `dkfeat.GCWSFeatures`."""
SWEPT_ROWS = 20_480
"""Maximum number of rows in a sweep: their accumulators, 80 bytes a row, fit a second-level cache of 2 MB."""

_MODES = {"injective": CODE_LOW, "lowest": CODE_LOW, "signed": CODE_SIGNED, "mixed": CODE_MIXED}
_SHIFT_STREAM = np.uint64(STREAM_CODE_SHIFT)


def sample(
    indptr: NDArray,
    columns: NDArray,
    logs: NDArray[np.float32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sample a coordinate and a level of each row in each component.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int
        Row i has entries ``indptr[i]`` to ``indptr[i + 1] - 1``, as in a CSR matrix.
    columns : ndarray of shape (nnz,), int
        In [0, 2**40), each at most once in a row, in any order.
    logs, negative : ndarrays of shape (nnz,), float32 and bool
        From `signed_logs`. An entry whose logarithm is -inf counts as absent.
    n_components : int
        At least 1.
    seed : int
        In [0, 2**64).

    Returns
    -------
    i_star : ndarray of shape (n_rows, n_components), int64
        ``2 * column + negative`` of the sampled entry; -1 for a row without entries.
    t_star : ndarray of shape (n_rows, n_components), int64
        Its level; 0 for a row without entries.

    Examples
    --------
    >>> from dkfeat.compiled.sampling.feature_major import signed_logs
    >>> logs, negative = signed_logs(np.array([3.0, -1.0]))
    >>> i_star, t_star = sample(np.array([0, 2, 2]), np.array([4, 9]), logs, negative, 6, seed=0)
    >>> sorted(set(i_star[0].tolist()) - {8, 19}), i_star[1].tolist()
    ([], [-1, -1, -1, -1, -1, -1])
    """
    n_rows = len(indptr) - 1
    i_star, t_star = np.full((n_rows, n_components), -1, np.int64), np.zeros((n_rows, n_components), np.int64)
    for rows, entries in _groups(indptr, columns, logs, negative):
        n = rows.stop - rows.start
        ranks, levels = aligned(n * LANES, np.uint32), aligned(n * LANES, np.float32)
        for component, best in _sweeps(entries, n, n_components, seed, CODE_RANK, 1, True, ranks, levels):
            live = slice(component, min(component + LANES, n_components))
            shape = (slice(None), slice(live.stop - component))
            found = (best != np.inf).reshape(n, LANES)[shape]
            i_star[rows, live][found] = entries.coordinates[ranks.reshape(n, LANES)[shape][found]]
            t_star[rows, live][found] = levels.reshape(n, LANES)[shape][found]
    return i_star, t_star


def encode(
    indptr: NDArray,
    columns: NDArray,
    logs: NDArray[np.float32],
    negative: NDArray[np.bool_],
    n_components: int,
    seed: int,
    i_bits: int,
    t_bits: int,
    mode: CodeMode,
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Compute the packed codes of rows.

    Parameters
    ----------
    indptr, columns, logs, negative, n_components, seed
        As in `sample`.
    i_bits, t_bits : int
        Bits kept of the coordinate, 1 to 16, and of the level, 0 to 2.
    mode : {"injective", "signed", "mixed", "lowest"}
        Rule that maps a coordinate to a code.

    Returns
    -------
    packed : ndarray of shape (n_rows, ceil(n_components * (i_bits + t_bits) / 8)), uint8
        Codes in component order, least significant bit first; zeros for a row without entries.
    empty : ndarray of shape (n_rows,), bool
        Rows without entries.

    Examples
    --------
    >>> from dkfeat.compiled.sampling.feature_major import signed_logs
    >>> logs, negative = signed_logs(np.array([3.0, -1.0]))
    >>> packed, empty = encode(np.array([0, 2, 2]), np.array([4, 9]), logs, negative, 6, 0, 8, 0, "injective")
    >>> packed.shape, sorted(set(packed[0].tolist()) - {8, 19}), empty.tolist()
    ((2, 6), [], [False, True])
    """
    n_rows, bits = len(indptr) - 1, i_bits + t_bits
    row_bytes = -(-n_components * bits // 8)
    packed, empty = np.empty((n_rows, row_bytes), np.uint8), np.empty(n_rows, np.bool_)
    dtype = np.uint8 if i_bits <= 8 else np.uint16
    for rows, entries in _groups(indptr, columns, logs, negative):
        n = rows.stop - rows.start
        kept, levels = aligned(n * LANES, dtype), aligned(n * LANES if t_bits else 0, np.float32)
        out = packed[rows].reshape(-1)
        sweeps = _sweeps(entries, n, n_components, seed, _MODES[mode], i_bits, t_bits > 0, kept, levels)
        for component, best in sweeps:
            n_live = min(LANES, n_components - component)
            if i_bits == 8 and t_bits == 0 and n_live == LANES:
                pack_bytes(kept, component, row_bytes, out)
            else:
                pack_tile(kept, levels, i_bits, t_bits, component, n_live, row_bytes, out)
            if component == 0:
                empty[rows] = best[::LANES] == np.inf
    return packed, empty


def _groups(
    indptr: NDArray, columns: NDArray, logs: NDArray[np.float32], negative: NDArray[np.bool_]
) -> Iterator[tuple[slice, FeatureMajor]]:
    # rows in equal groups of at most SWEPT_ROWS, feature-major
    indptr, columns = owned(indptr, np.int64), owned(columns, np.int32 if columns.dtype == np.int32 else np.int64)
    logs, negative = owned(logs, np.float32), owned(negative, np.bool_)
    n_rows = len(indptr) - 1
    n_groups = -(-n_rows // SWEPT_ROWS)
    for g in range(n_groups):
        rows = slice(n_rows * g // n_groups, n_rows * (g + 1) // n_groups)
        part = indptr[rows.start : rows.stop + 1]
        entries = slice(part[0], part[-1])
        yield rows, transpose_rows(part, columns[entries], negative[entries], logs[entries])


def _sweeps(
    entries: FeatureMajor,
    n_rows: int,
    n_components: int,
    seed: int,
    mode: int,
    i_bits: int,
    with_levels: bool,
    kept: NDArray,
    levels: NDArray[np.float32],
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    # sweep each tile of 16 components into kept and levels; yields its first component and the smallest a
    key = np.uint64(seed)
    words = np.zeros((-(-n_components // LANES) * LANES, 4), np.uint32)
    if mode == CODE_SIGNED:
        draw_words(u64(0), _SHIFT_STREAM, key, words)
    shifts = words[:, 0] >> np.uint32(32 - i_bits)
    best = aligned(n_rows * LANES, np.float32)
    size = min(CHUNK, len(entries.coordinates))
    table, codes = aligned(size * TABLE_ROW, np.float32), aligned(size * LANES, kept.dtype)
    for component in range(0, n_components, LANES):
        sweep_tile(*entries, component, key, mode, i_bits, with_levels, shifts, table, codes, best, kept, levels)
        yield component, best
