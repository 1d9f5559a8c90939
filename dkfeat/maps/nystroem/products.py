"""Inner products of rows with landmarks, from a dense table or column by column, summed in float64.

The order of a sum depends on the landmarks alone, and a zero adds nothing, so dense and sparse rows have equal bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.jit import owned
from dkfeat.compiled.products.matrix import multiply_columns
from dkfeat.compiled.random import TILE
from dkfeat.kernels._columns import HeldColumns
from dkfeat.projections.dense import add_dense, add_listed
from dkfeat.validation import rows_as_csr

_SPARSITY = 8
"""Landmarks with fewer nonzeros than one in so many cells are kept by column."""
_COMMON = 16
"""Columns that one landmark in so many holds are common."""
_FEW_CELLS = 1 << 18
"""Number of cells of a table of all columns that occur, up to which all of them are common."""


class LandmarkProducts(ABC):
    """Inner products with the landmarks."""

    has_single = False
    """Whether landmarks are float32, so that rows may be, too: products of 64 columns are then summed in float32."""

    @abstractmethod
    def as_rows(self, X: Any, dtype: Any = np.float64) -> Any:
        """Convert finite dense rows, or canonical sparse ones, to the form that `add` takes."""

    @abstractmethod
    def add(self, rows: Any, out: NDArray[np.float64]) -> None:
        """Add products to `out`, of shape (n_samples, n_landmarks) with columns padded to whole tiles."""

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Memory in bytes."""


class _FromTable(LandmarkProducts):
    """Landmarks as a dense table."""

    def __init__(self, landmarks: sp.csr_matrix) -> None:
        self.n_landmarks = landmarks.shape[0]
        self.table = as_tiles(landmarks.toarray().T, np.float64)

    @cached_property
    def single_table(self) -> NDArray[np.float32]:
        """Table of float32, of the same values if they are float32."""
        return self.table.astype(np.float32)

    @cached_property
    def has_single(self) -> bool:  # type: ignore[override]
        """See `LandmarkProducts.has_single`."""
        with np.errstate(over="ignore"):
            return np.array_equal(self.single_table, self.table)

    def as_rows(self, X: Any, dtype: Any = np.float64) -> Any:
        """See `LandmarkProducts.as_rows`."""
        return X.astype(dtype, copy=False) if sp.issparse(X) else owned(X, dtype)

    def add(self, rows: Any, out: NDArray[np.float64]) -> None:
        """See `LandmarkProducts.add`."""
        n_columns, table = rows.shape[1], self.single_table if rows.dtype == np.float32 else self.table
        tables = [(0, self.n_landmarks, table)]
        if sp.issparse(rows):
            indptr, positions = rows.indptr.astype(np.int64), rows.indices.astype(np.int64)
            add_listed(indptr, positions, owned(rows.data), n_columns, tables, out)
        else:
            add_dense(rows, tables, out)

    @property
    def n_bytes(self) -> int:
        """See `LandmarkProducts.n_bytes`."""
        return self.table.nbytes * 3 // 2


class _ByColumn(LandmarkProducts):
    """Sparse landmarks: a table of the columns that many of them hold, and the values in rare columns."""

    def __init__(self, landmarks: sp.csr_matrix) -> None:
        columns, order = np.unique(landmarks.indices, return_inverse=True)
        n_landmarks, counts = landmarks.shape[0], np.bincount(order, minlength=len(columns))
        is_common = (_COMMON * counts >= n_landmarks) | (n_landmarks * len(columns) <= _FEW_CELLS)
        self.n_landmarks, self.n_common = n_landmarks, int(np.count_nonzero(is_common))
        positions = np.where(is_common, np.cumsum(is_common), self.n_common + np.cumsum(~is_common)) - 1
        self.held = HeldColumns(columns.astype(np.int64), positions.astype(np.int32), landmarks.shape[1])
        compact = sp.csr_matrix((landmarks.data, positions[order], landmarks.indptr), (n_landmarks, len(columns)))
        by_column = compact.tocsc()
        self.table = as_tiles(by_column[:, : self.n_common].toarray().T, np.float64)
        rare = by_column[:, self.n_common :]
        self.bounds, self.rows, self.values = rare.indptr.astype(np.uint64), rare.indices.astype(np.uint32), rare.data

    def as_rows(self, X: Any, dtype: Any = np.float64) -> Any:
        """See `LandmarkProducts.as_rows`."""
        return (X if sp.issparse(X) else rows_as_csr(X)).astype(dtype, copy=False)

    def add(self, rows: Any, out: NDArray[np.float64]) -> None:
        """See `LandmarkProducts.add`."""
        indptr, positions = rows.indptr.astype(np.int64), self.held.positions(rows.indices)
        common = np.empty(len(indptr), np.int64), np.empty(rows.nnz + 1, np.int64), np.empty(rows.nnz + 1)
        values = owned(rows.data)
        multiply_columns(indptr, positions, values, self.n_common, self.bounds, self.rows, self.values, out, common)
        if self.n_common:
            add_listed(*common, self.n_common, [(0, self.n_landmarks, self.table)], out)

    @property
    def n_bytes(self) -> int:
        """See `LandmarkProducts.n_bytes`."""
        return self.table.nbytes + 64 * len(self.values) + self.held.n_bytes


def landmark_products(landmarks: sp.csr_matrix) -> LandmarkProducts:
    """Prepare landmarks, which are canonical float64 rows."""
    is_sparse = landmarks.shape[0] * landmarks.shape[1] > _SPARSITY * landmarks.nnz
    return _ByColumn(landmarks) if is_sparse else _FromTable(landmarks)


def as_tiles(matrix: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    """Cut the columns of a matrix into tiles of 64, flattened; the last one is padded with zeros.

    Examples
    --------
    >>> as_tiles(np.ones((3, 65)), np.float32).reshape(2, 3, 64).sum(axis=(1, 2)).tolist()
    [192.0, 3.0]
    """
    n_rows, n_columns = matrix.shape
    tiles = np.zeros((-(-n_columns // TILE), n_rows, TILE), dtype)
    for tile, first in zip(tiles, range(0, n_columns, TILE), strict=True):
        tile[:, : n_columns - first] = matrix[:, first : first + TILE]
    return tiles.reshape(-1)
