"""Tables of random signs, packed: one Philox call gives 128, one bit each.

A superblock is 2,048 signs of one coordinate. With ``s = factor // 2048``, ``i = factor % 2048 // 512``,
``lane = factor % 512 // 32`` and ``bit = factor % 32``, the sign of (coordinate, factor) is bit number ``bit`` of the
Philox word x_i of (coordinate, 16 s + lane, stream): -1 where it is set. So a superblock is 16 calls in 16 lanes, and
its words lie in the order of the factors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import kernel
from dkfeat.compiled.random.philox import philox, philox_lanes
from dkfeat.compiled.simd.vector import LANES, store

SUPERBLOCK = 2048
"""Signs of a coordinate that are drawn together."""
COLUMNS = 64
"""Coordinates whose signs of one factor are a word of `turned_signs`."""
_WORDS = SUPERBLOCK // 32

u64 = np.uint64
_WORD, _HALF_WORD, _LAST = u64(0xFFFFFFFF), u64(32), u64(31)


@kernel
def _fill(coordinates: Any, first: Any, count: Any, stream: Any, seed: Any, table: Any) -> None:
    for q in range(coordinates.shape[0]):
        for s in range(count):
            x0, x1, x2, x3 = philox_lanes(u64(coordinates[q]), u64((first + s) * LANES), stream, seed)
            at = (q * count + s) * _WORDS
            store(table, at, x0)
            store(table, at + LANES, x1)
            store(table, at + 2 * LANES, x2)
            store(table, at + 3 * LANES, x3)


def packed_signs(coordinates: NDArray[np.int64], first: int, count: int, stream: int, seed: int) -> NDArray[np.uint32]:
    """Signs of some coordinates, factor after factor.

    Parameters
    ----------
    coordinates : ndarray of shape (n_coordinates,), int64
        From 0 to 2^63 - 1.
    first, count : int
        Superblocks: factors from ``2048 * first`` to ``2048 * (first + count) - 1``.
    stream, seed : int
        A constant of `dkfeat.compiled.random.philox`; a seed in [0, 2^64).

    Returns
    -------
    table : ndarray of shape (n_coordinates, 64 * count), uint32
        Bit ``f % 32`` of word ``f // 32`` is set where factor ``2048 * first + f`` is -1.

    Examples
    --------
    >>> table = packed_signs(np.arange(3), 0, 1, stream=33, seed=0)
    >>> table.shape, bool(900 < np.unpackbits(table[0].view(np.uint8)).sum() < 1150)
    ((3, 64), True)
    """
    table = np.empty((len(coordinates), count * _WORDS), np.uint32)
    _fill(coordinates, first, count, u64(stream), u64(seed), table.reshape(-1))
    return table


@kernel
def _turn(table: Any, n_columns: Any, n_words: Any, turned: Any) -> None:
    square = np.empty(COLUMNS, np.uint64)
    n_factors = n_words * 32
    for block in range(-(-n_columns // COLUMNS)):
        for word in range(0, n_words, 2):
            for c in range(COLUMNS):
                column = block * COLUMNS + c
                square[c] = u64(0)
                if column < n_columns:
                    at = column * n_words + word
                    square[c] = u64(table[at]) | u64(table[at + 1]) << _HALF_WORD
            # bit r of row c goes to bit c of row r: ever smaller off-diagonal squares change places
            width, mask = 32, u64(0xFFFFFFFF)
            while width:
                shift = u64(width)
                for c in range(COLUMNS):
                    if not c & width:
                        swapped = (square[c] >> shift ^ square[c + width]) & mask
                        square[c] ^= swapped << shift
                        square[c + width] ^= swapped
                width >>= 1
                mask ^= mask << u64(width)
            to = block * n_factors + word * 32
            turned[to : to + COLUMNS] = square


def turned_signs(table: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Signs of 64 coordinates in a word, for dense rows.

    Parameters
    ----------
    table : ndarray of shape (n_columns, n_factors / 32), uint32
        From `packed_signs`.

    Returns
    -------
    turned : ndarray of shape (ceil(n_columns / 64), n_factors), uint64
        Bit ``c % 64`` of ``turned[c // 64, f]`` is bit ``f % 32`` of ``table[c, f // 32]``; 0 beyond the last column.
    """
    n_columns, n_words = table.shape
    turned = np.empty((-(-n_columns // COLUMNS), n_words * 32), np.uint64)
    _turn(table.reshape(-1), n_columns, n_words, turned.reshape(-1))
    return turned


@kernel
def signs_of_samples(i_star: Any, t_star: Any, stream: Any, seed: Any, signs: Any) -> None:
    """Write the sign of each sample: the highest bit of a Philox word of it and its component, -1 where it is set.

    The key is the seed with the bits of t* turned over, so that the full sample (i*, t*) decides.

    Parameters
    ----------
    i_star, t_star : ndarray of shape (n_samples, n_components), int64
        As from ``GCWSFeatures.sample``.
    stream, seed : uint64
    signs : ndarray of shape (n_samples, n_components), float32
        0 where there is no sample, i* = -1.
    """
    for row in range(i_star.shape[0]):
        for component in range(i_star.shape[1]):
            coordinate = i_star[row, component]
            if coordinate < 0:
                signs[row, component] = np.float32(0)
                continue
            key, place = seed ^ u64(t_star[row, component]), u64(coordinate)
            word = philox(place & _WORD, place >> _HALF_WORD, u64(component), stream, key & _WORD, key >> _HALF_WORD)[0]
            signs[row, component] = np.float32(-1) if word >> _LAST else np.float32(1)
