"""Arrays on memory pages of their own, that go back to the system with the last view of them.

Blocks of ten megabytes that come and go by the thousand leave a heap in holes: a worker's memory would grow with the
number of blocks. Pages that nobody writes to cost nothing, so an array may be made larger than needed.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["empty_array", "first_items"]

_SMALL_BYTES = 1 << 18
_HUGE_PAGE_BYTES = 1 << 21


def empty_array(size: int, dtype: DTypeLike) -> NDArray:
    """Uninitialised array of shape (size,), or somewhat longer."""
    n_bytes = size * np.dtype(dtype).itemsize
    if n_bytes <= _SMALL_BYTES:
        return np.empty(size, dtype)
    is_large = n_bytes >= 2 * _HUGE_PAGE_BYTES
    if is_large:  # whole huge pages: the kernel puts those where it can use them
        n_bytes = -(-n_bytes // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if is_large and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype)


def first_items(array: NDArray, size: int) -> NDArray:
    """Give the first items of an array from `empty_array` their own base, so that scipy sees no memory to save."""
    if array.base is None:
        return array[:size].copy()
    return np.frombuffer(array.base, array.dtype, count=size)[:]
