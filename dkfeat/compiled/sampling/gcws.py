"""Generalized consistent weighted sampling: the sweep of a tile of 16 components.

P. Li, "Linearized GMM Kernels and Normalized Random Fourier Features", KDD 2017, Alg. 1. For each coordinate of a row
with logarithm l of its magnitude, ``t = floor(l / r + beta)`` and ``a = log c - r (t + 1 - beta)``; the smallest a is
sampled.

Tables of q = 1 / r, r, beta and h = log c - r are made for the coordinates of a block, and neither sent nor kept. In
wide blocks, whose coordinates have few uses, they are made only where a bound shows that a row may sample them.

The sweep processes the rows of one coordinate after another. The accumulator of a row has the smallest a of its entries
so far, and the code, and level if needed, of the sampled pair. Coordinates ascend and only a smaller a replaces the
previous one, so ties go to the lowest coordinate. Accumulators are prefetched some entries ahead; otherwise half of the
time is spent waiting for the second-level cache.

**Parameters.** A parameter is a pure function of (seed, coordinate, component): four words of Philox give r and c
(each -log(u1 u2) of two uniform numbers), beta, and the bits of a mixed code. The table of a chunk of coordinates first
holds their words. Those of coordinates that may be sampled are then replaced by q = 1 / r, r, beta and h = log c - r.

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

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import aligned, inlined, kernel, owned
from dkfeat.compiled.random import STREAM_CODE_SHIFT, STREAM_GCWS, draw_words, log_normal_lanes, philox_lanes
from dkfeat.compiled.sampling.codes import pack_bytes, pack_tile
from dkfeat.compiled.sampling.feature_major import AHEAD, FeatureMajor, transpose_rows
from dkfeat.compiled.simd import (
    LANES,
    any_of,
    bits_of,
    broadcast,
    float_of,
    floor,
    load,
    load_four,
    maximum,
    minimum,
    narrowed,
    prefetch,
    select,
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
def fill_parameters(coordinates, first, places, begin, end, mode, i_bits, shift, table, codes, traced):
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
        16 codes for each place, or, if `traced` is not empty, the rank of the coordinate, 16 times.
    traced : ndarray of shape (n_present * 16,) or (0,), uint8, uint16 or uint32
        16 codes for each coordinate.
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
        if traced.shape[0]:
            store(traced, rank * LANES, narrowed(code, traced))
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


CHUNK = 512
"""Number of coordinates whose parameters are in memory at a time: 140 KB, for a second-level cache."""

_BATCH = 64  # coordinates whose words are drawn in a loop of their own; they stay in the first-level cache
_AHEAD = u64(AHEAD)
_ENTRIES_A_USE = 400  # entries of a row for each use of a coordinate, if it is worth a comparison


@inlined
def _sweep(begin, end, offsets, logs, table, q, codes, best, kept, levels, with_levels):
    # process all rows of one coordinate; `with_levels` is a constant, so that the loop has no branches
    inverse, r, beta, h = load_four(table, q * TABLE_ROW)
    code = load(codes, q * LANES)
    for p in range(u64(begin), u64(end)):
        row, ahead = np.intp(offsets[_TWO * p]), np.intp(offsets[_TWO * (p + _AHEAD)])
        prefetch(best, ahead)
        prefetch(kept, ahead)
        if with_levels:
            prefetch(levels, ahead)
        t = floor(broadcast(logs, np.intp(_TWO * p + _ONE)) * inverse + beta)
        a = h - r * (t - beta)
        old = load(best, row)
        less = a < old
        store(kept, row, select(less, code, load(kept, row)))
        if with_levels:
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
    rare_uses,
    table,
    codes,
    places,
    best,
    traced,
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
    mode, i_bits : int
        As in `fill_parameters`.
    with_levels : bool
    shifts : ndarray of shape (at least component + 16,), uint32
        For CODE_SIGNED: shift of the codes of negative coordinates in each component.
    rare_uses : int or None
        As in `list_candidates`; None lists all coordinates.
    table : ndarray of shape (at least min(CHUNK, n_present) * TABLE_ROW,), float32
        Buffer.
    codes : ndarray of shape (at least min(CHUNK, n_present) * 16,), of the dtype of `kept`
        Buffer.
    places : ndarray of shape (CHUNK + 1,), int64
        Buffer.
    best : ndarray of shape (n_rows * 16,), float32
        Smallest a of each row and component; inf for a row without entries.
    traced : ndarray of shape (n_present * 16,) or (0,), uint8, uint16 or uint32
        Codes of the coordinates that may be sampled, if it is not empty.
    kept : ndarray of shape (n_rows * 16,), uint8, uint16 or uint32
        Codes of the sampled coordinates, or, if `traced` is not empty, their ranks; 0 for a row without entries.
    levels : ndarray of shape (n_rows * 16,), float32
        Sampled levels if `with_levels`; 0 for a row without entries.
    """
    best[:] = np.inf
    kept[:] = 0
    levels[:] = 0
    n, shift = coordinates.shape[0], load(shifts, component)
    for first in range(0, n, CHUNK):
        last = min(first + CHUNK, n)
        n_listed = np.int64(0)
        for begin in range(first, last, _BATCH):
            end, listed = min(begin + _BATCH, last), n_listed
            fill_words(coordinates, begin, end, first, component, seed, table)
            if rare_uses is None:
                for q in range(begin, end):
                    places[n_listed] = q - first
                    n_listed += 1
            else:
                n_listed = list_candidates(
                    begin, end, first, starts, offsets, logs, best, rare_uses, table, places, n_listed
                )
            fill_parameters(coordinates, first, places, listed, n_listed, mode, i_bits, shift, table, codes, traced)
        for s in range(starts.shape[0]):
            for i in range(n_listed):
                place = places[i]
                begin, end = starts[s, first + place], starts[s, first + place + 1]
                if with_levels:
                    _sweep(begin, end, offsets, logs, table, place, codes, best, kept, levels, True)
                else:
                    _sweep(begin, end, offsets, logs, table, place, codes, best, kept, levels, False)


