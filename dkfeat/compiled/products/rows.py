"""Norms of rows, and the nonlinearities that turn projected rows into random features: cosines and exponentials.

Squares in float32 are added to sixteen sums, by column modulo 16; the sums are combined in float64 after every 1,024
columns. A zero adds nothing, so dense and sparse rows give equal bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.random import cosine_of_turns
from dkfeat.compiled.simd import LANES, bits_of, float_of, load, minimum, select, splat, store

L1, L2, MAX = 1, 2, 0
_BLOCK = 1024
"""Number of columns whose squares are summed in float32 before the sums are added in float64."""


@kernel
def normalise_rows(
    indptr: NDArray[np.int64], values: NDArray[np.float64], norm: int, normalised: NDArray[np.float64]
) -> None:
    """Fill `normalised` with each row's values divided by the row's norm.

    A row is scaled by a power of two first, which is exact, so that no sum overflows; terms are added in the order of
    `values`. A value below about 1e-308 of the row's largest may become zero.

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), int64
    values : ndarray of shape (nnz,), float64
        Finite; a row with values has at least one that is not 0.
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
def _sum_of(lanes, count):
    """Compute the sum of the first `count` of 16 float32, in float64."""
    total = 0.0
    for lane in range(count):
        total += np.float64(lanes[lane])
    return total


@kernel
def squares_of_dense(values, n_columns, squares):
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
def squares_of_sparse(indptr, indices, values, squares):
    """Write the squared length of each sparse row, with the same bits as `squares_of_dense`.

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


f32, u32 = np.float32, np.uint32
_ZERO, _ONE = f32(0), f32(1)
_LARGEST = f32(87.33654)
"""exp(-x) of this x is the smallest normal float32; for larger x, features are 0."""
_LOG2_E, _LN2_HIGH, _LN2_LOW = f32(1.4426950216293335), f32(0.693359375), f32(-2.12194440e-4)
_TO_WHOLE = f32(1.5 * 2**23)
"""Adding it rounds a number below 2**22 to an integer, held in the low bits of the sum; subtracting it again gives that
integer as a float."""
# e**r = 1 + r + r**2 Q(r) for r in [-log(2) / 2, log(2) / 2], relative error below 1e-7
_C0, _C1, _C2 = f32(0.5), f32(0.16666667), f32(0.041665795)
_C3, _C4, _C5 = f32(0.008333452), f32(0.0013981999), f32(1.9875691e-4)


@inlined
def _decay(v):
    """Compute e**-v of a f32x16; 1 for v below 0, and 0 if the result is not a normal number."""
    v = select(v < splat(_ZERO), splat(_ZERO), v)
    t = splat(_ZERO) - minimum(v, splat(_LARGEST))
    shifted = t * splat(_LOG2_E) + splat(_TO_WHOLE)
    whole = shifted - splat(_TO_WHOLE)
    r = (t - whole * splat(_LN2_HIGH)) - whole * splat(_LN2_LOW)
    series = splat(_C0) + r * (splat(_C1) + r * (splat(_C2) + r * (splat(_C3) + r * (splat(_C4) + r * splat(_C5)))))
    near_1 = splat(_ONE) + (r + (r * r) * series)
    power = float_of(bits_of(near_1) + (bits_of(shifted) << splat(u32(23))))
    return select(v < splat(_LARGEST), power, splat(_ZERO))


@kernel
def decay_features(projected, amplitude):
    """Turn projections into features in place: ``amplitude * exp(-max(projected, 0))``.

    Parameters
    ----------
    projected : ndarray of shape (n,), float32
        Infinity gives 0.
    amplitude : float32
    """
    whole = projected.shape[0] // LANES * LANES
    for at in range(0, whole, LANES):
        store(projected, at, splat(amplitude) * _decay(load(projected, at)))
    tail, rest = np.zeros(LANES, np.float32), projected.shape[0] - whole
    tail[:rest] = projected[whole:]
    store(tail, 0, splat(amplitude) * _decay(load(tail, 0)))
    projected[whole:] = tail[:rest]


@kernel
def scale_values(values: Any, factor: Any, divisor: Any, largest: Any, scaled: Any) -> bool:
    """Write ``values * factor * factor / divisor`` in float32, at most `largest`; return True if all values are valid.

    Parameters
    ----------
    values : ndarray of shape (n,), float32 or float64
    factor, divisor, largest : float
        Above 0; a product may overflow, but 0 stays 0.
    scaled : ndarray of shape (n,), float32

    Returns
    -------
    valid : bool
        True if all values are finite and at least 0.
    """
    invalid, divides = False, divisor != 1.0  # divisions double the time
    for i in range(values.shape[0]):
        value = np.float64(values[i])
        invalid |= not (0.0 <= value < np.inf)
        value = value * factor * factor
        if divides:
            value = value / divisor
        scaled[i] = np.float32(value if value < largest else largest)
    return not invalid


@kernel
def finish_features(projected, phases, scales, amplitude, n_components):
    """Turn projections into features in place: ``amplitude * cos(2 pi (scale * projected + phase))``.

    Parameters
    ----------
    projected : ndarray of shape (n_samples * n_components,), float32
        Finite.
    phases : ndarray of shape (n_components,), float32
        Phases in turns.
    scales : ndarray of shape (n_samples,), float32
        Turns per unit of projection for each row.
    amplitude : float32
        If it is 0, each row is divided by its length instead.
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
