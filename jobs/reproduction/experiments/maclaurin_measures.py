"""Measurements of `maclaurin`: errors of Gram matrices, accuracies and times of exact and of linear machines."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.svm import SVC, LinearSVC

from dkfeat import MaclaurinFeatures
from dkfeat.kernels import exponential_dot_product, polynomial

from ..machines.accuracies import kernel_accuracies
from ..rows import DataSet
from ..sampling import seeds
from ..theory import maclaurin as theory

__all__ = [
    "MAPS", "SERIES", "Prepared", "deviations", "exact_machine", "gram_errors", "linear_machine", "machine_of_products",
    "prepared",
]  # fmt: skip

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
TOLERANCE = 0.01
"""Tolerance of LIBLINEAR's primal solver, its default."""
TIE = 0.2
"""Difference of accuracies in percent that is no reason for a larger C, with which training takes longer."""


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
        if name == "polynomial":
            return {"kernel": name, "degree": 10, "coef0": 1.0}
        return {"kernel": name, "gamma": self.width**-2}

    def exact(self, name: str, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute the kernel of rows and training rows."""
        if name == "polynomial":
            return polynomial(Y, self.X, degree=10, coef0=1.0)
        return exponential_dot_product(Y, self.X, gamma=self.width**-2)

    def halves(self, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Make two classes of training and test labels: a random half of all classes, and the others."""
        classes = np.unique(self.y)
        chosen = np.random.default_rng([seed, 11]).permutation(classes)[: len(classes) // 2]
        return np.isin(self.y, chosen), np.isin(self.y_test, chosen)


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


def exact_machine(rows: Prepared, *, kernel: str, grid: Sequence[float], repeats: int, seed: int) -> dict[str, float]:
    """Measure LIBSVM on an exact kernel: mean accuracy in percent at one C, and processor seconds.

    For the accuracies kernel values are computed beforehand. In the times, LIBSVM computes them itself from sparse
    rows during training, with a cache of 200 MB, and during testing.
    """
    gram, block = rows.exact(kernel, rows.X), rows.exact(kernel, rows.X_test)
    draws = [rows.halves(state) for state in seeds(seed, repeats if len(np.unique(rows.y)) > 2 else 1)]
    found = [kernel_accuracies(gram, y, block, y_test, grid) for y, y_test in draws]
    accuracies = np.mean([each + each[-1:] * (len(grid) - len(each)) for each in found], axis=0)
    C = grid[best := _best_C(accuracies)]
    if kernel == "polynomial":
        machine = SVC(kernel="poly", degree=10, gamma=1.0, coef0=1.0, C=C)
    else:  # for rows of length 1, exp(<x, y> / s^2) is e^(1 / s^2) times the Gaussian kernel
        machine = SVC(kernel="rbf", gamma=rows.width**-2 / 2, C=C * np.exp(rows.width**-2))
    _, train, test = _measured(machine, csr_matrix(rows.X), csr_matrix(rows.X_test), draws[0])
    return {"C": C, "accuracy": accuracies[best], "train": train, "test": test}


def linear_machine(
    rows: Prepared, *, kernel: str, method: str, size: int, grid: Sequence[float], repeats: int, seed: int
) -> dict[str, Any]:
    """Measure LIBLINEAR on features: mean accuracy in percent at one C, and processor seconds with the features."""
    found = np.empty((repeats, len(grid), 3))
    for i, state in enumerate(seeds(seed, repeats)):
        features = MaclaurinFeatures(size, random_state=state, **rows.kernel(kernel), **MAPS[method])
        began = time.process_time()
        Z = features.fit_transform(rows.X)
        made = time.process_time()
        Z_test = features.transform(rows.X_test)
        seconds = np.array([0.0, made - began, time.process_time() - made])
        for j, C in enumerate(grid):
            # the primal solver is faster for more rows than columns
            machine = LinearSVC(C=C, dual=False, fit_intercept=False, tol=TOLERANCE)
            found[i, j] = seconds + _measured(machine, Z, Z_test, rows.halves(state))
    best = _best_C(found[..., 0].mean(axis=0))
    accuracies = found[:, best, 0]
    train, test = np.median(found[:, best, 1:], axis=0)
    spread = accuracies.std(ddof=1) / np.sqrt(repeats)
    return {"C": grid[best], "accuracy": accuracies.mean(), "error": spread, "train": train, "test": test}


def _best_C(accuracies: Any) -> int:
    """Return the index of the smallest C that is less than `TIE` below the best accuracy."""
    return int(np.argmax(accuracies > np.max(accuracies) - TIE))


def _measured(machine: Any, X: Any, X_test: Any, labels: tuple[Any, Any]) -> tuple[float, float, float]:
    """Fit and test a machine: accuracy in percent, processor seconds of training and of testing."""
    began = time.process_time()
    machine.fit(X, labels[0])
    trained = time.process_time()
    accuracy = 100 * float(machine.score(X_test, labels[1]))
    return accuracy, trained - began, time.process_time() - trained


def machine_of_products(
    rows: Prepared, *, kernel: str, method: str | None, size: int, grid: Sequence[float], seed: int
) -> dict[str, float]:
    """Compute LIBSVM's best accuracy over C in percent, with inner products of features as its kernel.

    This is a linear machine on the features, in a time that hardly depends on their number. With `method` None the
    kernel is the exact one. Labels are a random half of the classes against the others, and all classes.
    """
    if method is None:
        gram, block = rows.exact(kernel, rows.X), rows.exact(kernel, rows.X_test)
    else:
        features = MaclaurinFeatures(size, random_state=seed, **rows.kernel(kernel), **MAPS[method])
        Z = features.fit_transform(rows.X)
        gram, block = ((each @ Z.T).astype(np.float64) for each in (Z, features.transform(rows.X_test)))
    labels = {"halves": rows.halves(seeds(seed, 1)[0]), "classes": (rows.y, rows.y_test)}
    return {name: max(kernel_accuracies(gram, train, block, test, grid)) for name, (train, test) in labels.items()}


def deviations(rows: Prepared, *, kernel: str, size: int, pairs: int, seed: int) -> dict[str, float]:
    """Compute each map's standard deviation of a kernel value, by theory, for random pairs of training rows.

    Its unit is the difference between the kernel's means over pairs of the same class and over pairs of two.
    """
    y, n = rows.halves(seeds(seed, 1)[0])[0], len(rows.y)
    gram = rows.exact(kernel, rows.X)
    same = y[:, None] == y
    np.fill_diagonal(same, val=False)
    difference = gram[same].mean() - gram[y][:, ~y].mean()
    drawn = np.random.default_rng(seed).integers(n, size=(pairs, 2))
    found = {"difference": float(difference)}
    for method, options in MAPS.items():
        terms, weights = _series(rows.kernel(kernel), **options)
        variances = [theory.component_variance(terms, weights, rows.X[i], rows.X[j]) for i, j in drawn]
        found[method] = float(np.sqrt(np.mean(variances) / size) / abs(difference))
    return found


def _series(options: Mapping[str, Any], *, measure: Any = "kernel", h01: bool = False) -> tuple[Any, Any]:
    """Return a kernel's coefficients up to degree 40, and the probabilities of degrees in a map."""
    if options["kernel"] == "polynomial":
        terms = np.array([math.comb(options["degree"], n) for n in range(41)], dtype=np.float64)
    else:
        terms = np.array([options["gamma"] ** n / math.factorial(n) for n in range(41)])
    weights = theory.degree_probabilities(terms, measure=measure)
    if h01:  # degrees 0 and 1 are exact, and the others have 1/4 of the probability
        terms[:2], weights = 0, np.where(np.arange(41) < 2, 0, 4 * weights)
    return terms, weights
