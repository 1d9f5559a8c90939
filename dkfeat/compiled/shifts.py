"""Sums of shifted rows: the part of a circular convolution that is better added up than transformed."""

from __future__ import annotations

from typing import Any

from dkfeat.compiled._jit import inlined, kernel

__all__ = ["add_shifted"]


@inlined
def _add(x: Any, at: Any, factors: Any, first: Any, weight: Any, out: Any, to: Any, count: Any) -> None:
    if count > 0:
        sums, values, some = out[to : to + count], x[at + first : at + first + count], factors[first : first + count]
        for k in range(count):
            sums[k] += weight * (some[k] * values[k])


@kernel
def add_shifted(
    x: Any, sizes: Any, factors: Any, places: Any, weights: Any, out: Any, to: Any, width: Any, step: Any
) -> None:
    """Add ``weights[q] * factors[j] * x[i, j]`` to ``out[i, (places[q] + j) % n]`` for all i, j and q.

    Parameters
    ----------
    x : ndarray of shape (n_samples * n_columns,), float32
    sizes : tuple of int
        n_samples, n_columns and the period n, at least n_columns.
    factors : ndarray of shape (n_columns,), float32
    places : ndarray of shape (n_weights,), int64
        From 0 to n - 1.
    weights : ndarray of shape (n_weights,), float32
    out : ndarray, flat, float32
        Place p of row i is ``out[to + i * step + p]``; places from `width` on are left out.
    to, width, step : int
    """
    n_samples, n_columns, n = sizes
    for i in range(n_samples):
        row, target = i * n_columns, to + i * step
        for q in range(places.shape[0]):
            place, weight = places[q], weights[q]
            _add(x, row, factors, 0, weight, out, target + place, min(n_columns, width - place))
            around = n - place
            _add(x, row, factors, around, weight, out, target, min(n_columns - around, width))
