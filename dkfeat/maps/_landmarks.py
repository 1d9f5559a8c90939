"""Landmarks of a Nyström map, which are randomly drawn rows, and kernel values of other rows with them.

The values of a row depend on the row alone: they have the same bits in blocks of any size and, if the landmarks are
prepared, for dense and sparse rows. Inner products with landmarks come from a dense table or column by column, and are
summed in float64. The order of a sum depends on the landmarks alone, and a zero adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.archives import MAX_BYTES, archive_sha256
from dkfeat.compiled.jit import owned
from dkfeat.compiled.products.matrix import multiply_columns
from dkfeat.compiled.products.rows import decay_features, sum_magnitudes
from dkfeat.compiled.random import TILE
from dkfeat.errors import ConfigError
from dkfeat.kernels import NamedKernel
from dkfeat.kernels._rows import HeldColumns
from dkfeat.kernels.dot_product import OF_INNER_PRODUCTS, of_inner_products
from dkfeat.kernels.minmax import GmmColumns, exponentiated
from dkfeat.kernels.rbf import unit_rows
from dkfeat.projections import add_dense, add_listed
from dkfeat.validation import rows_as_csr

_MOST_BYTES = MAX_BYTES - 2**16
"""Maximum size of all arrays; the rest of the archive is for their headers."""


@dataclass(frozen=True, slots=True, eq=False)
class Landmarks:
    """Rows of the source, and the matrix that turns kernel values with them into features."""

    numbers: NDArray[np.int64]
    """Row numbers in the source, ascending."""
    rows: sp.csr_matrix
    """Shape (n_landmarks, n_features), float64, canonical."""
    normalization: NDArray[np.float64]
    """Eigenvectors divided by the square roots of their eigenvalues, shape (n_landmarks, rank)."""
    sha256: str
    """SHA-256 of the archive of `arrays`."""

    @classmethod
    def of(cls, numbers: NDArray[np.int64], rows: sp.csr_matrix, kernel: NamedKernel, tolerance: float) -> Landmarks:
        """Decompose the kernel matrix of canonical rows.

        Raises
        ------
        InputError
            If a row is outside the kernel's domain.
        ConfigError
            If the landmarks are too large for an archive.
        """
        rows = rows.astype(np.float64)
        n_bytes = 16 * rows.nnz + 8 * len(numbers) * (len(numbers) + 2)
        if n_bytes > _MOST_BYTES:
            raise ConfigError(
                f"{len(numbers):,} landmarks with {rows.nnz:,} values would take {n_bytes:,} bytes, but a map carries "
                f"at most {_MOST_BYTES:,}; choose a smaller n_components"
            )
        landmarks = cls(numbers, rows, _inverse_root(kernel(rows), tolerance), "")
        return replace(landmarks, sha256=archive_sha256(landmarks.arrays()))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_features: int) -> Landmarks:
        """Make landmarks from the values of `arrays`, which are not trusted.

        Raises
        ------
        ConfigError
            If the arrays are not landmarks of rows with `n_features` columns.
        """
        dtypes = {name: np.asarray(array).dtype.str for name, array in arrays.items()}
        wanted = {"indices": "<i8", "indptr": "<i8", "normalization": "<f8", "numbers": "<i8", "values": "<f8"}
        if dtypes != wanted:
            raise ConfigError(f"landmarks need the arrays {wanted}, got {dtypes}")
        numbers, normalization = np.array(arrays["numbers"]), np.array(arrays["normalization"])
        parts = tuple(np.array(arrays[name]) for name in ("values", "indices", "indptr"))
        try:
            rows = sp.csr_matrix(parts, shape=(len(numbers), n_features))
            rows.check_format(full_check=True)
            valid = (
                rows.has_canonical_format
                and rows.data.all()
                and np.isfinite(rows.data).all()
                and np.isfinite(normalization).all()
                and (np.diff(numbers, prepend=-1) > 0).all()
                and len(normalization) == len(numbers) >= normalization.shape[1] >= 1
            )
        except (IndexError, TypeError, ValueError):  # other shapes
            valid = False
        if not valid:
            raise ConfigError(
                f"the arrays are not landmarks of {n_features:,} columns that dkfeat wrote; restore the file"
            )
        return cls(numbers, rows, normalization, archive_sha256(arrays))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays that `from_arrays` takes."""
        return {
            "numbers": self.numbers.copy(),
            "indptr": self.rows.indptr.astype(np.int64),
            "indices": self.rows.indices.astype(np.int64),
            "values": self.rows.data.copy(),
            "normalization": self.normalization.copy(),
        }

    @property
    def n_bytes(self) -> int:
        """Approximate size in memory, in bytes."""
        return int(self.normalization.nbytes + 24 * self.rows.nnz)


