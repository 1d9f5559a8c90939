"""Base class of projections, linear operators x -> W x determined by a seed, and their random numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.jit import owned
from dkfeat.compiled.products.hadamard import FlatRows
from dkfeat.compiled.random import draw_words
from dkfeat.errors import ConfigError

LARGEST_PADDED = 2**24
"""Maximum number of columns of a projection that pads rows; a row then takes 64 MiB of float32."""
_MATRIX_ENTRIES = 2**26


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

    @abstractmethod
    def _matrix(self) -> NDArray[np.float64]:
        """W, computed entry by entry from its definition."""

    def matrix(self) -> NDArray[np.float64]:
        """Compute W, for small sizes.

        Returns
        -------
        W : ndarray of shape (n_components, n_features), float64

        Raises
        ------
        dkfeat.errors.ConfigError
            If W has more than 2^26 entries.
        """
        if self.n_features * self.n_components > _MATRIX_ENTRIES:
            raise ConfigError(
                f"W has {self.n_components:,} x {self.n_features:,} entries, but matrix() computes at most "
                f"{_MATRIX_ENTRIES:,}; use project"
            )
        return self._matrix()

    def _check_padded(self) -> None:
        if self.n_features > LARGEST_PADDED:
            raise ConfigError(
                f"n_features={self.n_features:,}, but a structured projection makes rows dense and takes at most "
                f"{LARGEST_PADDED:,} columns; choose projection='dense', which draws only the columns that occur"
            )


def random_words(coordinates: range, n: int, stream: int, seed: int) -> NDArray[np.uint32]:
    """Philox words of components 0 to n - 1 for some coordinates, shape (len(coordinates), n, 4)."""
    words = np.empty((len(coordinates), n, 4), np.uint32)
    for row, coordinate in zip(words, coordinates, strict=True):
        draw_words(np.uint64(coordinate), np.uint64(stream), np.uint64(seed), row)
    return words


def draw_signs(coordinates: range, n: int, stream: int, seed: int) -> NDArray[np.float32]:
    """Draw independent values -1 or 1 with equal probability, shape (len(coordinates), n), float32."""
    bits = random_words(coordinates, n, stream, seed)[:, :, 0] >> 31
    return (1 - 2 * bits.astype(np.float32)).astype(np.float32)


def flat_rows(X: Any) -> FlatRows:
    """Convert rows to the form that compiled loops take."""
    if sp.issparse(X):
        return FlatRows(X.indptr.astype(np.int64), X.indices.astype(np.int64), owned(X.data), X.shape[1])
    nothing = np.empty(0, np.int64)
    return FlatRows(nothing, nothing, owned(X).reshape(-1), X.shape[1])
