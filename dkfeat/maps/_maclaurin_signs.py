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
from dkfeat.compiled.sign_products import GROUP, dense_room, multiply_dense_signs, multiply_sparse_signs
from dkfeat.compiled.signs import SUPERBLOCK, packed_signs, turned_signs
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
"""Largest table that is drawn for the columns that occur in some rows; rows that need more are taken in halves."""
_FULL = 8
"""Sparse rows with a nonzero in every eighth column or more are quicker as dense ones."""
_CELLS = 2**20
"""Values of sparse rows that are filled in together."""


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
    elif X.nnz * _FULL >= X.shape[0] * X.shape[1]:
        n_rows = max(LANES, _CELLS // X.shape[1])
        for first in range(0, X.shape[0], n_rows):
            rows = slice(first, first + n_rows)
            _multiply_dense(X[rows].toarray(), multipliers[rows], draws, seed, out[rows], to, spoilt[rows])
    else:
        _multiply_sparse(X, multipliers, draws, seed, out, to, spoilt)
    return spoilt


def table_bytes(n_features: int, draws: Draws) -> int:
    """Bytes that tables of signs take at a time, for rows of so many columns."""
    sizes = [n_features * _bytes(tile) for tile in _tiles(draws)]
    kept = sum(sorted(size for size in sizes if size <= _WHOLE_BYTES)[-_KEPT:])
    return kept + min(max((size for size in sizes if size > _WHOLE_BYTES), default=0), _TABLE_BYTES)


def _multiply_dense(X: Any, multipliers: Any, draws: Draws, seed: int, out: Any, to: int, spoilt: Any) -> None:
    n_features = X.shape[1]
    for tile in _tiles(draws):
        n_factors = tile.count * SUPERBLOCK
        draw = _whole_turned if _is_kept(n_features, tile) else _whole_turned.__wrapped__
        signs = draw(n_features, tile.first, tile.count, seed)
        multiply_dense_signs(
            X.reshape(-1),
            multipliers,
            n_features,
            signs.reshape(-1),
            n_factors,
            tile.first * SUPERBLOCK,
            draws.starts,
            draws.degrees,
            tile.first_block,
            tile.last_block,
            draws.scales,
            draws.constants,
            out.reshape(-1),
            to,
            out.shape[1],
            spoilt,
            aligned(dense_room(n_factors), np.float32),
        )


def _multiply_sparse(X: Any, multipliers: Any, draws: Draws, seed: int, out: Any, to: int, spoilt: Any) -> None:
    indptr, indices = X.indptr.astype(np.int64), X.indices.astype(np.int64)
    n_features = X.shape[1]
    groups = indices // GROUP
    fresh = np.ones(len(indices), np.bool_)
    fresh[1:] = groups[1:] != groups[:-1]
    fresh[indptr[:-1][np.diff(indptr) > 0]] = True
    tiles = list(_tiles(draws))
    columns, places = np.empty(0, np.int64), indices
    if any(not _is_kept(n_features, tile) for tile in tiles):
        columns, places = columns_present(indices, n_features)
        if len(columns) * max(_bytes(tile) for tile in tiles) > _TABLE_BYTES and X.shape[0] > 1:
            half = X.shape[0] // 2
            for rows in (slice(0, half), slice(half, None)):
                _multiply_sparse(X[rows], multipliers[rows], draws, seed, out[rows], to, spoilt[rows])
            return
    degrees = np.append(draws.degrees, np.zeros(len(draws.scales) - len(draws.degrees))).astype(np.float32)
    for tile in tiles:
        n_factors = tile.count * SUPERBLOCK
        if _is_kept(n_features, tile):
            signs = _whole_packed(n_features, tile.first, tile.count, seed)
            at = indices
        else:
            signs = packed_signs(columns, tile.first, tile.count, STREAM_MACLAURIN_SIGN, seed)
            at = places
        multiply_sparse_signs(
            indptr,
            at,
            fresh,
            owned(X.data),
            multipliers,
            signs.reshape(-1).view(np.uint16),
            n_factors,
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
        )


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


@lru_cache(maxsize=_KEPT)
def _whole_packed(n_features: int, first: int, count: int, seed: int) -> NDArray[np.uint32]:
    return packed_signs(np.arange(n_features), first, count, STREAM_MACLAURIN_SIGN, seed)


@lru_cache(maxsize=_KEPT)
def _whole_turned(n_features: int, first: int, count: int, seed: int) -> NDArray[np.uint64]:
    return turned_signs(packed_signs(np.arange(n_features), first, count, STREAM_MACLAURIN_SIGN, seed))