def _inverse_root(similarities: NDArray[np.float64], tolerance: float) -> NDArray[np.float64]:
    """Compute V D^(-1/2) for eigenvalues of at least `tolerance` times the largest, in descending order.

    The entry of largest magnitude of each eigenvector is positive.
    """
    similarities = (similarities + similarities.T) / 2
    eigenvalues, vectors = scipy.linalg.eigh(similarities)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    largest = max(float(eigenvalues[0]), 0.0)
    kept = int(np.count_nonzero(eigenvalues >= max(tolerance * largest, np.finfo(np.float64).tiny)))
    if not kept:  # all kernel values are 0: one column of zeros
        return np.zeros((len(similarities), 1))
    vectors = vectors[:, :kept]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(kept)])
    return np.ascontiguousarray(vectors * (signs / np.sqrt(eigenvalues[:kept])))


_SPARSITY = 8
"""Landmarks with fewer nonzeros than one in so many cells are kept by column."""
_COMMON = 16
"""Columns that one landmark in so many holds are common."""
_FEW_CELLS = 1 << 18
"""Number of cells of a table of all columns that occur, up to which all of them are common."""


class _FromTable:
    """Inner products with landmarks kept as a dense table."""

    def __init__(self, landmarks: sp.csr_matrix) -> None:
        self.n_landmarks = landmarks.shape[0]
        self.table = as_tiles(landmarks.toarray().T, np.float64)

    @cached_property
    def single_table(self) -> NDArray[np.float32]:
        """Table of float32, of the same values if they are float32."""
        return self.table.astype(np.float32)

    @cached_property
    def has_single(self) -> bool:
        """True if landmarks are float32, so that rows may be, too: 64 products each are then summed in float32."""
        with np.errstate(over="ignore"):
            return np.array_equal(self.single_table, self.table)

    def as_rows(self, X: Any, dtype: Any = np.float64) -> Any:
        """Convert finite dense rows, or canonical sparse ones, to the form that `add` takes."""
        return X.astype(dtype, copy=False) if sp.issparse(X) else owned(X, dtype)

    def add(self, rows: Any, out: NDArray[np.float64]) -> None:
        """Add products to `out`, of shape (n_samples, n_landmarks) with columns padded to whole tiles."""
        n_columns, table = rows.shape[1], self.single_table if rows.dtype == np.float32 else self.table
        tables = [(0, self.n_landmarks, table)]
        if sp.issparse(rows):
            indptr, positions = rows.indptr.astype(np.int64), rows.indices.astype(np.int64)
            add_listed(indptr, positions, owned(rows.data), n_columns, tables, out)
        else:
            add_dense(rows, tables, out)

    @property
    def n_bytes(self) -> int:
        """Memory in bytes."""
        return self.table.nbytes * 3 // 2


class _ByColumn:
    """Inner products with sparse landmarks: a table of the columns that many hold, and the values in rare columns."""

    has_single = False

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
        """Convert finite dense rows, or canonical sparse ones, to the form that `add` takes."""
        return (X if sp.issparse(X) else rows_as_csr(X)).astype(dtype, copy=False)

    def add(self, rows: Any, out: NDArray[np.float64]) -> None:
        """Add products to `out`, of shape (n_samples, n_landmarks) with columns padded to whole tiles."""
        indptr, positions = rows.indptr.astype(np.int64), self.held.positions(rows.indices)
        common = np.empty(len(indptr), np.int64), np.empty(rows.nnz + 1, np.int64), np.empty(rows.nnz + 1)
        values = owned(rows.data)
        multiply_columns(indptr, positions, values, self.n_common, self.bounds, self.rows, self.values, out, common)
        if self.n_common:
            add_listed(*common, self.n_common, [(0, self.n_landmarks, self.table)], out)

    @property
    def n_bytes(self) -> int:
        """Memory in bytes."""
        return self.table.nbytes + 64 * len(self.values) + self.held.n_bytes


