"""Bands of packed codes, and groups of near rows.

Rows whose codes in a band are equal have keys with equal high bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel, owned

u64 = np.uint64
_WORD, _ALL, _ONE, _BOTH = 64, u64(0xFFFFFFFFFFFFFFFF), u64(1), u64(3)
_NEAR = 16  # keys that are passed one by one: few branches of a search are foreseen
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
def _keep_suspected(keys, shift, seen):
    # two bits for each value of the high bits: seen never, once, or more often
    for at in range(keys.shape[0]):
        slot = keys[at] >> shift
        word, place = slot >> u64(5), (slot & u64(31)) << _ONE
        seen[word] |= (_ONE if (seen[word] >> place) & _BOTH == u64(0) else _BOTH) << place
    kept = 0
    for at in range(keys.shape[0]):
        slot = keys[at] >> shift
        keys[kept] = keys[at]
        kept += (seen[slot >> u64(5)] >> ((slot & u64(31)) << _ONE)) & _BOTH == _BOTH
    return kept


def shared_keys(keys: NDArray[np.uint64], low: np.uint64) -> NDArray[np.uint64]:
    """Return those keys whose high bits are equal to those of another key, in ascending order.

    Most keys are alone, and are left out before the others are sorted.

    Parameters
    ----------
    keys : ndarray of shape (n_keys,), uint64
        In any order; overwritten.
    low : uint64
        Low bits, in which equal keys may differ.

    Returns
    -------
    shared : ndarray of shape (n_shared,), uint64

    Examples
    --------
    >>> shared_keys(np.array([0x10, 0x21, 0x30, 0x20], np.uint64), np.uint64(0xF)).tolist()
    [32, 33]
    """
    keys = owned(keys)
    slot_bits = min(_WORD - int(low).bit_length(), len(keys).bit_length() + 3)  # few keys share a slot by chance
    seen = np.zeros((1 << slot_bits) // 32 + 1, np.uint64)
    keys = keys[: _keep_suspected(keys, u64(_WORD - slot_bits), seen)]
    keys.sort()
    same = np.zeros(len(keys) + 1, np.bool_)
    same[1:-1] = (keys[1:] | low) == (keys[:-1] | low)
    return keys[same[1:] | same[:-1]]


@kernel
def _keep_sought(keys, sought, low, kept):
    # each search begins where the one before ended, and goes on in steps that double
    at, n_kept, n = 0, 0, keys.shape[0]
    for i in range(sought.shape[0]):
        least = sought[i] & ~low
        step = _NEAR
        while at + step <= n and keys[at + step - 1] < least:
            at += step
            step *= 2
        high = min(at + step - 1, n)
        while high - at > _NEAR:
            middle = (at + high) // 2
            if keys[middle] < least:
                at = middle + 1
            else:
                high = middle
        while at < n and keys[at] < least:
            at += 1
        while at < n and keys[at] & ~low == least:
            kept[n_kept] = keys[at]
            n_kept += 1
            at += 1
    return n_kept


def sought_keys(keys: NDArray[np.uint64], sought: NDArray[np.uint64], low: np.uint64) -> NDArray[np.uint64]:
    """Return the keys whose high bits are those of a sought key; `low` has the others. Both arrays are sorted.

    Examples
    --------
    >>> keys = np.array([0x17, 0x50, 0x53, 0x69], np.uint64)
    >>> [hex(key) for key in sought_keys(keys, np.array([0x22, 0x51, 0x58], np.uint64), np.uint64(0xF)).tolist()]
    ['0x50', '0x53']
    """
    kept = np.empty(len(keys), np.uint64)  # pages that are not written take no memory
    return kept[: _keep_sought(owned(keys), owned(sought), low, kept)]


@inlined
def _top(parents, first, row):
    while row >= first and parents[row - first] != row:
        above = np.int64(parents[row - first])
        if above >= first:
            above = np.int64(parents[above - first])
            parents[row - first] = above
        row = above
    return row


@kernel
def join_pairs(
    parents: NDArray[Any], first: int, left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Join the groups of pairs of rows, of which only those from row `first` on are in memory.

    Parameters
    ----------
    parents : ndarray of shape (n_rows,), int32 or int64
        A row of the same group for each row from `first` on, at most the row itself, which may be below `first`; at
        first ``first + arange(n_rows)``.
    first : int
        Number of the first row in memory.
    left, right : ndarray of shape (n_pairs,), int64
        Rows of each pair.

    Returns
    -------
    joined : ndarray of shape (2, n_joined), int64
        Lower and higher rows of pairs below `first` whose groups are to be joined too.

    Examples
    --------
    >>> parents = np.arange(5)
    >>> join_pairs(parents, 0, np.array([3, 1]), np.array([4, 4])).tolist()
    [[], []]
    >>> parents.tolist()
    [0, 1, 2, 1, 3]
    >>> parents = np.arange(5, 8)
    >>> join_pairs(parents, 5, np.array([3, 5, 1]), np.array([6, 7, 6])).tolist(), parents.tolist()
    ([[1], [3]], [5, 3, 5])
    """
    joined, n_joined = np.empty((2, len(left)), np.int64), 0
    for i in range(len(left)):
        one, other = _top(parents, first, left[i]), _top(parents, first, right[i])
        if max(one, other) >= first:
            parents[max(one, other) - first] = min(one, other)
        elif one != other:
            joined[0, n_joined], joined[1, n_joined] = min(one, other), max(one, other)
            n_joined += 1
    return joined[:, :n_joined]


@kernel
def find_lowest(parents: NDArray[Any], first: int, sizes: NDArray[np.int64]) -> None:
    """Replace each row's parent by the lowest known row of its group, and add the sizes of rows to that of this row.

    Sizes of rows of which a row below `first` is the lowest one are left as they are.
    """
    for row in range(len(parents)):  # parents are lower rows, which are done already
        if parents[row] >= first:
            parents[row] = parents[parents[row] - first]
        lowest = parents[row] - first
        if 0 <= lowest < row:
            sizes[lowest] += sizes[row]
            sizes[row] = 0
