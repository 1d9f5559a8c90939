"""Support vector machines at each of several C, with their test accuracies, as the papers report them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from sklearn.svm import SVC, LinearSVC

from ..rows import DataSet
from .interior import kernel_factor, optimum

__all__ = ["decades", "kernel_accuracies", "linear_accuracies", "optimal_linear_accuracies", "unit_rows"]

ITERATIONS = 300_000
"""Iterations of LIBSVM, each over two rows, after which the interior-point method trains a pair of classes instead."""
WIDE_FACTOR = 0.25
"""Columns of a factor, relative to its rows, above which LIBSVM goes on instead, as it then takes less time."""
MOST_ITERATIONS = 3_000_000
"""Iterations of LIBSVM after which larger C are left out, if the factor is wide."""
MOST_GAP = 1e-3
"""Relative duality gap of the interior-point method above which larger C are left out."""
PATIENCE = 50
"""Larger C are left out after one that is at least so many times the best so far."""
WIDEST = 300
"""Maximum number of columns with which the interior-point method trains linear machines."""


def decades(low: float, high: float, steps: int = 1) -> list[float]:
    """Return powers of ten from 10^low to 10^high, with `steps` steps per decade.

    Examples
    --------
    >>> decades(-1, 1)
    [0.1, 1.0, 10.0]
    """
    exponents = np.linspace(low, high, round((high - low) * steps) + 1)
    return [float(f"{10**each:.6g}") for each in exponents]


def unit_rows(rows: DataSet) -> tuple[Any, Any]:
    """Scale training and test rows to length 1."""
    return normalize(rows.X), normalize(rows.X_test)


def linear_accuracies(
    train: Any,
    y: NDArray[Any],
    test: Any,
    y_test: NDArray[Any],
    C: Sequence[float],
    *,
    tol: float = 0.1,
    passes: int = 1000,
    seed: int = 0,
) -> list[float]:
    """Compute LIBLINEAR's test accuracy in percent at each C with hinge loss and no bias, one class against the rest.

    The defaults, a tolerance of 0.1 and at most 1,000 passes, are LIBLINEAR's for its dual solver. At large C, the
    solver often stops after the last pass, before the optimum of `optimal_linear_accuracies`.
    """
    found = []
    for each in C:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine = LinearSVC(C=each, loss="hinge", fit_intercept=False, tol=tol, max_iter=passes, random_state=seed)
            found.append(100 * float(machine.fit(train, y).score(test, y_test)))
    return found


def optimal_linear_accuracies(
    train: Any, y: NDArray[Any], test: Any, y_test: NDArray[Any], C: Sequence[float], *, seed: int = 0
) -> list[float]:
    """Compute the test accuracy in percent of the optimal machine with hinge loss and no bias at each C.

    One class is trained against the rest. Rows of many columns are trained by LIBLINEAR, with more passes than usual.
    """
    if train.shape[1] > WIDEST:
        return linear_accuracies(train, y, test, y_test, C, tol=0.01, passes=10_000, seed=seed)
    rows, classes, found = train.toarray(), np.unique(y), []
    ones = classes if len(classes) > 2 else classes[1:]
    for each in C:
        signs = [np.where(y == one, 1.0, -1.0) for one in ones]
        normals = [rows.T @ optimum(rows, sign, each, bias=False).weights for sign in signs]
        decisions = test @ np.transpose(normals)
        at = decisions.argmax(axis=1) if len(classes) > 2 else (decisions[:, 0] > 0).astype(int)
        found.append(100 * float(np.mean(classes[at] == y_test)))
    return found


def kernel_accuracies(
    gram: NDArray[np.float64], y: NDArray[Any], block: NDArray[np.float64], y_test: NDArray[Any], C: Sequence[float]
) -> list[float]:
    """Compute the test accuracy in percent at each C of machines of kernel values, one class against one.

    LIBSVM trains each pair of classes, or, if `ITERATIONS` do not suffice, the interior-point method where a narrow
    factor has the kernel values. C increases until it is `PATIENCE` times the best one and some row of a smaller class
    is recognised, or until `MOST_ITERATIONS` do not suffice or rounding leaves a gap above `MOST_GAP`.

    Parameters
    ----------
    gram : ndarray of shape (n_train, n_train)
    y : ndarray of shape (n_train,)
    block : ndarray of shape (n_test, n_train)
    y_test : ndarray of shape (n_test,)
    C : sequence of float
        Ascending.
    """
    classes, codes = np.unique(y, return_inverse=True)
    pairs = list(combinations(range(len(classes)), 2))
    constant = 100 * float(np.mean(y_test == classes[np.bincount(codes).argmax()]))
    factors: dict[int, NDArray[np.float64]] = {}
    found: list[float] = []
    for each in C:
        machine = SVC(kernel="precomputed", C=each, cache_size=500, max_iter=ITERATIONS, decision_function_shape="ovo")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(gram, y)
        decisions = machine.decision_function(block).reshape(len(block), -1)
        decisions = decisions if len(pairs) > 1 else -decisions
        for at in np.flatnonzero(machine.n_iter_ >= ITERATIONS):
            rows = np.flatnonzero(np.isin(codes, pairs[at]))
            if at not in factors:
                factors[at] = kernel_factor(gram[np.ix_(rows, rows)])
            signs = np.where(codes[rows] == pairs[at][0], 1.0, -1.0)
            if factors[at].shape[1] <= WIDE_FACTOR * len(rows):
                best = optimum(factors[at], signs, each, bias=True)
                if found and best.gap > MOST_GAP:
                    return found
                decisions[:, at] = block[:, rows] @ best.weights + best.bias
                continue
            longer = SVC(kernel="precomputed", C=each, cache_size=500, max_iter=MOST_ITERATIONS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                longer.fit(gram[np.ix_(rows, rows)], signs)
            if found and longer.n_iter_[0] >= MOST_ITERATIONS:
                return found
            decisions[:, at] = longer.decision_function(block[:, rows])
        found.append(100 * float(np.mean(classes[_elected(decisions, pairs)] == y_test)))
        if max(found) > constant and each >= PATIENCE * C[int(np.argmax(found))]:
            break
    return found


def _elected(decisions: NDArray[np.float64], pairs: Sequence[tuple[int, int]]) -> NDArray[np.intp]:
    """Return the class for which most pairs vote, of equal ones the first, as LIBSVM does."""
    votes = np.zeros((len(decisions), pairs[-1][1] + 1), dtype=int)
    for (first, second), decision in zip(pairs, decisions.T, strict=True):
        votes[:, first] += decision > 0
        votes[:, second] += decision <= 0
    return votes.argmax(axis=1)
