"""Products of signed sums: features of rows under random signs, without a table of weights.

Components are in blocks of 16, in descending order of degree. Block b has as many levels as its first component has
factors, with 16 factors each, starting at factor ``starts[b]``; lane l of level j is factor j of component 16 b + l. A
factor is a row's sum of signed values, and a component is ``constants * prod_j (scales * factor_j)`` over its degree.

The order of summation is fixed: the columns of a group of four, in order, make a partial sum, and partial sums are
added in the order of their groups. A zero adds nothing, so dense and sparse rows give equal bits, on every CPU, in
blocks of any size.

- Dense rows are processed 16 at a time, one per lane. The 16 signed sums of a group are computed once and looked up by
  the four bits of each factor: for 16 rows, a group takes one addition per factor; a matrix product takes four.
- Sparse rows add or subtract a value in 16 factors at once, with 16 bits of the packed table as a mask.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel
from dkfeat.compiled.random import COLUMNS
from dkfeat.compiled.simd import LANES, Code, load, load_four, mask16, register, select, splat, store, store_four

GROUP = 4
"""Number of neighbouring columns in a partial sum."""
_CHUNK = 8 * LANES
"""Number of factors of a sparse row summed at a time, in registers."""

_ENTRIES = 1 << GROUP
_LOOKUPS = COLUMNS // GROUP
_SUMS, _CELLS = _LOOKUPS * _ENTRIES * LANES, COLUMNS * LANES
SCRATCH_SIZE = _SUMS + _CELLS
"""Number of float32 that `multiply_dense_signs` needs for intermediate values."""

f32, u64 = np.float32, np.uint64


def load_mask(words, offset):
    """Make a mask of 16 lanes from the bits of ``words[offset]``, a uint16; the lowest bit is lane 0."""
    return (words[offset] >> np.arange(LANES, dtype=np.uint16)) & 1 == 1


def _emit_load_mask(code: Code, words: Any, offset: Any) -> Any:
    return code.load(0, words, [offset], mask16.backend)[0]


register(load_mask, (types.Array(types.uint16, 1, "C"), types.intp), _emit_load_mask, mask16)


@inlined
def _fill_sums(cells, group, sums):
    """Write the 16 signed sums of four columns of 16 rows; column t is negative in entries whose bit t is set.

    Each sum is in the order of the columns.
    """
    at, to = group * GROUP * LANES, group * _ENTRIES * LANES
    zero = splat(f32(0))
    first = load(cells, at)
    store(sums, to, first)
    store(sums, to + LANES, zero - first)
    for t in range(1, GROUP):
        value, half = load(cells, at + t * LANES), LANES << t
        for entry in range(0, half, LANES):
            base = load(sums, to + entry)
            store(sums, to + entry, base + value)
            store(sums, to + entry + half, base - value)


@inlined
def _look_up(sums, group, word):
    entry = np.int64(word >> u64(GROUP * group) & u64(_ENTRIES - 1))
    return load(sums, (group * _ENTRIES + entry) * LANES)


class Components(NamedTuple):
    """Blocks of components, and their factors in a table of signs."""

    starts: NDArray[np.int64]
    """First factor of each block, and the total number of factors at the end, shape (n_blocks + 1,)."""
    degrees: NDArray[np.float32]
    """Degree of each component, descending integers, shape (16 * n_blocks,); arbitrary beyond the last component."""
    scales: NDArray[np.float32]
    """Shape (16 * n_blocks,)."""
    constants: NDArray[np.float32]
    """Shape (16 * n_blocks,)."""
    first_block: int
    """First block to compute; the table has the factors of all blocks to compute."""
    last_block: int
    """End of the blocks to compute, exclusive."""
    n_factors: int
    """Number of factors of the table."""
    origin: int
    """First factor of the table."""


class Features(NamedTuple):
    """Output array for features, and marks of rows that overflow."""

    values: NDArray[np.float32]
    """Flat: component c of row i is ``values[to + i * step + c]``; components are the last columns of a row."""
    to: int
    step: int
    overflowed: NDArray[np.uint8]
    """Shape (n_samples,): set to 1 for rows with a feature that overflows, otherwise unchanged."""


@kernel
def multiply_dense_signs(
    x, multipliers, n_columns, first_column, last_column, signs, components, features, scratch, totals
):
    """Process a range of columns of dense rows; the call with the last columns writes the features.

    Parameters
    ----------
    x : ndarray of shape (n_samples * n_columns,), float32
    multipliers : ndarray of shape (n_samples,), float32
        Factors of the rows.
    n_columns : int
    first_column, last_column : int
        Range of columns, without the last: 0 to n_columns, or its parts in order; the first is a multiple of 64.
    signs : ndarray of shape (ceil((last_column - first_column) / 64) * n_factors,), uint64
        Transposed signs of these columns.
    components : Components
    features : Features
    scratch : ndarray of shape (SCRATCH_SIZE,), float32
        Buffer for intermediate values, aligned to 64 bytes; otherwise look-ups take twice the time.
    totals : ndarray of shape (16 * n_factors,), float32
        Buffer for the sums of 16 rows if one call processes all columns. Otherwise of shape (ceil(n_samples / 16) * 16
        * n_factors,), with the sums of all rows from the previous call. Aligned to 64 bytes.
    """
    starts, degrees, scales, constants, first_block, last_block, n_factors, origin = components
    out, to, step, overflowed = features
    n_samples, n_components = multipliers.shape[0], step - to
    low, high = starts[first_block] - origin, starts[last_block] - origin
    sums, cells = scratch[:_SUMS], scratch[_SUMS:]
    lanes = np.empty(LANES, np.float32)
    zero = splat(f32(0))
    stride = 0 if first_column == 0 and last_column == n_columns else n_factors
    for first in range(0, n_samples, LANES):
        n_rows = min(LANES, n_samples - first)
        held = first * stride
        if first_column == 0:
            for factor in range(low, high):
                store(totals, held + factor * LANES, zero)
        for block in range(-(-(last_column - first_column) // COLUMNS)):
            column = first_column + block * COLUMNS
            width = min(COLUMNS, last_column - column)
            cells[:] = f32(0)
            for lane in range(n_rows):
                at, multiplier = (first + lane) * n_columns + column, multipliers[first + lane]
                for c in range(width):
                    cells[c * LANES + lane] = x[at + c] * multiplier
            for group in range(_LOOKUPS):
                _fill_sums(cells, group, sums)
            for factor in range(low, high, 4):  # four chains of additions side by side
                word, at = block * n_factors + factor, held + factor * LANES
                w0, w1, w2, w3 = signs[word], signs[word + 1], signs[word + 2], signs[word + 3]
                t0, t1, t2, t3 = load_four(totals, at)
                for group in range(_LOOKUPS):
                    t0 = t0 + _look_up(sums, group, w0)
                    t1 = t1 + _look_up(sums, group, w1)
                    t2 = t2 + _look_up(sums, group, w2)
                    t3 = t3 + _look_up(sums, group, w3)
                store_four(totals, at, t0, t1, t2, t3)
        if last_column < n_columns:
            continue
        bad = zero
        for block in range(first_block, last_block):
            component = block * LANES
            width = min(LANES, n_components - component)
            for lane in range(width):
                at = starts[block] - origin + lane
                feature, scale = splat(constants[component + lane]), splat(scales[component + lane])
                for j in range(np.int64(degrees[component + lane])):
                    feature = feature * (load(totals, held + (at + j * LANES) * LANES) * scale)
                bad = bad + feature * zero
                store(cells, lane * LANES, feature)
            for row in range(n_rows):  # write the features of a row next to each other
                target = to + (first + row) * step + component
                for lane in range(width):
                    out[target + lane] = cells[lane * LANES + row]
        store(lanes, 0, bad)
        for lane in range(n_rows):
            if lanes[lane] != f32(0):
                overflowed[first + lane] = 1


@inlined
def _signed_four(words, at, minus, plus):
    # a value with the signs of 64 factors
    s0, s1 = select(load_mask(words, at), minus, plus), select(load_mask(words, at + 1), minus, plus)
    return s0, s1, select(load_mask(words, at + 2), minus, plus), select(load_mask(words, at + 3), minus, plus)


@kernel
def multiply_sparse_signs(
    indptr, positions, is_group_start, values, multipliers, signs, components, features, totals, is_continued, is_last
):
    """Process sparse rows, or a part of a single row; the call with the last part writes the features.

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), int64
    positions : ndarray of shape (nnz,), int64
        Row of the table `signs` for each value; columns ascend in a row.
    is_group_start : ndarray of shape (nnz,), bool
        True for the first entry of a row in its group of columns.
    values : ndarray of shape (nnz,), float32
    multipliers : ndarray of shape (n_samples,), float32
    signs : ndarray of shape (n_positions * n_factors / 16,), uint16
        Packed signs.
    components : Components
    features : Features
    totals : ndarray of shape (n_factors,), float32
        Buffer for the sums of a row.
    is_continued, is_last : bool
        True if `totals` holds the sums of earlier columns of a single row, and True if this part is the row's last
        one. A part of a row begins with the first entry of a group.
    """
    starts, degrees, scales, constants, first_block, last_block, n_factors, origin = components
    out, to, step, overflowed = features
    n_words = n_factors // LANES
    low, high = starts[first_block] - origin, starts[last_block] - origin
    n_components = step - to
    lanes = np.empty(LANES, np.float32)
    zero = splat(f32(0))
    for i in range(indptr.shape[0] - 1):
        multiplier = multipliers[i]
        for chunk in range(low // _CHUNK * _CHUNK, high, _CHUNK):
            word = chunk // LANES
            t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = zero
            if is_continued:
                t0, t1, t2, t3 = load_four(totals, chunk)
                t4, t5, t6, t7 = load_four(totals, chunk + 4 * LANES)
            p0 = p1 = p2 = p3 = p4 = p5 = p6 = p7 = zero
            for at in range(indptr[i], indptr[i + 1]):
                value = values[at] * multiplier
                plus, minus = splat(value), splat(-value)
                w = positions[at] * n_words + word
                s0, s1, s2, s3 = _signed_four(signs, w, minus, plus)
                s4, s5, s6, s7 = _signed_four(signs, w + 4, minus, plus)
                if is_group_start[at]:
                    t0, t1, t2, t3 = t0 + p0, t1 + p1, t2 + p2, t3 + p3
                    t4, t5, t6, t7 = t4 + p4, t5 + p5, t6 + p6, t7 + p7
                    p0, p1, p2, p3, p4, p5, p6, p7 = s0, s1, s2, s3, s4, s5, s6, s7
                else:
                    p0, p1, p2, p3 = p0 + s0, p1 + s1, p2 + s2, p3 + s3
                    p4, p5, p6, p7 = p4 + s4, p5 + s5, p6 + s6, p7 + s7
            store_four(totals, chunk, t0 + p0, t1 + p1, t2 + p2, t3 + p3)
            store_four(totals, chunk + 4 * LANES, t4 + p4, t5 + p5, t6 + p6, t7 + p7)
        if not is_last:
            continue
        bad = zero
        for block in range(first_block, last_block):
            component = block * LANES
            feature, scale = load(constants, component), load(scales, component)
            degree = load(degrees, component)
            for j in range(np.int64(degrees[component])):  # the largest of the block
                factor = load(totals, starts[block] - origin + j * LANES) * scale
                feature = select(splat(f32(j)) < degree, feature * factor, feature)
            bad = bad + feature * zero
            if component + LANES <= n_components:
                store(out, to + i * step + component, feature)
            else:
                store(lanes, 0, feature)
                for lane in range(n_components - component):
                    out[to + i * step + component + lane] = lanes[lane]
        store(lanes, 0, bad)
        for lane in range(LANES):
            if lanes[lane] != f32(0):
                overflowed[i] = 1
