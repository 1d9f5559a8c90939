"""Support vector machines at each of several C, with their test accuracies, as the papers report them."""

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
"""Maximum number of iterations of LIBSVM, each over two rows."""
PATIENCE = 2
"""Number of consecutive C without improvement after which larger ones are left out."""


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
    loss: str = "hinge",
    fit_intercept: bool = False,
    dual: bool = True,
    tol: float = 0.1,
    passes: int = 1000,
    seed: int = 0,
) -> list[float]:
    """Compute LIBLINEAR's test accuracy in percent at each C, one class against the rest.

    The defaults, a tolerance of 0.1 and at most 1,000 passes, are LIBLINEAR's for its dual solver. At large C, the
    solver often stops after the last pass, before the optimum; the primal solver does not, but has no hinge loss.
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
    """Compute LIBSVM's test accuracy in percent at each C from kernel values, one class against one.

    C increases until `PATIENCE` values in succession are no better; each pair of classes has at most `ITERATIONS`.

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
