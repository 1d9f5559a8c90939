"""Exponential and Lévy tables from Philox, in strict IEEE arithmetic: the same bits on every CPU.

Words are dealt to (coordinate, component) as in `dkfeat.compiled.normal`, with i = 0 ... 3 in a tile.

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

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.elementary import minus_log_complement_lanes
from dkfeat.compiled.normal import TILE, drawn_table, sine_of_quarter, tile_words
from dkfeat.compiled.simd import LANES, splat, store, to_float

__all__ = ["exponentials", "fill_exponentials", "fill_levy", "levy"]

f32, u32, u64 = np.float32, np.uint32, np.uint64
_ALL = u32(1 << 31)


@inlined
def _odd(x: Any) -> Any:
    """Odd numbers below 2**31."""
    return (x >> splat(u32(1))) | splat(u32(1))


@inlined
def _exponential(x: Any) -> Any:
    k = _odd(x)
    step = splat(f32(2.0**-31))
    return minus_log_complement_lanes(to_float(k) * step, to_float(splat(_ALL) - k) * step)


@inlined
def _levy_pair(x: Any, y: Any) -> Any:
    k = _odd(y)
    step = splat(f32(2.0**-33))
    sine, cosine = sine_of_quarter(to_float(k) * step), sine_of_quarter(to_float(splat(_ALL) - k) * step)
    e, quarter = _exponential(x), splat(f32(0.25))
    return quarter / (e * (sine * sine)), quarter / (e * (cosine * cosine))


@kernel
def _fill_exponentials(coordinates: Any, first: Any, stream: Any, seed: Any, table: Any, step: Any) -> None:
    for q in range(coordinates.shape[0]):
        x0, x1, x2, x3 = tile_words(coordinates[q], first, stream, seed)
        store(table, q * step, _exponential(x0))
        store(table, q * step + LANES, _exponential(x1))
        store(table, q * step + 2 * LANES, _exponential(x2))
        store(table, q * step + 3 * LANES, _exponential(x3))


@kernel
def _fill_levy(coordinates: Any, first: Any, stream: Any, seed: Any, table: Any, step: Any) -> None:
    for q in range(coordinates.shape[0]):
        x0, x1, x2, x3 = tile_words(coordinates[q], first, stream, seed)
        w0, w1 = _levy_pair(x0, x1)
        w2, w3 = _levy_pair(x2, x3)
        store(table, q * step, w0)
        store(table, q * step + LANES, w1)
        store(table, q * step + 2 * LANES, w2)
        store(table, q * step + 3 * LANES, w3)


def fill_exponentials(
    coordinates: NDArray[np.int64], first: int, stream: int, seed: int, table: NDArray[np.float32]
) -> None:
    """Fill a tile with independent exponential numbers of mean 1; parameters as of `dkfeat.compiled.normal`."""
    _fill_exponentials(coordinates, first, u64(stream), u64(seed), table.reshape(-1), TILE)


def exponentials(coordinates: NDArray[np.int64], n_components: int, stream: int, seed: int) -> NDArray[np.float32]:
    """Independent exponential numbers of mean 1, one for each (coordinate, component).

    Parameters
    ----------
    coordinates : ndarray of shape (n_coordinates,), int64
        From 0 to 2^63 - 1.
    n_components : int
    stream, seed : int
        A constant of `dkfeat.random_streams`; a seed in [0, 2^64).

    Returns
    -------
    table : ndarray of shape (n_coordinates, n_components), float32
        From 4.6e-10 to 21.5.

    Examples
    --------
    >>> bool(abs(exponentials(np.arange(100), 100, stream=40, seed=0).mean() - 1) < 0.05)
    True
    """
    return drawn_table(_fill_exponentials, coordinates, n_components, stream, seed)


def fill_levy(coordinates: NDArray[np.int64], first: int, stream: int, seed: int, table: NDArray[np.float32]) -> None:
    """Fill a tile with independent Lévy numbers of scale 1/2; parameters as of `dkfeat.compiled.normal`."""
    _fill_levy(coordinates, first, u64(stream), u64(seed), table.reshape(-1), TILE)


def levy(coordinates: NDArray[np.int64], n_components: int, stream: int, seed: int) -> NDArray[np.float32]:
    """Independent Lévy numbers of scale 1/2, one for each (coordinate, component).

    Parameters
    ----------
    coordinates : ndarray of shape (n_coordinates,), int64
        From 0 to 2^63 - 1.
    n_components : int
    stream, seed : int
        A constant of `dkfeat.random_streams`; a seed in [0, 2^64).

    Returns
    -------
    table : ndarray of shape (n_coordinates, n_components), float32
        From 0.011 to 1.1e27.

    Examples
    --------
    >>> w = levy(np.arange(100), 100, stream=40, seed=0)
    >>> bool(abs(np.exp(-4 * w).mean() - np.exp(-2)) < 0.02)  # the mean of e^{-w t} is e^{-sqrt(t)}
    True
    """
    return drawn_table(_fill_levy, coordinates, n_components, stream, seed)
