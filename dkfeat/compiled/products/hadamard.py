"""Walsh-Hadamard transforms of rows, and the projections Fastfood and SORF, on vectors in registers.

A group is 2, 4 or 8 vectors f32x16, held in registers as a tuple. With the JIT disabled it is an array of shape
(size, 16), and the functions below are plain NumPy with equal results. Eight vectors are the sixteen registers of AVX2:
larger groups would be spilled to memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.simd import I32, LANES, Code, call_intrinsic, f32x16, load, prefetch, register, store

_F32X16 = f32x16.backend


def _loader(size: int) -> Callable:
    def load_group(array, at, step):
        return np.stack([array[at + i * step : at + i * step + LANES] for i in range(size)])

    load_group.__name__ = f"load_{size}"  # numba looks a function up by its name
    return load_group


def _emit_load(code: Code, array: Any, at: Any, step: Any, size: int) -> list:
    return code.load(0, array, code.offsets(at, step, size), _F32X16)


load_2, load_4, load_8 = (_loader(size) for size in (2, 4, 8))
"""Groups of the float32 vectors at ``array[at]``, ``array[at + step]``, ... ."""


def store_group(array, at, step, group):
    """Write a group's vectors to ``array[at]``, ``array[at + step]``, ... ."""
    for i in range(len(group)):
        array[at + i * step : at + i * step + LANES] = group[i]


def times(group, other):
    """Multiply two groups of the same size, vector by vector."""
    return group * other


def across(group):
    """Compute the Walsh-Hadamard transform, not normalised, of each lane across the vectors of a group."""
    return _butterflies(group, LANES, len(group) * LANES)


def within(group):
    """Compute the Walsh-Hadamard transform, not normalised, of the 16 lanes of each vector of a group."""
    return _butterflies(group, 1, LANES)


def _butterflies(group: Any, step: int, end: int) -> Any:
    while step < end:
        halves = group.reshape(-1, 2, step)
        low, high = halves[:, 0], halves[:, 1]
        group = np.stack([low + high, low - high], axis=1).reshape(-1, LANES)
        step *= 2
    return group


def _emit_store(code: Code, array: Any, at: Any, step: Any, group: list) -> None:
    code.store(array, code.offsets(at, step, len(group)), group)


def _emit_times(code: Code, group: list, other: list) -> list:
    return [code.builder.fmul(x, y) for x, y in zip(group, other, strict=True)]


def _emit_across(code: Code, group: list) -> list:
    vectors, step = list(group), 1
    while step < len(vectors):
        for i in range(len(vectors)):
            if not i & step:
                low, high = vectors[i], vectors[i + step]
                vectors[i], vectors[i + step] = code.builder.fadd(low, high), code.builder.fsub(low, high)
        step *= 2
    return vectors


def _emit_within(code: Code, group: list) -> list:
    # low + high and low - high are partner + (+-1) * vector: the product is exact, so a fused operation changes nothing
    builder = code.builder
    undefined = ir.Constant(_F32X16, ir.Undefined)
    vectors, step = list(group), 1
    while step < LANES:
        partner = ir.Constant(ir.VectorType(I32, LANES), [lane ^ step for lane in range(LANES)])
        sign = ir.Constant(_F32X16, [-1.0 if lane & step else 1.0 for lane in range(LANES)])
        vectors = [
            call_intrinsic(builder, "fmuladd", vector, sign, builder.shuffle_vector(vector, undefined, partner))
            for vector in vectors
        ]
        step *= 2
    return vectors


def _register_all() -> None:
    group, array, index = types.UniTuple, types.Array, types.intp
    for size, loader in zip((2, 4, 8), (load_2, load_4, load_8), strict=True):
        register(loader, (array, index, index), partial(_emit_load, size=size), types.UniTuple(f32x16, size))
    register(store_group, (array, index, index, group), _emit_store, types.none)
    register(times, (group, group), _emit_times, lambda x, _: x)
    register(across, (group,), _emit_across, lambda x: x)
    register(within, (group,), _emit_within, lambda x: x)


_register_all()


SMALLEST = LANES
"""Smallest length of a transform."""


@inlined
def _low_bits(source, at, factors, f, target, to, n, ahead):
    """Multiply by factors and transform the lowest bits of the index, up to seven; return the step of the next bit."""
    if n >= 8 * LANES:
        for i in range(0, n, 8 * LANES):
            if ahead > 0:
                for j in range(i + ahead, i + ahead + 8 * LANES, LANES):
                    prefetch(source, at + j)
                    prefetch(target, to + j)
            group = times(load_8(source, at + i, LANES), load_8(factors, f + i, LANES))
            store_group(target, to + i, LANES, across(within(group)))
        return 8 * LANES
    for i in range(0, n, LANES):
        # a group has at least two vectors: load the vector twice
        group = times(load_2(source, at + i, 0), load_2(factors, f + i, 0))
        store_group(target, to + i, 0, within(group))
    return LANES


