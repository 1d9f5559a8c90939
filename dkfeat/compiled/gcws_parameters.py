"""Parameters of GCWS and codes of coordinates, made where they are used.

The specification is in `dkfeat.compiled.cws`. Nothing here depends on the rows: a parameter is a pure function of
(seed, coordinate, component), so that tables are made for the coordinates that a block holds and never sent or kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dkfeat.compiled._jit import inlined
from dkfeat.compiled.elementary import log_normal_lanes
from dkfeat.compiled.philox import philox_lanes
from dkfeat.compiled.simd import LANES, bits_of, float_of, load, narrowed, splat, store, to_float
from dkfeat.compiled.streams import STREAM_GCWS

__all__ = ["CODE_LOW", "CODE_MIXED", "CODE_RANK", "CODE_SIGNED", "TABLE_ROW", "fill_tables"]

CODE_LOW, CODE_SIGNED, CODE_MIXED, CODE_RANK = 0, 1, 2, 3
"""How a coordinate's code is made; CODE_RANK gives its position among the coordinates present, whatever `i_bits`."""

TABLE_ROW = 4 * LANES
"""Floats of a coordinate in a table: q, r, beta and h of 16 components each."""

_BATCH = 64  # coordinates between the two passes: their words stay in the first-level cache
_STREAM = np.uint64(STREAM_GCWS)
_WORD, _HALF_WORD = np.uint64(0xFFFFFFFF), np.uint64(32)

f32, u32, u64 = np.float32, np.uint32, np.uint64


@inlined
def _odd(bits: Any) -> Any:
    # 2 b + 1 as float32, exact, for the top 23 bits b of words
    return to_float((bits >> splat(u32(8))) | splat(u32(1)))


@inlined
def _fill_words(coordinates: Any, begin: Any, end: Any, first: Any, component: Any, seed: Any, table: Any) -> None:
    for q in range(begin, end):
        key, at = u64(coordinates[q]), (q - first) * TABLE_ROW
        x0, x1, x2, x3 = philox_lanes(
            key & _WORD, key >> _HALF_WORD, u64(component), _STREAM, seed & _WORD, seed >> _HALF_WORD
        )
        store(table, at, float_of(x0))
        store(table, at + LANES, float_of(x1))
        store(table, at + 2 * LANES, float_of(x2))
        store(table, at + 3 * LANES, float_of(x3))


@inlined
def fill_tables(
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
        # words first, in the places of the parameters: two short chains of dependent steps overlap better
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
