"""Minwise samples of sets, from Fast Similarity Sketching, and their packed codes.

S. Dahlgaard, M. B. T. Knudsen and M. Thorup, "Fast Similarity Sketching", FOCS 2017, Algorithm 1. The k components of a
set are bins. In a round each element goes to one bin, drawn at random; a bin keeps the least value of the first round
in which it received an element, and the rounds end once no bin is empty. Bins that are empty after k - 1 rounds take
the least value of all elements, under a hash of their own. So a set of n elements takes about n + k log k steps.

A bin's key is the number of the round, in the ceil(log2 k) highest bits, and the value in the others, so that the
smallest key is kept. The code of a component is a hash of the key. docs/decisions/minhash.md defines every number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import aligned, inlined, kernel, owned
from dkfeat.compiled.random import STREAM_MINHASH, draw_words
from dkfeat.compiled.sampling.codes import pack_row
from dkfeat.compiled.simd import LANES, load, multiply_high, splat, store

u16, u32, u64 = np.uint16, np.uint32, np.uint64
EMPTY = np.uint32(0xFFFFFFFF)
"""Key of a bin without an element."""
CHUNK = 16 * LANES
"""Elements that are hashed at a time."""
_HALF, _WORD, _NONE = u64(32), u64(0xFFFFFFFF), u64(0xFFFFFFFFFFFFFFFF)


class Keys(NamedTuple):
    """Random words of a seed."""

    fold: np.uint32
    """Odd factor of the high words of columns."""
    factors: NDArray[np.uint32]
    """Odd factors of the hashes of rounds."""
    masks: NDArray[np.uint32]
    """Words combined with elements before they are multiplied, in rounds."""
    own_factors: NDArray[np.uint32]
    """Odd factors of the hashes of single bins."""
    own_masks: NDArray[np.uint32]
    """Words combined with elements, and with the keys of bins for their codes."""


KEY_BYTES = 32
"""Memory to draw the keys, for each component."""


def draw_keys(n_components: int, seed: int) -> Keys:
    """Draw the keys of a seed."""
    words, fold = np.empty((n_components, 4), np.uint32), np.empty((1, 4), np.uint32)
    draw_words(u64(0), u64(STREAM_MINHASH), u64(seed), words)
    draw_words(u64(1), u64(STREAM_MINHASH), u64(seed), fold)
    factors, masks, own_factors, own_masks = np.ascontiguousarray(words.T)
    factors |= u32(1)
    own_factors |= u32(1)
    return Keys(fold[0, 0] | u32(1), factors, masks, own_factors, own_masks)


class _Buffers(NamedTuple):
    elements: NDArray[np.uint32]
    bins: NDArray[np.uint32]
    candidates: NDArray[np.uint32]
    best: NDArray[np.uint32]
    codes: NDArray[np.uint16]
    owners: NDArray[np.uint64]
    """Value in the high half and position of the element in the low one, of each bin; empty if only codes are made."""


@inlined
def _hashed_lanes(x, factor, mask):
    h = (x ^ mask) * factor
    h = (h ^ (h >> splat(u32(15)))) * splat(u32(0x85EBCA6B))
    return h ^ (h >> splat(u32(16)))


@inlined
def _hashed(x, factor, mask):
    h = u32(u32(x ^ mask) * factor)
    h = u32(u32(h ^ (h >> u32(15))) * u32(0x85EBCA6B))
    return u32(h ^ (h >> u32(16)))


@inlined
def _fold(columns, factor, elements):
    for i in range(columns.shape[0]):
        column = u64(columns[i])
        elements[i] = u32(column) ^ u32(u32(column >> _HALF) * factor)


@inlined
def _fill_bins(columns, keys, n_bits, elements, bins, candidates, best, owners):
    # do rounds until no bin is empty; returns the number of empty bins after the last round
    n, k = columns.shape[0], best.shape[0]
    size, low = splat(u32(k)), splat(u32((u64(1) << u64(32 - n_bits)) - u64(1)))
    unlikely = k * n_bits // 2  # while fewer elements were thrown, no round can be the last one, almost surely
    n_empty = u32(k)
    for number in range(max(k - 1, 1)):
        factor, mask = splat(keys.factors[number]), splat(keys.masks[number])
        top = splat(u32(u64(number) << u64(32 - n_bits)))
        for first in range(0, n, CHUNK):
            live = min(CHUNK, n - first)
            if number == 0:
                _fold(columns[first : first + live], keys.fold, elements[first : first + live])
            for i in range(0, live, LANES):
                h = _hashed_lanes(load(elements, first + i), factor, mask)
                store(bins, i, multiply_high(h, size))
                store(candidates, i, top | (h & low))
            for i in range(live):
                at = bins[i]
                best[at] = min(best[at], candidates[i])
                if owners.shape[0]:
                    owners[at] = min(owners[at], (u64(candidates[i]) << _HALF) | u64(first + i))
        if (number + 1) * n >= unlikely:
            n_empty = u32(0)
            for at in range(k):
                n_empty = u32(n_empty + u32(best[at] == EMPTY))
            if not n_empty:
                break
    return n_empty


@kernel
def _encode_rows(indptr, columns, keys, n_bits, bits, buffers, packed, empty, i_star):
    elements, best, codes, owners = buffers.elements, buffers.best, buffers.codes, buffers.owners
    k, n_rows = best.shape[0], empty.shape[0]
    row_bytes, last = packed.shape[0] // n_rows, u32(u64(k - 1) << u64(32 - n_bits))
    for row in range(n_rows):
        own = columns[indptr[row] : indptr[row + 1]]
        n = own.shape[0]
        empty[row] = n == 0
        if n == 0:
            packed[row * row_bytes : (row + 1) * row_bytes] = 0
            continue
        best[:] = EMPTY
        owners[:] = _NONE
        if _fill_bins(own, keys, n_bits, elements, buffers.bins, buffers.candidates, best, owners):
            for at in range(k):
                if best[at] == EMPTY:
                    least = EMPTY
                    for i in range(n):
                        h = _hashed(elements[i], keys.own_factors[at], keys.own_masks[at])
                        least = min(least, h)
                        if owners.shape[0]:
                            owners[at] = min(owners[at], (u64(h) << _HALF) | u64(i))
                    best[at] = last | (least >> u32(n_bits))
        for at in range(k):
            h = u32(u32(best[at] ^ keys.own_masks[at]) * u32(0x9E3779B1))
            h = u32(u32(h ^ (h >> u32(15))) * u32(0x85EBCA77))
            codes[at] = u16(h >> u32(32 - bits))
        for at in range(owners.shape[0]):
            i_star[row, at] = 2 * np.int64(own[owners[at] & _WORD])
        pack_row(codes, k, bits, row * row_bytes, packed)


def encode(
    indptr: NDArray, columns: NDArray, n_components: int, seed: int, bits: int, i_star: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Compute the packed codes of sets.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int
        Set i has the elements ``columns[indptr[i] : indptr[i + 1]]``.
    columns : ndarray of shape (nnz,), int32 or int64
        At least 0, in any order; one that is repeated counts once.
    n_components : int
        From 1 to 2^24.
    seed : int
        In [0, 2**64).
    bits : int
        Bits of a code, 1 to 16.
    i_star : ndarray of shape (n_rows, n_components), int64, or None
        Filled with twice the sampled elements, except of empty sets.

    Returns
    -------
    packed : ndarray of shape (n_rows, ceil(n_components * bits / 8)), uint8
        Codes in component order, least significant bit first; zeros for an empty set.
    empty : ndarray of shape (n_rows,), bool
        Empty sets.

    Examples
    --------
    >>> packed, empty = encode(np.array([0, 2, 2, 5]), np.array([4, 9, 9, 4, 9]), 6, seed=0, bits=8)
    >>> packed.shape, (packed[0] == packed[2]).all().item(), empty.tolist()
    ((3, 6), True, [False, True, False])
    """
    n_rows = len(indptr) - 1
    packed, empty = np.empty((n_rows, -(-n_components * bits // 8)), np.uint8), np.empty(n_rows, np.bool_)
    if n_rows:
        longest = int(np.diff(indptr).max())
        buffers = _Buffers(
            elements=aligned(longest + LANES, np.uint32),
            bins=aligned(CHUNK, np.uint32),
            candidates=aligned(CHUNK, np.uint32),
            best=aligned(n_components, np.uint32),
            codes=aligned(n_components, np.uint16),
            owners=np.empty(0 if i_star is None else n_components, np.uint64),
        )
        unsigned = np.uint32 if columns.dtype == np.int32 else np.uint64
        _encode_rows(
            owned(indptr, np.dtype(np.int64)),
            owned(columns).view(unsigned),
            draw_keys(n_components, seed),
            (n_components - 1).bit_length(),
            bits,
            buffers,
            packed.reshape(-1),
            empty,
            np.empty((0, 0), np.int64) if i_star is None else i_star,
        )
    return packed, empty
