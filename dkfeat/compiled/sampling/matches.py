"""Counts of equal codes of pairs of rows, from their packed bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel, owned
from dkfeat.compiled.simd.vector import LANES, count_bits, equal_bytes, load_bytes, splat

CHUNK = 4 * LANES
"""Number of bytes that are compared at a time."""

_ROWS_IN_L1 = 32  # rows that stay in a first-level cache while the queries pass
u32, u64 = np.uint32, np.uint64
_ALL, _ONE, _PAIRS, _BYTES = u64(0xFFFFFFFFFFFFFFFF), u64(1), u64(0x5555555555555555), u64(0x01010101)


@inlined
def _count_chunk(x, y, bits, counted):
    # equal codes of 64 bytes, of those bytes whose bit of `counted` is set
    if bits == 8:
        return count_bits(equal_bytes(x, y) & counted)
    if bits == 16:
        equal = equal_bytes(x, y) & counted
        return count_bits(equal & (equal >> _ONE) & _PAIRS)
    total = u64(0)
    code = ((_ONE << u64(bits)) - _ONE) * _BYTES
    for shift in range(0, 8, bits):
        mask = splat(u32(code << u64(shift)))
        total += count_bits(equal_bytes(x & mask, y & mask) & counted)
    return total


@kernel
def _count_matches(queries, rows, n_queries, n_rows, row_bytes, bits, surplus, counts):
    n_chunks = row_bytes // CHUNK
    left = row_bytes - n_chunks * CHUNK
    last = _ALL << u64((CHUNK - left) % CHUNK)  # of the last 64 bytes, those that no other chunk holds
    for first in range(0, n_rows, _ROWS_IN_L1):
        for q in range(n_queries):
            for row in range(first, min(first + _ROWS_IN_L1, n_rows)):
                total, a, b = u64(0), q * row_bytes, row * row_bytes
                for chunk in range(n_chunks):
                    x, y = load_bytes(queries, a + CHUNK * chunk), load_bytes(rows, b + CHUNK * chunk)
                    total += _count_chunk(x, y, bits, _ALL)
                if left:
                    end = row_bytes - CHUNK
                    total += _count_chunk(load_bytes(queries, a + end), load_bytes(rows, b + end), bits, last)
                counts[q * n_rows + row] = total - surplus


def count_matches(
    queries: NDArray[np.uint8], rows: NDArray[np.uint8], n_components: int, bits: int
) -> NDArray[np.int32]:
    """Count the equal codes of each query with each row.

    Parameters
    ----------
    queries, rows : ndarrays of shape (n_queries, row_bytes) and (n_rows, row_bytes), uint8
        Packed codes, as `dkfeat.compiled.sampling.packing.pack_tile` writes them.
    n_components : int
    bits : int
        1, 2, 4, 8 or 16.

    Returns
    -------
    counts : ndarray of shape (n_queries, n_rows), int32

    Examples
    --------
    >>> queries, rows = np.array([[1, 2, 3]], np.uint8), np.array([[1, 2, 4], [3, 2, 1]], np.uint8)
    >>> count_matches(queries, rows, n_components=3, bits=8).tolist()
    [[2, 1]]
    """
    row_bytes = -(-n_components * bits // 8)
    if row_bytes < CHUNK:
        queries, rows = (np.pad(codes, ((0, 0), (0, CHUNK - row_bytes))) for codes in (queries, rows))
        row_bytes = CHUNK
    counts = np.empty((len(queries), len(rows)), np.int32)
    surplus = row_bytes * 8 // bits - n_components  # padding, equal in all rows
    flat = owned(queries, np.uint8).reshape(-1), owned(rows, np.uint8).reshape(-1)
    _count_matches(*flat, len(queries), len(rows), row_bytes, bits, surplus, counts.reshape(-1))
    return counts