def landmark_products(landmarks: sp.csr_matrix) -> _FromTable | _ByColumn:
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


_LONGEST = 1e5
"""Maximum of gamma times a squared length: inner products of float64 then give an exponent to about 1e-11. The exact
kernel, which computes differences, is used for longer rows."""
_HIGHEST_DEGREE = 4
"""Highest degree of a polynomial kernel of products summed in float32: a power multiplies their relative error."""


class LandmarkKernel:
    """Kernel values of rows with the landmarks, by the exact kernel."""

    block_size, most_rows = 1 << 21, 1 << 21
    """Maximum number of kernel values computed at a time, and of values in a block of dense rows; and of its rows."""
    n_bytes = 0
    """Memory of the prepared landmarks, in bytes."""

    def __init__(self, kernel: NamedKernel, landmarks: sp.csr_matrix) -> None:
        self.kernel, self.landmarks = kernel, landmarks
        self.width = -(-landmarks.shape[0] // TILE) * TILE

    def values(self, X: Any, dtype: Any) -> NDArray[Any]:
        """Compute the kernel values of finite dense rows, or of canonical sparse ones.

        Parameters
        ----------
        X : ndarray or csr_matrix of shape (n_samples, n_features), float32 or float64
        dtype : dtype
            float32, or float64; values that do not fit float32 become infinite.

        Returns
        -------
        values : ndarray of shape (n_samples, n_landmarks), C order

        Raises
        ------
        dkfeat.errors.InputError
            If a row is outside the domain of the kernel.
        """
        return _rounded(self.kernel(X, self.landmarks), dtype)

    def rows_at_a_time(self, X: Any) -> int:
        """Return the number of rows of X in a block: enough to read the tables rarely, few enough for the caches."""
        width = self.width if sp.issparse(X) else max(self.width, X.shape[1])
        return max(1, min(self.most_rows, self.block_size // width))


class GmmKernel(LandmarkKernel):
    """Kernel values of the min-max kernels."""

    block_size, most_rows = 1 << 19, 512

    def __init__(self, kernel: NamedKernel, landmarks: sp.csr_matrix) -> None:
        super().__init__(kernel, landmarks)
        self.columns = GmmColumns.of(landmarks, float(kernel.params["p"]))  # type: ignore[arg-type]
        self.n_bytes = 96 * landmarks.nnz + self.columns.held.n_bytes

    def values(self, X: Any, dtype: Any) -> NDArray[Any]:
        """See `LandmarkKernel.values`."""
        similarities = self.columns.similarities(rows_as_csr(X))
        if self.kernel.name == "egmm":
            similarities = exponentiated(similarities, float(self.kernel.params["gamma"]))  # type: ignore[arg-type]
        return _rounded(similarities, dtype)


class ProductKernel(LandmarkKernel):
    """Kernel values from inner products with the landmarks in float64, or partly in float32 where that is enough."""

    block_size, most_rows = 1 << 19, 512

    def __init__(self, kernel: NamedKernel, landmarks: sp.csr_matrix) -> None:
        super().__init__(kernel, landmarks)
        self.products = landmark_products(landmarks)
        self.n_bytes = self.products.n_bytes

    def values(self, X: Any, dtype: Any) -> NDArray[Any]:
        """See `LandmarkKernel.values`."""
        if dtype == X.dtype == np.float32 and self._has_single:
            with np.errstate(over="ignore", invalid="ignore"):
                products = self._products(X, np.float32)
                others = np.flatnonzero(~np.isfinite(products.sum(axis=1)))
            if len(others):  # sums overflowed float32
                products[others] = self._products(X[others], np.float64)
        else:
            products = self._products(X, np.float64)
        return _rounded(of_inner_products(self.kernel.name, products, self.kernel.params), dtype)

    @cached_property
    def _has_single(self) -> bool:
        """True if products of float32 rows, summed in float32 in parts, are good enough for products in float32.

        Their errors are about 1e-7 of the product of two rows' lengths, also if terms cancel.
        """
        degree = self.kernel.params.get("degree")
        is_low = self.kernel.name == "polynomial" and isinstance(degree, int) and degree <= _HIGHEST_DEGREE
        return is_low and self.products.has_single

    def _products(self, X: Any, dtype: Any) -> NDArray[np.float64]:
        products = np.zeros((X.shape[0], self.width))
        self.products.add(self.products.as_rows(X, dtype), products)
        return np.ascontiguousarray(products[:, : self.landmarks.shape[0]])


class DistanceKernel(ProductKernel):
    r"""Values of the RBF kernels from :math:`\gamma (\|x\|^2 + \|y\|^2 - 2 x^\top y)` in float64."""

    def __init__(self, kernel: NamedKernel, landmarks: sp.csr_matrix) -> None:
        LandmarkKernel.__init__(self, kernel, landmarks)
        self.gamma = float(kernel.params["gamma"])  # type: ignore[arg-type]
        if kernel.name == "rbf_cosine":
            self.gamma /= 2
            landmarks = unit_rows(landmarks)
        self.squares = np.zeros(self.width)
        with np.errstate(over="ignore"):
            self.squares[: landmarks.shape[0]] = self.gamma * _squared_lengths(landmarks)
            self.products = landmark_products(landmarks * (-2 * self.gamma))
        self.n_bytes = self.products.n_bytes

    @property
    def is_accurate(self) -> bool:
        """True if landmarks are short enough for inner products."""
        return bool(self.squares.max(initial=self.gamma if self.kernel.name == "rbf_cosine" else 0.0) <= _LONGEST)

    def values(self, X: Any, dtype: Any) -> NDArray[Any]:
        """See `LandmarkKernel.values`."""
        rows, exponents = self.products.as_rows(X), np.empty((X.shape[0], self.width))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # such rows are computed again
            squares = _squared_lengths(rows)
            if self.kernel.name == "rbf_cosine":
                short = (squares > 1e-250) & (squares < 1e250)
                rows = _scaled(rows, 1 / np.sqrt(squares))
                squares = np.ones_like(squares)
            squares *= self.gamma
            if self.kernel.name == "rbf":
                short = squares <= _LONGEST
            np.add(squares[:, None], self.squares, out=exponents)
            self.products.add(rows, exponents)
            exponents = exponents[:, : self.landmarks.shape[0]]
            if dtype == np.float32:
                values = exponents.astype(np.float32)
                decay_features(values.reshape(-1), np.float32(1))
            else:
                values = np.exp(-np.maximum(exponents, 0.0))
        others = np.flatnonzero(~short)
        if len(others):
            values[others] = self.kernel(X[others], self.landmarks)
        return values


def landmark_kernel(kernel: NamedKernel, landmarks: sp.csr_matrix) -> LandmarkKernel:
    """Prepare landmarks, which are canonical float64 rows."""
    if kernel.name in ("gmm", "egmm"):
        return GmmKernel(kernel, landmarks)
    if kernel.name in OF_INNER_PRODUCTS:
        return ProductKernel(kernel, landmarks)
    if kernel.name in ("rbf", "rbf_cosine"):
        prepared = DistanceKernel(kernel, landmarks)
        if prepared.is_accurate:
            return prepared
    return LandmarkKernel(kernel, landmarks)


def _rounded(values: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        return values.astype(dtype, copy=False)


def _squared_lengths(rows: Any) -> NDArray[np.float64]:
    """Sum the squares of each row in the order of its columns, so that zeros change no bits."""
    sums = np.empty(rows.shape[0])
    indptr = rows.indptr.astype(np.int64) if sp.issparse(rows) else np.arange(len(rows) + 1) * rows.shape[1]
    sum_magnitudes(indptr, np.square(rows.data if sp.issparse(rows) else rows).reshape(-1), sums)
    return sums


def _scaled(rows: Any, factors: NDArray[np.float64]) -> Any:
    """Multiply each row by a factor."""
    if not sp.issparse(rows):
        return rows * factors[:, None]
    data = rows.data * np.repeat(factors, np.diff(rows.indptr))
    return sp.csr_matrix((data, rows.indices, rows.indptr), shape=rows.shape)
