"""Products of random signs for random Maclaurin features: sums of a row's values with random signs, multiplied.

P. Kar and H. Karnick, "Random Feature Maps for Dot Product Kernels", AISTATS 2012, Alg. 1 and §5.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.jit import aligned, owned
from dkfeat.compiled.products.signs import GROUP, SCRATCH_SIZE, Features, multiply_dense_signs, multiply_sparse_signs
from dkfeat.compiled.random import COLUMNS, STREAM_MACLAURIN_SIGN, SUPERBLOCK, packed_signs, transposed_signs
from dkfeat.compiled.simd import LANES
from dkfeat.maps.maclaurin.series import Draws, Tile
from dkfeat.projections import columns_present

_TILE = 2 * SUPERBLOCK
"""Factors whose sums for 16 rows, 256 KiB, stay in the second-level cache."""
_WHOLE_BYTES = 8 * 2**20
"""Maximum size of a table of signs that is cached."""
_KEPT = 8
"""Maximum number of cached tables."""
_TABLE_BYTES = 64 * 2**20
"""Maximum memory to draw tables that are not cached; rows and columns are split accordingly."""
_DRAW_BYTES = 128
"""Memory to draw the degree of a component, in bytes."""
_FULL = 8
"""Sparse rows with at least one nonzero per this many columns are faster as dense rows."""
_CELLS = 2**20
"""Number of values of sparse rows converted to dense ones at a time; rows stay sparse if 16 of them have more."""


def multiply_rows(
    X: Any, multipliers: NDArray[np.float32], draws: Draws, seed: int, out: NDArray[np.float32], to: int
) -> NDArray[np.uint8]:
    """Write the features of rows to the last columns of `out`.

    Parameters
    ----------
    X : ndarray in C order or canonical csr_matrix of shape (n_samples, n_features), float32
    multipliers : ndarray of shape (n_samples,), float32
        Number by which each row is multiplied first: 1, or 1 / norm.
    draws : Draws
    seed : int
    out : ndarray of shape (n_samples, to + n_components), float32
    to : int
        First column to write.

    Returns
    -------
    overflowed : ndarray of shape (n_samples,), uint8
        1 for rows with a feature that overflows.
    """
    overflowed = np.zeros(X.shape[0], np.uint8)
    if not sp.issparse(X):
        _multiply_dense(owned(X), multipliers, draws, seed, out, to, overflowed)
    elif X.nnz * _FULL >= X.shape[0] * X.shape[1] and X.shape[1] * LANES <= _CELLS:
        n_rows = _CELLS // X.shape[1]
        for first in range(0, X.shape[0], n_rows):
            rows = slice(first, first + n_rows)
            _multiply_dense(X[rows].toarray(), multipliers[rows], draws, seed, out[rows], to, overflowed[rows])
    else:
        _multiply_sparse(X, multipliers, draws, seed, out, to, overflowed)
    return overflowed


def table_bytes(n_features: int, draws: Draws) -> int:
    """Compute the memory, in bytes, of tables for rows of `n_features` columns, of sums of 16 rows, and of draws."""
    tiles = list(_tiles(draws))
    sizes = [n_features * _bytes(tile) for tile in tiles]
    kept = sum(sorted(size for size in sizes if size <= _WHOLE_BYTES)[-_KEPT:])
    sums = 4 * LANES * SUPERBLOCK * max(tile.n_superblocks for tile in tiles)
    return 2 * kept + min(2 * max(sizes), _TABLE_BYTES) + sums + _DRAW_BYTES * len(draws.degrees)


def _multiply_dense(X: Any, multipliers: Any, draws: Draws, seed: int, out: Any, to: int, overflowed: Any) -> None:
    n_samples, n_features = X.shape
    scratch = aligned(SCRATCH_SIZE, np.float32)
    for tile in _tiles(draws):
        n_factors = tile.n_superblocks * SUPERBLOCK
        draw = _transposed if _is_kept(n_features, tile) else _transposed.__wrapped__
        n_rows, n_columns = _dense_steps(n_samples, n_features, tile)
        n_held = n_rows if n_columns < n_features else LANES
        totals, components = aligned(n_held * n_factors, np.float32), draws.components(tile)
        for first in range(0, n_samples, n_rows):
            rows = slice(first, first + n_rows)
            features = Features(out[rows].reshape(-1), to, out.shape[1], overflowed[rows])
            for column in range(0, n_features, n_columns):
                last = min(column + n_columns, n_features)
                signs = draw(column, last, tile.first_superblock, tile.n_superblocks, seed).reshape(-1)
                values = X[rows].reshape(-1)
                multiply_dense_signs(
                    values, multipliers[rows], n_features, column, last, signs, components, features, scratch, totals
                )
                del signs  # before the next table is drawn


def _dense_steps(n_samples: int, n_features: int, tile: Tile) -> tuple[int, int]:
    """Compute the number of rows and columns to process at a time: all, or multiples of 16 and of 64.

    If columns are split, half of the memory is for signs, both packed and transposed, and half for the sums of the
    rows.
    """
    n_columns = max(1, _TABLE_BYTES // (4 * _bytes(tile) * COLUMNS)) * COLUMNS
    if _is_kept(n_features, tile) or n_columns >= n_features:
        return max(1, n_samples), n_features
    n_rows = min(_TABLE_BYTES // (2 * LANES * 4 * tile.n_superblocks * SUPERBLOCK), -(-n_samples // LANES))
    return max(1, n_rows) * LANES, n_columns


def _multiply_sparse(X: Any, multipliers: Any, draws: Draws, seed: int, out: Any, to: int, overflowed: Any) -> None:
    indptr, indices = X.indptr.astype(np.int64), X.indices.astype(np.int64)
    n_features = X.shape[1]
    groups = indices // GROUP
    is_group_start = np.ones(len(indices), np.bool_)
    is_group_start[1:] = groups[1:] != groups[:-1]
    is_group_start[indptr[:-1][np.diff(indptr) > 0]] = True
    tiles = list(_tiles(draws))
    columns, positions = np.empty(0, np.int64), indices
    if X.shape[0] != 1 and any(not _is_kept(n_features, tile) for tile in tiles):
        columns, positions = columns_present(indices, n_features)
        if len(columns) * max(_bytes(tile) for tile in tiles) > _TABLE_BYTES:  # X has two rows or more here
            half = X.shape[0] // 2
            for rows in (slice(0, half), slice(half, None)):
                _multiply_sparse(X[rows], multipliers[rows], draws, seed, out[rows], to, overflowed[rows])
            return
    values, features = owned(X.data), Features(out.reshape(-1), to, out.shape[1], overflowed)

    everything = slice(0, len(indices))
    for tile in tiles:
        totals, is_kept = np.empty(tile.n_superblocks * SUPERBLOCK, np.float32), _is_kept(n_features, tile)
        is_cut = X.shape[0] == 1 and not is_kept
        for entries in _parts(is_group_start, _TABLE_BYTES // _bytes(tile)) if is_cut else [everything]:
            bounds, at = indptr, positions
            if is_kept:
                at, signs = indices, _packed(n_features, tile.first_superblock, tile.n_superblocks, seed)
            elif is_cut:
                signs = _drawn(indices[entries], tile, seed)
                bounds, at = np.array([0, len(signs)]), np.arange(len(signs))
            else:
                signs = _drawn(columns, tile, seed)
            multiply_sparse_signs(
                bounds,
                at,
                is_group_start[entries],
                values[entries],
                multipliers,
                signs.reshape(-1).view(np.uint16),
                draws.components(tile),
                features,
                totals,
                entries.start > 0,
                entries.stop >= len(indices),
            )
            del signs  # before the next table is drawn


def _parts(is_group_start: NDArray[np.bool_], most: int) -> Iterator[slice]:
    """Split the entries of a row between groups of columns, into parts of at most `most` entries; at least one part."""
    first, n_entries = 0, len(is_group_start)
    while first + most < n_entries:
        last = first + most
        while not is_group_start[last]:
            last -= 1
        yield slice(first, last)
        first = last
    yield slice(first, n_entries)


def _tiles(draws: Draws) -> Iterator[Tile]:
    """Group whole blocks into tiles of about `_TILE` factors."""
    starts = draws.starts
    n_blocks, block = len(starts) - 1, 0
    while block < n_blocks:
        first = int(starts[block]) // SUPERBLOCK
        until = int(np.searchsorted(starts, first * SUPERBLOCK + _TILE, side="right")) - 1
        until = min(max(until, block + 1), n_blocks)
        last = max(-(-int(starts[until]) // SUPERBLOCK), first + 1)
        yield Tile(block, until, first, last - first)
        block = until


def _bytes(tile: Tile) -> int:
    """Compute the size of the signs of one column, in bytes."""
    return tile.n_superblocks * SUPERBLOCK // 8


def _is_kept(n_features: int, tile: Tile) -> bool:
    return n_features * _bytes(tile) <= _WHOLE_BYTES


def _drawn(columns: NDArray[np.int64], tile: Tile, seed: int) -> NDArray[np.uint32]:
    return packed_signs(columns, tile.first_superblock, tile.n_superblocks, STREAM_MACLAURIN_SIGN, seed)


@lru_cache(maxsize=_KEPT)
def _packed(n_features: int, first: int, count: int, seed: int) -> NDArray[np.uint32]:
    return packed_signs(np.arange(n_features), first, count, STREAM_MACLAURIN_SIGN, seed)


@lru_cache(maxsize=_KEPT)
def _transposed(column: int, last: int, first: int, count: int, seed: int) -> NDArray[np.uint64]:
    return transposed_signs(packed_signs(np.arange(column, last), first, count, STREAM_MACLAURIN_SIGN, seed))
