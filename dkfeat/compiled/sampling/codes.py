"""Packed codes of rows: packing into bits, one-hot columns, and counts of equal codes.

Codes are packed in component order, least significant bit first, without padding between codes.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel, owned
from dkfeat.compiled.simd import LANES, count_bits, equal_bytes, load, load_bytes, splat, store

f32, i64, u32, u64 = np.float32, np.int64, np.uint32, np.uint64


@inlined
def _low_bits(t, bits):
    # t modulo 2**bits of a float32 whole number of any size: no conversion can overflow
    period = f32(1 << bits)
    return u64(t - np.floor(t / period) * period)


@kernel
def pack_tile(kept, levels, i_bits, t_bits, component, n_live, row_bytes, packed):
    """Pack the codes of up to 16 components.

    Parameters
    ----------
    kept : ndarray of shape (n_rows * 16,), uint8 or uint16
        Codes of the coordinates, of `i_bits` bits.
    levels : ndarray of shape (n_rows * 16,), float32
        Levels, finite integers; not read if `t_bits` is 0.
    i_bits, t_bits : int
        Their sum is at most 18.
    component, n_live : int
        First component of the tile, a multiple of 16, and number of components in it.
    row_bytes : int
    packed : ndarray of shape (n_rows * row_bytes,), uint8
        The bytes of these components are written.
    """
    bits = i_bits + t_bits
    first_byte = component * bits // 8
    for row in range(packed.shape[0] // row_bytes):
        at, byte = row * LANES, row * row_bytes + first_byte
        held, fill = u64(0), 0
        for j in range(n_live):
            code = u64(kept[at + j])
            if t_bits:
                code |= _low_bits(levels[at + j], t_bits) << u64(i_bits)
            held |= code << u64(fill)
            fill += bits
            while fill >= 8:
                packed[byte] = held & u64(255)
                held >>= u64(8)
                fill -= 8
                byte += 1
        if fill:
            packed[byte] = held & u64(255)


@inlined
def pack_row(codes, n_components, bits, byte, packed):
    """Pack the first codes, of `bits` bits each, 1 to 16, of a uint16 array into the bytes from ``packed[byte]`` on."""
    if bits == 8:  # the compiler vectorizes this loop
        own = packed[byte : byte + n_components]
        for j in range(n_components):
            own[j] = codes[j] & 255
        return
    held, fill = u64(0), 0
    for j in range(n_components):
        held |= u64(codes[j]) << u64(fill)
        fill += bits
        while fill >= 8:
            packed[byte] = held & u64(255)
            held >>= u64(8)
            fill -= 8
            byte += 1
    if fill:
        packed[byte] = held & u64(255)


@kernel
def pack_bytes(kept, component, row_bytes, packed):
    """Copy 16 codes of 8 bits each, which writes the same bytes as `pack_tile`."""
    for row in range(packed.shape[0] // row_bytes):
        store(packed, row * row_bytes + component, load(kept, row * LANES))


@kernel
def one_hot_columns(
    packed: NDArray[np.uint8], empty: NDArray[np.bool_], n_components: int, bits: int, columns: NDArray[np.integer]
) -> None:
    """Fill `columns` with ``component * 2^bits + code``, row after row, without empty rows.

    Parameters
    ----------
    packed : ndarray of shape (n_samples, ceil(n_components * bits / 8)), uint8
        Codes in component order, least significant bit first, without padding between codes.
    empty : ndarray of shape (n_samples,), bool
    n_components, bits : int
        bits from 1 to 24.
    columns : ndarray of shape (n_components * number of rows that are not empty,), int32 or int64
    """
    at = 0
    for row in range(packed.shape[0]):
        if not empty[row]:
            unpack_row(packed, row, n_components, bits, columns, at)
            at += n_components


@kernel
def sum_weights(packed, empty, n_components, bits, table, sums):
    """Add to the sums of each row the rows of a table that its codes name, in the order of components.

    Parameters
    ----------
    packed, empty, n_components, bits
        As in `one_hot_columns`.
    table : ndarray of shape (n_components << bits, n_outputs), float32
    sums : ndarray of shape (n_samples, n_outputs), float32
        Changed.
    """
    columns = np.empty(n_components, np.int64)
    for row in range(packed.shape[0]):
        if not empty[row]:
            unpack_row(packed, row, n_components, bits, columns, 0)
            for column in columns:
                for output in range(table.shape[1]):
                    sums[row, output] += table[column, output]


@inlined
def unpack_row(packed, row, n_components, bits, columns, at):
    """Write the columns of the first components of a row, as `one_hot_columns` does, from ``columns[at]`` on."""
    if bits == 8:  # a byte is a code: the compiler vectorizes this loop
        for component in range(n_components):
            columns[at + component] = (np.int32(component) << 8) | np.int32(packed[row, component])
        return
    mask = (1 << bits) - 1
    window = np.int64(0)  # bits read and not yet used, the next one is the lowest
    held = byte = 0
    for component in range(n_components):
        while held < bits:
            window |= np.int64(packed[row, byte]) << held
            byte += 1
            held += 8
        columns[at + component] = (component << bits) | (window & mask)
        window >>= bits
        held -= bits


CHUNK = 4 * LANES
"""Number of bytes that are compared at a time."""

PackedRows: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.bool_]]
"""Packed codes, shape (n_rows, row_bytes), and which rows are empty, shape (n_rows,)."""

_ROWS_IN_L1 = 32  # rows that stay in a first-level cache while the queries pass
_QUERIES_AT_ONCE, _ROWS_AT_ONCE = 64, 8192
_ROW_BITS, _LAST_ROW = 37, (1 << 37) - 1  # a key of a heap: count, at most 2^24, then the lower row first, and a mark
_ALL, _ONE, _TWO, _BYTES = u64(0xFFFFFFFFFFFFFFFF), u64(1), u64(2), u64(0x01010101)
_SECOND, _FOURTH = u64(0x5555555555555555), u64(0x1111111111111111)


@inlined
def _count_chunk(x, y, bits, counted):
    # equal codes of 64 bytes, of those bytes whose bit of `counted` is set
    if bits == 8:
        return count_bits(equal_bytes(x, y) & counted)
    if bits > 8:
        equal = equal_bytes(x, y) & counted
        equal &= equal >> _ONE
        return count_bits(equal & _SECOND) if bits == 16 else count_bits(equal & (equal >> _TWO) & _FOURTH)
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


def countable_bits(bits: int) -> int:
    """Return the least number of bits, at least `bits`, whose codes can be counted: 1, 2, 4, 8, 16 or 32."""
    return next(wide for wide in (1, 2, 4, 8, 16, 32) if wide >= bits)


def in_whole_bytes(codes: NDArray[np.uint8], n_components: int, bits: int) -> tuple[NDArray[np.uint8], int]:
    """Widen packed codes to the next number of bits whose codes can be counted; return them and their bits.

    Examples
    --------
    >>> codes, bits = in_whole_bytes(np.array([[0b10_001, 0b1]], np.uint8), n_components=3, bits=3)
    >>> codes.tolist(), bits
    ([[33, 4]], 4)
    """
    wide = countable_bits(bits)
    if wide == bits:
        return codes, bits
    given = np.unpackbits(codes, axis=1, count=n_components * bits, bitorder="little")
    widened = np.zeros((len(codes), n_components, wide), np.uint8)
    widened[:, :, :bits] = given.reshape(len(codes), n_components, bits)
    return np.packbits(widened.reshape(len(codes), n_components * wide), axis=1, bitorder="little"), wide


def _in_chunk(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.pad(codes, ((0, 0), (0, CHUNK - codes.shape[1])))


def count_matches(
    queries: NDArray[np.uint8], rows: NDArray[np.uint8], n_components: int, bits: int
) -> NDArray[np.int32]:
    """Count the equal codes of each query with each row.

    Parameters
    ----------
    queries, rows : ndarrays of shape (n_queries, row_bytes) and (n_rows, row_bytes), uint8
        Packed codes, as `dkfeat.compiled.sampling.codes.pack_tile` writes them.
    n_components : int
    bits : int
        1, 2, 4, 8, 16 or 32; see `in_whole_bytes`.

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
        queries, rows = _in_chunk(queries), _in_chunk(rows)
        row_bytes = CHUNK
    counts = np.empty((len(queries), len(rows)), np.int32)
    surplus = row_bytes * 8 // bits - n_components  # padding, equal in all rows
    flat = owned(queries, np.uint8).reshape(-1), owned(rows, np.uint8).reshape(-1)
    _count_matches(*flat, len(queries), len(rows), row_bytes, bits, surplus, counts.reshape(-1))
    return counts


