"""LIBLINEAR on shards that fit in memory: the optimum of the objective, where gradient descent comes near it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from dkfeat.engine.cell_line import CellLine
from dkfeat.errors import ConfigError, InputError
from dkfeat.learn.c_grid import DEFAULT_C, LOSSES, checked_grid, fit_best_c, fit_bytes
from dkfeat.learn.memory import check_fits
from dkfeat.learn.model import LinearModel
from dkfeat.learn.score import Score
from dkfeat.learn.training_rows import batch_rows
from dkfeat.random_streams import check_seed
from dkfeat.validation import check_choice, check_real

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dkfeat.engine.dataset import ShardDataset

__all__ = ["fit_liblinear", "needed_bytes", "scaled_rows", "train_liblinear", "unit_scale"]

INT32_MAX = 2**31 - 1


def fit_liblinear(
    data: ShardDataset,
    *,
    loss: str = "squared_hinge",
    C: float | Sequence[float] = DEFAULT_C,
    validation_fraction: float = 0.1,
    class_weight: Any = None,
    fit_intercept: bool = True,
    random_state: int = 0,
    memory_limit: int | None = None,
    tell: Callable[[Mapping[str, Any]], object] | None = None,
) -> LinearModel:
    """Train a linear classifier by LIBLINEAR on shards, all of whose features are held in memory.

    Parameters
    ----------
    data : ShardDataset
        Shards of one label a row, two classes or more. Weights of rows are used where there are any.
    loss : {"squared_hinge", "hinge", "log_loss"}, default="squared_hinge"
        scikit-learn's ``LinearSVC`` with that loss, or ``LogisticRegression(solver="liblinear")``. Several classes are
        trained one against the rest.
    C : float or sequence of float, default=(0.01, 0.1, 1, 10, 100)
        Weight of the losses against the penalty, above 0, for rows that are scaled as said below. Several are tried on
        a part of the rows; the best one, of equals the smallest, is then fitted to all rows.
    validation_fraction : float, default=0.1
        That part, in (0, 1).
    class_weight : dict, "balanced" or None, default=None
        As in scikit-learn.
    fit_intercept : bool, default=True
        The intercept is penalised as weights are.
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
    check_choice(loss, "loss", LOSSES)
    grid = checked_grid(C)
    fraction = check_real(validation_fraction, "validation_fraction", above=0)
    if fraction >= 1:
        message = f"validation_fraction={fraction:g}, but it must be below 1"
        raise ConfigError(message)
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
        loss=loss,
        validation_fraction=fraction,
        seed=random_state,
        sample_weight=others[0] if others else None,
        class_weight=class_weight,
        fit_intercept=fit_intercept,
        tell=tell,
    )
    training = {
        "solver": "liblinear",
        "loss": loss,
        "C": fitted.C,
        "alpha": 1 / (fitted.C * data.n_rows),
        "grid": [dict(entry) for entry in fitted.grid],
        "validation_fraction": fraction if len(grid) > 1 else None,
        "fit_intercept": fit_intercept,
        "random_state": random_state,
        "epoch": 1,
    }
    return LinearModel(
        map_spec=data.map.to_spec(),
        map_arrays=data.map.fitted_arrays(),
        input_spec=data.spec["input"],
        classes=classes,
        coef=fitted.coef * scale,
        intercept=fitted.intercept,
        training=training,
        history=({"epoch": 1, "rows": data.n_rows},),
        manifest_sha256=data.manifest.sha256,
    )


def train_liblinear(
    data: ShardDataset,
    test: ShardDataset | None,
    *,
    loss: str | Sequence[str] | None,
    C: float | Sequence[float] | None,
    validation_fraction: float | None,
    class_weight: Any,
    random_state: Any,
    progress: bool | Callable[[Mapping[str, Any]], None],
    others: Mapping[str, Any],
) -> LinearModel:
    """Train as `dkfeat.train` does with ``solver="liblinear"``.

    Parameters
    ----------
    data, test : ShardDataset
        Of one map.
    others : mapping
        Options of `dkfeat.train` that LIBLINEAR does not have: each must be None.

    Raises
    ------
    ConfigError
        For one of these, or several losses; and as `fit_liblinear` raises.
    """
    foreign = [name for name, value in others.items() if value is not None]
    losses = (loss,) if isinstance(loss, str) else tuple(loss or LOSSES[:1])
    if foreign or len(losses) > 1:
        what = ", ".join(foreign) if foreign else "several losses"
        message = f'{what} cannot be given with solver="liblinear", which takes one loss and C; use solver="sgd"'
        raise ConfigError(message)
    began = time.monotonic()

    def tell(entry: Mapping[str, Any]) -> None:
        if progress is True:
            accuracy = "" if entry["accuracy"] is None else f", held-out accuracy {entry['accuracy']:.2%}"
            ended = "" if entry["converged"] else ", not converged"
            text = f"train: C {entry['C']:g}{accuracy}{ended}, {time.monotonic() - began:.1f} s"
            if not CellLine.say(text):
                print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress

    model = fit_liblinear(
        data,
        loss=losses[0],
        C=DEFAULT_C if C is None else C,
        validation_fraction=0.1 if validation_fraction is None else validation_fraction,
        class_weight=_by_label(class_weight, data.classes),
        random_state=check_seed(random_state),
        tell=tell,
    )
    entry = dict(model.history[0])
    if test is not None:
        score = Score(model.task)
        for X, y in test.batches(batch_rows(test), shuffle=False):
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
        message = (
            f"{stored:,} stored values in {width:,} columns are more than the {INT32_MAX:,} that LIBLINEAR counts; "
            'train with solver="sgd"'
        )
        raise ConfigError(message)
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
        message = f"class_weight names the label {strange[0]:g}, which no row has"
        raise ConfigError(message)
    return {label: given.get(float(label), 1.0) for label in classes.tolist()}


def _classes(data: ShardDataset) -> Any:
    if data.spec["input"].get("multilabel"):
        message = 'these shards hold a list of labels for each row, which LIBLINEAR cannot take; use solver="sgd"'
        raise ConfigError(message)
    if data.n_rows == 0:
        message = "the training shards hold no rows; featurize a source that does"
        raise InputError(message)
    if data.classes is None:
        message = 'the labels take more than 10,000 values, which is regression; use solver="sgd" with a loss for it'
        raise ConfigError(message)
    classes = np.asarray(data.classes)
    if len(classes) < 2:
        only = ", ".join(map(str, classes.tolist())) or "none"
        message = f"a classifier needs labels of two classes or more; all {data.n_rows:,} rows have the label {only}"
        raise InputError(message)
    return classes
