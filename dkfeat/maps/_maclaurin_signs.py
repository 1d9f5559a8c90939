"""Random Maclaurin features of rows, with random signs drawn for the columns that occur."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.arrays import owned
from dkfeat.compiled.feature_major import aligned
from dkfeat.compiled.sign_products import GROUP, ROOM, multiply_dense_signs, multiply_sparse_signs
from dkfeat.compiled.signs import COLUMNS, SUPERBLOCK, packed_signs, turned_signs
from dkfeat.compiled.simd import LANES
from dkfeat.maps._maclaurin_draws import Draws
from dkfeat.projections.dense import columns_present
from dkfeat.random_streams import STREAM_MACLAURIN_SIGN

__all__ = ["multiply_rows", "table_bytes"]

_TILE = 2 * SUPERBLOCK
"""Factors whose sums for 16 rows, 256 KiB, stay in the second-level cache."""
_WHOLE_BYTES = 8 * 2**20
"""Largest table of signs that is kept."""
_KEPT = 8
"""Tables that are kept, at most."""
_TABLE_BYTES = 64 * 2**20
"""Tables that are drawn for some rows, and what they are made of, take no more: rows and columns are taken in parts."""
_DRAW_BYTES = 128
"""What drawing a component's degree takes."""
_FULL = 8
"""Sparse rows with a nonzero in every eighth column or more are quicker as dense ones."""
_CELLS = 2**20
"""Values of sparse rows that are filled in together; 16 rows of more columns stay sparse."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """Blocks of components that are computed together, and the superblocks of signs that they need."""

    first_block: int
    last_block: int
    first: int
    count: int


def multiply_rows(
    X: Any,
    multipliers: NDArray[np.float32],
    draws: Draws,
    seed: int,
    out: NDArray[np.float32],
    to: int,
) -> NDArray[np.uint8]:
    """Write the features of rows to the last columns of `out`.

    Parameters
    ----------
    X : ndarray in C order or canonical csr_matrix of shape (n_samples, n_features), float32
    multipliers : ndarray of shape (n_samples,), float32
        Each row's values are multiplied by its own.
    draws : Draws
    seed : int
    out : ndarray of shape (n_samples, to + n_components), float32
    to : int
        First column that is written.

    Returns
    -------
    spoilt : ndarray of shape (n_samples,), uint8
        1 where a feature overflows.
    """
    spoilt = np.zeros(X.shape[0], np.uint8)
    if not sp.issparse(X):
        _multiply_dense(owned(X), multipliers, draws, seed, out, to, spoilt)
    elif X.nnz * _FULL >= X.shape[0] * X.shape[1] and X.shape[1] * LANES <= _CELLS:
        n_rows = _CELLS // X.shape[1]
        for first in range(0, X.shape[0], n_rows):
            rows = slice(first, first + n_rows)
            _multiply_dense(X[rows].toarray(), multipliers[rows], draws, seed, out[rows], to, spoilt[rows])
    else:
        _multiply_sparse(X, multipliers, draws, seed, out, to, spoilt)
    return spoilt


def table_bytes(n_features: int, draws: Draws) -> int:
    """Bytes at a time of tables for dense and sparse rows of so many columns, of sums of 16 rows, and of draws."""
    tiles = list(_tiles(draws))
    sizes = [n_features * _bytes(tile) for tile in tiles]
    kept = sum(sorted(size for size in sizes if size <= _WHOLE_BYTES)[-_KEPT:])
    sums = 4 * LANES * SUPERBLOCK * max(tile.count for tile in tiles)
    return 2 * kept + min(2 * max(sizes), _TABLE_BYTES) + sums + _DRAW_BYTES * len(draws.degrees)


def _multiply_dense(X: Any, multipliers: Any, draws: Draws, seed: int, out: Any, to: int, spoilt: Any) -> None:
    n_samples, n_features = X.shape
    room = aligned(ROOM, np.float32)
    for tile in _tiles(draws):
        n_factors = tile.count * SUPERBLOCK
        draw = _turned if _is_kept(n_features, tile) else _turned.__wrapped__
        n_rows, n_columns = _dense_steps(n_samples, n_features, tile)
        n_held = n_rows if n_columns < n_features else LANES
        totals = aligned(n_held * n_factors, np.float32)
        for first in range(0, n_samples, n_rows):
            rows = slice(first, first + n_rows)
            for column in range(0, n_features, n_columns):
                last = min(column + n_columns, n_features)
                multiply_dense_signs(
                    X[rows].reshape(-1),
                    multipliers[rows],
                    n_features,
                    column,
                    last,
                    draw(column, last, tile.first, tile.count, seed).reshape(-1),
                    n_factors,
                    tile.first * SUPERBLOCK,
                    draws.starts,
                    draws.degrees,
                    tile.first_block,
                    tile.last_block,
                    draws.scales,
                    draws.constants,
                    out[rows].reshape(-1),
                    to,
                    out.shape[1],
                    spoilt[rows],
                    room,
                    totals,
                )


def _dense_steps(n_samples: int, n_features: int, tile: _Tile) -> tuple[int, int]:
    """Rows and columns that are taken at a time: all, or in steps of 16 and of 64.

    Where columns are taken in parts, half of the bytes are for signs, which are packed before they are turned, and half
    for the sums of the rows.
    """
    n_columns = max(1, _TABLE_BYTES // (4 * _bytes(tile) * COLUMNS)) * COLUMNS
    if _is_kept(n_features, tile) or n_columns >= n_features:
        return max(1, n_samples), n_features
    n_rows = min(_TABLE_BYTES // (2 * LANES * 4 * tile.count * SUPERBLOCK), -(-n_samples // LANES))
    return max(1, n_rows) * LANES, n_columns


def _multiply_sparse(X: Any, multipliers: Any, draws: Draws, seed: int, out: Any, to: int, spoilt: Any) -> None:
    indptr, indices = X.indptr.astype(np.int64), X.indices.astype(np.int64)
    n_features = X.shape[1]
    groups = indices // GROUP
    fresh = np.ones(len(indices), np.bool_)
    fresh[1:] = groups[1:] != groups[:-1]
    fresh[indptr[:-1][np.diff(indptr) > 0]] = True
    tiles = list(_tiles(draws))
    columns, places = np.empty(0, np.int64), indices
    if X.shape[0] != 1 and any(not _is_kept(n_features, tile) for tile in tiles):
        columns, places = columns_present(indices, n_features)
        if len(columns) * max(_bytes(tile) for tile in tiles) > _TABLE_BYTES:  # never of no rows
            half = X.shape[0] // 2
            for rows in (slice(0, half), slice(half, None)):
                _multiply_sparse(X[rows], multipliers[rows], draws, seed, out[rows], to, spoilt[rows])
            return
    degrees = np.append(draws.degrees, np.zeros(len(draws.scales) - len(draws.degrees))).astype(np.float32)
    values = owned(X.data)

    def multiply(tile: _Tile, entries: slice, bounds: Any, at: Any, signs: Any, totals: Any) -> None:
        """Take the entries of all rows, or some of those of the only row."""
        multiply_sparse_signs(
            bounds,
            at,
            fresh[entries],
            values[entries],
            multipliers,
            signs.reshape(-1).view(np.uint16),
            len(totals),
            tile.first * SUPERBLOCK,
            draws.starts,
            draws.depths,
            degrees,
            tile.first_block,
            tile.last_block,
            draws.scales,
            draws.constants,
            out.reshape(-1),
            to,
            out.shape[1],
            spoilt,
            totals,
            entries.start > 0,
            entries.stop >= len(indices),
        )

    everything = slice(0, len(indices))
    for tile in tiles:
        totals = np.empty(tile.count * SUPERBLOCK, np.float32)
        # a table is no variable, or it would still be there when the next one is drawn
        if _is_kept(n_features, tile):
            multiply(tile, everything, indptr, indices, _packed(n_features, tile.first, tile.count, seed), totals)
        elif X.shape[0] != 1:
            multiply(tile, everything, indptr, places, _drawn(columns, tile, seed), totals)
        else:
            for entries in _parts(fresh, _TABLE_BYTES // _bytes(tile)):
                at = indices[entries]
                bounds, places = np.array([0, len(at)]), np.arange(len(at))
                multiply(tile, entries, bounds, places, _drawn(at, tile, seed), totals)


def _parts(fresh: NDArray[np.bool_], most: int) -> Iterator[slice]:
    """Cut the entries of a row before groups of columns, into parts of at most so many; at least one part."""
    first, n_entries = 0, len(fresh)
    while first + most < n_entries:
        last = first + most
        while not fresh[last]:
            last -= 1
        yield slice(first, last)
        first = last
    yield slice(first, n_entries)


def _tiles(draws: Draws) -> Iterator[_Tile]:
    """Cut the blocks into tiles of about `_TILE` factors; a block stays whole."""
    starts = draws.starts
    n_blocks, block = len(starts) - 1, 0
    while block < n_blocks:
        first = int(starts[block]) // SUPERBLOCK
        until = int(np.searchsorted(starts, first * SUPERBLOCK + _TILE, side="right")) - 1
        until = min(max(until, block + 1), n_blocks)
        last = max(-(-int(starts[until]) // SUPERBLOCK), first + 1)
        yield _Tile(block, until, first, last - first)
        block = until


def _bytes(tile: _Tile) -> int:
    """Bytes of the signs of one column."""
    return tile.count * SUPERBLOCK // 8


def _is_kept(n_features: int, tile: _Tile) -> bool:
    return n_features * _bytes(tile) <= _WHOLE_BYTES


def _drawn(columns: NDArray[np.int64], tile: _Tile, seed: int) -> NDArray[np.uint32]:
    return packed_signs(columns, tile.first, tile.count, STREAM_MACLAURIN_SIGN, seed)


@lru_cache(maxsize=_KEPT)
def _packed(n_features: int, first: int, count: int, seed: int) -> NDArray[np.uint32]:
    return packed_signs(np.arange(n_features), first, count, STREAM_MACLAURIN_SIGN, seed)


@lru_cache(maxsize=_KEPT)
def _turned(column: int, last: int, first: int, count: int, seed: int) -> NDArray[np.uint64]:
    return turned_signs(packed_signs(np.arange(column, last), first, count, STREAM_MACLAURIN_SIGN, seed))
