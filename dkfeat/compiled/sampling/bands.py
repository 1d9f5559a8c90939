"""Hashes of bands of packed codes: rows whose codes in a band are equal have equal hashes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel, owned

u64 = np.uint64
_WORD, _ALL, _ONE = 64, u64(0xFFFFFFFFFFFFFFFF), u64(1)
_FACTOR, _FIRST, _SECOND = u64(0x9E3779B97F4A7C15), u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)


@inlined
def _mixed(value):
    # the finalizer of SplitMix64: different values stay different
    value = (value ^ (value >> u64(30))) * _FIRST
    value = (value ^ (value >> u64(27))) * _SECOND
    return value ^ (value >> u64(31))


@kernel
def _hash_bands(words, n_rows, row_words, n_bands, band_bits, hashes):
    for row in range(n_rows):
        for band in range(n_bands):
            at, end, mixed = band * band_bits, (band + 1) * band_bits, _ONE
            while at < end:
                word, shift, left = row * row_words + at // _WORD, at % _WORD, end - at
                value = words[word] >> u64(shift)
                if shift and left > _WORD - shift:
                    value |= words[word + 1] << u64(_WORD - shift)
                if left < _WORD:
                    value &= (_ONE << u64(left)) - _ONE
                mixed = (mixed ^ value) * _FACTOR
                mixed ^= mixed >> u64(32)
                at += _WORD
            hashes[band * n_rows + row] = _mixed(mixed)


def hash_bands(codes: NDArray[np.uint8], bits: int, n_bands: int, n_codes: int) -> NDArray[np.uint64]:
    """Compute a 64-bit hash of each band of each row.

    Parameters
    ----------
    codes : ndarray of shape (n_rows, row_bytes), uint8
        Packed codes, as `dkfeat.compiled.sampling.packing.pack_tile` writes them.
    bits : int
        Bits of a code.
    n_bands, n_codes : int
        Number of bands, and of codes in each. The first band has the first codes.

    Returns
    -------
    hashes : ndarray of shape (n_bands, n_rows), uint64

    Examples
    --------
    >>> codes = np.array([[1, 2, 3, 4], [1, 2, 4, 3]], np.uint8)
    >>> first, second = hash_bands(codes, bits=8, n_bands=2, n_codes=2)
    >>> bool(first[0] == first[1]), bool(second[0] == second[1])
    (True, False)
    """
    n_rows, row_bytes = codes.shape
    if row_bytes % 8:
        codes = np.pad(codes, ((0, 0), (0, -row_bytes % 8)))
    words = owned(codes, np.uint8).reshape(-1).view("<u8")
    hashes = np.empty((n_bands, n_rows), np.uint64)
    _hash_bands(owned(words), n_rows, codes.shape[1] // 8, n_bands, n_codes * bits, hashes.reshape(-1))
    return hashes
