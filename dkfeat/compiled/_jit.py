"""The numba flags that every compiled loop shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

__all__ = ["inlined", "kernel"]

F = TypeVar("F", bound=Callable)


def kernel(function: F) -> F:
    """Compile a loop: serial, without the GIL, strict IEEE arithmetic."""
    return numba.njit(nogil=True, error_model="numpy", boundscheck=False, fastmath=False)(function)


def inlined(function: F) -> F:
    """Compile a helper that is merged into each loop that calls it."""
    return numba.njit(nogil=True, error_model="numpy", boundscheck=False, fastmath=False, forceinline=True)(function)
