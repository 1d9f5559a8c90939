"""Arrays whose layout and alignment suit compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def owned(array: NDArray, dtype: Any = None) -> NDArray:
    """Contiguous, aligned and writeable, copied only if it is not.

    numba compiles a loop anew for each layout, read-only arrays included: with this it is compiled once.

    Examples
    --------
    >>> values = np.ones(3)
    >>> owned(values) is values, owned(values[::2]).flags.c_contiguous
    (True, True)
    """
    return np.require(array, dtype, ("C", "A", "W"))


def aligned(count: int, dtype: Any) -> NDArray:
    """Flat array, not filled, that begins with a cache line, so that no vector in it stretches over two.

    Examples
    --------
    >>> aligned(3, np.float64).ctypes.data % 64
    0
    """
    size = np.dtype(dtype).itemsize
    memory = np.empty(count * size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + count * size].view(dtype)
