"""Consistent weighted sampling of sparse rows: GCWS, Algorithm 1 of "Linearized GMM Kernels and NRFF".

Each row draws, for each component, one of its coordinates i* and a level t*; two rows draw the same pair with a probability
that is their generalized min-max similarity. What follows is the specification: it fixes every bit of i*, t* and the codes.

**Coordinates.** Column f holds two: ``2 f`` for its positive and ``2 f + 1`` for its negative part. They share no draws.

**Draws.** Philox4x32-10 with key seed and counter (coordinate, component, stream 0) gives words x0 ... x3 for each pair of
coordinate and component. Five numbers b of 23 bits, ``x0 >> 9``, ..., ``x3 >> 9`` and
``(x0 & 511) << 14 | (x1 & 511) << 5 | (x2 & 511) >> 4``, make uniforms ``u = (2 b + 1) * 2**-24`` inside (0, 1).

**Parameters**, float32, each operation rounded once, log as `dkfeat.compiled.elementary.log_normal_lanes` computes it:
``r = -log(u1 * u2)`` and ``c = -log(u3 * u4)`` are Gamma(2, 1), ``beta = u5``; ``q = 1 / r``, ``h = log(c) - r``.

**Evaluation**, float32: ``t = floor(l * q + beta)``, ``a = h - r * (t - beta)``, where l is the float64 logarithm of the
magnitude, times the power, rounded once. i* has the least a, the lowest coordinate among equals, and t* is its t. (The paper's
``a = log c - r (t + 1 - beta)`` with r taken out of the product: it does not depend on the value.) An explicit zero has
``l = -inf`` and ``a = inf``, which is never less: it counts as absent.

**Codes.** The low `i_bits` of a code depend on i* by the mode; above them stand `t_bits`, t* modulo ``2**t_bits``.

========= =====================================================================================================
injective ``i*``, while all coordinates fit
lowest    the low bits of ``i*``
signed    ``f``, plus for the negative part a shift that is drawn for the component, modulo ``2**i_bits``
mixed     the top bits of ``(x3 & 511) << 7 | (x2 & 127)``: of the 16 bits, 13 are used by no uniform and 3 are the lowest
          of beta. So codes of different coordinates, and of one coordinate in different components, are independent
========= =====================================================================================================

Component j has bits ``j * bits`` to ``(j + 1) * bits - 1`` of its row, least significant bit first.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.elementary import log_normal_lanes, log_scalar
from dkfeat.compiled.philox import draw_words, philox_lanes
from dkfeat.compiled.simd import LANES, bits_of, broadcast, float_of, floor, load, minimum, narrowed, prefetch, select, splat, store, to_float

__all__ = ["CodeMode", "encode", "sample", "signed_logs"]

CodeMode = Literal["injective", "signed", "mixed", "lowest"]

f32, u32, u64, intp = np.float32, np.uint32, np.uint64, np.intp

_LOW, _SIGNED, _MIXED, _RANK = 0, 1, 2, 3  # how a coordinate's code is made
_MODES = {"injective": _LOW, "lowest": _LOW, "signed": _SIGNED, "mixed": _MIXED}
_BATCH = 128
_CHUNK = 512  # coordinates whose parameters are held at once: 160 KB for a tile of 16 components
_GROUP_ROWS = 20_480  # rows swept together: their accumulators stay in a second-level cache of 2 MB
_ROWS_IN_L1 = 384  # rows swept together where a chunk's parameters are used often enough to read them again
_USES = 32  # uses of a parameter row that pay for reading it again
_AHEAD = u64(16)
_ONE, _TWO = u64(1), u64(2)
_STREAM_GCWS, _STREAM_CODE_SHIFT = u64(0), u64(1)
_WORD, _HALF_WORD = u64(0xFFFFFFFF), u64(32)


@kernel
def _signed_logs(values: Any, power: Any, logs: Any, negative: Any) -> None:
    for i in range(values.shape[0]):
        x = values[i]
        logs[i] = f32(log_scalar(abs(x)) * power)
        negative[i] = x < 0.0


def signed_logs(values: NDArray, power: float = 1.0) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Logarithms of magnitudes, and signs.

    Parameters
    ----------
    values : ndarray of shape (nnz,), float32 or float64
        Finite.
    power : float, default=1.0
        Power p of the pGMM kernel: the logarithm of ``abs(value)**p`` is meant.

    Returns
    -------
    logs : ndarray of shape (nnz,), float32
        ``power * log(abs(value))`` computed in float64 and rounded once; -inf for a zero.
    negative : ndarray of shape (nnz,), bool

    Examples
    --------
    >>> logs, negative = signed_logs(np.array([1.0, -np.e**2, 0.0]))
    >>> logs.tolist(), negative.tolist()
    ([0.0, 2.0, -inf], [False, True, False])
    """
    values = np.ascontiguousarray(values, np.float64)
    logs, negative = np.empty(len(values), np.float32), np.empty(len(values), np.bool_)
    _signed_logs(values, float(power), logs, negative)
    return logs, negative


