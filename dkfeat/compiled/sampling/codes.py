"""Packed codes of rows: packing into bits, one-hot columns, counts of equal codes, and bands of codes.

Codes are packed in component order, least significant bit first, without padding between codes. Rows whose codes in a
band are equal have keys with equal high bits.
"""

from __future__ import annotations

from typing import Any, TypeAlias

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
_ROW_BITS, _LAST_ROW = 38, (1 << 38) - 1  # a key of a heap: count, at most 2^24, then the lower row first
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


@kernel
def _keep_best(counts, empty_queries, empty_rows, first_row, own, heaps):
    n_queries, n_rows = counts.shape
    n_best = heaps.shape[1]
    for q in range(n_queries):
        heap = heaps[q]
        least = heap[0]
        for row in range(n_rows):
            count = i64(0) if empty_queries[q] or empty_rows[row] else i64(counts[q, row])
            key = (count << _ROW_BITS) | (_LAST_ROW - (first_row + row))
            if key <= least or first_row + row == own[q]:
                continue
            at = 0
            while True:
                child = 2 * at + 1
                if child + 1 < n_best and heap[child + 1] < heap[child]:
                    child += 1
                if child >= n_best or heap[child] >= key:
                    break
                heap[at] = heap[child]
                at = child
            heap[at] = key
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
        Number of the first row; numbers are below 2^38.
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
    """Return the kept counts in descending order, and their rows, in ascending order among equal counts.

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
    return np.where(keys < 0, -1, keys >> _ROW_BITS), np.where(keys < 0, -1, _LAST_ROW - (keys & _LAST_ROW))


_WORD = 64
_HASHED_ROWS = 64  # rows whose codes stay in a first-level cache while all bands pass
_FACTOR, _MIX_1, _MIX_2 = u64(0x9E3779B97F4A7C15), u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)


@inlined
def _mixed_in(mixed, value):
    mixed = (mixed ^ value) * _FACTOR
    return mixed ^ (mixed >> u64(32))


@inlined
def _mixed(value):
    # the finalizer of SplitMix64: different values stay different
    value = (value ^ (value >> u64(30))) * _MIX_1
    value = (value ^ (value >> u64(27))) * _MIX_2
    return value ^ (value >> u64(31))


@kernel
def _band_keys(words, n_rows, row_words, n_bands, band_bits, first_row, low, keys):
    for first in range(0, n_rows, _HASHED_ROWS):
        n = min(_HASHED_ROWS, n_rows - first)
        for band in range(n_bands):
            mixed = keys[band * n_rows + first : band * n_rows + first + n]
            for i in range(n):
                mixed[i] = _ONE
            for at in range(band * band_bits, (band + 1) * band_bits, _WORD):
                word, shift, left = at // _WORD, at % _WORD, (band + 1) * band_bits - at
                mask = _ALL if left >= _WORD else (_ONE << u64(left)) - _ONE
                if left > _WORD - shift and shift:
                    for i in range(n):
                        start = (first + i) * row_words + word
                        value = words[start] >> u64(shift) | words[start + 1] << u64(_WORD - shift)
                        mixed[i] = _mixed_in(mixed[i], value & mask)
                else:
                    for i in range(n):
                        mixed[i] = _mixed_in(mixed[i], words[(first + i) * row_words + word] >> u64(shift) & mask)
            for i in range(n):
                mixed[i] = (_mixed(mixed[i]) | low) ^ low | u64(first_row + first + i)


def band_keys(
    codes: NDArray[np.uint8], bits: int, n_bands: int, n_codes: int, first_row: int, row_bits: int
) -> NDArray[np.uint64]:
    """Compute a key for each band of each row: a hash of its codes in the high bits, and the row in the low bits.

    Parameters
    ----------
    codes : ndarray of shape (n_rows, row_bytes), uint8
        Packed codes, as `dkfeat.compiled.sampling.codes.pack_tile` writes them.
    bits : int
        Bits of a code.
    n_bands, n_codes : int
        Number of bands, and of codes in each. The first band has the first codes.
    first_row : int
        Number of the first row.
    row_bits : int
        Number of low bits, enough for the number of the last row.

    Returns
    -------
    keys : ndarray of shape (n_bands, n_rows), uint64

    Examples
    --------
    >>> codes = np.array([[1, 2, 3, 4], [1, 2, 4, 3]], np.uint8)
    >>> first, second = band_keys(codes, bits=8, n_bands=2, n_codes=2, first_row=6, row_bits=3)
    >>> (first >> np.uint64(3)).tolist() == [int(first[0]) >> 3] * 2, (first & np.uint64(7)).tolist()
    (True, [6, 7])
    """
    n_rows, row_bytes = codes.shape
    if row_bytes % 8:
        codes = np.pad(codes, ((0, 0), (0, -row_bytes % 8)))
    words = owned(codes, np.uint8).reshape(-1).view("<u8")
    keys = np.empty((n_bands, n_rows), np.uint64)
    low = u64((1 << row_bits) - 1)
    row_words, band_bits = codes.shape[1] // 8, n_codes * bits
    _band_keys(owned(words), n_rows, row_words, n_bands, band_bits, first_row, low, keys.reshape(-1))
    return keys


@kernel
def _keep_shared(keys, low):
    kept, before = 0, False
    for at in range(keys.shape[0]):
        after = at + 1 < keys.shape[0] and keys[at] | low == keys[at + 1] | low
        keys[kept] = keys[at]
        kept += before or after
        before = after
    return kept


def shared_keys(keys: NDArray[np.uint64], low: np.uint64) -> NDArray[np.uint64]:
    """Return those of sorted keys whose high bits are equal to those of another key.

    Parameters
    ----------
    keys : ndarray of shape (n_keys,), uint64
        In ascending order; overwritten.
    low : uint64
        Bits in which equal keys may differ.

    Returns
    -------
    shared : ndarray of shape (n_shared,), uint64

    Examples
    --------
    >>> shared_keys(np.array([0x10, 0x20, 0x21, 0x30], np.uint64), np.uint64(0xF)).tolist()
    [32, 33]
    """
    keys = owned(keys)
    return keys[: _keep_shared(keys, low)]


@kernel
def join_pairs(parents: NDArray[Any], left: NDArray[np.int64], right: NDArray[np.int64]) -> None:
    """Join the groups of pairs of rows.

    Parameters
    ----------
    parents : ndarray of shape (n_rows,), int32 or int64
        A row of the same group for each row, at most the row itself; at first ``arange(n_rows)``.
    left, right : ndarray of shape (n_pairs,), int64
        Rows of each pair.

    Examples
    --------
    >>> parents = np.arange(5)
    >>> join_pairs(parents, np.array([3, 1]), np.array([4, 4]))
    >>> find_lowest(parents)
    >>> parents.tolist()
    [0, 1, 2, 1, 1]
    """
    for i in range(len(left)):
        one, other = left[i], right[i]
        while parents[one] != one:
            parents[one] = parents[parents[one]]
            one = np.int64(parents[one])
        while parents[other] != other:
            parents[other] = parents[parents[other]]
            other = np.int64(parents[other])
        parents[max(one, other)] = min(one, other)


@kernel
def find_lowest(parents: NDArray[Any]) -> None:
    """Replace each row's parent by the lowest row of its group."""
    for row in range(len(parents)):  # parents are lower rows, which are done already
        parents[row] = parents[parents[row]]
