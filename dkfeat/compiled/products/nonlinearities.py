"""Nonlinearities that turn projected rows into random features: the cosines of Fourier, the exponentials of Laplace.

Squares of a row's cosines are summed in float32 in sixteen sums, which are joined in float64 after each 1,024 columns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.products.norms import BLOCK, sum_of
from dkfeat.compiled.random.laws import cosine_of_turns
from dkfeat.compiled.simd.vector import LANES, bits_of, float_of, load, minimum, select, splat, store

f32, u32 = np.float32, np.uint32
_ZERO, _ONE = f32(0), f32(1)
_LARGEST = f32(87.33654)
"""e to minus this is the smallest normal float32; beyond, features are 0."""
_LOG2_E, _LN2_HIGH, _LN2_LOW = f32(1.4426950216293335), f32(0.693359375), f32(-2.12194440e-4)
_TO_WHOLE = f32(1.5 * 2**23)
"""Added and taken away again, rounds a number below 2**22 to a whole one, which stands in the low bits between."""
# e**r = 1 + r + r**2 Q(r) for r in [-log(2) / 2, log(2) / 2], relative error below 1e-7
_C0, _C1, _C2 = f32(0.5), f32(0.16666667), f32(0.041665795)
_C3, _C4, _C5 = f32(0.008333452), f32(0.0013981999), f32(1.9875691e-4)


@inlined
def _decay(v: Any) -> Any:
    """e**-v of a f32x16; 1 below 0, 0 where it is no normal number."""
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
def decay_features(projected: Any, amplitude: Any) -> None:
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
    """Write ``values * factor * factor / divisor`` in float32, at most `largest`; tell whether all values are fit.

    Parameters
    ----------
    values : ndarray of shape (n,), float32 or float64
    factor, divisor, largest : float
        Above 0; a product may overflow, but 0 stays 0.
    scaled : ndarray of shape (n,), float32

    Returns
    -------
    fit : bool
        Whether all values are finite and at least 0.
    """
    unfit = False
    if divisor == 1.0:  # divisions would take as long as all else
        for i in range(values.shape[0]):
            value = np.float64(values[i])
            unfit |= not (0.0 <= value < np.inf)
            value = value * factor * factor
            scaled[i] = np.float32(value if value < largest else largest)
    else:
        for i in range(values.shape[0]):
            value = np.float64(values[i])
            unfit |= not (0.0 <= value < np.inf)
            value = value * factor * factor / divisor
            scaled[i] = np.float32(value if value < largest else largest)
    return not unfit


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
            if (j + LANES) % BLOCK == 0:
                store(lanes, 0, squares)
                squares = splat(np.float32(0))
                total += sum_of(lanes, LANES)
        store(lanes, 0, squares)
        total += sum_of(lanes, LANES)
        tail[:rest] = projected[at + whole : at + n_components]
        feature = cosine_of_turns(load(tail, 0) * scale + load(tail_phases, 0))
        store(tail, 0, feature)
        store(lanes, 0, feature * feature)
        total += sum_of(lanes, rest)
        factor = splat(amplitude)
        if amplitude == np.float32(0) and total > 0.0:
            factor = splat(np.float32(1.0 / math.sqrt(total)))
        for j in range(0, whole, LANES):
            store(projected, at + j, load(projected, at + j) * factor)
        store(tail, 0, load(tail, 0) * factor)
        projected[at + whole : at + n_components] = tail[:rest]
