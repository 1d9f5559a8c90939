"""Tables of Gaussian, exponential and Lévy numbers from Philox, in strict IEEE arithmetic: equal bits on every CPU.

Entry (coordinate, component) of a stream, with ``q = component // 64``, ``i = component % 64 // 16`` and
``lane = component % 16``, comes from the Philox words x0 ... x3 of (coordinate, 16 q + lane, stream). Each operation is
rounded once to float32; log is `dkfeat.compiled.random.elementary.log_normal_lanes`.

Gaussian: Box and Muller's transform of (x0, x1) gives i = 0 from the cosine and i = 1 from the sine, that of (x2, x3)
gives i = 2 and 3. The radius is ``sqrt(-2 log u)`` with ``u = ((x0 >> 1) | 1) * 2**-31``, the angle ``x1 * 2**-32``
turns, taken as a signed number.

Exponential, mean 1: ``-log(1 - u)`` with ``u = ((x_i >> 1) | 1) * 2**-31``, precise near 0 as well.

Lévy, scale 1/2: ``1 / (2 Z**2)`` of a standard Gaussian Z. Box and Muller's transform makes two of two words:
``1 / (4 E sin(pi/2 v)**2)`` and ``1 / (4 E cos(pi/2 v)**2)``, with E exponential of x0 and v uniform of x1 gives i = 0
and 1, that of (x2, x3) gives i = 2 and 3. Numbers lie between 0.011 and 1.1e27: none is infinite, and the
probability that a law gives to what lies beyond is below 2**-31.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.random.elementary import log_normal_lanes, minus_log_complement_lanes
from dkfeat.compiled.random.philox import philox_lanes
from dkfeat.compiled.simd.vector import (
    LANES,
    bits_of,
    float_of,
    floor,
    minimum,
    splat,
    square_root,
    store,
    to_float,
)

TILE = 4 * LANES
"""Components that are drawn together."""

f32, u32, u64 = np.float32, np.uint32, np.uint64
_GAUSSIAN, _EXPONENTIAL, _LEVY = range(3)
_ALL = u32(1 << 31)
# sin(2 pi s) / s as a polynomial in s**2 for s in [-1/4, 1/4], relative error 1.1e-10
_S0, _S1, _S2 = f32(6.2831854820251465), f32(-41.34170150756836), f32(81.605224609375)
_S3, _S4, _S5 = f32(-76.70427703857422), f32(42.00978088378906), f32(-14.393966674804688)


@inlined
def _sine_of_quarter(s: Any) -> Any:
    """sin(2 pi s) of a f32x16 in [-1/4, 1/4], to float32's relative precision."""
    z = s * s
    even = splat(_S0) + (z * z) * (splat(_S2) + (z * z) * splat(_S4))
    odd = splat(_S1) + (z * z) * (splat(_S3) + (z * z) * splat(_S5))
    return s * (even + z * odd)


@inlined
def _magnitude(x: Any) -> Any:
    return float_of(bits_of(x) & splat(u32(0x7FFFFFFF)))


@inlined
def cosine_of_turns(t: Any) -> Any:
    """cos(2 pi t) of a f32x16, with absolute error below 2e-7 for the float32 t given."""
    r = t - floor(t + splat(f32(0.5)))
    return _sine_of_quarter(splat(f32(0.25)) - _magnitude(r))


@inlined
def _odd(x: Any) -> Any:
    """Odd numbers below 2**31."""
    return (x >> splat(u32(1))) | splat(u32(1))


@inlined
def _box_muller(x: Any, y: Any) -> Any:
    u = to_float(_odd(x)) * splat(f32(2.0**-31))
    radius = square_root(splat(f32(-2)) * log_normal_lanes(u))
    r = to_float(y) * splat(f32(2.0**-32))
    a = _magnitude(r)
    sine = _sine_of_quarter(minimum(a, splat(f32(0.5)) - a))
    sign = bits_of(r) & splat(u32(0x80000000))
    cosine = _sine_of_quarter(splat(f32(0.25)) - a)
    return radius * cosine, radius * float_of(bits_of(sine) ^ sign)


