r"""Circular convolutions of rows with mixtures of real vectors, in float64 and for a power of two of columns.

A row is dealt to m rows by masks, of which vectors r_0 ... r_{m-1} make one: :math:`\sum_s r_s * x_s`. Two of them go
into one complex transform, because :math:`\mathrm{Re}[(x_0 + i x_1) * (r_0 - i r_1)] = r_0 * x_0 + r_1 * x_1`.

A transform of n = rows * columns numbers is one along the rows, a multiplication by roots of unity and one along the
columns, each of sixteen neighbours at a time in the first-level cache. Both leave their results in the order in
which they come out; spectra are kept in that order, and the inverse goes the same way back. Operations are strict IEEE
and a row's result does not depend on other rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.simd import LANES, broadcast, load, rounded, store, widened

__all__ = ["SMALLEST", "blocked", "convolve_rows", "spectra_of", "unblocked"]

SMALLEST = LANES * LANES
"""Least period."""


class _Roots(NamedTuple):
    """Roots of unity of a period, real and imaginary parts; flat float64."""

    along_rows: NDArray[np.float64]
    along_columns: NDArray[np.float64]
    of_lanes: NDArray[np.float64]
    """Between both transforms: for each row and lane."""
    of_blocks: NDArray[np.float64]
    """The same for each block of sixteen columns and row."""


def _orders(n: int) -> NDArray[np.int64]:
    """Frequencies of a transform of n numbers in the order in which they come out."""
    if n < 4:
        return np.arange(n)
    quarter = 4 * _orders(n // 4)
    return np.concatenate([quarter + r for r in range(4)])


def _parts(turns: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([np.cos(2 * np.pi * turns), -np.sin(2 * np.pi * turns)]).reshape(2, -1)


def _shape(n: int) -> tuple[int, int]:
    """Rows and columns of a period."""
    n_rows = 1 << (n.bit_length() // 2)
    return n_rows, n // n_rows


def blocked(numbers: NDArray[Any]) -> NDArray[Any]:
    """Put numbers of a period, along the last axis, in the order of `convolve_rows`.

    Sixteen columns follow sixteen columns, each row by row.
    """
    n_rows, n_columns = _shape(numbers.shape[-1])
    blocks = numbers.reshape(*numbers.shape[:-1], n_rows, n_columns // LANES, LANES)
    return np.ascontiguousarray(blocks.swapaxes(-3, -2)).reshape(numbers.shape)


def unblocked(numbers: NDArray[Any]) -> NDArray[Any]:
    """Inverse of `blocked`."""
    n_rows, n_columns = _shape(numbers.shape[-1])
    blocks = numbers.reshape(*numbers.shape[:-1], n_columns // LANES, n_rows, LANES)
    return np.ascontiguousarray(blocks.swapaxes(-3, -2)).reshape(numbers.shape)


@lru_cache(maxsize=4)
def _roots(n: int) -> _Roots:
    n_rows, n_columns = _shape(n)
    frequencies = _orders(n_rows)
    return _Roots(
        _parts(np.arange(n_rows) / n_rows),
        _parts(np.arange(n_columns) / n_columns),
        _parts(np.outer(frequencies, np.arange(LANES)) % n / n),
        _parts(np.outer(np.arange(0, n_columns, LANES), frequencies) % n / n),
    )


@inlined
def _times(ar: Any, ai: Any, br: Any, bi: Any) -> Any:
    return ar * br - ai * bi, ar * bi + ai * br


@inlined
def _transform(re: Any, im: Any, n: Any, roots: Any) -> None:
    size = n
    while size >= 4:
        quarter, step = size // 4, n // size
        for j in range(quarter):
            r1, i1 = broadcast(roots[0], j * step), broadcast(roots[1], j * step)
            r2, i2 = broadcast(roots[0], 2 * j * step), broadcast(roots[1], 2 * j * step)
            r3, i3 = broadcast(roots[0], 3 * j * step), broadcast(roots[1], 3 * j * step)
            for start in range(j, n, size):
                p0 = start * LANES
                p1, p2, p3 = p0 + quarter * LANES, p0 + 2 * quarter * LANES, p0 + 3 * quarter * LANES
                ar, ai, br, bi = load(re, p0), load(im, p0), load(re, p1), load(im, p1)
                cr, ci, dr, di = load(re, p2), load(im, p2), load(re, p3), load(im, p3)
                er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
                gr, gi, hr, hi = br + dr, bi + di, bi - di, dr - br
                store(re, p0, er + gr)
                store(im, p0, ei + gi)
                ur, ui = _times(fr + hr, fi + hi, r1, i1)
                store(re, p1, ur)
                store(im, p1, ui)
                vr, vi = _times(er - gr, ei - gi, r2, i2)
                store(re, p2, vr)
                store(im, p2, vi)
                wr, wi = _times(fr - hr, fi - hi, r3, i3)
                store(re, p3, wr)
                store(im, p3, wi)
        size = quarter
    if size == 2:
        _pairs(re, im, n)


@inlined
def _pairs(re: Any, im: Any, n: Any) -> None:
    for start in range(0, n * LANES, 2 * LANES):
        ar, ai, br, bi = load(re, start), load(im, start), load(re, start + LANES), load(im, start + LANES)
        store(re, start, ar + br)
        store(im, start, ai + bi)
        store(re, start + LANES, ar - br)
        store(im, start + LANES, ai - bi)


@inlined
def _transform_back(re: Any, im: Any, n: Any, roots: Any) -> None:
    size = n
    while size >= 4:
        size //= 4
    if size == 2:
        _pairs(re, im, n)
    size *= 4
    while size <= n:
        quarter, step = size // 4, n // size
        for j in range(quarter):
            r1, i1 = broadcast(roots[0], j * step), broadcast(roots[1], j * step)
            r2, i2 = broadcast(roots[0], 2 * j * step), broadcast(roots[1], 2 * j * step)
            r3, i3 = broadcast(roots[0], 3 * j * step), broadcast(roots[1], 3 * j * step)
            for start in range(j, n, size):
                p0 = start * LANES
                p1, p2, p3 = p0 + quarter * LANES, p0 + 2 * quarter * LANES, p0 + 3 * quarter * LANES
                ar, ai = load(re, p0), load(im, p0)
                xr, xi, yr, yi = load(re, p1), load(im, p1), load(re, p2), load(im, p2)
                zr, zi = load(re, p3), load(im, p3)
                # times the conjugate roots
                br, bi = xr * r1 + xi * i1, xi * r1 - xr * i1
                cr, ci = yr * r2 + yi * i2, yi * r2 - yr * i2
                dr, di = zr * r3 + zi * i3, zi * r3 - zr * i3
                er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
                gr, gi, hr, hi = br + dr, bi + di, di - bi, br - dr
                store(re, p0, er + gr)
                store(im, p0, ei + gi)
                store(re, p1, fr + hr)
                store(im, p1, fi + hi)
                store(re, p2, er - gr)
                store(im, p2, ei - gi)
                store(re, p3, fr - hr)
                store(im, p3, fi - hi)
        size *= 4


@inlined
def _turned(work: Any, first: Any, n_rows: Any, n_columns: Any, lanes: Any) -> None:
    """Rows `first` to `first + 15` of blocked numbers, in lanes."""
    for column in range(0, n_columns, LANES):
        at, to = (column * n_rows) + first * LANES, column * LANES
        for j in range(LANES):
            for l in range(LANES):  # noqa: E741
                lanes[to + j * LANES + l] = work[at + l * LANES + j]


@inlined
def _turned_back(lanes: Any, work: Any, first: Any, n_rows: Any, n_columns: Any) -> None:
    for column in range(0, n_columns, LANES):
        at, to = column * LANES, (column * n_rows) + first * LANES
        for l in range(LANES):  # noqa: E741
            for j in range(LANES):
                work[to + l * LANES + j] = lanes[at + j * LANES + l]


@inlined
def _along_rows(
    re: Any, im: Any, n_rows: Any, column: Any, roots: Any, of_lanes: Any, of_blocks: Any, wr: Any, wi: Any
) -> None:
    _transform(re, im, n_rows, roots)
    for i in range(n_rows):
        at = column // LANES * n_rows + i
        r, m = _times(
            load(of_lanes[0], i * LANES),
            load(of_lanes[1], i * LANES),
            broadcast(of_blocks[0], at),
            broadcast(of_blocks[1], at),
        )
        r, m = _times(load(re, i * LANES), load(im, i * LANES), r, m)
        store(wr, at * LANES, r)
        store(wi, at * LANES, m)


@kernel
def _spectrum(real: Any, imaginary: Any, rows: Any, columns: Any, of_lanes: Any, of_blocks: Any, spectrum: Any) -> None:
    n_rows, n_columns = rows.shape[1], columns.shape[1]
    re, im = np.empty(max(n_rows, n_columns) * LANES), np.empty(max(n_rows, n_columns) * LANES)
    wr, wi = np.empty(n_rows * n_columns), np.empty(n_rows * n_columns)
    for column in range(0, n_columns, LANES):
        for i in range(n_rows):
            store(re, i * LANES, load(real, i * n_columns + column))
            store(im, i * LANES, load(imaginary, i * n_columns + column))
        _along_rows(re, im, n_rows, column, rows, of_lanes, of_blocks, wr, wi)
    for first in range(0, n_rows, LANES):
        _turned(wr, first, n_rows, n_columns, re)
        _turned(wi, first, n_rows, n_columns, im)
        _transform(re, im, n_columns, columns)
        spectrum[0, first * n_columns : (first + LANES) * n_columns] = re[: n_columns * LANES]
        spectrum[1, first * n_columns : (first + LANES) * n_columns] = im[: n_columns * LANES]


@kernel
def _convolve(
    x: Any,
    n_features: Any,
    masks: Any,
    spectra: Any,
    rows: Any,
    columns: Any,
    of_lanes: Any,
    of_blocks: Any,
    out: Any,
    to: Any,
    width: Any,
    step: Any,
) -> None:
    n_rows, n_columns, n_pairs = rows.shape[1], columns.shape[1], spectra.shape[0]
    n, m = n_rows * n_columns, masks.shape[0]
    re, im = np.empty(max(n_rows, n_columns) * LANES), np.empty(max(n_rows, n_columns) * LANES)
    wr, wi, sr, si = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    row, result = np.zeros(n, np.float32), np.empty(n, np.float32)
    for i in range(x.shape[0] // n_features):
        row[:n_features] = x[i * n_features : (i + 1) * n_features]
        for pair in range(n_pairs):
            for column in range(0, n_columns, LANES):
                for j in range(n_rows):
                    at = column * n_rows + j * LANES
                    values = load(row, j * n_columns + column)
                    store(re, j * LANES, widened(values * load(masks[2 * pair], at)))
                    if 2 * pair + 1 < m:
                        store(im, j * LANES, widened(values * load(masks[2 * pair + 1], at)))
                    else:
                        im[j * LANES : (j + 1) * LANES] = 0.0
                _along_rows(re, im, n_rows, column, rows, of_lanes, of_blocks, wr, wi)
            for first in range(0, n_rows, LANES):
                _turned(wr, first, n_rows, n_columns, re)
                _turned(wi, first, n_rows, n_columns, im)
                _transform(re, im, n_columns, columns)
                for j in range(n_columns):
                    at = first * n_columns + j * LANES
                    r, m_ = _times(
                        load(re, j * LANES), load(im, j * LANES), load(spectra[pair, 0], at), load(spectra[pair, 1], at)
                    )
                    if pair > 0:
                        r, m_ = r + load(sr, at), m_ + load(si, at)
                    if pair < n_pairs - 1:
                        store(sr, at, r)
                        store(si, at, m_)
                    else:
                        store(re, j * LANES, r)
                        store(im, j * LANES, m_)
                if pair == n_pairs - 1:
                    _transform_back(re, im, n_columns, columns)
                    _turned_back(re, wr, first, n_rows, n_columns)
                    _turned_back(im, wi, first, n_rows, n_columns)
        for column in range(0, n_columns, LANES):
            for j in range(n_rows):
                at = column // LANES * n_rows + j
                br, bi = _times(
                    load(of_lanes[0], j * LANES),
                    load(of_lanes[1], j * LANES),
                    broadcast(of_blocks[0], at),
                    broadcast(of_blocks[1], at),
                )
                ar, ai = load(wr, at * LANES), load(wi, at * LANES)
                store(re, j * LANES, ar * br + ai * bi)
                store(im, j * LANES, ai * br - ar * bi)
            _transform_back(re, im, n_rows, rows)
            for j in range(n_rows):
                store(result, j * n_columns + column, rounded(load(re, j * LANES)))
        out[to + i * step : to + i * step + width] = result[:width]


def spectra_of(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Transform real vectors, two at a time.

    Parameters
    ----------
    weights : ndarray of shape (m, n), float64
        n a power of two, at least `SMALLEST`.

    Returns
    -------
    spectra : ndarray of shape (ceil(m / 2), 2, n), float64
        Real and imaginary parts for `convolve_rows`.
    """
    m, n = weights.shape
    spectra = np.empty((-(-m // 2), 2, n))
    for pair, spectrum in enumerate(spectra):
        second = -weights[2 * pair + 1] if 2 * pair + 1 < m else np.zeros(n)
        _spectrum(weights[2 * pair] / n, second / n, *_roots(n), spectrum)
    return spectra


def convolve_rows(
    x: NDArray[np.float32],
    masks: NDArray[np.float32],
    spectra: NDArray[np.float64],
    out: NDArray[np.float32],
    to: int,
    width: int,
) -> None:
    """Write the first `width` numbers of each row's convolution to ``out[:, to:to + width]``.

    Parameters
    ----------
    x : ndarray of shape (n_samples, n_features), float32, C order
    masks : ndarray of shape (m, n), float32
        Factors of the columns for each of the vectors, `blocked`; those of columns from n_features on mean nothing.
    spectra : ndarray of shape (ceil(m / 2), 2, n), float64
    out : ndarray of shape (n_samples, n_components), float32, C order
    to, width : int
    """
    _convolve(
        x.reshape(-1), x.shape[1], masks, spectra, *_roots(masks.shape[1]), out.reshape(-1), to, width, out.shape[1]
    )