@kernel
def _count_pairs(left_rows, left, right_rows, right, row_bytes, bits, surplus, counts):
    n_chunks = row_bytes // CHUNK
    after = row_bytes - n_chunks * CHUNK
    last = _ALL << u64((CHUNK - after) % CHUNK)
    for pair in range(left.shape[0]):
        total, a, b = u64(0), left[pair] * row_bytes, right[pair] * row_bytes
        for chunk in range(n_chunks):
            x, y = load_bytes(left_rows, a + CHUNK * chunk), load_bytes(right_rows, b + CHUNK * chunk)
            total += _count_chunk(x, y, bits, _ALL)
        if after:
            end = row_bytes - CHUNK
            total += _count_chunk(load_bytes(left_rows, a + end), load_bytes(right_rows, b + end), bits, last)
        counts[pair] = total - surplus


def count_pair_matches(
    rows: NDArray[np.uint8], left: NDArray[np.int64], right: NDArray[np.int64], n_components: int, bits: int
) -> NDArray[np.int32]:
    """Count the equal codes of single pairs of rows.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, row_bytes), uint8
        Packed codes; only the rows of the pairs are read.
    left, right : ndarrays of shape (n_pairs,), int64
        Two rows for each pair.
    n_components, bits : int
        As in `count_matches`.

    Returns
    -------
    counts : ndarray of shape (n_pairs,), int32

    Examples
    --------
    >>> rows = np.array([[1, 2, 3], [1, 2, 4], [3, 2, 1]], np.uint8)
    >>> count_pair_matches(rows, np.array([0, 0]), np.array([1, 2]), n_components=3, bits=8).tolist()
    [2, 1]
    """
    row_bytes = -(-n_components * bits // 8)
    sides = [(rows, left), (rows, right)]
    if row_bytes < CHUNK:
        sides = [(_in_chunk(rows[side]), np.arange(len(side))) for side in (left, right)]
        row_bytes = CHUNK
    (left_rows, left), (right_rows, right) = ((owned(codes, np.uint8).reshape(-1), owned(at)) for codes, at in sides)
    counts = np.empty(len(left), np.int32)
    surplus = row_bytes * 8 // bits - n_components
    _count_pairs(left_rows, left, right_rows, right, row_bytes, bits, surplus, counts)
    return counts


@inlined
def key_of(count, row):
    """Return the key of a row in a heap: the higher, the more equal codes, or the lower the row; its last bit is 0."""
    return count << (_ROW_BITS + 1) | (_LAST_ROW - row) << 1


@inlined
def row_of(key):
    """Return the row of a key of at least 0, whatever its last bit."""
    return _LAST_ROW - (key >> 1 & _LAST_ROW)


@inlined
def replace_least(heap, key):
    """Replace the lowest key of a heap, its first one, by a higher key."""
    at, n_best = 0, heap.shape[0]
    while True:
        child = 2 * at + 1
        if child + 1 < n_best and heap[child + 1] < heap[child]:
            child += 1
        if child >= n_best or heap[child] >= key:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = key


@kernel
def _keep_best(counts, empty_queries, empty_rows, first_row, own, heaps):
    n_queries, n_rows = counts.shape
    for q in range(n_queries):
        heap = heaps[q]
        least = heap[0]
        for row in range(n_rows):
            count = i64(0) if empty_queries[q] or empty_rows[row] else i64(counts[q, row])
            key = key_of(count, first_row + row)
            if key <= least or first_row + row == own[q]:
                continue
            replace_least(heap, key)
            least = heap[0]


def keep_best(
    queries: PackedRows,
    rows: PackedRows,
    first_row: int,
    own: NDArray[np.int64],
    heaps: NDArray[np.int64],
    n_components: int,
    bits: int,
) -> None:
    """Compare queries with some rows, and keep for each query the rows with the most equal codes.

    Parameters
    ----------
    queries, rows : pairs of ndarrays of shape (n, row_bytes) and (n,), uint8 and bool
        Packed codes, and which rows are empty. An empty row has no code in common with any other.
    first_row : int
        Number of the first row; numbers are below 2^37.
    own : ndarray of shape (n_queries,), int64
        Number of a row that is not compared with the query; -1 for none.
    heaps : ndarray of shape (n_queries, n_best), int64
        From `empty_heaps` and earlier calls; updated.
    n_components, bits : int
        As in `count_matches`.
    """
    for q in range(0, len(queries[0]), _QUERIES_AT_ONCE):
        some = slice(q, q + _QUERIES_AT_ONCE)
        for at in range(0, len(rows[0]), _ROWS_AT_ONCE):
            part = slice(at, at + _ROWS_AT_ONCE)
            counts = count_matches(queries[0][some], rows[0][part], n_components, bits)
            empty = owned(queries[1][some]), owned(rows[1][part])
            _keep_best(counts, *empty, first_row + at, own[some], heaps[some])


def empty_heaps(n_queries: int, n_best: int) -> NDArray[np.int64]:
    """Make the heaps for `keep_best`, without any row."""
    return np.full((n_queries, n_best), -1, np.int64)


def merged(heaps: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Merge heaps of the same queries over different rows."""
    both = np.concatenate([heaps, others], axis=1)
    return np.ascontiguousarray(np.sort(both, axis=1)[:, -heaps.shape[1] :])


def best_rows(heaps: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the kept counts in descending order, and their rows, in ascending order among equal counts; -1 for none.

    Examples
    --------
    >>> codes, none = np.array([[1, 2], [1, 3], [1, 2]], np.uint8), np.zeros(3, bool)
    >>> heaps = empty_heaps(1, 2)
    >>> keep_best((codes[:1], none[:1]), (codes, none), 0, np.array([-1]), heaps, 2, 8)
    >>> counts, rows = best_rows(heaps)
    >>> counts.tolist(), rows.tolist()
    ([[2, 2]], [[0, 2]])
    """
    keys = -np.sort(-heaps, axis=1)
    return np.where(keys < 0, -1, keys >> (_ROW_BITS + 1)), np.where(keys < 0, -1, _LAST_ROW - (keys >> 1 & _LAST_ROW))
