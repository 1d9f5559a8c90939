"""The sweep of GCWS: coordinate by coordinate down the rows that hold it, 16 components side by side.

Each row keeps the least a of its entries so far and what it wants of the sampled pair. Coordinates come in ascending
order and only a smaller a wins, so a tie goes to the lowest coordinate. Accumulators are asked for some entries
ahead: their rows are known, and without it half of the time is spent waiting for the second-level cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.feature_major import AHEAD
from dkfeat.compiled.gcws_parameters import TABLE_ROW, fill_tables
from dkfeat.compiled.simd import LANES, broadcast, floor, load, minimum, prefetch, select, store

__all__ = ["CHUNK", "sweep_tile"]

CHUNK = 512
"""Coordinates whose parameters are held at once: 140 KB, for a second-level cache."""

_AHEAD, _ONE, _TWO = np.uint64(AHEAD), np.uint64(1), np.uint64(2)

u64, intp = np.uint64, np.intp


@inlined
def _parameters(table: Any, q: Any) -> Any:
    at = q * TABLE_ROW
    return load(table, at), load(table, at + LANES), load(table, at + 2 * LANES), load(table, at + 3 * LANES)


@inlined
def _sweep_codes(
    begin: Any, end: Any, places: Any, logs: Any, table: Any, q: Any, codes: Any, best: Any, kept: Any
) -> None:
    # one coordinate down its rows
    inverse, r, beta, h = _parameters(table, q)
    code = load(codes, q * LANES)
    for p in range(u64(begin), u64(end)):
        row, ahead = intp(places[_TWO * p]), intp(places[_TWO * (p + _AHEAD)])
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
    inverse, r, beta, h = _parameters(table, q)
    code = load(codes, q * LANES)
    for p in range(u64(begin), u64(end)):
        row, ahead = intp(places[_TWO * p]), intp(places[_TWO * (p + _AHEAD)])
        prefetch(best, ahead)
        prefetch(kept, ahead)
        prefetch(levels, ahead)
        t = floor(broadcast(logs, intp(_TWO * p + _ONE)) * inverse + beta)
        a = h - r * (t - beta)
        old = load(best, row)
        less = a < old
        store(kept, row, select(less, code, load(kept, row)))
        store(levels, row, select(less, t, load(levels, row)))
        store(best, row, minimum(a, old))


@kernel
def sweep_tile(
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
    """Sweep a tile of 16 components.

    Parameters
    ----------
    coordinates, starts, places, logs
        Fields of a `FeatureMajor`.
    component : int
        First component of the tile.
    seed : uint64
    mode, i_bits, shifts
        As `fill_tables` takes them.
    with_levels : bool
    table, codes : ndarrays of shape (at least min(CHUNK, n_present) * TABLE_ROW,) float32, and (... * 16,) as `kept`
        Scratch.
    best : ndarray of shape (n_rows * 16,), float32
        The least a of each row and component; inf for a row without entries.
    kept : ndarray of shape (n_rows * 16,), uint8, uint16 or uint32
        Codes of the sampled coordinates; 0 for a row without entries.
    levels : ndarray of shape (n_rows * 16,), float32
        Sampled levels, if wanted; 0 for a row without entries.
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
                    _sweep_levels(begin, end, places, logs, table, q - first, codes, best, kept, levels)
                else:
                    _sweep_codes(begin, end, places, logs, table, q - first, codes, best, kept)
