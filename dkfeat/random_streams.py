"""Seeds of all random numbers: integers of 64 bits."""

from __future__ import annotations

import numbers
import secrets
from typing import Any

import numpy as np

_SEED_LIMIT = 1 << 64


def draw_seed() -> int:
    """Draw a 64-bit seed from the operating system.

    Returns
    -------
    seed : int
        In [0, 2**64).

    Examples
    --------
    >>> 0 <= draw_seed() < 2**64
    True
    """
    return secrets.randbits(64)


def check_seed(random_state: Any) -> int:
    """Return the seed that a user's ``random_state`` stands for.

    Parameters
    ----------
    random_state : int, None, numpy.random.RandomState or numpy.random.Generator
        An integer in [0, 2**64) is used unchanged. None draws a seed from the operating system. A generator of numpy
        gives its next 64 bits, and so advances.

    Returns
    -------
    seed : int
        In [0, 2**64).

    Raises
    ------
    ValueError
        For an integer out of range.
    TypeError
        For any other type.

    Examples
    --------
    >>> check_seed(7)
    7
    >>> check_seed(np.random.RandomState(0)) == check_seed(np.random.RandomState(0))
    True
    """
    if random_state is None:
        return draw_seed()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, _SEED_LIMIT - 1, dtype=np.uint64, endpoint=True))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, _SEED_LIMIT, dtype=np.uint64))
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool | np.bool_):
        seed = int(random_state)
        if 0 <= seed < _SEED_LIMIT:
            return seed
        raise ValueError(f"random_state={seed}, but a seed lies in [0, 2**64); choose a non-negative integer")
    raise TypeError(
        f"random_state={random_state!r} of type {type(random_state).__name__}; "
        "pass an integer in [0, 2**64), None, or a generator of numpy"
    )
