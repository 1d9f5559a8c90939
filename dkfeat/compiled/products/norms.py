"""Norms of rows, in one fixed order of addition.

Squares in float32 are dealt to sixteen sums by their column modulo 16, which are joined in float64 after each 1,024
columns. A zero adds nothing, so dense and sparse rows give equal bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.simd.vector import LANES, load, splat, store

L1, L2, MAX = 1, 2, 0
BLOCK = 1024
"""Numbers whose squares are summed in float32 before they go to float64."""


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


@inlined
def sum_of(lanes: Any, count: Any) -> Any:
    """Sum of the first `count` of 16 float32, in float64."""
    total = 0.0
    for lane in range(count):
        total += np.float64(lanes[lane])
    return total


@kernel
def squares_of_dense(values: Any, n_columns: Any, squares: Any) -> None:
    """Write the squared length of each row.

    Parameters
    ----------
    values : ndarray of shape (n_samples * n_columns,), float32
    n_columns : int
    squares : ndarray of shape (n_samples,), float64
    """
    lanes = np.empty(LANES, np.float32)
    for i in range(squares.shape[0]):
        total, end = 0.0, (i + 1) * n_columns
        for first in range(i * n_columns, end, BLOCK):
            last = min(first + BLOCK, end)
            whole = first + (last - first) // LANES * LANES
            sums = splat(np.float32(0))
            for j in range(first, whole, LANES):
                value = load(values, j)
                sums = sums + value * value
            store(lanes, 0, sums)
            for j in range(whole, last):
                lanes[j - whole] += values[j] * values[j]
            total += sum_of(lanes, LANES)
        squares[i] = total


@kernel
def squares_of_sparse(indptr: Any, indices: Any, values: Any, squares: Any) -> None:
    """Do what `squares_of_dense` does for sparse rows.

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), int64
    indices : ndarray of shape (nnz,), int64
        Ascending in a row.
    values : ndarray of shape (nnz,), float32
    squares : ndarray of shape (n_samples,), float64
    """
    lanes = np.empty(LANES, np.float32)
    for i in range(squares.shape[0]):
        total, block = 0.0, 0
        lanes[:] = np.float32(0)
        for at in range(indptr[i], indptr[i + 1]):
            if indices[at] // BLOCK != block:
                block = indices[at] // BLOCK
                total += sum_of(lanes, LANES)
                lanes[:] = np.float32(0)
            lanes[indices[at] % LANES] += values[at] * values[at]
        squares[i] = total + sum_of(lanes, LANES)
