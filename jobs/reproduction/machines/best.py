"""Best linear, GMM and RBF machines of a data set over C and γ, the references of three experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dkfeat import kernels

from ..rows import DataSet, load_rows
from .accuracies import kernel_accuracies, linear_accuracies, optimal_linear_accuracies, unit_rows

__all__ = ["GAMMAS", "gmm_best", "linear_best", "rbf_best"]

GAMMAS = tuple(
    float(f"{gamma:.6g}")
    for gamma in (
        *(0.001, 0.01),
        *(tenths / 10 for tenths in range(1, 21)),
        2.5,
        *range(3, 21),
        *range(25, 51, 5),
        *range(60, 101, 10),
        *(120, 150, 200, 300, 500, 1000),
    )
)
"""The paper's 58 values."""
FIRST_GAMMAS = 8
"""Maximum distance, in places of the list, of the first γ that are tried."""


def linear_best(
    data: str, *, grid: Sequence[float], seed: int, optimal: bool = False, **drawn: Any
) -> dict[str, float]:
    """Find the best linear machine on rows of length 1, `drawn` as by `_drawn`: LIBLINEAR's, or that at the optimum."""
    found = _drawn(data, seed=seed, **drawn)
    train, test = unit_rows(found)
    solve = optimal_linear_accuracies if optimal else linear_accuracies
    return _best(grid, solve(train, found.y, test, found.y_test, grid, seed=seed))


def gmm_best(data: str, *, grid: Sequence[float], **drawn: Any) -> dict[str, float]:
    """Find the best GMM machine on unscaled rows, `drawn` as by `_drawn`."""
    found = _drawn(data, **drawn)
    gram, block = kernels.gmm(found.X), kernels.gmm(found.X_test, found.X)
    return _best(grid, kernel_accuracies(gram, found.y, block, found.y_test, grid))


def rbf_best(data: str, *, grid: Sequence[float], gammas: Sequence[float], **drawn: Any) -> dict[str, float]:
    """Find the best RBF machine over C and γ on rows of length 1, `drawn` as by `_drawn`.

    Every eighth γ is tried first, then those four, two and one places from the best. At the best γ, values of C
    between those of the grid are tried, too. The kernel of each γ is a power of the one for γ = 1.
    """
    found = _drawn(data, **drawn)
    gram, block = kernels.rbf_cosine(found.X, gamma=1.0), kernels.rbf_cosine(found.X_test, found.X, gamma=1.0)
    power, power_block = np.empty_like(gram), np.empty_like(block)

    def attempt(gamma: float, grid: Sequence[float]) -> dict[str, float]:
        np.power(gram, gamma, out=power)
        np.power(block, gamma, out=power_block)
        return {**_best(grid, kernel_accuracies(power, found.y, power_block, found.y_test, grid)), "gamma": gamma}

    tried: dict[int, dict[str, float]] = {}
    step, at = FIRST_GAMMAS, 0
    places: Sequence[int] = range(0, len(gammas), FIRST_GAMMAS)
    while step:
        for place in places:
            if place not in tried and 0 <= place < len(gammas):
                tried[place] = attempt(gammas[place], grid)
        at = max(tried, key=lambda place: tried[place]["accuracy"])
        step //= 2
        places = (at - step, at + step)
    best = tried[at]
    between = [float(f"{best['C'] * factor:.6g}") for factor in (10**-0.5, 10**0.5)]
    return max(best, attempt(best["gamma"], between), key=lambda each: each["accuracy"])


def _drawn(
    data: str, *, name: str, rows: int | None, seed: int, test_rows: int | None = None, split: int = 0
) -> DataSet:
    """Read a set with the split of its files, or another random one of the same sizes."""
    found = load_rows(data, name)
    assert found is not None
    return (found.split_again(split) if split else found).sample(rows, test_rows, seed)


def _best(grid: Sequence[float], accuracies: Sequence[float]) -> dict[str, float]:
    at = int(np.argmax(accuracies))
    return {"accuracy": accuracies[at], "C": grid[at]}
