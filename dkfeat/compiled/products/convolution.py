r"""Circular convolutions of rows with several real vectors, one chosen for each column, in float64.

The period is a power of two. A row is split into m vectors x_0 ... x_{m-1}: x_s has the columns whose `choice` is s,
and zeros elsewhere. They are convolved with vectors r_0 ... r_{m-1} and added: :math:`\sum_s r_s * x_s`. One complex
transform computes two of these convolutions, because :math:`\mathrm{Re}[(x_0 + i x_1) *
(r_0 - i r_1)] = r_0 * x_0 + r_1 * x_1`.

The first step splits a transform into a few blocks. Each block then passes through all further steps, including the
product with its spectrum and its part of the inverse transform: for 16,384 columns a block and its roots fit the
first-level cache. The result needs only real parts. Block q of the frequencies of a real sequence is the mirrored
conjugate of block -q, so the second half of the blocks is added to the first and needs no inverse transform.

Operations are strict IEEE and a row's result does not depend on other rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import aligned, inlined, kernel
from dkfeat.compiled.products.fourier import (
    LAST,
    PAIR,
    WIDTH,
    join_block,
    join_half,
    join_last,
    load_8,
    plus,
    plus_mirrored,
    split,
    split_block,
    split_chosen,
    split_last,
    splits_of,
    store,
    swapped,
    times,
)

SMALLEST = 256
"""Smallest period."""
_GAP = 16
"""Number of float64 between blocks of the first split; with a power of two as stride, they would share cache sets."""


@kernel
def _spectrum(work, splits):
    n, radix = len(work) // 2, splits.radices[0]
    step = n // radix
    split(work, 0, 2 * step, step // WIDTH, radix, splits.roots, 0)
    for at in range(0, 2 * n, 2 * step):
        split_block(work, at, step, splits)
    for at in range(0, 2 * n, 2 * LAST):
        store(work, at, PAIR, split_last(work, at, splits.roots, splits.starts[-1]))


@kernel
def _convolve(x, n_features, choice, spectra, splits, scratch, singles, out, to, width, out_step):
    n, radix, roots, at_last = len(choice), splits.radices[0], splits.roots, splits.starts[-1]
    n_pairs, size = len(spectra) // (2 * n), n // radix
    stride, count = 2 * size + _GAP, size // WIDTH
    work, sums = scratch[: radix * stride], scratch[radix * stride :]
    padded, whole = singles[:n], singles[n : 2 * n]
    padded[n_features:] = 0
    for i in range(len(x) // n_features):
        row, result = x[i * n_features : (i + 1) * n_features], out[to + i * out_step : to + i * out_step + width]
        if n_features < n:
            padded[:n_features] = row
            row = padded
        for pair in range(n_pairs):
            split_chosen(row, choice, 2 * pair, work, stride, count, radix, roots)
            for block in range(radix - 1, -1, -1):
                at = block * stride
                split_block(work, at, size, splits)
                for v in range(0, 2 * size, 2 * LAST):
                    s = 2 * block * size + v
                    group = times(split_last(work, at + v, roots, at_last), load_8(spectra, pair * 2 * n + s, PAIR))
                    if pair > 0:
                        group = plus(group, load_8(sums, s, PAIR))
                    if pair < n_pairs - 1:
                        store(sums, s, PAIR, group)
                    elif block > radix // 2:
                        store(work, at + v, PAIR, group)
                    else:
                        if 0 < block < radix // 2:
                            mirror = (radix - block) * stride + 2 * (size - LAST) - v
                            group = plus_mirrored(group, load_8(work, mirror, PAIR))
                        store(work, at + v, PAIR, join_last(swapped(group), roots, at_last))
                if pair == n_pairs - 1 and block <= radix // 2:
                    join_block(work, at, size, splits)
        if width < n:
            join_half(work, stride, count, radix, roots, whole)
            result[:] = whole[:width]
        else:
            join_half(work, stride, count, radix, roots, result)


def spectra_of(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Transform real vectors, two at a time.

    Parameters
    ----------
    weights : ndarray of shape (m, n), float64
        n a power of two, at least `SMALLEST`.

    Returns
    -------
    spectra : ndarray of shape (ceil(m / 2), 2 * n), float64
        Spectra for `convolve_rows`.
    """
    m, n = weights.shape
    spectra = aligned(-(-m // 2) * 2 * n, np.float64).reshape(-1, n // WIDTH, 2, WIDTH)
    for pair, spectrum in enumerate(spectra):
        spectrum[:, 0] = weights[2 * pair].reshape(-1, WIDTH) / n
        spectrum[:, 1] = -weights[2 * pair + 1].reshape(-1, WIDTH) / n if 2 * pair + 1 < m else 0
        _spectrum(spectrum.reshape(-1), splits_of(n))
    return spectra.reshape(-1, 2 * n)


def convolve_rows(
    x: NDArray[np.float32],
    choice: NDArray[np.uint16],
    spectra: NDArray[np.float64],
    out: NDArray[np.float32],
    to: int,
    width: int,
) -> None:
    """Write the first `width` numbers of each row's convolution to ``out[:, to:to + width]``.

    Parameters
    ----------
    x : ndarray of shape (n_samples, n_features), float32, C order
    choice : ndarray of shape (n,), uint16
        Number of the vector that is applied to each column; ignored from column n_features on.
    spectra : ndarray of shape (ceil(m / 2), 2 * n), float64
    out : ndarray of shape (n_samples, n_components), float32, C order
    to, width : int
    """
    n, splits = len(choice), splits_of(len(choice))
    n_sums = 2 * n if len(spectra) > 1 else 0
    scratch, singles = aligned(2 * n + int(splits.radices[0]) * _GAP + n_sums, np.float64), aligned(2 * n, np.float32)
    _convolve(
        x.reshape(-1),
        x.shape[1],
        choice,
        spectra.reshape(-1),
        splits,
        scratch,
        singles,
        out.reshape(-1),
        to,
        width,
        out.shape[1],
    )


@inlined
def _add(x, at, factors, first, weight, out, to, count):
    if count > 0:
        sums, values, scales = out[to : to + count], x[at + first : at + first + count], factors[first : first + count]
        for k in range(count):
            sums[k] += weight * (scales[k] * values[k])


@kernel
def add_shifted(x, sizes, factors, shifts, weights, out, to, width, step):
    """Add ``weights[q] * factors[j] * x[i, j]`` to ``out[i, (shifts[q] + j) % n]`` for all i, j and q.

    Parameters
    ----------
    x : ndarray of shape (n_samples * n_columns,), float32
    sizes : tuple of int
        n_samples, n_columns and the period n, at least n_columns.
    factors : ndarray of shape (n_columns,), float32
    shifts : ndarray of shape (n_weights,), int64
        Number of columns by which each weight shifts the row, 0 to n - 1.
    weights : ndarray of shape (n_weights,), float32
    out : ndarray, flat, float32
        Column p of row i is ``out[to + i * step + p]``; columns from `width` on are not written.
    to, width, step : int
    """
    n_samples, n_columns, n = sizes
    for i in range(n_samples):
        row, target = i * n_columns, to + i * step
        for q in range(shifts.shape[0]):
            shift, weight = shifts[q], weights[q]
            _add(x, row, factors, 0, weight, out, target + shift, min(n_columns, width - shift))
            wrapped = n - shift
            _add(x, row, factors, wrapped, weight, out, target, min(n_columns - wrapped, width))
