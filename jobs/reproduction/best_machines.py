"""Best linear, GMM and RBF machines of a data set over C and γ, the references of three experiments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dkfeat import kernels

from .machines import kernel_accuracies, linear_accuracies, unit_rows
from .rows import DataSet, load_rows

__all__ = ["BEST_GAMMAS", "GAMMAS", "SEARCHED_ROWS", "gmm_best", "linear_best", "rbf_best"]

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
SEARCHED_ROWS = 2000
"""Maximum number of training rows on which all γ are tried; if a set has more, the best few are then tried on all."""
BEST_GAMMAS = 5


def linear_best(
    data: str, *, name: str, rows: int | None, grid: Sequence[float], seed: int, test_rows: int | None = None
) -> dict[str, float]:
    """Find the best linear machine on rows of length 1."""
    found = load_rows(data, name)
    assert found is not None
    found = found.sample(rows, test_rows, seed)
    train, test = unit_rows(found)
    return _best(grid, linear_accuracies(train, found.y, test, found.y_test, grid, seed=seed))


def gmm_best(
    data: str, *, name: str, rows: int | None, grid: Sequence[float], seed: int, test_rows: int | None = None
) -> dict[str, float]:
    """Find the best GMM machine on unscaled rows."""
    found = load_rows(data, name)
    assert found is not None
    found = found.sample(rows, test_rows, seed)
    gram, block = kernels.gmm(found.X), kernels.gmm(found.X_test, found.X)
    return _best(grid, kernel_accuracies(gram, found.y, block, found.y_test, grid))


def rbf_best(
    data: str,
    *,
    name: str,
    rows: int | None,
    grid: Sequence[float],
    gammas: Sequence[float],
    seed: int,
    test_rows: int | None = None,
) -> dict[str, float]:
    """Find the best RBF machine over C and γ; with many rows, most γ are tried on a part of them only."""
    found = load_rows(data, name)
    assert found is not None
    found = found.sample(rows, test_rows, seed)
    if len(found.y) > SEARCHED_ROWS:
        searched = _rbf_grid(found.sample(SEARCHED_ROWS, SEARCHED_ROWS, seed), grid, gammas)
        gammas = sorted(gammas, key=lambda gamma: -searched[gamma]["accuracy"])[:BEST_GAMMAS]
        best_c = searched[gammas[0]]["C"]
        grid = [C for C in grid if best_c / 11 < C < best_c * 11]
    tried = _rbf_grid(found, grid, gammas)
    best = max(tried, key=lambda gamma: tried[gamma]["accuracy"])
    return {**tried[best], "gamma": best}


def _rbf_grid(found: DataSet, grid: Sequence[float], gammas: Sequence[float]) -> dict[float, dict[str, float]]:
    """Find the best C for each γ; the kernel of each γ is a power of the one for γ = 1."""
    gram, block = kernels.rbf_cosine(found.X, gamma=1.0), kernels.rbf_cosine(found.X_test, found.X, gamma=1.0)
    power, power_block = np.empty_like(gram), np.empty_like(block)
    tried = {}
    for gamma in gammas:
        np.power(gram, gamma, out=power)
        np.power(block, gamma, out=power_block)
        tried[gamma] = _best(grid, kernel_accuracies(power, found.y, power_block, found.y_test, grid))
    return tried


def _best(grid: Sequence[float], accuracies: Sequence[float]) -> dict[str, float]:
    at = int(np.argmax(accuracies))
    return {"accuracy": accuracies[at], "C": grid[at]}
