"""Landmarks of a Nyström map, which are randomly drawn rows, and the matrix that makes features of kernel values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.archives import MAX_BYTES, archive_sha256
from dkfeat.compiled.random import STREAM_LANDMARK, draw_words
from dkfeat.errors import ConfigError
from dkfeat.kernels import NamedKernel

_MOST_BYTES = MAX_BYTES - 2**16
"""Maximum size of all arrays; the rest of the archive is for their headers."""
_BATCH = 1024
"""Numbers drawn at a time; another value would give other rows for the same seed."""


def choose_rows(seed: int, n_rows: int, n_chosen: int) -> NDArray[np.int64]:
    """Draw row numbers uniformly without replacement; they depend only on these three arguments.

    Random 64-bit numbers times n_rows / 2^64 are drawn until enough of them differ, so the rows of a smaller n_chosen
    are among those of a larger one.

    Parameters
    ----------
    seed : int
    n_rows : int
        Rows to choose from, 0 to 2^62.
    n_chosen : int
        If there are fewer rows, all are chosen.

    Returns
    -------
    rows : ndarray of shape (min(n_rows, n_chosen),), int64
        Ascending.

    Examples
    --------
    >>> choose_rows(0, 3, 10).tolist(), len(choose_rows(0, 10**15, 5))
    ([0, 1, 2], 5)
    """
    if n_chosen >= n_rows:
        return np.arange(n_rows)
    chosen: set[int] = set()
    words = np.empty((_BATCH, 4), np.uint32)
    batch = 0
    while len(chosen) < n_chosen:
        draw_words(np.uint64(batch), np.uint64(STREAM_LANDMARK), np.uint64(seed), words)
        for low, high in words[:, :2].tolist():
            chosen.add((((high << 32) | low) * n_rows) >> 64)
            if len(chosen) == n_chosen:
                break
        batch += 1
    return np.array(sorted(chosen), np.int64)


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
