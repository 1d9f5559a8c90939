"""A linear classifier by LIBLINEAR on rows in memory, its C chosen on a part of them that a seed holds out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight

from dkfeat.errors import ConfigError, InputError
from dkfeat.learn.held_out import is_held_out
from dkfeat.validation import check_real

__all__ = [
    "DEFAULT_C",
    "LOSSES",
    "LinearFit",
    "best_of_grid",
    "checked_grid",
    "fit_best_c",
    "fit_bytes",
    "split_held_out",
    "try_grid",
]

LOSSES = ("squared_hinge", "hinge", "log_loss")
DEFAULT_C = (0.01, 0.1, 1.0, 10.0, 100.0)
MAX_ITERATIONS = 1000

Tell = Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearFit:
    """What came of a grid."""

    classes: NDArray[Any]
    """Labels in ascending order."""
    coef: NDArray[np.float64]
    """Weights of shape (1 or n_classes, n_features)."""
    intercept: NDArray[np.float64]
    """One for each row of `coef`."""
    C: float
    """Value that was chosen."""
    grid: tuple[Mapping[str, Any], ...]
    """Each value of C with its held-out accuracy, None where one value was given, and whether LIBLINEAR converged."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels of rows; equal scores go to the lower label."""
        scores = np.asarray(X @ self.coef.T) + self.intercept
        best = (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return self.classes[best]

    def score(self, X: Any, y: NDArray[Any]) -> float:
        """Share of rows that get their own label."""
        return float(np.mean(self.predict(X) == y))


def checked_grid(values: Any, name: str = "C") -> tuple[float, ...]:
    """Values of a penalty, ascending, each once; one number stands for itself.

    Examples
    --------
    >>> checked_grid([10, 0.1, 10])
    (0.1, 10.0)
    """
    given = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    if not given:
        message = f"{name} is an empty list; give one number above 0 or several"
        raise ConfigError(message)
    return tuple(sorted({check_real(value, name, above=0) for value in given}))


def split_held_out(y: NDArray[Any], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which rows are held out, by their place; of a class that would go whole the first row stays to train on.

    Raises
    ------
    InputError
        If no row would be held out.

    Examples
    --------
    >>> split_held_out(np.array([0, 0, 0, 0, 0, 1]), 0.9, seed=0)
    array([False,  True,  True,  True,  True, False])
    """
    held = is_held_out(np.arange(len(y)), fraction, seed)
    classes, first = np.unique(y, return_index=True)
    held[first[~np.isin(classes, y[~held])]] = False
    if not held.any():
        message = (
            f"a part of {fraction:g} held out of {len(y):,} rows takes no row; "
            "give another seed or a larger part, or one value where several are to be tried"
        )
        raise InputError(message)
    return held


def best_of_grid(grid: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Entry of the highest accuracy; of equal ones the first."""
    return max(grid, key=lambda entry: entry["accuracy"])


def fit_best_c(
    X: Any,
    y: NDArray[Any],
    C: Sequence[float],
    *,
    loss: str = "squared_hinge",
    validation_fraction: float = 0.1,
    seed: int = 0,
    sample_weight: NDArray[np.float64] | None = None,
    class_weight: Any = None,
    fit_intercept: bool = True,
    tell: Tell | None = None,
) -> LinearFit:
    """Fit each C to the rows that are not held out, and the best one to all rows.

    Parameters
    ----------
    X : csr_matrix or ndarray of shape (n_samples, n_features), float64
        C-contiguous; neither copied nor changed here.
    y : ndarray of shape (n_samples,)
        Labels of two classes or more.
    C : sequence of float
        Ascending; of equally accurate ones the smallest is taken. One value needs no held-out rows.
    loss : {"squared_hinge", "hinge", "log_loss"}
    validation_fraction, seed
        Part of the rows that is held out, and which.
    sample_weight : ndarray of shape (n_samples,) or None
    class_weight : dict, "balanced" or None
        As in scikit-learn.
    fit_intercept : bool
    tell : callable or None
        Given each entry of the grid when it is known.
    """
    options: dict[str, Any] = {"loss": loss, "class_weight": class_weight, "fit_intercept": fit_intercept, "seed": seed}
    grid: list[Mapping[str, Any]] = []
    if len(C) > 1:
        grid = try_grid(
            X, y, C, validation_fraction=validation_fraction, sample_weight=sample_weight, tell=tell, **options
        )
    best = float(best_of_grid(grid)["C"]) if grid else C[0]
    fitted, converged = _fit(X, y, sample_weight, best, **options)
    if not grid:
        grid = [{"C": best, "accuracy": None, "converged": converged}]
        if tell is not None:
            tell(grid[0])
    return replace(fitted, grid=tuple(grid))


def try_grid(
    X: Any,
    y: NDArray[Any],
    C: Sequence[float],
    *,
    loss: str = "squared_hinge",
    validation_fraction: float = 0.1,
    seed: int = 0,
    sample_weight: NDArray[np.float64] | None = None,
    class_weight: Any = None,
    fit_intercept: bool = True,
    tell: Tell | None = None,
) -> list[Mapping[str, Any]]:
    """Accuracy of each C on the held-out rows, as `LinearFit` has it; arguments as of `fit_best_c`."""
    held = split_held_out(y, validation_fraction, seed)
    X_train, y_train, X_held, y_held = X[~held], y[~held], X[held], y[held]
    weight = None if sample_weight is None else sample_weight[~held]
    grid: list[Mapping[str, Any]] = []
    for value in C:
        fitted, converged = _fit(
            X_train,
            y_train,
            weight,
            value,
            loss=loss,
            class_weight=class_weight,
            fit_intercept=fit_intercept,
            seed=seed,
        )
        grid.append({"C": value, "accuracy": fitted.score(X_held, y_held), "converged": converged})
        if tell is not None:
            tell(grid[-1])
    return grid


def fit_bytes(n_samples: int, n_features: int, stored: int, n_outputs: int, *, sparse: bool, grid: bool) -> int:
    """Bytes that `fit_best_c` holds at its highest point, rows included.

    LIBLINEAR copies every value that is not 0 into a record of 16 bytes, column and float64, beside the float64 rows;
    a grid holds the rows to train on apart from all rows.

    Parameters
    ----------
    n_samples, n_features : int
        Shape of the rows.
    stored : int
        Values that the rows store.
    n_outputs : int
        Weight vectors: 1 for two classes.
    sparse, grid : bool
        Whether rows are CSR, of 12 bytes a value, and whether several C are tried.
    """
    rows = stored * (12 if sparse else 8)
    return rows * (2 if grid else 1) + 16 * (stored + 2 * n_samples) + 3 * 8 * n_outputs * n_features


def _fit(
    X: Any, y: Any, weight: Any, C: float, *, loss: str, class_weight: Any, fit_intercept: bool, seed: int
) -> tuple[LinearFit, bool]:
    """Fit one C; also tell whether LIBLINEAR converged."""
    shared: dict[str, Any] = {
        "C": C, "fit_intercept": fit_intercept, "max_iter": MAX_ITERATIONS, "random_state": seed % 2**32,
    }  # fmt: skip
    if class_weight is not None:
        of_class = compute_sample_weight(class_weight, y)
        weight = of_class if weight is None else weight * of_class
    classes = np.unique(y)
    if loss == "log_loss":
        dual = bool(issparse(X) and X.shape[0] < X.shape[1])
        targets = [y] if len(classes) == 2 else [y == label for label in classes]
        estimators: list[Any] = [LogisticRegression(solver="liblinear", dual=dual, **shared) for _ in targets]
    else:
        targets, estimators = [y], [LinearSVC(loss=loss, dual=True if loss == "hinge" else "auto", **shared)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        for estimator, target in zip(estimators, targets, strict=True):
            estimator.fit(X, target, sample_weight=weight)
    coef = np.concatenate([each.coef_ for each in estimators])
    intercept = np.concatenate([np.broadcast_to(each.intercept_, len(each.coef_)) for each in estimators])
    fitted = LinearFit(classes=classes, coef=coef, intercept=intercept, C=C, grid=())
    return fitted, not any(issubclass(each.category, ConvergenceWarning) for each in caught)
