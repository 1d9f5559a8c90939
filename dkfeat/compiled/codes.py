"""Bit-packed codes unpacked into one-hot columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled._jit import kernel

__all__ = ["one_hot_columns"]


@kernel
def one_hot_columns(
    packed: NDArray[np.uint8], empty: NDArray[np.bool_], n_components: int, bits: int, columns: NDArray[np.int64]
) -> None:
    """Fill `columns` with ``component * 2^bits + code``, row after row; empty rows take no place.

    Parameters
    ----------
    packed : ndarray of shape (n_samples, ceil(n_components * bits / 8)), uint8
        Codes in component order, least significant bit first, running on across bytes.
    empty : ndarray of shape (n_samples,), bool
    n_components, bits : int
        bits from 1 to 24.
    columns : ndarray of shape (n_components * number of rows that are not empty,), int32 or int64
    """
    mask = (1 << bits) - 1
    at = 0
    for i in range(packed.shape[0]):
        if empty[i]:
            continue
        if bits == 8:  # a byte is a code: a loop that the compiler turns into one over vectors
            for component in range(n_components):
                columns[at + component] = (component << 8) | np.int64(packed[i, component])
            at += n_components
            continue
        window = np.int64(0)  # bits read and not yet used, the next one lowest
        held = 0
        byte = 0
        for component in range(n_components):
            while held < bits:
                window |= np.int64(packed[i, byte]) << held
                byte += 1
                held += 8
            columns[at] = (component << bits) | (window & mask)
            at += 1
            window >>= bits
            held -= bits
