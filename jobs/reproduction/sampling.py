"""Simulations: seeds of repetitions, mean squared errors with standard errors, and their comparison with theory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["mean_squares", "on_theory", "seeds"]

MAX_DEVIATION = 5.0
"""Maximum deviation in standard errors: if theory holds, one of a thousand runs of a thousand cells exceeds it."""


def seeds(root: int, number: int) -> list[int]:
    """Return seeds of independent repetitions, equal for equal roots."""
    return [int(state) for state in np.random.SeedSequence(root).generate_state(number, np.uint64)]


def mean_squares(errors: NDArray[np.float64]) -> dict[str, list[float]]:
    """Compute the mean of squares over the first axis, and its standard error."""
    squares = errors**2
    return {
        "mean": squares.mean(axis=0).tolist(),
        "error": (squares.std(axis=0, ddof=1) / np.sqrt(len(squares))).tolist(),
    }


def on_theory(
    cells: Iterable[Mapping[str, Any]], allowance: Callable[[Mapping[str, Any]], float] | None = None
) -> tuple[bool, str]:
    """Return True if all mean squares agree with theory, and a sentence with the deviations.

    Parameters
    ----------
    cells : iterable of mapping
        Lists of equal length: ``mean`` and ``error`` from `mean_squares`, and ``theory``.
    allowance : callable, optional
        Function that returns the relative deviation allowed for a cell because its theory is asymptotic.
    """
    ratios, beyond = [], []
    for cell in cells:
        theory = np.array(cell["theory"])
        seen = theory > 0
        ratio = np.array(cell["mean"])[seen] / theory[seen]
        error = np.array(cell["error"])[seen] / theory[seen]
        ratios += ratio.tolist()
        beyond += (np.maximum(np.abs(ratio - 1) - (allowance(cell) if allowance else 0), 0) / error).tolist()
    worst = max(beyond)
    detail = (
        f"Measured over theory: {min(ratios):.3f} to {max(ratios):.3f} in {len(ratios)} cells; at most {worst:.1f} "
        "standard errors outside the range that theory allows."
    )
    return worst < MAX_DEVIATION, detail
