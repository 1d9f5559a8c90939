"""Base class of projections, and the projection whose weights are all independent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.jit import owned
from dkfeat.compiled.products.hadamard import FlatRows
from dkfeat.compiled.products.matrix import AHEAD, multiply_dense, multiply_sparse
from dkfeat.compiled.random import STREAM_DENSE, TILE, Law, normals


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection(ABC):
    """Linear operator from n_features to n_components, defined by a few numbers.

    Tables are computed from the seed where they are needed, and kept within a memory budget. A row's projection depends
    on the row alone, and dense and sparse rows give equal values.
    """

    n_features: int
    """Number of columns of the rows, at least 1."""
    n_components: int
    """Number of rows of W, at least 1."""
    seed: int
    """Root of all random numbers, in [0, 2^64)."""

    @abstractmethod
    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Compute rows times W transposed.

        Parameters
        ----------
        X : ndarray in C order or csr_matrix in canonical form, of shape (n_samples, n_features), float32
            Rows with finite values; never changed.

        Returns
        -------
        projected : ndarray of shape (n_samples, n_components), float32, C order
        """

    @property
    def table_bytes(self) -> int:
        """Maximum memory to draw the tables of `project`, in bytes; by default 110 for each row of a padded W."""
        return 110 * (self.n_components + 2 * self.n_features)


def flat_rows(X: Any) -> FlatRows:
    """Convert rows to the form that compiled loops take."""
    if sp.issparse(X):
        return FlatRows(X.indptr.astype(np.int64), X.indices.astype(np.int64), owned(X.data), X.shape[1])
    nothing = np.empty(0, np.int64)
    return FlatRows(nothing, nothing, owned(X).reshape(-1), X.shape[1])


_WHOLE_BYTES = 16 * 2**20
"""Maximum size in bytes of a W that is kept as a whole; at most four are kept."""
_GROUP_BYTES = 4 * 2**20
"""Bytes of tiles drawn together if W is larger; at least one tile is drawn."""
_MOST_COLUMNS = 2**18
"""Maximum number of columns with weights drawn together, 64 MiB a tile; rows with more are processed in parts."""