@kernel
def _rank(columns: Any, negative: Any, n_keys: Any, ranks: Any) -> Any:
    # ranks of the coordinates among those present; n_keys bounds the coordinates
    rank_of = np.zeros(n_keys, np.int32)
    for p in range(columns.shape[0]):
        rank_of[2 * columns[p] + negative[p]] = 1
    n_present = 0
    for key in range(n_keys):
        n_present += rank_of[key]
    coordinates = np.empty(n_present, np.int64)
    rank = 0
    for key in range(n_keys):
        if rank_of[key]:
            coordinates[rank] = key
            rank_of[key] = rank
            rank += 1
    for p in range(columns.shape[0]):
        ranks[p] = rank_of[2 * columns[p] + negative[p]]
    return coordinates


@kernel
def _turn(indptr: Any, ranks: Any, logs: Any, block_rows: Any, starts: Any, places: Any, turned_logs: Any) -> None:
    # feature-major order of each block of rows: entries of coordinate q in block s are starts[s, q] to starts[s, q + 1]
    n_rows, n_ranks = indptr.shape[0] - 1, starts.shape[1] - 1
    first = indptr[0]
    for s in range(starts.shape[0]):
        begin, end = s * block_rows, min((s + 1) * block_rows, n_rows)
        at = starts[s]
        at[:] = 0
        for p in range(indptr[begin] - first, indptr[end] - first):
            at[ranks[p]] += 1
        total = indptr[begin] - first
        for q in range(n_ranks):
            count = at[q]
            at[q] = total
            total += count
        for row in range(begin, end):
            for p in range(indptr[row] - first, indptr[row + 1] - first):
                place = at[ranks[p]]
                at[ranks[p]] = place + 1
                places[2 * place] = row * LANES
                turned_logs[2 * place + 1] = logs[p]
        for q in range(n_ranks, 0, -1):
            at[q] = at[q - 1]
        at[0] = indptr[begin] - first


@inlined
def _odd(bits: Any) -> Any:
    # 2 b + 1 for the top 23 bits b of words
    return to_float((bits >> splat(u32(8))) | splat(u32(1)))


@inlined
def _fill_tables(
    coordinates: Any,
    first: Any,
    last: Any,
    component: Any,
    seed: Any,
    mode: Any,
    i_bits: Any,
    shifts: Any,
    table: Any,
    codes: Any,
) -> None:
    # parameters q, r, beta, h and codes of 16 components for coordinates[first:last]
    zero, low9 = splat(f32(0)), splat(u32(511))
    k0, k1 = seed & _WORD, seed >> _HALF_WORD
    mask, drop = splat(u32((1 << i_bits) - 1)), splat(u32(16 - i_bits))
    shift = load(shifts, component)
    for batch in range(first, last, _BATCH):
        end = min(batch + _BATCH, last)
        # words first, all of a batch, into the table's own places: two short chains of dependent steps overlap better
        for q in range(batch, end):
            key = u64(coordinates[q])
            x0, x1, x2, x3 = philox_lanes(key & _WORD, key >> _HALF_WORD, u64(component), _STREAM_GCWS, k0, k1)
            at = (q - first) * 4 * LANES
            store(table, at, float_of(x0))
            store(table, at + LANES, float_of(x1))
            store(table, at + 2 * LANES, float_of(x2))
            store(table, at + 3 * LANES, float_of(x3))
        for q in range(batch, end):
            at = (q - first) * 4 * LANES
            x0, x1 = bits_of(load(table, at)), bits_of(load(table, at + LANES))
            x2, x3 = bits_of(load(table, at + 2 * LANES)), bits_of(load(table, at + 3 * LANES))
            # powers of two commute with rounding: u1 * u2 is this product
            r = zero - log_normal_lanes(_odd(x0) * _odd(x1) * splat(f32(2.0**-48)))
            c = zero - log_normal_lanes(_odd(x2) * _odd(x3) * splat(f32(2.0**-48)))
            # the 23 bits of beta, moved up to the top
            low = (x0 << splat(u32(23))) | ((x1 & low9) << splat(u32(14))) | ((x2 & splat(u32(0x1F0))) << splat(u32(5)))
            store(table, at, splat(f32(1)) / r)
            store(table, at + LANES, r)
            store(table, at + 2 * LANES, _odd(low) * splat(f32(2.0**-24)))
            store(table, at + 3 * LANES, log_normal_lanes(c) - r)
            key = coordinates[q]
            if mode == _MIXED:
                code = (((x3 & low9) << splat(u32(7))) | (x2 & splat(u32(127)))) >> drop
            elif mode == _SIGNED:
                code = (splat(u32(key >> 1)) + splat(u32(key & 1)) * shift) & mask
            elif mode == _LOW:
                code = splat(u32(key)) & mask
            else:
                code = splat(u32(q))
            store(codes, (q - first) * LANES, narrowed(code, codes))


