"""Gaussian tables from Philox, in strict IEEE arithmetic: the same bits on every CPU.

Entry (coordinate, component) of a stream, with ``q = component // 64``, ``i = component % 64 // 16`` and
``lane = component % 16``, comes from the Philox words x0 ... x3 of (coordinate, 16 q + lane, stream): Box and Muller's
transform of (x0, x1) gives i = 0 from the cosine and i = 1 from the sine, that of (x2, x3) gives i = 2 and 3. The
radius is ``sqrt(-2 log u)`` with ``u = ((x0 >> 1) | 1) * 2**-31``, the angle ``x1 * 2**-32`` turns, taken as a signed
number. Each operation is rounded once to float32; log is `dkfeat.compiled.elementary.log_normal_lanes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin
from numpy.typing import NDArray

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.elementary import log_normal_lanes
from dkfeat.compiled.philox import philox_lanes
from dkfeat.compiled.simd import LANES, bits_of, f32x16, float_of, floor, minimum, splat, store, to_float

__all__ = ["TILE", "cosine_of_turns", "drawn_table", "fill_normals", "normals", "sine_of_quarter", "tile_words"]

TILE = 4 * LANES
"""Components that are drawn together."""

f32, u32, u64 = np.float32, np.uint32, np.uint64
_WORD, _HALF_WORD = u64(0xFFFFFFFF), u64(32)
# sin(2 pi s) / s as a polynomial in s**2 for s in [-1/4, 1/4], relative error 1.1e-10
_S0, _S1, _S2 = f32(6.2831854820251465), f32(-41.34170150756836), f32(81.605224609375)
_S3, _S4, _S5 = f32(-76.70427703857422), f32(42.00978088378906), f32(-14.393966674804688)


def square_root(x: Any) -> Any:
    """Square roots of a f32x16, rounded to nearest."""
    return np.sqrt(x)


@infer_global(square_root)
class _SquareRoot(ConcreteTemplate):
    cases = [signature(f32x16, f32x16)]  # noqa: RUF012  # numba's own form


@lower_builtin(square_root, f32x16)
def _lower_square_root(_: Any, builder: Any, __: Any, args: tuple) -> Any:
    name, kind = f"llvm.sqrt.v{LANES}f32", f32x16.backend
    function = builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(kind, [kind]), name)
    return builder.call(function, args)


@inlined
def sine_of_quarter(s: Any) -> Any:
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
    return sine_of_quarter(splat(f32(0.25)) - _magnitude(r))


@inlined
def _box_muller(x: Any, y: Any) -> Any:
    u = to_float((x >> splat(u32(1))) | splat(u32(1))) * splat(f32(2.0**-31))
    radius = square_root(splat(f32(-2)) * log_normal_lanes(u))
    r = to_float(y) * splat(f32(2.0**-32))
    a = _magnitude(r)
    sine = sine_of_quarter(minimum(a, splat(f32(0.5)) - a))
    sign = bits_of(r) & splat(u32(0x80000000))
    cosine = sine_of_quarter(splat(f32(0.25)) - a)
    return radius * cosine, radius * float_of(bits_of(sine) ^ sign)


@inlined
def tile_words(coordinate: Any, first: Any, stream: Any, seed: Any) -> Any:
    """Four u32x16 of random words for the tile of 64 components from `first`."""
    key = u64(coordinate)
    return philox_lanes(
        key & _WORD, key >> _HALF_WORD, u64(first // TILE * LANES), stream, seed & _WORD, seed >> _HALF_WORD
    )


@kernel
def _fill(coordinates: Any, first: Any, stream: Any, seed: Any, table: Any, step: Any) -> None:
    for q in range(coordinates.shape[0]):
        x0, x1, x2, x3 = tile_words(coordinates[q], first, stream, seed)
        g0, g1 = _box_muller(x0, x1)
        g2, g3 = _box_muller(x2, x3)
        store(table, q * step, g0)
        store(table, q * step + LANES, g1)
        store(table, q * step + 2 * LANES, g2)
        store(table, q * step + 3 * LANES, g3)


def drawn_table(
    fill: Callable[..., None], coordinates: NDArray[np.int64], n_components: int, stream: int, seed: int
) -> NDArray[np.float32]:
    """Draw a table of shape (n_coordinates, n_components) by a compiled loop that fills a tile of it at a time.

    Parameters
    ----------
    fill : callable
        Takes (coordinates, first component, stream, seed, flat table, numbers between two coordinates).
    coordinates : ndarray of shape (n_coordinates,), int64
    n_components, stream, seed : int
    """
    width = -(-n_components // TILE) * TILE
    table = np.empty((len(coordinates), width), np.float32)
    flat = table.reshape(-1)
    for first in range(0, width, TILE):
        fill(coordinates, first, u64(stream), u64(seed), flat[first:], width)
    return table[:, :n_components]


def fill_normals(
    coordinates: NDArray[np.int64], first: int, stream: int, seed: int, table: NDArray[np.float32]
) -> None:
    """Fill a tile of 64 components of each coordinate with independent standard Gaussian numbers.

    Parameters
    ----------
    coordinates : ndarray of shape (n_coordinates,), int64
        From 0 to 2^63 - 1.
    first : int
        First component, a multiple of 64.
    stream, seed : int
        A constant of `dkfeat.random_streams`; a seed in [0, 2^64).
    table : ndarray of shape (n_coordinates, 64), float32, C order
    """
    _fill(coordinates, first, u64(stream), u64(seed), table.reshape(-1), TILE)


def normals(coordinates: NDArray[np.int64], n_components: int, stream: int, seed: int) -> NDArray[np.float32]:
    """Independent standard Gaussian numbers, one for each (coordinate, component).

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

    Examples
    --------
    >>> table = normals(np.array([3, 5]), 2, stream=16, seed=0)
    >>> bool((normals(np.array([5]), 70, stream=16, seed=0)[0, :2] == table[1]).all())
    True
    """
    return drawn_table(_fill, coordinates, n_components, stream, seed)
