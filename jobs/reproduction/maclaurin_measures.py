"""Measurements of `maclaurin`: errors of Gram matrices, accuracies and times of exact and of linear machines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.svm import LinearSVC

from dkfeat import KernelMachine, MaclaurinFeatures
from dkfeat.kernels import exponential_dot_product, polynomial

from .rows import DataSet
from .sampling import seeds

__all__ = ["MAPS", "SERIES", "Prepared", "exact_machine", "gram_errors", "linear_machine", "prepared"]

SERIES: dict[str, dict[str, Any]] = {
    "⟨x, y⟩¹⁰": {"kernel": "polynomial", "degree": 10, "coef0": 0.0},
    "(1 + ⟨x, y⟩)¹⁰": {"kernel": "polynomial", "degree": 10, "coef0": 1.0},
    "exp⟨x, y⟩": {"kernel": "exponential", "gamma": 1.0},
}
"""Kernels of figure 1, as `MaclaurinFeatures` takes them."""
MAPS: dict[str, dict[str, Any]] = {
    "RF": {"measure": "proper"},
    "H0/1": {"measure": "proper", "h01": True},
    "RF, kernel's measure": {},
}
"""The paper's two maps, and dkfeat's default."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Standardised rows of length 1, and the width of the exponential kernel."""

    X: NDArray[np.float64]
    y: NDArray[Any]
    X_test: NDArray[np.float64]
    y_test: NDArray[Any]
    width: float
    """Mean distance of two training rows."""

    def kernel(self, name: str) -> dict[str, Any]:
        """Return the parameters of a kernel for `MaclaurinFeatures`."""
        return {"degree": 10, "coef0": 1.0} if name == "polynomial" else {"gamma": self.width**-2}


def prepared(data: DataSet) -> Prepared:
    """Standardise columns to mean 0 and variance 1 over the training rows, then scale rows to length 1."""
    scaler = StandardScaler().fit(data.X.toarray())
    X, X_test = (normalize(scaler.transform(rows.toarray())) for rows in (data.X, data.X_test))
    return Prepared(X, data.y, X_test, data.y_test, float(pairwise_distances(X[:1000]).mean()))


def points_in_ball(n: int, d: int, seed: int) -> NDArray[np.float64]:
    """Draw points uniformly from the ball of radius 1."""
    random = np.random.default_rng([seed, d])
    directions = normalize(random.standard_normal((n, d)))
    return directions * random.random((n, 1)) ** (1 / d)


def gram_errors(*, series: str, d: int, method: str, sizes: list[int], repeats: int, seed: int) -> Any:
    """Compute mean absolute errors of Gram matrices of 100 points over the kernel's maximum, by components."""
    X, options = points_in_ball(100, d, seed), SERIES[series]
    if options["kernel"] == "polynomial":
        exact, largest = polynomial(X, degree=10, coef0=options["coef0"]), (1 + options["coef0"]) ** 10
    else:
        exact, largest = exponential_dot_product(X), float(np.e)
    errors = np.empty((repeats, len(sizes)))
    for i, state in enumerate(seeds(seed, repeats)):
        for j, size in enumerate(sizes):
            Z = MaclaurinFeatures(size, random_state=state, **options, **MAPS[method]).fit_transform(X)
            errors[i, j] = np.abs(Z @ Z.T - exact).mean() / largest
    return {"mean": errors.mean(axis=0), "error": errors.std(axis=0, ddof=1) / np.sqrt(repeats)}


def exact_machine(rows: Prepared, *, kernel: str, C: float) -> dict[str, float]:
    """Measure an exact kernel machine: accuracy in percent, and processor seconds of training and of testing."""
    name = "exponential_dot_product" if kernel == "exponential" else kernel
    machine = KernelMachine(name, rows.kernel(kernel), C=C)
    began = time.process_time()
    machine.fit(rows.X, rows.y)
    trained = time.process_time()
    accuracy = 100 * float(machine.score(rows.X_test, rows.y_test))
    return {"accuracy": accuracy, "train": trained - began, "test": time.process_time() - trained}


def linear_machine(
    rows: Prepared, *, kernel: str, method: str, size: int, grid: Sequence[float], repeats: int, seed: int
) -> dict[str, Any]:
    """Measure LIBLINEAR on features: accuracy in percent at the best C, and processor seconds with the features."""
    accuracies, seconds = np.empty((repeats, len(grid))), np.empty((repeats, len(grid), 2))
    for i, state in enumerate(seeds(seed, repeats)):
        features = MaclaurinFeatures(size, kernel=kernel, random_state=state, **rows.kernel(kernel), **MAPS[method])
        began = time.process_time()
        Z = features.fit_transform(rows.X)
        made = time.process_time()
        Z_test = features.transform(rows.X_test)
        seconds[i] = made - began, time.process_time() - made
        for j, C in enumerate(grid):
            machine = LinearSVC(
                C=C, dual=False, fit_intercept=False, tol=0.1
            )  # as is faster for more rows than columns
            began = time.process_time()
            machine.fit(Z, rows.y)
            trained = time.process_time()
            accuracies[i, j] = 100 * machine.score(Z_test, rows.y_test)
            seconds[i, j] += trained - began, time.process_time() - trained
    best = int(accuracies.mean(axis=0).argmax())
    train, test = np.median(seconds[:, best], axis=0)
    spread = accuracies[:, best].std(ddof=1) / np.sqrt(repeats)
    return {"C": grid[best], "accuracy": accuracies[:, best].mean(), "error": spread, "train": train, "test": test}
