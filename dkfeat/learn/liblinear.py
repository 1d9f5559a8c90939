"""Linear classifiers by LIBLINEAR on shards or rows in memory, with C chosen on held-out rows drawn by a seed."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from dkfeat.config.train import Liblinear, as_grid
from dkfeat.engine.progress import Progress
from dkfeat.errors import ConfigError, InputError
from dkfeat.learn.checks import check_fits, check_row_weights, class_weights, classes_of, no_weight, task_of
from dkfeat.learn.model import LinearModel
from dkfeat.learn.scores import Score, predictions_of
from dkfeat.learn.sgd.rows import is_held_out, labelled_batches
from dkfeat.store.manifest.manifest import labels_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.engine.dataset.dataset import ShardDataset


INT32_MAX = 2**31 - 1
MAX_ITERATIONS = 1000


def train_liblinear(
    data: ShardDataset,
    solver: Liblinear,
    *,
    test: ShardDataset | None = None,
    seed: int = 0,
    progress: bool | Callable[[Mapping[str, Any]], None] = False,
) -> LinearModel:
    """Train a linear classifier by LIBLINEAR on shards, all of whose features are held in memory.

    Parameters
    ----------
    data : ShardDataset
        Shards with one label for each row and at least two classes. Row weights are used if there are any.
    solver : Liblinear
    test, progress
        As in `dkfeat.train`.
    seed : int, default=0
        Seed of the held-out rows and of LIBLINEAR, at least 0.

    Returns
    -------
    model : LinearModel
        ``model.training`` has the solver, C and the grid with its accuracies.

    Raises
    ------
    PlanError
        If features and solver do not fit in memory.
    ConfigError
        For a setting out of range, or lists of labels.
    InputError
        If there are no rows, or rows of only one class.

    Notes
    -----
    Rows of packed codes, which hold ``n_components`` ones, are scaled by ``1/sqrt(n_components)`` to unit length, so
    that the same C suits every map. The scale is folded into the weights of the model.
    """
    grid = as_grid(solver.C, "C")
    task = task_of(data, "classification")
    if task == "multilabel":
        raise ConfigError(
            'these shards hold a list of labels for each row, which LIBLINEAR cannot take; use solver="sgd"'
        )
    classes = classes_of(data, task)
    advice = 'train with solver="sgd", which reads shard by shard, or lower n_components'
    check_fits(needed_bytes(data, len(classes), grid=len(grid) > 1), "LIBLINEAR", advice)
    of_class, names = solver.class_weight, labels_named(classes.tolist(), data.spec["input"])
    if isinstance(of_class, Mapping):  # its labels are checked before reading
        of_class = class_weights(of_class, names, np.empty(0, np.int64))
    features, y, *weights = data.to_scipy(weight="weight" in data.manifest.schema)
    scale = unit_scale(data.map)
    X = scaled_rows(features, scale)
    del features
    began, report = time.monotonic(), Progress(progress is True)

    def show(entry: Mapping[str, Any]) -> Mapping[str, Any]:
        accuracy = "" if entry["accuracy"] is None else f", held-out accuracy {entry['accuracy']:.2%}"
        ended = "" if entry["converged"] else ", not converged"
        report.note(f"train: C {entry['C']:g}{accuracy}{ended}, {time.monotonic() - began:.1f} s")
        return entry

    C = grid[0]
    weight = _relative(weights[0]) if weights else None
    options: dict[str, Any] = {"loss": solver.loss, "seed": seed, "weight": weight, "class_weight": of_class}
    entries: list[Mapping[str, Any]] = []
    if len(grid) > 1:
        held = split_held_out(y, solver.validation_fraction, seed)
        X_train, y_train, X_held, y_held = X[~held], y[~held], X[held], y[held]
        of_train = options | {"weight": None if weight is None else weight[~held]}
        for C in grid:
            tried = fit_c(X_train, y_train, C, **of_train)
            accuracy = tried.score(X_held, y_held)
            entries.append(show({"C": C, "accuracy": accuracy, "converged": tried.converged}))
        del X_train, X_held
        C = max(entries, key=lambda entry: entry["accuracy"])["C"]
    fitted = fit_c(X, y, C, **options)
    training = {
        "solver": "liblinear",
        "loss": solver.loss,
        "C": C,
        "alpha": 1 / (C * data.n_rows),
        "grid": entries or [show({"C": C, "accuracy": None, "converged": fitted.converged})],
        "validation_fraction": solver.validation_fraction if entries else None,
        "fit_intercept": True,
        "random_state": seed,
        "epoch": 1,
    }
    model = LinearModel.of_shards(
        data, classes=classes, coef=fitted.coef * scale, intercept=fitted.intercept, training=training
    )
    entry: dict[str, Any] = {"epoch": 1, "rows": data.n_rows}
    if test is not None:
        score = Score(task)
        for rows, y_true in labelled_batches(test, task, classes)():
            score.add(model.label(model.score_features(rows)), y_true)
        entry["test_accuracy"] = score.value
    if callable(progress):
        progress(entry)
    return replace(model, history=(entry,))


def needed_bytes(data: ShardDataset, n_classes: int, *, grid: bool) -> int:
    """Compute the peak memory of `train_liblinear` in bytes.

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
    fitting = fit_bytes((n_rows, width), stored, n_classes, sparse=sparse, grid=grid)
    reading = stored * ((8 + 12) if sparse else (4 + 8)) + n_rows * feature_map.encoded_row_bytes
    return max(fitting, reading)


