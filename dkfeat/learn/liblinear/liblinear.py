"""Linear classifiers by LIBLINEAR on shards or rows in memory, their C chosen on rows that a seed holds out."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight

from dkfeat.config.train import Liblinear, as_grid
from dkfeat.engine.progress import NotebookLine
from dkfeat.errors import ConfigError, InputError
from dkfeat.learn.memory import check_fits
from dkfeat.learn.model.model import LinearModel
from dkfeat.learn.model.score import Score
from dkfeat.learn.sgd.rows import is_held_out, labelled_batches
from dkfeat.learn.sgd.train import check_same_features, classes_of, task_of
from dkfeat.validation import check_real

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.engine.dataset.dataset import ShardDataset


INT32_MAX = 2**31 - 1
MAX_ITERATIONS = 1000

Tell = Callable[[Mapping[str, Any]], object]


def fit_liblinear(
    data: ShardDataset,
    solver: Liblinear,
    *,
    class_weight: Any = None,
    random_state: int = 0,
    memory_limit: int | None = None,
    tell: Callable[[Mapping[str, Any]], object] | None = None,
) -> LinearModel:
    """Train a linear classifier by LIBLINEAR on shards, all of whose features are held in memory.

    Parameters
    ----------
    data : ShardDataset
        Shards of one label a row, two classes or more. Weights of rows are used where there are any.
    solver : Liblinear
    class_weight : dict, "balanced" or None, default=None
        As in scikit-learn.
    random_state : int, default=0
        Seed of the part that is held out and of LIBLINEAR, at least 0.
    memory_limit : int or None
        Bytes that may be used; None: all that this machine or container has.
    tell : callable or None
        Given each entry of the grid when it is known.

    Returns
    -------
    model : LinearModel
        ``model.training`` has the solver, C and the grid with its accuracies.

    Raises
    ------
    PlanError
        If it does not fit in memory.
    ConfigError
        For a setting out of range, or lists of labels.
    InputError
        For no rows or rows of one class.

    Notes
    -----
    Rows of packed codes, which hold ``n_components`` ones, are scaled by ``1/sqrt(n_components)`` to unit length, so
    that one C means the same for every map; the scale is folded into the weights of the model.
    """
    grid = as_grid(solver.C, "C")
    classes = _classes(data)
    advice = 'train with solver="sgd", which reads shard by shard, or lower n_components'
    check_fits(needed_bytes(data, len(classes), grid=len(grid) > 1), "LIBLINEAR", advice, memory_limit)
    weighted = "weight" in data.manifest.schema
    features, y, *others = data.to_scipy(weight=True) if weighted else data.to_scipy()
    scale = unit_scale(data.map)
    X = scaled_rows(features, scale)
    del features
    fitted = fit_best_c(
        X,
        y,
        grid,
        loss=solver.loss,
        validation_fraction=solver.validation_fraction,
        seed=random_state,
        sample_weight=others[0] if others else None,
        class_weight=class_weight,
        tell=tell,
    )
    training = {
        "solver": "liblinear",
        "loss": solver.loss,
        "C": fitted.C,
        "alpha": 1 / (fitted.C * data.n_rows),
        "grid": [dict(entry) for entry in fitted.grid],
        "validation_fraction": solver.validation_fraction if len(grid) > 1 else None,
        "fit_intercept": True,
        "random_state": random_state,
        "epoch": 1,
    }
    return LinearModel.of_shards(
        data,
        classes=classes,
        coef=fitted.coef * scale,
        intercept=fitted.intercept,
        training=training,
        history=({"epoch": 1, "rows": data.n_rows},),
    )


def train_liblinear(
    data: ShardDataset,
    solver: Liblinear,
    *,
    test: ShardDataset | None,
    class_weight: Any,
    seed: int,
    progress: bool | Callable[[Mapping[str, Any]], None],
) -> LinearModel:
    """Train as `dkfeat.train` does with a `dkfeat.Liblinear`; raises as `fit_liblinear`."""
    if test is not None:
        check_same_features(data, test)
    began = time.monotonic()

    def tell(entry: Mapping[str, Any]) -> None:
        if progress is True:
            accuracy = "" if entry["accuracy"] is None else f", held-out accuracy {entry['accuracy']:.2%}"
            ended = "" if entry["converged"] else ", not converged"
            text = f"train: C {entry['C']:g}{accuracy}{ended}, {time.monotonic() - began:.1f} s"
            if not NotebookLine.say(text):
                print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress

    model = fit_liblinear(
        data,
        solver,
        class_weight=_by_label(class_weight, data.classes),
        random_state=seed,
        tell=tell,
    )
    entry = dict(model.history[0])
    if test is not None:
        score = Score(model.task)
        for X, y in labelled_batches(test, model.task, model.classes)():
            score.add(model.label(model.score_features(X)), y)
        entry["test_accuracy"] = score.value
    if callable(progress):
        progress(entry)
    return replace(model, history=(entry,))


def needed_bytes(data: ShardDataset, n_classes: int, *, grid: bool) -> int:
    """Bytes that `fit_liblinear` holds at its highest point.

    Raises
    ------
    ConfigError
        If there are more stored values or columns than LIBLINEAR's 32-bit numbers can count.
    """
    feature_map, n_rows = data.map, data.n_rows
    sparse, width = feature_map.layout == "codes", feature_map.n_features_out
    stored = n_rows * (feature_map.n_components if sparse else width)
    if sparse and max(stored, width) > INT32_MAX:
        raise ConfigError(
            f"{stored:,} stored values in {width:,} columns are more than the {INT32_MAX:,} that LIBLINEAR counts; "
            'train with solver="sgd"'
        )
    n_outputs = 1 if n_classes == 2 else n_classes
    fitting = fit_bytes(n_rows, width, stored, n_outputs, sparse=sparse, grid=grid)
    reading = stored * ((8 + 12) if sparse else (4 + 8)) + n_rows * feature_map.encoded_row_bytes
    return max(fitting, reading)


def unit_scale(feature_map: Any) -> float:
    """Factor that gives rows of packed codes unit length; 1 for other maps."""
    return 1 / math.sqrt(feature_map.n_components) if feature_map.layout == "codes" else 1.0


def scaled_rows(features: Any, scale: float) -> Any:
    """Features as LIBLINEAR takes them without a further copy: float64, times `scale`."""
    if issparse(features):
        values = features.data.astype(np.float64)
        values *= scale
        return csr_matrix((values, features.indices, features.indptr), shape=features.shape)
    return np.multiply(features, scale, dtype=np.float64, order="C")


def _by_label(class_weight: Any, classes: Any) -> Any:
    """Weights of all classes; those that were not named have 1."""
    if not isinstance(class_weight, Mapping) or classes is None:
        return class_weight
    given = {float(label): check_real(weight, "class_weight", above=0) for label, weight in class_weight.items()}
    strange = sorted(given.keys() - {float(label) for label in classes})
    if strange:
        raise ConfigError(f"class_weight names the label {strange[0]:g}, which no row has")
    return {label: given.get(float(label), 1.0) for label in classes.tolist()}


def _classes(data: ShardDataset) -> Any:
    task = task_of(data, "classification")
    if task == "multilabel":
        raise ConfigError(
            'these shards hold a list of labels for each row, which LIBLINEAR cannot take; use solver="sgd"'
        )
    return classes_of(data, task)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearFit:
    """Linear classifier of the best C of a grid."""

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


def split_held_out(y: NDArray[Any], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Mask of the rows to hold out, by their place; of a class that would go whole the first row stays to train on.

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
        raise InputError(
            f"a part of {fraction:g} held out of {len(y):,} rows takes no row; "
            "give another seed or a larger part, or one value where several are to be tried"
        )
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
    tell : callable or None
        Given each entry of the grid when it is known.
    """
    options: dict[str, Any] = {"loss": loss, "class_weight": class_weight, "seed": seed}
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


def _fit(X: Any, y: Any, weight: Any, C: float, *, loss: str, class_weight: Any, seed: int) -> tuple[LinearFit, bool]:
    """Fit one C; also tell whether LIBLINEAR converged."""
    shared: dict[str, Any] = {
        "C": C, "max_iter": MAX_ITERATIONS, "random_state": seed % 2**32,
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
