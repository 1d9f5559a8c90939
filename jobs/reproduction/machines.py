"""Support vector machines at each of several C, told by their test accuracy as the papers tell it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from sklearn.svm import SVC, LinearSVC

from .rows import DataSet

__all__ = ["decades", "kernel_accuracies", "linear_accuracies", "unit_rows"]

ITERATIONS = 300_000
"""Of LIBSVM, two rows each."""
PATIENCE = 2
"""Values of C in a row that may be no better before larger ones are left out."""


def decades(low: float, high: float, steps: int = 1) -> list[float]:
    """Powers of ten from 10^low to 10^high, so many steps to a decade.

    Examples
    --------
    >>> decades(-1, 1)
    [0.1, 1.0, 10.0]
    """
    exponents = np.linspace(low, high, round((high - low) * steps) + 1)
    return [float(f"{10**each:.6g}") for each in exponents]


def unit_rows(rows: DataSet) -> tuple[Any, Any]:
    """Training and test rows of length 1."""
    return normalize(rows.X), normalize(rows.X_test)


def linear_accuracies(
    train: Any,
    y: NDArray[Any],
    test: Any,
    y_test: NDArray[Any],
    C: Sequence[float],
    *,
    loss: str = "hinge",
    fit_intercept: bool = False,
    dual: bool = True,
    tol: float = 0.1,
    passes: int = 1000,
    seed: int = 0,
) -> list[float]:
    """Test accuracy in percent of LIBLINEAR at each C, one class against the rest.

    A tolerance of 0.1 and at most 1,000 passes are LIBLINEAR's own for its dual solver. Where C is large that often
    ends at the last pass, before the optimum; the primal one does not, but knows no hinge loss.
    """
    found = []
    for each in C:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine = LinearSVC(
                C=each,
                loss=loss,
                dual=dual,
                fit_intercept=fit_intercept,
                tol=tol,
                max_iter=passes,
                random_state=seed,
            )
            found.append(100 * float(machine.fit(train, y).score(test, y_test)))
    return found


def kernel_accuracies(
    gram: NDArray[np.float64], y: NDArray[Any], block: NDArray[np.float64], y_test: NDArray[Any], C: Sequence[float]
) -> list[float]:
    """Test accuracy in percent of LIBSVM at each C, one class against one, of kernel values.

    C ascends until `PATIENCE` values are no better; at most `ITERATIONS` are made for a pair of classes.

    Parameters
    ----------
    gram : ndarray of shape (n_train, n_train)
    y : ndarray of shape (n_train,)
    block : ndarray of shape (n_test, n_train)
    y_test : ndarray of shape (n_test,)
    C : sequence of float
        Ascending.
    """
    found: list[float] = []
    for each in C:
        machine = SVC(kernel="precomputed", C=each, cache_size=500, max_iter=ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(gram, y)
        found.append(100 * float(machine.score(block, y_test)))
        if len(found) > PATIENCE and max(found[-PATIENCE:]) <= max(found[:-PATIENCE]):
            break
    return found