@inlined
def _sweep_codes(begin: Any, end: Any, places: Any, logs: Any, table: Any, q: Any, codes: Any, best: Any, kept: Any) -> None:
    # one coordinate down its rows, keeping codes
    at = 4 * q * LANES
    inverse, r, beta, h = load(table, at), load(table, at + LANES), load(table, at + 2 * LANES), load(table, at + 3 * LANES)
    code = load(codes, q * LANES)
    for p in range(u64(begin), u64(end)):
        row = intp(places[_TWO * p])
        ahead = intp(places[_TWO * (p + _AHEAD)])
        prefetch(best, ahead)
        prefetch(kept, ahead)
        t = floor(broadcast(logs, intp(_TWO * p + _ONE)) * inverse + beta)
        a = h - r * (t - beta)
        old = load(best, row)
        store(kept, row, select(a < old, code, load(kept, row)))
        store(best, row, minimum(a, old))


@inlined
def _sweep_levels(
    begin: Any, end: Any, places: Any, logs: Any, table: Any, q: Any, codes: Any, best: Any, kept: Any, levels: Any
) -> None:
    # the same, keeping t as well
    at = 4 * q * LANES
    inverse, r, beta, h = load(table, at), load(table, at + LANES), load(table, at + 2 * LANES), load(table, at + 3 * LANES)
    code = load(codes, q * LANES)
    for p in range(u64(begin), u64(end)):
        row = intp(places[_TWO * p])
        t = floor(broadcast(logs, intp(_TWO * p + _ONE)) * inverse + beta)
        a = h - r * (t - beta)
        old = load(best, row)
        less = a < old
        store(kept, row, select(less, code, load(kept, row)))
        store(levels, row, select(less, t, load(levels, row)))
        store(best, row, minimum(a, old))


@kernel
def _sweep(
    coordinates: Any,
    starts: Any,
    places: Any,
    logs: Any,
    component: Any,
    seed: Any,
    mode: Any,
    i_bits: Any,
    with_levels: Any,
    shifts: Any,
    table: Any,
    codes: Any,
    best: Any,
    kept: Any,
    levels: Any,
) -> None:
    # one tile of 16 components
    best[:] = np.inf
    kept[:] = 0
    n = coordinates.shape[0]
    for first in range(0, n, _CHUNK):
        last = min(first + _CHUNK, n)
        _fill_tables(coordinates, first, last, component, seed, mode, i_bits, shifts, table, codes)
        for s in range(starts.shape[0]):
            for q in range(first, last):
                begin, end = starts[s, q], starts[s, q + 1]
                if with_levels:
                    _sweep_levels(begin, end, places, logs, table, q - first, codes, best, kept, levels)
                else:
                    _sweep_codes(begin, end, places, logs, table, q - first, codes, best, kept)


@inlined
def _level_bits(t: Any, t_bits: Any) -> Any:
    # t modulo 2**t_bits of a float32 whole number of any size: no step overflows an integer
    period = f32(1 << t_bits)
    return u64(t - np.floor(t / period) * period)


