"""Rows made ready for random Fourier features, and the cosines that end them.

Lengths of rows: squares in float32 are dealt to sixteen sums by their column modulo 16, which are joined in float64
after each 1,024 columns. A zero adds nothing, so dense and sparse rows give equal bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.normal import cosine_of_turns
from dkfeat.compiled.simd import LANES, load, splat, store

__all__ = ["finish_features", "squares_of_dense", "squares_of_sparse"]

_BLOCK = 1024
"""Numbers whose squares are summed in float32 before they go to float64."""


@inlined
def _sum_of(lanes: Any, count: Any) -> Any:
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
        for first in range(i * n_columns, end, _BLOCK):
            last = min(first + _BLOCK, end)
            whole = first + (last - first) // LANES * LANES
            sums = splat(np.float32(0))
            for j in range(first, whole, LANES):
                value = load(values, j)
                sums = sums + value * value
            store(lanes, 0, sums)
            for j in range(whole, last):
                lanes[j - whole] += values[j] * values[j]
            total += _sum_of(lanes, LANES)
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
            if indices[at] // _BLOCK != block:
                block = indices[at] // _BLOCK
                total += _sum_of(lanes, LANES)
                lanes[:] = np.float32(0)
            lanes[indices[at] % LANES] += values[at] * values[at]
        squares[i] = total + _sum_of(lanes, LANES)


@kernel
def finish_features(projected: Any, phases: Any, scales: Any, amplitude: Any, n_components: Any) -> None:
    """Turn projections into features in place: ``amplitude * cos(2 pi (scale * projected + phase))``.

    Parameters
    ----------
    projected : ndarray of shape (n_samples * n_components,), float32
        Finite.
    phases : ndarray of shape (n_components,), float32
        In turns.
    scales : ndarray of shape (n_samples,), float32
        Turns for a unit of projection, row by row.
    amplitude : float32
        With 0 each row is divided by its length instead.
    n_components : int
    """
    tail, lanes = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    whole = n_components // LANES * LANES
    rest = n_components - whole
    tail_phases = np.zeros(LANES, np.float32)
    tail_phases[:rest] = phases[whole:]
    for i in range(scales.shape[0]):
        at, scale = i * n_components, splat(scales[i])
        total, squares = 0.0, splat(np.float32(0))
        for j in range(0, whole, LANES):
            feature = cosine_of_turns(load(projected, at + j) * scale + load(phases, j))
            squares = squares + feature * feature
            store(projected, at + j, feature)
            if (j + LANES) % _BLOCK == 0:
                store(lanes, 0, squares)
                squares = splat(np.float32(0))
                total += _sum_of(lanes, LANES)
        store(lanes, 0, squares)
        total += _sum_of(lanes, LANES)
        tail[:rest] = projected[at + whole : at + n_components]
        feature = cosine_of_turns(load(tail, 0) * scale + load(tail_phases, 0))
        store(tail, 0, feature)
        store(lanes, 0, feature * feature)
        total += _sum_of(lanes, rest)
        factor = splat(amplitude)
        if amplitude == np.float32(0) and total > 0.0:
            factor = splat(np.float32(1.0 / math.sqrt(total)))
        for j in range(0, whole, LANES):
            store(projected, at + j, load(projected, at + j) * factor)
        store(tail, 0, load(tail, 0) * factor)
        projected[at + whole : at + n_components] = tail[:rest]
