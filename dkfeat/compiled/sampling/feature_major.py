"""Logarithms of sparse rows in feature-major order: for each coordinate that occurs, its rows in order.

A coordinate is ``2 * column`` for the positive and ``2 * column + 1`` for the negative part of a column. Column
numbers are below 2**62; memory depends on the number of entries, not of columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import aligned, kernel, owned
from dkfeat.compiled.random import log_scalar
from dkfeat.compiled.simd import LANES, count_bits, lowest_bit

AHEAD = 16
"""Entries of padding at the end of `FeatureMajor.offsets`, for loops that prefetch."""

_ROWS_IN_L1 = 384  # rows whose accumulators, 80 bytes each, fit a first-level cache
_USES = 32  # mean entries of a coordinate in a block of rows: enough to read its parameters again
_STRIP = 8192  # least number of coordinates in a strip: their positions stay in a second-level cache
_ENTRIES_IN_STRIP = 40  # mean entries of a row in a strip: enough to begin with the row again
_USUAL_TABLE = 1 << 16  # slots of a hash table, unless the entries are few
_ODD_1, _ODD_2 = np.uint64(0x9E3779B1), np.uint64(0x85EBCA77)
_WORD, _HALF_WORD = np.uint64(0xFFFFFFFF), np.uint64(32)

u64 = np.uint64
_ONE, _TWO = u64(1), u64(2)


@kernel
def _signed_logs(values, power, logs, negative):
    for i in range(values.shape[0]):
        x = np.float64(values[i])
        logs[i] = np.float32(log_scalar(abs(x)) * power)
        negative[i] = x < 0.0


def signed_logs(values: NDArray, power: float = 1.0) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Compute the logarithms of magnitudes, and the signs.

    Parameters
    ----------
    values : ndarray of shape (nnz,), float32 or float64
        Finite.
    power : float, default=1.0
        Power p of the pGMM kernel; the result is the logarithm of ``abs(value)**p``.

    Returns
    -------
    logs : ndarray of shape (nnz,), float32
        ``power * log(abs(value))`` computed in float64 and rounded once; -inf for a zero.
    negative : ndarray of shape (nnz,), bool

    Examples
    --------
    >>> logs, negative = signed_logs(np.array([1.0, -np.e**2, 0.0]))
    >>> logs.tolist(), negative.tolist()
    ([0.0, 2.0, -inf], [False, True, False])
    """
    values = owned(values, np.float32 if values.dtype == np.float32 else np.float64)
    logs, negative = np.empty(len(values), np.float32), np.empty(len(values), np.bool_)
    _signed_logs(values, float(power), logs, negative)
    return logs, negative


class FeatureMajor(NamedTuple):
    """Entries of some rows, sorted by block of rows, coordinate and row."""

    coordinates: NDArray[np.int64]
    """Shape (n_present,): the coordinates that occur, ascending."""
    starts: NDArray[np.int64]
    """Shape (n_blocks, n_present + 1): coordinate q has entries starts[s, q] to starts[s, q + 1] in block s."""
    offsets: NDArray[np.int32]
    """Shape (2 * (nnz + AHEAD),): item 2 p is 16 times the row of entry p."""
    logs: NDArray[np.float32]
    """View of the same memory: item 2 p + 1 is the logarithm of entry p."""