@kernel
def _pack(
    kept: Any, levels: Any, i_bits: Any, t_bits: Any, component: Any, n_live: Any, row_bytes: Any, packed: Any
) -> None:
    # codes of a tile's first n_live components into their bits of each row of packed, which is flat
    bits = i_bits + t_bits
    first_byte = component * bits // 8
    for row in range(packed.shape[0] // row_bytes):
        at, byte = row * LANES, row * row_bytes + first_byte
        held, fill = u64(0), 0
        for j in range(n_live):
            code = u64(kept[at + j])
            if t_bits:
                code |= _level_bits(levels[at + j], t_bits) << u64(i_bits)
            held |= code << u64(fill)
            fill += bits
            while fill >= 8:
                packed[byte] = held & u64(255)
                held >>= u64(8)
                fill -= 8
                byte += 1
        if fill:
            packed[byte] = held & u64(255)


@kernel
def _pack_bytes(kept: Any, component: Any, row_bytes: Any, packed: Any) -> None:
    # the same for a whole tile of 8-bit codes
    for row in range(packed.shape[0] // row_bytes):
        store(packed, row * row_bytes + component, load(kept, row * LANES))


def _aligned(size: int, dtype: Any) -> NDArray:
    # rows of 16 lanes begin at cache lines
    itemsize = np.dtype(dtype).itemsize
    raw = np.empty(size * itemsize + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + size * itemsize].view(dtype)


def _ranked(columns: NDArray, negative: NDArray) -> tuple[NDArray, NDArray]:
    n_keys = 2 * (int(columns.max(initial=-1)) + 1)
    if n_keys <= 4 * len(columns) + 65_536:
        ranks = np.empty(len(columns), np.int32)
        return _rank(columns, negative, n_keys, ranks), ranks
    coordinates, ranks = np.unique(2 * columns + negative, return_inverse=True)
    return coordinates, ranks.astype(np.int32)


def _groups(indptr, columns, logs, negative):
    n_rows = len(indptr) - 1
    n_groups = -(-n_rows // _GROUP_ROWS)
    for g in range(n_groups):
        rows = slice(n_rows * g // n_groups, n_rows * (g + 1) // n_groups)
        part = indptr[rows.start : rows.stop + 1]
        entries = slice(part[0], part[-1])
        coordinates, ranks = _ranked(columns[entries], negative[entries])
        n = len(part) - 1
        uses = len(ranks) / max(1, len(coordinates))
        block_rows = n if uses < _USES * n / _ROWS_IN_L1 else _ROWS_IN_L1
        block_rows = min(n, max(_ROWS_IN_L1, int(_USES * n / max(uses, 1))))
        starts = np.empty((-(-n // block_rows), len(coordinates) + 1), np.int64)
        places = _aligned(2 * (len(ranks) + int(_AHEAD)), np.int32)
        places[2 * len(ranks) :] = 0
        turned = places.view(np.float32)
        _turn(part, ranks, logs[entries], block_rows, starts, places, turned)
        yield rows, coordinates, starts, places, turned


def encode(indptr, columns, logs, negative, n_components, seed, i_bits, t_bits, mode):
    n_rows, bits = len(indptr) - 1, i_bits + t_bits
    row_bytes = -(-n_components * bits // 8)
    packed = np.empty((n_rows, row_bytes), np.uint8)
    empty = np.empty(n_rows, np.bool_)
    dtype = np.uint8 if i_bits <= 8 else np.uint16
    words = np.zeros((n_components + LANES, 4), np.uint32)
    shifts = np.zeros(n_components + LANES, np.uint32)
    if mode == "signed":
        draw_words(u64(0), _STREAM_CODE_SHIFT, u64(seed), words)
        shifts = words[:, 0] >> np.uint32(32 - i_bits)
    table, codes = _aligned(4 * _CHUNK * LANES, np.float32), _aligned(_CHUNK * LANES, dtype)
    for rows, coordinates, starts, places, turned in _groups(indptr, columns, logs, negative):
        size = (rows.stop - rows.start) * LANES
        best, kept = _aligned(size, np.float32), _aligned(size, dtype)
        levels = _aligned(size if t_bits else 0, np.float32)
        for component in range(0, n_components, LANES):
            _sweep(coordinates, starts, places, turned, component, u64(seed), _MODES[mode], i_bits, t_bits > 0, shifts, table, codes, best, kept, levels)
            if i_bits == 8 and t_bits == 0 and component + LANES <= n_components:
                _pack_bytes(kept, component, row_bytes, packed[rows].reshape(-1))
            else:
                n_live = min(LANES, n_components - component)
                _pack(kept, levels, i_bits, t_bits, component, n_live, row_bytes, packed[rows].reshape(-1))
        empty[rows] = best[::LANES] == np.inf
    return packed, empty


def sample(indptr, columns, logs, negative, n_components, seed):
    n_rows = len(indptr) - 1
    coordinates = np.full((n_rows, n_components), -1, np.int64)
    levels = np.zeros((n_rows, n_components), np.int64)
    shifts = np.zeros(n_components + LANES, np.uint32)
    table, codes = _aligned(4 * _CHUNK * LANES, np.float32), _aligned(_CHUNK * LANES, np.uint32)
    for rows, present, starts, places, turned in _groups(indptr, columns, logs, negative):
        n = rows.stop - rows.start
        best, ranks, kept_levels = (_aligned(n * LANES, dtype) for dtype in (np.float32, np.uint32, np.float32))
        for component in range(0, n_components, LANES):
            _sweep(present, starts, places, turned, component, u64(seed), _RANK, 1, True, shifts, table, codes, best, ranks, kept_levels)
            live = slice(component, component + LANES)
            found = (best != np.inf).reshape(n, LANES)[:, : n_components - component]
            coordinates[rows, live][found] = present[ranks.reshape(n, LANES)[:, : n_components - component][found]]
            levels[rows, live][found] = kept_levels.reshape(n, LANES)[:, : n_components - component][found]
    return coordinates, levels
