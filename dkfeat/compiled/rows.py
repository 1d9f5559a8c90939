"""Norms of sparse rows, in one fixed order of addition."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled._jit import kernel

__all__ = ["L1", "L2", "MAX", "normalise_rows", "sum_magnitudes"]

L1, L2, MAX = 1, 2, 0


@kernel
def normalise_rows(
    indptr: NDArray[np.int64], values: NDArray[np.float64], norm: int, normalised: NDArray[np.float64]
) -> None:
    """Fill `normalised` with each row's values divided by the row's norm.

    A row is scaled by a power of two first, which is exact, so that no sum overflows; terms are added in
    the order in which they stand. A value below about 1e-308 of the row's largest may become zero.

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), int64
    values : ndarray of shape (nnz,), float64
        Finite; not all zero in a row that has any.
    norm : int
        `L1`, `L2` or `MAX`.
    normalised : ndarray of shape (nnz,), float64
    """
    for i in range(indptr.shape[0] - 1):
        largest = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            magnitude = abs(values[at])
            if magnitude > largest:
                largest = magnitude
        exponent = math.frexp(largest)[1]
        total = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            scaled = math.ldexp(values[at], -exponent)
            normalised[at] = scaled
            total += scaled * scaled if norm == L2 else abs(scaled)
        if norm == L2:
            total = math.sqrt(total)
        elif norm == MAX:
            total = math.ldexp(largest, -exponent)
        for at in range(indptr[i], indptr[i + 1]):
            normalised[at] /= total


@kernel
def sum_magnitudes(indptr: NDArray[np.int64], values: NDArray[np.float32], sums: NDArray[np.float64]) -> None:
    """Fill `sums` with each row's l1 norm, for values whose sum does not overflow.

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), int64
    values : ndarray of shape (nnz,), float32
    sums : ndarray of shape (n_samples,), float64
    """
    for i in range(indptr.shape[0] - 1):
        total = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            total += abs(np.float64(values[at]))
        sums[i] = total