@kernel
def encode_tiles(entries, n_components, arguments, t_bits, whole_bytes, kept, i_star, packed):
    """Sweep all tiles, and pack their codes: for a single row this takes half the time of a call for each tile.

    Parameters
    ----------
    entries : FeatureMajor
    n_components : int
    arguments : tuple
        Arguments of `sweep_tile` after the component.
    t_bits : int
    whole_bytes : True or None
        True if each code is a byte; None if not, so that the loop for bytes is not compiled.
    kept, i_star
        As in `trace_tile`; or `kept` of `sweep_tile`, and an empty array, if coordinates are not wanted.
    packed : ndarray of shape (n_rows * row_bytes,), uint8
        Changed.
    """
    best, traced, swept, levels = arguments[-4], arguments[-3], arguments[-2], arguments[-1]
    row_bytes = packed.shape[0] // (kept.shape[0] // LANES)
    for component in range(0, n_components, LANES):
        sweep_tile(entries[0], entries[1], entries[2], entries[3], component, *arguments)
        n_live = min(LANES, n_components - component)
        if i_star.shape[0]:
            trace_tile(entries[0], swept, best, traced, component, n_live, i_star, kept)
        if whole_bytes is None or n_live < LANES:
            pack_tile(kept, levels, arguments[2], t_bits, component, n_live, row_bytes, packed)
        else:
            pack_bytes(kept, component, row_bytes, packed)


@kernel
def trace_tile(coordinates, ranks, best, traced, component, n_live, i_star, kept):
    """Write the coordinates that a sweep has sampled, and their codes.

    Parameters
    ----------
    coordinates, component
        As in `sweep_tile`.
    ranks, best, traced : ndarrays
        Results of the sweep; `ranks` is its `kept`.
    n_live : int
        Number of components of the tile.
    i_star : ndarray of shape (n_rows, n_components), int64
        Coordinates of the samples; not changed in rows without entries.
    kept : ndarray of shape (n_rows * 16,), of the dtype of `traced`
        Codes; 0 in rows without entries.
    """
    kept[:] = 0
    for row in range(kept.shape[0] // LANES):
        at = row * LANES
        if best[at] != np.inf:
            for j in range(n_live):
                rank = u64(ranks[at + j])
                kept[at + j] = traced[rank * u64(LANES) + u64(j)]
                i_star[row, component + j] = coordinates[rank]


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
        In [0, 2**62), each at most once in a row, in any order.
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
        more = _arguments(entries, n, n_components, seed, CODE_RANK, 1, True, ranks[:0], ranks, levels)
        for component in range(0, n_components, LANES):
            sweep_tile(*entries, component, *more)
            live = slice(component, min(component + LANES, n_components))
            shape = (slice(None), slice(live.stop - component))
            found = (more[-4] != np.inf).reshape(n, LANES)[shape]
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
    i_star: NDArray[np.int64] | None = None,
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
    i_star : ndarray of shape (n_rows, n_components), int64, or None
        Filled with the sampled coordinates, except in rows without entries.

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
        n, n_present = rows.stop - rows.start, len(entries.coordinates)
        kept, levels = aligned(n * LANES, dtype), aligned(n * LANES if t_bits else 0, np.float32)
        traced, swept, sampled = kept[:0], kept, np.empty((0, 0), np.int64)
        if i_star is not None:
            traced, swept = aligned(n_present * LANES, dtype), aligned(n * LANES, np.min_scalar_type(n_present))
            sampled = i_star[rows]
        rules = _MODES[mode], i_bits, t_bits > 0
        more = _arguments(entries, n, n_components, seed, *rules, traced, swept, levels)
        whole_bytes = True if bits == i_bits == 8 else None
        encode_tiles(entries, n_components, more, t_bits, whole_bytes, kept, sampled, packed[rows].reshape(-1))
        empty[rows] = more[-4][::LANES] == np.inf
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


def _arguments(
    entries: FeatureMajor,
    n_rows: int,
    n_components: int,
    seed: int,
    mode: int,
    i_bits: int,
    with_levels: bool,
    traced: NDArray,
    kept: NDArray,
    levels: NDArray[np.float32],
) -> tuple[Any, ...]:
    # arguments of sweep_tile after the component, for results in the last four: the smallest a, traced, kept and levels
    key = np.uint64(seed)
    words = np.zeros((-(-n_components // LANES) * LANES, 4), np.uint32)
    if mode == CODE_SIGNED:
        draw_words(u64(0), _SHIFT_STREAM, key, words)
    shifts = words[:, 0] >> np.uint32(32 - i_bits)
    best = aligned(n_rows * LANES, np.float32)
    size = min(CHUNK, len(entries.coordinates))
    table, codes = aligned(size * TABLE_ROW, np.float32), aligned(size * LANES, kept.dtype)
    places = np.empty(CHUNK + 1, np.int64)
    rules = key, mode, i_bits, with_levels, shifts, _rare_uses(entries, n_rows)
    return *rules, table, codes, places, best, traced, kept, levels


def _rare_uses(entries: FeatureMajor, n_rows: int) -> int | None:
    # the longer the rows, the less often an entry is sampled: compare first where most comparisons save a table
    nnz = int(entries.starts[-1, -1])
    uses = min(MOST_USES, nnz // (n_rows * _ENTRIES_A_USE))
    if uses == 0 or len(entries.starts) > 1 or np.abs(entries.logs[1 : 2 * nnz : 2]).max() > LARGEST_LOG:
        return None
    return uses
