"""Estimated processor time of a row under GCWS and under darts, from the counts that it follows from.

GCWS makes parameters for each coordinate of a block and uses them for all its rows; darts make random numbers for each
row. The constants were measured on one core of an AMD EPYC (Zen 5) by ``python benchmarks/darts.py``; they are off by
up to 1.8 times.
"""

from __future__ import annotations

import math

from dkfeat.compiled.sampling.darts import MARGIN, TILE

GCWS_USE, GCWS_COORDINATE = 0.12, 1.7
"""Nanoseconds for each nonzero, and for each coordinate of a block to make its parameters, and component."""
DART_ARRIVAL, DART_NONZERO = 16.0, 15.0
"""Nanoseconds for each arrival that is drawn, and for each nonzero and tile, to find the octaves with an arrival."""


def gcws_work(nonzeros: float, coordinates: float, n_components: int) -> tuple[float, float]:
    """Count the uses of parameters by a row, and the parameters made for it: a block has `coordinates` for each row."""
    return n_components * nonzeros, n_components * coordinates


def dart_work(nonzeros: float, n_components: int) -> tuple[float, float]:
    """Count the arrivals of a row, K (ln K + 2.25) in a tile of K components, and the nonzeros of all tiles."""
    n_tiles = math.ceil(n_components / TILE)
    tile = n_components / n_tiles
    return n_components * (math.log(tile) + MARGIN), n_tiles * nonzeros


def gcws_us(nonzeros: float, uses: float, n_components: int) -> float:
    """Microseconds of a row whose coordinates have so many uses in a block."""
    used, made = gcws_work(nonzeros, nonzeros / uses, n_components)
    return (GCWS_USE * used + GCWS_COORDINATE * made) / 1000


def dart_us(nonzeros: float, n_components: int) -> float:
    """Microseconds of a row."""
    arrivals, scanned = dart_work(nonzeros, n_components)
    return (DART_ARRIVAL * arrivals + DART_NONZERO * scanned) / 1000
