"""Rows made ready for random Fourier features, and the cosines that end them.

Lengths of rows are sums in float64, the columns dealt to eight partial sums by their number modulo 8: a zero adds
nothing, so dense and sparse rows give equal bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.normal import cosine_of_turns
from dkfeat.compiled.simd import LANES, load, splat, store

__all__ = ["finish_features", "squares_of_dense", "squares_of_sparse"]

f64 = np.float64
_FLUSH = 64  # vectors of squares that are summed in float32 before they go to float64


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
    values : ndarray of shape (n_samples * n_columns,), float32 or float64
    n_columns : int
    squares : ndarray of shape (n_samples,), float64
    """
    partial = np.empty(8)
    for i in range(squares.shape[0]):
        at = i * n_columns
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0  # apart: the compiler keeps them in one register
        whole = at + n_columns // 8 * 8
        for j in range(at, whole, 8):
            v0, v1, v2, v3 = f64(values[j]), f64(values[j + 1]), f64(values[j + 2]), f64(values[j + 3])
            v4, v5, v6, v7 = f64(values[j + 4]), f64(values[j + 5]), f64(values[j + 6]), f64(values[j + 7])
            s0, s1, s2, s3 = s0 + v0 * v0, s1 + v1 * v1, s2 + v2 * v2, s3 + v3 * v3
            s4, s5, s6, s7 = s4 + v4 * v4, s5 + v5 * v5, s6 + v6 * v6, s7 + v7 * v7
        partial[0], partial[1], partial[2], partial[3] = s0, s1, s2, s3
        partial[4], partial[5], partial[6], partial[7] = s4, s5, s6, s7
        for j in range(whole, at + n_columns):
            value = f64(values[j])
            partial[j - whole] += value * value
        squares[i] = _sum_of(partial, 8)


@kernel
def squares_of_sparse(indptr: Any, indices: Any, values: Any, squares: Any) -> None:
    """Do what `squares_of_dense` does for sparse rows.

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), int64
    indices : ndarray of shape (nnz,), int64
        Ascending in a row.
    values : ndarray of shape (nnz,), float32 or float64
    squares : ndarray of shape (n_samples,), float64
    """
    partial = np.empty(8)
    for i in range(squares.shape[0]):
        partial[:] = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            value = f64(values[at])
            partial[indices[at] & 7] += value * value
        squares[i] = _sum_of(partial, 8)


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
            if j // LANES % _FLUSH == _FLUSH - 1:
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
