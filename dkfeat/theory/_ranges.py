"""Range checks for the arguments of formulas."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def within(
    value: ArrayLike, name: str, low: float, high: float, *, open_low: bool = False, infinite: bool = False
) -> NDArray[np.float64]:
    """Return `value` as float64 if all entries lie in [low, high], or in (low, high]; else raise ValueError.

    Infinity is rejected unless `infinite` is True.

    Examples
    --------
    >>> within(2, "gamma", 0, math.inf, open_low=True)
    array(2.)
    """
    numbers = np.asarray(value, dtype=np.float64)
    good = (numbers > low if open_low else numbers >= low) & (numbers <= high) & (np.isfinite(numbers) | infinite)
    if not good.all():
        worst = float(numbers[~good].flat[0]) if numbers.ndim else float(numbers)
        if high == math.inf:
            wanted = (f"above {low:g}" if open_low else f"at least {low:g}") + ("" if infinite else " and finite")
        else:
            wanted = f"above {low:g} and at most {high:g}" if open_low else f"from {low:g} to {high:g}"
        raise ValueError(f"{name}={worst!r}, but it must be {wanted}; give {name} in that range")
    return numbers


def integer_of_at_least(value: int, name: str, low: int) -> int:
    """Return `value` if it is an integer of at least `low`; else raise ValueError."""
    if int(value) != value or value < low:
        raise ValueError(f"{name}={value!r}, but it must be an integer of at least {low}; give {name} in that range")
    return int(value)