Tables: TypeAlias = Iterable[tuple[int, int, NDArray[Any]]]
"""First component, number of components and their weights, of shape (n_tiles, n_columns, 64), flat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseProjection(Projection):
    """Projection with a matrix W of independent entries.

    The number of columns is unbounded: an entry is a function of (seed, column, component), computed when a column
    occurs.

    Parameters
    ----------
    n_features, n_components, seed : int
        Number of columns of the rows, number of rows of W, and root of the random streams.
    draw : Law, default=normals
        Distribution of the entries; standard Gaussian by default.
    stream : int
        Random stream of the entries.

    Examples
    --------
    >>> W = DenseProjection(n_features=2**40, n_components=2, seed=7)
    >>> row = sp.csr_matrix((np.ones(1, np.float32), ([0], [2**39])), shape=(1, 2**40))
    >>> W.project(row).shape
    (1, 2)
    """

    draw: Law = normals
    stream: int = STREAM_DENSE

    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Compute rows times W transposed; see `Projection.project`."""
        out = np.zeros((X.shape[0], self._n_tiles * TILE), np.float32)
        if sp.issparse(X):
            self._add_sparse(X, out)
        elif self._is_whole:
            add_dense(X, self._whole(), out)
        else:
            for first in range(0, self.n_features, _MOST_COLUMNS):
                part = X[:, first : first + _MOST_COLUMNS]
                add_dense(part, self._groups(np.arange(first, first + part.shape[1])), out)
        return np.ascontiguousarray(out[:, : self.n_components])

    @property
    def table_bytes(self) -> int:
        """See `Projection.table_bytes`."""
        if self._is_whole:
            return 4 * self.n_features * self._n_tiles * TILE
        return max(4 * min(self.n_features, _MOST_COLUMNS) * TILE, _GROUP_BYTES)

    @property
    def _n_tiles(self) -> int:
        return -(-self.n_components // TILE)

    @property
    def _is_whole(self) -> bool:
        """True if the table of all columns is kept."""
        return 4 * self.n_features * self._n_tiles * TILE <= _WHOLE_BYTES

    def _add_sparse(self, X: Any, out: NDArray[np.float32]) -> None:
        """Add products with the weights of the columns that occur, a limited number of columns at a time."""
        indptr, indices, values, _ = flat_rows(X)
        if self._is_whole:
            add_listed(indptr, indices, values, self.n_features, self._whole(), out)
            return
        columns, positions = columns_present(indices, self.n_features)
        if len(columns) <= _MOST_COLUMNS:
            add_listed(indptr, positions, values, len(columns), self._groups(columns), out)
        elif X.shape[0] > 1:
            half = X.shape[0] // 2
            self._add_sparse(X[:half], out[:half])
            self._add_sparse(X[half:], out[half:])
        else:
            for first in range(0, len(indices), _MOST_COLUMNS):
                columns = indices[first : first + _MOST_COLUMNS]
                bounds, part = np.array([0, len(columns)]), owned(values[first : first + _MOST_COLUMNS])
                add_listed(bounds, np.arange(len(columns)), part, len(columns), self._groups(columns), out)

    def _whole(self) -> Tables:
        return [(0, self.n_components, _whole_table(self, self._n_tiles))]

    def _groups(self, columns: NDArray[np.int64]) -> Tables:
        """Yield tables of a few tiles at a time, all in one buffer."""
        size = max(1, _GROUP_BYTES // (max(len(columns), 1) * TILE * 4))
        tables = np.empty((min(size, self._n_tiles), len(columns), TILE), np.float32)
        for first in range(0, self._n_tiles, size):
            count = min(size, self._n_tiles - first)
            for tile in range(count):
                self.draw(columns, TILE, self.stream, self.seed, first=(first + tile) * TILE, out=tables[tile])
            yield first * TILE, min(count * TILE, self.n_components - first * TILE), tables.reshape(-1)


def add_dense(X: NDArray[Any], tables: Tables, out: NDArray[Any]) -> None:
    """Add products of dense rows; `out` has the columns of all tiles."""
    values, (n_samples, n_columns) = owned(X).reshape(-1), X.shape
    for first, count, table in tables:
        multiply_dense(values, n_samples, n_columns, table, count, out.reshape(-1), first, out.shape[1])


def add_listed(indptr: Any, positions: Any, values: Any, n_columns: int, tables: Tables, out: Any) -> None:
    """Add products of sparse rows with the columns of a table, given by their positions."""
    padded = np.append(positions, np.zeros(AHEAD, np.int64))
    for first, count, table in tables:
        multiply_sparse(indptr, padded, values, n_columns, table, count, out.reshape(-1), first, out.shape[1])


@lru_cache(maxsize=4)
def _whole_table(projection: DenseProjection, n_tiles: int) -> NDArray[np.float32]:
    columns = np.arange(projection.n_features)
    table = np.empty((n_tiles, len(columns), TILE), np.float32)
    for tile in range(n_tiles):
        projection.draw(columns, TILE, projection.stream, projection.seed, first=tile * TILE, out=table[tile])
    return table.reshape(-1)


def columns_present(indices: NDArray[np.int64], n_features: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the columns that occur, frequent ones first, and the position of each index among them.

    The weights of frequent columns are then adjacent in memory, which uses the caches better.
    """
    if n_features <= 4 * len(indices) + 2**16:  # counting is faster than sorting
        counts = np.bincount(indices, minlength=n_features)
        columns = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        ranks = np.empty(n_features, np.int64)
        ranks[columns] = np.arange(len(columns))
        return columns, ranks[indices]
    columns, positions, counts = np.unique(indices, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    ranks = np.empty(len(columns), np.int64)
    ranks[order] = np.arange(len(columns))
    return columns[order], ranks[positions]
