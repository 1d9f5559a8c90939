"""Kernel values of blocks of rows with landmarks, which are prepared once.

The values of a row depend on the row alone: they have the same bits in blocks of any size and, if the landmarks are
prepared, for dense and sparse rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.products.rows import decay_features, sum_magnitudes
from dkfeat.compiled.random import TILE
from dkfeat.kernels import NamedKernel
from dkfeat.kernels.dot_product import OF_INNER_PRODUCTS, of_inner_products
from dkfeat.kernels.minmax import GmmColumns, exponentiated
from dkfeat.kernels.rbf import unit_rows
from dkfeat.maps.nystroem.products import landmark_products
from dkfeat.validation import rows_as_csr

_LONGEST = 1e5
"""Maximum of gamma times a squared length: inner products of float64 then give an exponent to about 1e-11. The exact
kernel, which computes differences, is used for longer rows."""
_HIGHEST_DEGREE = 4
"""Highest degree of a polynomial kernel of products summed in float32: a power multiplies their relative error."""


class LandmarkKernel(ABC):
    """Kernel values of rows with the landmarks."""

    block_size = 1 << 19
    """Maximum number of kernel values computed at a time, and of values in a block of dense rows."""
    most_rows = 512
    """Maximum number of rows in a block."""

    def __init__(self, kernel: NamedKernel, landmarks: sp.csr_matrix) -> None:
        self.kernel, self.landmarks = kernel, landmarks

    @abstractmethod
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

    def rows_at_a_time(self, X: Any) -> int:
        """Return the number of rows of X in a block: enough to read the tables rarely, few enough for the caches."""
        width = -(-self.landmarks.shape[0] // TILE) * TILE
        return max(1, min(self.most_rows, self.block_size // (width if sp.issparse(X) else max(width, X.shape[1]))))

    @property
    def n_bytes(self) -> int:
        """Memory of the prepared landmarks, in bytes."""
        return 0


class ExactKernel(LandmarkKernel):
    """Kernel values by the exact kernel, which prepares the landmarks for every block."""

    block_size, most_rows = 1 << 21, 1 << 21

    def values(self, X: Any, dtype: Any) -> NDArray[Any]:
        """See `LandmarkKernel.values`."""
        return _rounded(self.kernel(X, self.landmarks), dtype)


class GmmKernel(LandmarkKernel):
    """Kernel values of the min-max kernels."""

    def __init__(self, kernel: NamedKernel, landmarks: sp.csr_matrix) -> None:
        super().__init__(kernel, landmarks)
        self.columns = GmmColumns.of(landmarks, float(kernel.params["p"]))  # type: ignore[arg-type]

    def values(self, X: Any, dtype: Any) -> NDArray[Any]:
        """See `LandmarkKernel.values`."""
        similarities = self.columns.similarities(rows_as_csr(X))
        if self.kernel.name == "egmm":
            similarities = exponentiated(similarities, float(self.kernel.params["gamma"]))  # type: ignore[arg-type]
        return _rounded(similarities, dtype)

    @property
    def n_bytes(self) -> int:
        """See `LandmarkKernel.n_bytes`."""
        return 96 * self.landmarks.nnz + self.columns.held.n_bytes


class ProductKernel(LandmarkKernel):
    """Kernel values from inner products with the landmarks in float64, or partly in float32 where that is enough."""

    def __init__(self, kernel: NamedKernel, landmarks: sp.csr_matrix) -> None:
        super().__init__(kernel, landmarks)
        self.products = landmark_products(landmarks)

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

    @property
    def n_bytes(self) -> int:
        """See `LandmarkKernel.n_bytes`."""
        return self.products.n_bytes

    @property
    def _width(self) -> int:
        return -(-self.landmarks.shape[0] // TILE) * TILE

    @cached_property
    def _has_single(self) -> bool:
        """True if products of float32 rows, summed in float32 in parts, are good enough for products in float32.

        Their errors are about 1e-7 of the product of two rows' lengths, also if terms cancel.
        """
        degree = self.kernel.params.get("degree")
        is_low = self.kernel.name == "polynomial" and isinstance(degree, int) and degree <= _HIGHEST_DEGREE
        return is_low and self.products.has_single

    def _products(self, X: Any, dtype: Any) -> NDArray[np.float64]:
        products = np.zeros((X.shape[0], self._width))
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
        self.squares = np.zeros(self._width)
        with np.errstate(over="ignore"):
            self.squares[: landmarks.shape[0]] = self.gamma * _squared_lengths(landmarks)
            self.products = landmark_products(landmarks * (-2 * self.gamma))

    @property
    def is_accurate(self) -> bool:
        """True if landmarks are short enough for inner products."""
        return bool(self.squares.max(initial=self.gamma if self.kernel.name == "rbf_cosine" else 0.0) <= _LONGEST)

    def values(self, X: Any, dtype: Any) -> NDArray[Any]:
        """See `LandmarkKernel.values`."""
        rows, exponents = self.products.as_rows(X), np.empty((X.shape[0], self._width))
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
    return ExactKernel(kernel, landmarks)


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