@inlined
def _exponential(x: Any) -> Any:
    k = _odd(x)
    step = splat(f32(2.0**-31))
    return minus_log_complement_lanes(to_float(k) * step, to_float(splat(_ALL) - k) * step)


@inlined
def _levy_pair(x: Any, y: Any) -> Any:
    k = _odd(y)
    step = splat(f32(2.0**-33))
    sine, cosine = _sine_of_quarter(to_float(k) * step), _sine_of_quarter(to_float(splat(_ALL) - k) * step)
    e, quarter = _exponential(x), splat(f32(0.25))
    return quarter / (e * (sine * sine)), quarter / (e * (cosine * cosine))


@kernel
def _fill(law: Any, coordinates: Any, first: Any, stream: Any, seed: Any, table: Any, step: Any) -> None:
    for q in range(coordinates.shape[0]):
        x0, x1, x2, x3 = philox_lanes(u64(coordinates[q]), u64(first // TILE * LANES), stream, seed)
        if law == _GAUSSIAN:
            g0, g1 = _box_muller(x0, x1)
            g2, g3 = _box_muller(x2, x3)
        elif law == _EXPONENTIAL:
            g0, g1, g2, g3 = _exponential(x0), _exponential(x1), _exponential(x2), _exponential(x3)
        else:
            g0, g1 = _levy_pair(x0, x1)
            g2, g3 = _levy_pair(x2, x3)
        store(table, q * step, g0)
        store(table, q * step + LANES, g1)
        store(table, q * step + 2 * LANES, g2)
        store(table, q * step + 3 * LANES, g3)


def _drawn(
    law: int,
    coordinates: NDArray[np.int64],
    n_components: int,
    stream: int,
    seed: int,
    first: int,
    out: NDArray[np.float32] | None,
) -> NDArray[np.float32]:
    width = -(-n_components // TILE) * TILE
    table = np.empty((len(coordinates), width), np.float32) if out is None else out
    flat = table.reshape(-1)
    for at in range(0, width, TILE):
        _fill(law, coordinates, first + at, u64(stream), u64(seed), flat[at:], width)
    return table[:, :n_components]


def normals(
    coordinates: NDArray[np.int64],
    n_components: int,
    stream: int,
    seed: int,
    first: int = 0,
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Independent standard Gaussian numbers, one for each (coordinate, component).

    Parameters
    ----------
    coordinates : ndarray of shape (n_coordinates,), int64
        From 0 to 2^63 - 1.
    n_components : int
    stream, seed : int
        A constant of `dkfeat.compiled.random.philox`; a seed in [0, 2^64).
    first : int, default=0
        First component, a multiple of 64.
    out : ndarray of shape (n_coordinates, n_components), float32, C order, or None
        Filled, for n_components that is a multiple of 64.

    Returns
    -------
    table : ndarray of shape (n_coordinates, n_components), float32

    Examples
    --------
    >>> table = normals(np.array([3, 5]), 2, stream=16, seed=0)
    >>> bool((normals(np.array([5]), 70, stream=16, seed=0)[0, :2] == table[1]).all())
    True
    """
    return _drawn(_GAUSSIAN, coordinates, n_components, stream, seed, first, out)


def exponentials(
    coordinates: NDArray[np.int64],
    n_components: int,
    stream: int,
    seed: int,
    first: int = 0,
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Independent exponential numbers of mean 1, from 4.6e-10 to 21.5; parameters as of `normals`.

    Examples
    --------
    >>> bool(abs(exponentials(np.arange(100), 100, stream=40, seed=0).mean() - 1) < 0.05)
    True
    """
    return _drawn(_EXPONENTIAL, coordinates, n_components, stream, seed, first, out)


def levy(
    coordinates: NDArray[np.int64],
    n_components: int,
    stream: int,
    seed: int,
    first: int = 0,
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Independent Lévy numbers of scale 1/2, from 0.011 to 1.1e27; parameters as of `normals`.

    Examples
    --------
    >>> w = levy(np.arange(100), 100, stream=40, seed=0)
    >>> bool(abs(np.exp(-4 * w).mean() - np.exp(-2)) < 0.02)  # the mean of e^{-w t} is e^{-sqrt(t)}
    True
    """
    return _drawn(_LEVY, coordinates, n_components, stream, seed, first, out)
