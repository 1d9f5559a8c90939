"""Simulations: seeds of repetitions, mean squared errors with their own errors, and how near theory they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["mean_squares", "on_theory", "seeds"]

WIDE = 5.0
"""Standard errors that a cell may be off: of a thousand sets of a thousand true cells, one has a cell beyond it."""


def seeds(root: int, number: int) -> list[int]:
    """Seeds of independent repetitions, the same for the same root."""
    return [int(state) for state in np.random.SeedSequence(root).generate_state(number, np.uint64)]


def mean_squares(errors: NDArray[np.float64]) -> dict[str, list[float]]:
    """Mean of squares over the first axis, and the standard error of it."""
    squares = errors**2
    return {
        "mean": squares.mean(axis=0).tolist(),
        "error": (squares.std(axis=0, ddof=1) / np.sqrt(len(squares))).tolist(),
    }


def on_theory(
    cells: Iterable[Mapping[str, Any]], allowance: Callable[[Mapping[str, Any]], float] | None = None
) -> tuple[bool, str]:
    """Whether all mean squares are what theory says, and the figures that decide.

    Parameters
    ----------
    cells : iterable of mapping
        Each with ``mean`` and ``error``, as from `mean_squares`, and ``theory``, lists of one length.
    allowance : callable, optional
        Relative distance that a cell's theory leaves open because it is asymptotic.
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
    return worst < WIDE, detail
