"""Walsh-Hadamard transform of float32 rows, not normalised, fused with a diagonal before it.

A row stays as it lies in memory. Bits of the index from the fifth up are butterflies across vectors of 16, sixteen
vectors at a time in registers; the lowest four are butterflies within a vector. So nothing is moved into
lanes and back, a row of 8,192 columns stays in the first-level cache, and a row's result depends on that row alone.

Sums run in one fixed order, from the lowest bit of a pass to its highest: the same bits on every CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.butterflies import across, load_2, load_4, load_8, load_16, store_group, times, within
from dkfeat.compiled.simd import LANES

__all__ = ["SMALLEST", "hadamard_rows", "transform_at"]

SMALLEST = LANES
"""Least length of a transform."""


@inlined
def _low_bits(source: Any, at: Any, factors: Any, f: Any, target: Any, to: Any, n: Any) -> Any:
    """Multiply by factors and transform the lowest bits, up to eight; gives the step of the next bit."""
    if n >= 16 * LANES:
        for i in range(0, n, 16 * LANES):
            group = times(load_16(source, at + i, LANES), load_16(factors, f + i, LANES))
            store_group(target, to + i, LANES, across(within(group)))
        return 16 * LANES
    for i in range(0, n, LANES):
        # two equal vectors: one alone is no group
        group = times(load_2(source, at + i, 0), load_2(factors, f + i, 0))
        store_group(target, to + i, 0, within(group))
    return LANES


@inlined
def _high_bits(x: Any, at: Any, n: Any, h: Any) -> None:
    """Transform the bits of steps h, 2 h, ... , n / 2 in place."""
    while h < n:
        left = n // h
        if left >= 16 and left != 32:
            for i in range(at, at + n, 16 * h):
                for j in range(i, i + h, LANES):
                    store_group(x, j, h, across(load_16(x, j, h)))
            h *= 16
        elif left >= 8:
            for i in range(at, at + n, 8 * h):
                for j in range(i, i + h, LANES):
                    store_group(x, j, h, across(load_8(x, j, h)))
            h *= 8
        elif left == 4:
            for j in range(at, at + h, LANES):
                store_group(x, j, h, across(load_4(x, j, h)))
            h *= 4
        else:
            for j in range(at, at + h, LANES):
                store_group(x, j, h, across(load_2(x, j, h)))
            h *= 2


@inlined
def transform_at(source: Any, at: Any, factors: Any, f: Any, target: Any, to: Any, n: Any) -> None:
    """Write H diag(factors) source, with H of +-1 and order n, to ``target[to:to + n]``.

    Parameters
    ----------
    source, target : ndarray, flat, float32
        They may be one array with ``at == to``.
    at, to : int
    factors : ndarray, flat, float32
        Diagonal at ``factors[f:f + n]``.
    f : int
    n : int
        Power of two, at least 16.
    """
    _high_bits(target, to, n, _low_bits(source, at, factors, f, target, to, n))


@kernel
def _transform_all(rows: Any, factors: Any, n: Any, out: Any) -> None:
    for at in range(0, rows.shape[0], n):
        transform_at(rows, at, factors, 0, out, at, n)


def hadamard_rows(rows: NDArray[np.float32], factors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Walsh-Hadamard transform of each row times factors: ``(rows * factors) @ H`` with H of entries +-1.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n), float32, C order
        n is a power of two, at least 16.
    factors : ndarray of shape (n,), float32

    Returns
    -------
    transformed : ndarray of shape (n_samples, n), float32

    Examples
    --------
    >>> rows = np.eye(2, 16, dtype=np.float32)
    >>> hadamard_rows(rows, np.ones(16, np.float32))[1, :4]
    array([ 1., -1.,  1., -1.], dtype=float32)
    """
    out = np.empty_like(rows)
    _transform_all(rows.ravel(), factors, rows.shape[1], out.ravel())
    return out
