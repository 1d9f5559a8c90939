"""Dense projection: every entry of W drawn independently, for the columns that occur.

Tables are drawn tile by tile, 64 components at a time, and dropped after use, unless all of W is small: then it is
kept for the next block.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.matrix_product import AHEAD, multiply_dense, multiply_sparse
from dkfeat.compiled.normal import TILE, fill_normals
from dkfeat.projections._base import Projection, arrays_of
from dkfeat.random_streams import STREAM_DENSE

__all__ = ["DenseProjection", "FillTile", "columns_present"]

_WHOLE_BYTES = 16 * 2**20
"""Largest W that is kept; four of them at most."""
_GROUP_BYTES = 4 * 2**20
"""Tiles of weights drawn together where W is larger: at least one."""


class FillTile(Hashable, Protocol):
    """Fills the weights of components first to first + 63 for some columns; a module's function."""

    def __call__(
        self, coordinates: NDArray[np.int64], first: int, stream: int, seed: int, table: NDArray[np.float32]
    ) -> None:
        """Fill `table`, of shape (n_coordinates, 64), each entry a function of (seed, coordinate, component)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseProjection(Projection):
    """W of independent entries.

    The number of columns is unbounded: an entry is a function of (seed, column, component), made when a column occurs.

    Parameters
    ----------
    n_features, n_components, seed : int
    fill : FillTile, default=fill_normals
        Law of the entries; standard Gaussian by default.
    stream : int
        Random stream of the entries.

    Examples
    --------
    >>> W = DenseProjection(n_features=2**40, n_components=2, seed=7)
    >>> row = sp.csr_matrix((np.ones(1, np.float32), ([0], [2**39])), shape=(1, 2**40))
    >>> W.project(row).shape
    (1, 2)
    """

    fill: FillTile = fill_normals
    stream: int = STREAM_DENSE

    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Rows times W transposed; see `Projection.project`."""
        n_tiles = -(-self.n_components // TILE)
        is_sparse = sp.issparse(X)
        indptr, places, values = arrays_of(X)
        is_whole = self.n_features * n_tiles * TILE * 4 <= _WHOLE_BYTES
        if is_whole:
            columns = None
        elif is_sparse:
            columns, places = columns_present(places, self.n_features)
        else:
            columns = np.arange(self.n_features)
        places = np.append(places, np.zeros(AHEAD, np.int64))
        n_columns = self.n_features if columns is None else len(columns)
        out = np.empty((X.shape[0], n_tiles * TILE), np.float32)
        if columns is None:
            groups: Any = [(0, n_tiles, _whole_table(self, n_tiles))]
        else:
            groups = self._groups(columns, n_tiles)
        for first, count, table in groups:
            target = (out.reshape(-1), first * TILE, n_tiles * TILE)
            if is_sparse:
                multiply_sparse(indptr, places, values, n_columns, table, count, *target)
            else:
                multiply_dense(values, X.shape[0], n_columns, table, count, *target)
        return np.ascontiguousarray(out[:, : self.n_components])

    def _groups(self, columns: NDArray[np.int64], n_tiles: int) -> Any:
        """Tables of some tiles at a time, all in one buffer."""
        size = max(1, _GROUP_BYTES // (max(len(columns), 1) * TILE * 4))
        tables = np.empty((min(size, n_tiles), len(columns), TILE), np.float32)
        for first in range(0, n_tiles, size):
            count = min(size, n_tiles - first)
            for tile in range(count):
                self.fill(columns, (first + tile) * TILE, self.stream, self.seed, tables[tile])
            yield first, count, tables.reshape(-1)

    def _matrix(self) -> NDArray[np.float64]:
        n_tiles = -(-self.n_components // TILE)
        table = _whole_table.__wrapped__(self, n_tiles)
        tiles = table.reshape(n_tiles, self.n_features, TILE).transpose(0, 2, 1)
        return tiles.reshape(-1, self.n_features)[: self.n_components].astype(np.float64)


@lru_cache(maxsize=4)
def _whole_table(projection: DenseProjection, n_tiles: int) -> NDArray[np.float32]:
    columns = np.arange(projection.n_features)
    table = np.empty((n_tiles, len(columns), TILE), np.float32)
    for tile in range(n_tiles):
        projection.fill(columns, tile * TILE, projection.stream, projection.seed, table[tile])
    return table.reshape(-1)


def columns_present(indices: NDArray[np.int64], n_features: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Columns that occur, frequent ones first, and the place of each index among them.

    Weights of frequent columns lie side by side then, which the caches like.
    """
    if n_features <= 4 * len(indices) + 2**16:  # counting is quicker than sorting
        counts = np.bincount(indices, minlength=n_features)
        columns = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        ranks = np.empty(n_features, np.int64)
        ranks[columns] = np.arange(len(columns))
        return columns, ranks[indices]
    columns, places, counts = np.unique(indices, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    ranks = np.empty(len(columns), np.int64)
    ranks[order] = np.arange(len(columns))
    return columns[order], ranks[places]