def transpose_rows(
    indptr: NDArray[np.int64], columns: NDArray[np.integer], negative: NDArray[np.bool_], logs: NDArray[np.float32]
) -> FeatureMajor:
    """Transpose rows to feature-major order.

    If rows share many coordinates, blocks of rows are small: a block's accumulators stay in the first-level cache, and
    the parameters of a coordinate are read again for each block. Otherwise all rows are one block.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int64
        At least one row; the first item may exceed 0.
    columns, negative, logs : ndarrays of shape (nnz,)
        Entries of these rows; columns int32 or int64.
    """
    n_rows, nnz = len(indptr) - 1, len(columns)
    ranks = np.empty(nnz, np.int32)
    n_keys = 2 * (int(columns.max(initial=-1)) + 1)
    if n_keys <= 64 * nnz + 65_536:
        coordinates = _rank_by_counting(columns, negative, n_keys, ranks)
    else:
        coordinates = _rank_by_hashing(columns, negative, ranks)
    block_rows = min(n_rows, max(_ROWS_IN_L1, _USES * n_rows * len(coordinates) // max(nnz, 1)))
    starts = np.empty((-(-n_rows // block_rows), len(coordinates) + 1), np.int64)
    offsets = aligned(2 * (nnz + AHEAD), np.int32)
    offsets[2 * nnz :] = 0
    transposed_logs = offsets.view(np.float32)
    strip = max(_STRIP, _ENTRIES_IN_STRIP * n_rows * len(coordinates) // max(nnz, 1))
    if strip >= len(coordinates) or not _is_ascending(indptr, ranks):
        strip = max(len(coordinates), 1)
    _scatter(indptr, ranks, logs, block_rows, strip, starts, offsets, transposed_logs)
    return FeatureMajor(coordinates, starts, offsets, transposed_logs)


@kernel
def _rank_by_counting(columns, negative, n_keys, ranks):
    # write the rank of each entry's coordinate and return the coordinates, with a bitmap of all possible ones
    bits = np.zeros((n_keys >> 6) + 1, np.uint64)
    for p in range(columns.shape[0]):
        key = u64(2 * np.int64(columns[p]) + negative[p])
        bits[key >> u64(6)] |= u64(1) << (key & u64(63))
    ranks_before, n_present = np.empty(bits.shape[0], np.int32), 0
    for i in range(bits.shape[0]):
        ranks_before[i] = n_present
        n_present += count_bits(bits[i])
    coordinates = np.empty(n_present, np.int64)
    rank = 0
    for i in range(bits.shape[0]):
        held = bits[i]
        while held:
            coordinates[rank] = 64 * i + lowest_bit(held)
            held &= held - u64(1)
            rank += 1
    for p in range(columns.shape[0]):
        key = u64(2 * np.int64(columns[p]) + negative[p])
        word, lower = key >> u64(6), (u64(1) << (key & u64(63))) - u64(1)
        ranks[p] = ranks_before[word] + np.int64(count_bits(bits[word] & lower))
    return coordinates


def _rank_by_hashing(columns: NDArray, negative: NDArray, ranks: NDArray) -> NDArray[np.int64]:
    # `_rank_by_counting` with a hash table of the coordinates that occur, if a table of all would be too large
    size = min(_USUAL_TABLE, 4 << len(columns).bit_length())
    while True:
        keys = np.full(size, -1, np.int64)
        if _find_slots(columns, negative, keys, ranks):
            break
        size *= 4
    used = np.flatnonzero(keys >= 0)
    used = used[np.argsort(keys[used])]
    rank_of = np.empty(size, np.int32)
    rank_of[used] = np.arange(len(used))
    np.take(rank_of, ranks, out=ranks)
    return keys[used]


@kernel
def _find_slots(columns, negative, keys, slots):
    # slot of each entry's coordinate in an open hash table; False if more than half of the table is full
    mask, free = u64(keys.shape[0] - 1), keys.shape[0] // 2
    for p in range(columns.shape[0]):
        key = 2 * np.int64(columns[p]) + negative[p]
        # products of 32-bit halves by odd constants, folded: no product exceeds 64 bits
        h = (u64(key) & _WORD) * _ODD_1 ^ ((u64(key) >> _HALF_WORD) + u64(1)) * _ODD_2
        h = (h >> _HALF_WORD ^ h) & _WORD
        h = (h * _ODD_2) >> _HALF_WORD ^ h * _ODD_1
        slot = (h ^ h >> u64(29)) & mask
        while keys[slot] != key:
            if keys[slot] < 0:
                if free == 0:
                    return False
                free -= 1
                keys[slot] = key
                break
            slot = (slot + u64(1)) & mask
        slots[p] = slot
    return True


@kernel
def _is_ascending(indptr, ranks):
    for row in range(indptr.shape[0] - 1):
        for p in range(indptr[row] - indptr[0] + 1, indptr[row + 1] - indptr[0]):
            if ranks[p] < ranks[p - 1]:
                return False
    return True


@kernel
def _scatter(indptr, ranks, logs, block_rows, strip, starts, offsets, transposed_logs):
    # write a block's entries strip by strip: those of `strip` coordinates, whose positions stay in a cache
    n_rows, n_present = indptr.shape[0] - 1, starts.shape[1] - 1
    begins, ends = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)  # of each row's entries in a strip
    for s in range(starts.shape[0]):
        first_row, last_row = s * block_rows, min((s + 1) * block_rows, n_rows)
        at, total = starts[s], indptr[first_row] - indptr[0]
        at[:] = 0
        for first in range(0, n_present, strip):
            last = min(first + strip, n_present)
            for row in range(first_row, last_row):
                begins[row] = ends[row] if first else indptr[row] - indptr[0]
                ends[row] = begins[row]
                for p in range(u64(begins[row]), u64(indptr[row + 1] - indptr[0])):
                    if ranks[p] >= last:
                        break
                    at[u64(ranks[p])] += 1
                    ends[row] += 1
            for q in range(first, last):
                count = at[q]
                at[q] = total
                total += count
            for row in range(first_row, last_row):
                for p in range(u64(begins[row]), u64(ends[row])):
                    rank = u64(ranks[p])
                    position = u64(at[rank])
                    at[rank] += 1
                    offsets[_TWO * position] = row * LANES
                    transposed_logs[_TWO * position + _ONE] = logs[p]
        # each start has moved to the next one: move them back
        for q in range(n_present, 0, -1):
            at[q] = at[q - 1]
        at[0] = indptr[first_row] - indptr[0]
