"""Sums of the weights of a row's codes by the columns that the codes come from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.jit import inlined, kernel, owned
from dkfeat.compiled.sampling.codes import unpack_row

_ODD, _WORD_BITS, _ONE = np.uint64(0x9E3779B97F4A7C15), 64, np.uint64(1)


@inlined
def _slot(column, keys, shift):
    # slot of a column in an open hash table, or the free slot where it belongs
    mask = np.uint64(keys.shape[0] - 1)
    slot = (np.uint64(column) * _ODD) >> shift
    while keys[slot] != column and keys[slot] >= 0:
        slot = (slot + _ONE) & mask
    return slot


@kernel
def _add_weights(indptr, columns, packed, empty, i_star, bits, weights, codes, slots, entries, sums):
    n_components, n_outputs = i_star.shape[1], weights.shape[1]
    for row in range(i_star.shape[0]):
        if empty[row]:
            continue
        unpack_row(packed, row, n_components, bits, codes, 0)
        bits_of_slots = 3  # more than four slots for each entry: most columns are found in the first one
        while (indptr[row + 1] - indptr[row]) << 2 >= 1 << bits_of_slots:
            bits_of_slots += 1
        keys, shift = slots[: 1 << bits_of_slots], np.uint64(_WORD_BITS - bits_of_slots)
        keys[:] = -1
        for p in range(indptr[row], indptr[row + 1]):
            slot = _slot(np.int64(columns[p]), keys, shift)
            keys[slot], entries[slot] = columns[p], p
        for component in range(n_components):
            entry, code = entries[_slot(i_star[row, component] >> 1, keys, shift)], np.uint64(codes[component])
            own, added = sums[np.uint64(entry)], weights[code]
            for output in range(n_outputs):
                own[output] += added[output]


def add_weights(
    indptr: NDArray,
    columns: NDArray,
    packed: NDArray[np.uint8],
    empty: NDArray[np.bool_],
    i_star: NDArray[np.int64],
    bits: int,
    weights: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Add the weight of each code to the entry that the code comes from.

    Parameters
    ----------
    indptr : ndarray of shape (n_rows + 1,), int
        Row i has entries ``indptr[i]`` to ``indptr[i + 1] - 1``, as in a CSR matrix.
    columns : ndarray of shape (nnz,), int
        At least 0, each at most once in a row.
    packed, empty, i_star : ndarrays of shape (n_rows, row_bytes), (n_rows,) and (n_rows, n_components)
        Codes, rows without entries, and coordinates, as ``encode`` of a module beside this one makes them.
    bits : int
        Bits of a code.
    weights : ndarray of shape (n_components * 2**bits, n_outputs), float32, contiguous
        Weight of each code of each component.

    Returns
    -------
    sums : ndarray of shape (nnz, n_outputs), float64

    Examples
    --------
    >>> weights = np.arange(4, dtype=np.float32).reshape(4, 1)  # of two components of one bit
    >>> packed, i_star = np.array([[0b01]], np.uint8), np.array([[18, 8]])
    >>> add_weights(np.array([0, 2]), np.array([4, 9]), packed, np.array([False]), i_star, 1, weights).tolist()
    [[2.0], [1.0]]
    """
    n_components, n_slots = i_star.shape[1], 8 << int(np.diff(indptr).max(initial=1)).bit_length()
    sums = np.zeros((len(columns), weights.shape[1]))
    buffers = np.empty(n_components, np.int64), np.empty(n_slots, np.int64), np.empty(n_slots, np.int64)
    of_columns = np.int32 if columns.dtype == np.int32 else np.int64
    rows = owned(indptr, np.int64), owned(columns, of_columns), owned(packed), owned(empty), owned(i_star)
    _add_weights(*rows, bits, weights, *buffers, sums)
    return sums