@inlined
def _high_bits(x, at, n, h):
    """Transform the bits of steps h, 2 h, ... , n / 2 in place."""
    while h < n:
        left = n // h
        if left == 2:
            for j in range(at, at + h, LANES):
                store_group(x, j, h, across(load_2(x, j, h)))
            h *= 2
        elif left == 4 or left == 16:
            for i in range(at, at + n, 4 * h):
                for j in range(i, i + h, LANES):
                    store_group(x, j, h, across(load_4(x, j, h)))
            h *= 4
        else:
            for i in range(at, at + n, 8 * h):
                for j in range(i, i + h, LANES):
                    store_group(x, j, h, across(load_8(x, j, h)))
            h *= 8


@inlined
def transform_at(source, at, factors, f, target, to, n, ahead=0):
    """Write H diag(factors) source, with H of +-1 and order n, to ``target[to:to + n]``.

    Parameters
    ----------
    source, target : ndarray, flat, float32
        They may be the same array if ``at == to``.
    at, to : int
    factors : ndarray, flat, float32
        Diagonal at ``factors[f:f + n]``.
    f : int
    n : int
        Power of two, at least 16.
    ahead : int
        If above 0, source and target are prefetched this far ahead, for rows that come from memory.
    """
    _high_bits(target, to, n, _low_bits(source, at, factors, f, target, to, n, ahead))


class FlatRows(NamedTuple):
    """Dense or sparse rows as flat arrays."""

    indptr: NDArray[np.int64]
    """Shape (n_samples + 1,), or (0,) for dense rows."""
    indices: NDArray[np.int64]
    """Shape (nnz,), or (0,) for dense rows."""
    values: NDArray[np.float32]
    """Shape (nnz,), or (n_samples * width,) for dense rows."""
    width: int
    """Number of columns."""


class FastfoodTables(NamedTuple):
    """Diagonals of B, G and S and the permutation P of Fastfood, each of shape (n_blocks * n,), block after block."""

    signs: NDArray[np.float32]
    order: NDArray[np.uint32]
    """Entry j of P x is ``x[order[j]]``."""
    gaussians: NDArray[np.float32]
    lengths: NDArray[np.float32]


@inlined
def _take_row(rows, i, row):
    if rows.indptr.shape[0]:
        row[:] = np.float32(0)
        for at in range(rows.indptr[i], rows.indptr[i + 1]):
            row[rows.indices[at]] = rows.values[at]
    else:  # columns from the width on are zero from the beginning
        at, whole = i * rows.width, rows.width // LANES * LANES
        for j in range(0, whole, LANES):  # an assignment of slices takes several times as long
            store(row, j, load(rows.values, at + j))
        for j in range(whole, rows.width):
            row[j] = rows.values[at + j]


@kernel
def project_fastfood(rows, tables, n, n_components, out):
    """Apply S H G P H B to each row, for independent blocks of S, G, P and B.

    Parameters
    ----------
    rows : FlatRows
    tables : FastfoodTables
    n : int
        Power of two, at least 16 and the rows' width.
    n_components : int
    out : ndarray of shape (n_samples * n_components,), float32
    """
    row, mixed, permuted = np.zeros(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    order, lengths = tables.order, tables.lengths
    for i in range(out.shape[0] // n_components):
        _take_row(rows, i, row)
        for first in range(0, n_components, n):
            transform_at(row, 0, tables.signs, first, mixed, 0, n)
            chosen = order[first : first + n]
            for j in range(n):
                permuted[j] = mixed[chosen[j]]
            transform_at(permuted, 0, tables.gaussians, first, permuted, 0, n)
            to, last = i * n_components + first, min(n, n_components - first)
            whole = last // LANES * LANES
            for j in range(0, whole, LANES):
                store(out, to + j, load(permuted, j) * load(lengths, first + j))
            for j in range(whole, last):
                out[to + j] = permuted[j] * lengths[first + j]


@kernel
def project_orthogonal(rows, signs, n, n_components, out):
    """Apply H D1 H D2 H D3 to each row, for independent blocks.

    Parameters
    ----------
    rows, n, n_components, out
        As in `project_fastfood`.
    signs : tuple of 3 ndarrays of shape (n_blocks * n,), float32
        Diagonals of D1, D2 and D3, block after block; D3 acts first.
    """
    row, work = np.zeros(n, np.float32), np.empty(n, np.float32)
    for i in range(out.shape[0] // n_components):
        _take_row(rows, i, row)
        for first in range(0, n_components, n):
            transform_at(row, 0, signs[2], first, work, 0, n)
            transform_at(work, 0, signs[1], first, work, 0, n)
            to = i * n_components + first
            if first + n <= n_components:
                transform_at(work, 0, signs[0], first, out, to, n)
            else:
                transform_at(work, 0, signs[0], first, work, 0, n)
                out[to : to + n_components - first] = work[: n_components - first]
