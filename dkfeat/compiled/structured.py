"""Products with the structured matrices of Fastfood and SORF, a row at a time.

Y. Mukuta, Y. Ushiku, T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018, eq. 3 and 6.

Rows come dense, or sparse with ``indptr`` not empty; they are padded with zeros to a power of two n. A row's results
depend on that row alone, and dense and sparse rows give equal bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dkfeat.compiled._jit import inlined, kernel
from dkfeat.compiled.hadamard import transform_at
from dkfeat.compiled.simd import LANES, load, store

__all__ = ["project_fastfood", "project_orthogonal"]


@inlined
def _take_row(indptr: Any, indices: Any, values: Any, width: Any, i: Any, row: Any) -> None:
    if indptr.shape[0]:
        row[:] = np.float32(0)
        for at in range(indptr[i], indptr[i + 1]):
            row[indices[at]] = values[at]
    else:
        row[:width] = values[i * width : (i + 1) * width]  # the rest is zero from the beginning


@kernel
def project_fastfood(
    indptr: Any,
    indices: Any,
    values: Any,
    width: Any,
    signs: Any,
    order: Any,
    gaussians: Any,
    lengths: Any,
    n: Any,
    n_components: Any,
    out: Any,
) -> None:
    """S H G P H B of each row, for independent blocks of S, G, P and B.

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), or (0,) for dense rows, int64
    indices : ndarray of shape (nnz,), or (0,) for dense rows, int64
    values : ndarray of shape (nnz,), or (n_samples * width,) for dense rows, float32
    width : int
        Columns.
    signs, gaussians, lengths : ndarray of shape (n_blocks * n,), float32
        Diagonals of B, G and S, block after block.
    order : ndarray of shape (n_blocks * n,), uint32
        Entry j of P x is ``x[order[j]]``.
    n : int
        Power of two, at least 16 and `width`.
    n_components : int
    out : ndarray of shape (n_samples * n_components,), float32
    """
    row, mixed, permuted = np.zeros(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    for i in range(out.shape[0] // n_components):
        _take_row(indptr, indices, values, width, i, row)
        for first in range(0, n_components, n):
            transform_at(row, 0, signs, first, mixed, 0, n)
            for j in range(n):
                permuted[j] = mixed[order[first + j]]
            transform_at(permuted, 0, gaussians, first, permuted, 0, n)
            to, last = i * n_components + first, min(n, n_components - first)
            whole = last // LANES * LANES
            for j in range(0, whole, LANES):
                store(out, to + j, load(permuted, j) * load(lengths, first + j))
            for j in range(whole, last):
                out[to + j] = permuted[j] * lengths[first + j]


@kernel
def project_orthogonal(
    indptr: Any,
    indices: Any,
    values: Any,
    width: Any,
    first_signs: Any,
    second_signs: Any,
    third_signs: Any,
    n: Any,
    n_components: Any,
    out: Any,
) -> None:
    """H D1 H D2 H D3 of each row, for independent blocks.

    Parameters
    ----------
    indptr, indices, values, width, n, n_components, out
        As in `project_fastfood`.
    first_signs, second_signs, third_signs : ndarray of shape (n_blocks * n,), float32
        Diagonals of D1, D2 and D3, block after block; D3 acts first.
    """
    row, turned = np.zeros(n, np.float32), np.empty(n, np.float32)
    for i in range(out.shape[0] // n_components):
        _take_row(indptr, indices, values, width, i, row)
        for first in range(0, n_components, n):
            transform_at(row, 0, third_signs, first, turned, 0, n)
            transform_at(turned, 0, second_signs, first, turned, 0, n)
            to = i * n_components + first
            if first + n <= n_components:
                transform_at(turned, 0, first_signs, first, out, to, n)
            else:
                transform_at(turned, 0, first_signs, first, turned, 0, n)
                out[to : to + n_components - first] = turned[: n_components - first]