def unit_scale(feature_map: Any) -> float:
    """Return the factor that gives rows of packed codes unit length; 1 for other maps."""
    return 1 / math.sqrt(feature_map.n_components) if feature_map.layout == "codes" else 1.0


def scaled_rows(features: Any, scale: float) -> Any:
    """Multiply features by `scale`, as float64, which LIBLINEAR takes without a further copy."""
    if issparse(features):
        values = features.data.astype(np.float64)
        values *= scale
        return csr_matrix((values, features.indices, features.indptr), shape=features.shape)
    return np.multiply(features, scale, dtype=np.float64, order="C")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearFit:
    """Linear classifier fitted by LIBLINEAR."""

    classes: NDArray[Any]
    """Labels in ascending order."""
    coef: NDArray[np.float64]
    """Weights of shape (1 or n_classes, n_features)."""
    intercept: NDArray[np.float64]
    """Intercept of each row of `coef`."""
    converged: bool
    """False if LIBLINEAR stopped at its maximum number of iterations."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the labels of rows; equal scores go to the lower label."""
        scores = np.asarray(X @ self.coef.T) + self.intercept
        labels: NDArray[Any] = predictions_of("", self.classes, scores)
        return labels

    def score(self, X: Any, y: NDArray[Any]) -> float:
        """Compute the accuracy, the share of rows whose predicted label is right."""
        return float(np.mean(self.predict(X) == y))


def split_held_out(y: NDArray[Any], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Draw the rows to hold out by seed and position; if all rows of a class are drawn, the first is not held out.

    Raises
    ------
    InputError
        If no row would be held out.

    Examples
    --------
    >>> split_held_out(np.array([0, 0, 0, 0, 0, 1]), 0.9, seed=0)
    array([False,  True,  True,  True,  True, False])
    """
    held = keep_classes(is_held_out(np.arange(len(y)), fraction, seed), y)
    if not held.any():
        raise InputError(
            f"a held-out fraction of {fraction:g} selects none of {len(y):,} rows; give another seed or a larger "
            "fraction, or try only one value"
        )
    return held


def keep_classes(held: NDArray[np.bool_], y: NDArray[Any]) -> NDArray[np.bool_]:
    """Take the first row of each class that would have no other row out of the held-out rows, in place."""
    classes, first = np.unique(y, return_index=True)
    held[first[~np.isin(classes, y[~held])]] = False
    return held


def _relative(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide the weights of rows by their mean, so that C means the same for weights of any size."""
    check_row_weights(weights)
    if not weights.any():
        raise no_weight(len(weights))
    return weights / weights.mean()


def fit_bytes(shape: tuple[int, int], stored: int, n_classes: int, *, sparse: bool, grid: bool) -> int:
    """Compute the peak memory of a fit in bytes, including the rows.

    LIBLINEAR copies every nonzero value into a record of 16 bytes (column and float64), in addition to the float64
    rows. With a grid, all rows are copied once more, split into training and held-out rows.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns.
    stored : int
        Number of values that the rows store.
    n_classes : int
    sparse : bool
        True for CSR rows, which take 12 bytes for each value.
    grid : bool
        True if several values of C are tried.
    """
    rows, outputs = stored * (12 if sparse else 8), 1 if n_classes == 2 else n_classes
    return rows * (2 if grid else 1) + 16 * (stored + 2 * shape[0]) + 3 * 8 * outputs * shape[1]


def fit_c(
    X: Any,
    y: NDArray[Any],
    C: float,
    *,
    loss: str,
    seed: int,
    weight: NDArray[np.float64] | None = None,
    class_weight: str | NDArray[np.float64] | None = None,
) -> LinearFit:
    """Fit a linear classifier.

    Parameters
    ----------
    X : csr_matrix or ndarray of shape (n_samples, n_features), float64
        C-contiguous; neither copied nor changed here.
    y : ndarray of shape (n_samples,)
        Labels of two classes or more.
    C : float
        Weight of the losses against the penalty.
    loss : {"squared_hinge", "hinge", "log_loss"}
    seed : int
        Seed of LIBLINEAR.
    weight : ndarray of shape (n_samples,) or None
        Weights of the rows.
    class_weight : "balanced", ndarray of shape (n_classes,), or None
        Weight of each class.
    """
    shared: dict[str, Any] = {"C": C, "max_iter": MAX_ITERATIONS, "random_state": seed % 2**32}
    classes, numbers, counts = np.unique(y, return_inverse=True, return_counts=True)
    of_class = class_weights(class_weight, [], counts) if isinstance(class_weight, str) else class_weight
    if of_class is not None:
        weight = of_class[numbers] if weight is None else weight * of_class[numbers]
    if loss == "log_loss":
        dual = bool(issparse(X) and X.shape[0] < X.shape[1])
        targets = [numbers] if len(classes) == 2 else [numbers == number for number in range(len(classes))]
        estimators: list[Any] = [LogisticRegression(solver="liblinear", dual=dual, **shared) for _ in targets]
    else:
        targets, estimators = [numbers], [LinearSVC(loss=loss, dual=True if loss == "hinge" else "auto", **shared)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        for estimator, target in zip(estimators, targets, strict=True):
            estimator.fit(X, target, sample_weight=weight)
    return LinearFit(
        classes=classes,
        coef=np.concatenate([each.coef_ for each in estimators]),
        intercept=np.concatenate([np.broadcast_to(each.intercept_, len(each.coef_)) for each in estimators]),
        converged=not any(issubclass(each.category, ConvergenceWarning) for each in caught),
    )
