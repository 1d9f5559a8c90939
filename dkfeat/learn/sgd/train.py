"""Training by stochastic gradient descent: opened shards and options in, a linear model out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.config.train import CLASS_LOSSES, REAL_LOSSES, SGD, several
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.learn.memory import check_fits
from dkfeat.learn.model.model import LinearModel
from dkfeat.learn.sgd.checkpoint import Checkpoints
from dkfeat.learn.sgd.descent import DescentConfig, Variant
from dkfeat.learn.sgd.epochs import Candidate, EpochLines, Training
from dkfeat.learn.sgd.parallel import open_averaging
from dkfeat.learn.sgd.rows import LEAST_WEIGHT, MOST_WEIGHT, TrainingRows, batch_rows, labelled_batches
from dkfeat.validation import check_choice, check_real

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from dkfeat.engine.dataset.dataset import ShardDataset


ROWS_PER_CLASS = 150_000
"""Rows that all epochs together should show the classifier, for each class."""
FEWEST_EPOCHS, MOST_EPOCHS = 5, 40
DEFAULT_FRACTION = 0.1
"""Share of the rows held out where there is something to choose."""
MOST_COLUMNS = 2**31 - 1
"""Columns that compiled loops can number."""
UNIT = 0.01
"""Rows whose lengths are so near to 1 are taken as they are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingJob:
    """One training: opened shards, and all options that decide its weights."""

    data: ShardDataset
    solver: SGD
    """With a loss or several, and a number of epochs."""
    task: str
    """Of the `LinearModel` to be."""
    classes: NDArray[Any]
    """Labels to tell apart, ascending; none for regression."""
    class_weight: str | Mapping[str, float] | None
    seed: int
    validation: ShardDataset | None
    """Shards that choose among variants and epochs."""
    test: ShardDataset | None
    """Shards that are scored and choose nothing."""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Models to train side by side."""
        return tuple(
            Variant(loss, alpha) for loss in several(self.solver.loss or ()) for alpha in several(self.solver.alpha)
        )

    @property
    def held_out(self) -> float:
        """Share of the rows to hold out."""
        if self.solver.validation_fraction is not None:
            return self.solver.validation_fraction
        chooses = len(self.variants) > 1 or self.solver.patience is not None
        return DEFAULT_FRACTION if chooses and self.validation is None else 0.0

    @property
    def record(self) -> dict[str, Any]:
        """Options as plain JSON values, for the model and its checkpoints."""
        return {
            "average": self.solver.average,
            "class_weight": self.class_weight,
            "epochs": self.solver.epochs,
            "patience": self.solver.patience,
            "random_state": self.seed,
            "shuffle_rows": self.solver.shuffle_rows,
            "validation_fraction": self.held_out or None,
        }

    @property
    def pins(self) -> dict[str, Any]:
        """Plain JSON values that decide the weights after a number of rows."""
        others = {"validation": self.validation, "test": self.test}
        manifests = {name: data.manifest.sha256 for name, data in others.items() if data is not None}
        facts = self.record | {"variants": [[variant.loss, variant.alpha] for variant in self.variants]}
        del facts["epochs"]
        return {"manifest": self.data.manifest.sha256, "batch_rows": batch_rows(self.data), **facts, **manifests}


def train_sgd(
    job: TrainingJob,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = True,
    client: Any = None,
    progress: bool | Callable[[Mapping[str, Any]], None] = True,
) -> LinearModel:
    """Train, and once more on all rows if that is asked for and some were held out; arguments as of `dkfeat.train`."""
    options: dict[str, Any] = {"resume": resume, "client": client, "progress": progress}
    model = _train_once(job, checkpoint, **options)
    if not (job.solver.refit and job.held_out):
        return model
    chosen = {name: model.training[name] for name in ("loss", "alpha")}
    # a folder for each choice: the first training may go on with more epochs, and then choose otherwise
    own = None if checkpoint is None else Path(checkpoint) / "refit-{loss}-{alpha!r}".format_map(chosen)
    epochs = job.solver.epochs if job.solver.patience is None else model.training["epoch"]
    solver = replace(job.solver, **chosen, epochs=epochs, patience=None, validation_fraction=None)
    again = _train_once(replace(job, solver=solver, validation=None), own, **options)
    kept = ("grid", "patience", "validation_fraction", "epochs")
    choice = {name: model.training[name] for name in kept if model.training.get(name) is not None}
    return replace(again, training={**again.training, **choice, "refit": True})


def _train_once(
    job: TrainingJob,
    checkpoint: str | os.PathLike[str] | None,
    *,
    resume: bool,
    client: Any,
    progress: bool | Callable[[Mapping[str, Any]], None],
) -> LinearModel:
    rows = TrainingRows(
        job.data,
        fraction=job.held_out,
        seed=job.seed,
        shuffle_rows=job.solver.shuffle_rows,
        loaders=job.solver.loaders,
    )
    config = _descent_config(job, rows)
    _check_memory(config, job.data.map.n_features_out)
    averaging = open_averaging(rows, config, parts=job.solver.parts, client=client)
    epochs = job.solver.epochs or 0
    lines = EpochLines(epochs) if progress is True else None
    validation = rows.held_out if job.held_out else None
    if job.validation is not None:
        validation = labelled_batches(job.validation, job.task, job.classes)
    training = Training(
        rows=rows,
        config=config,
        n_features=job.data.map.n_features_out,
        epochs=epochs,
        validation=validation,
        test=None if job.test is None else labelled_batches(job.test, job.task, job.classes),
        patience=job.solver.patience,
        on_epoch=progress if callable(progress) else lines,
    )
    with averaging as training.averaging, lines or nullcontext():
        n_parts = None if training.averaging is None else training.averaging.n_parts
        if checkpoint is not None:
            training.checkpoints = Checkpoints(checkpoint, job.pins | {"parts": n_parts})
        chosen = training.run(resume=resume)
    return _model(job, training, chosen, n_parts)


def _descent_config(job: TrainingJob, rows: TrainingRows) -> DescentConfig:
    """Make the settings of the descent, from one pass over labels and weights where these decide something."""
    needs_pass = job.task == "regression" or job.held_out or job.class_weight or rows.is_weighted
    found = rows.statistics(job.classes) if needs_pass else None
    feature_map = job.data.map
    has_ones = feature_map.layout == "codes"
    length = 1.0 if has_ones else rows.row_length()
    class_weights = None if found is None else _class_weights(job, found.class_counts)
    return DescentConfig(
        task=job.task,
        classes=job.classes,
        variants=job.variants,
        average=job.solver.average,
        value=1 / math.sqrt(feature_map.n_components) if has_ones else None,
        scale=1.0 if abs(length - 1) < UNIT else 1 / length,
        class_weights=class_weights,
        typical_weight=1.0 if found is None else found.typical_weight(class_weights),
        weight_scale=1.0 if found is None else 1 / found.mean_weight,
        target_mean=0.0 if found is None else found.label_mean,
        target_scale=(found.label_deviation or 1.0) if found is not None and job.task == "regression" else 1.0,
    )


def _class_weights(job: TrainingJob, counts: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Weight of each class; None for 1."""
    if job.class_weight is None:
        return None
    if isinstance(job.class_weight, str):
        present = np.maximum(counts, 1)
        return np.asarray(counts.sum() / (np.count_nonzero(counts) * present), dtype=np.float64)
    weights = np.ones(len(job.classes))
    for label, weight in job.class_weight.items():
        found = np.flatnonzero(job.classes == float(label))
        if not len(found):
            some = ", ".join(str(value) for value in job.classes[:10].tolist())
            raise ConfigError(f"class_weight names the label {label}, but the classes are {some}")
        weights[found] = weight
    return weights


def _check_memory(config: DescentConfig, width: int) -> None:
    if width > MOST_COLUMNS:
        raise ConfigError(
            f"the features have {width:,} columns, more than {MOST_COLUMNS:,}; lower n_components or i_bits"
        )
    # float32: the tables of weights, and the model that is returned beside a second one while epochs are scored
    tables = config.n_lanes * (3 if config.average else 1)
    projected = 4 * width * (tables + 2 * config.n_outputs)
    what = f"training of {config.n_lanes:,} models with {width:,} columns"
    check_fits(projected, what, "lower n_components or i_bits, or train fewer alphas at once")


def _model(job: TrainingJob, training: Training, chosen: Candidate, n_parts: int | None) -> LinearModel:
    variant = job.variants[chosen.variant]
    record = job.record | {"loss": variant.loss, "alpha": variant.alpha, "epoch": chosen.epoch}
    if n_parts is not None:
        record["parts"] = n_parts
    if len(job.variants) > 1:
        record["grid"] = training.grid
    return LinearModel.of_shards(
        job.data,
        classes=job.classes,
        coef=chosen.coef,
        intercept=chosen.intercept,
        task=job.task,
        training=record,
        history=tuple(training.history),
    )


def open_training(
    data: ShardDataset,
    solver: SGD,
    *,
    validation: ShardDataset | None = None,
    test: ShardDataset | None = None,
    task: str = "auto",
    class_weight: Any = None,
    seed: int = 0,
) -> TrainingJob:
    """Check options against the shards, and fill in those that depend on them; arguments as of `dkfeat.train`.

    Raises
    ------
    ConfigError
        For options out of range, or that do not go together or with the labels.
    InputError
        If the shards hold no rows, no labels, or rows of one class only.
    SpecConflictError
        If validation or test shards come from another map or were read by other input options.
    """
    if solver.validation_fraction is not None and validation is not None:
        raise ConfigError("both validation= and validation_fraction= are given; rows are held out by one of them")
    weights = _checked_class_weight(class_weight)
    task = task_of(data, task, several(solver.loss))
    fit = REAL_LOSSES if task == "regression" else CLASS_LOSSES
    losses = fit[:1] if solver.loss is None else several(solver.loss)
    strange = [loss for loss in losses if loss not in fit]
    if strange:
        kind = "a regression" if task == "regression" else "classes"
        raise ConfigError(f"loss={strange[0]!r} is not a loss for {kind}; choose from {', '.join(fit)}")
    if weights is not None and task in ("regression", "multilabel"):
        rows = "rows of a regression" if task == "regression" else "rows with lists of labels"
        raise ConfigError(f"class_weight={weights!r}, but {rows} have no single class; leave it out")
    classes = classes_of(data, task)
    for other in (validation, test):
        if other is not None:
            check_same_features(data, other)
    epochs = default_epochs(data.n_rows, max(1, len(classes))) if solver.epochs is None else solver.epochs
    return TrainingJob(
        data=data,
        solver=replace(solver, loss=losses, epochs=epochs),
        task=task,
        classes=classes,
        class_weight=weights,
        seed=seed,
        validation=validation,
        test=test,
    )


def default_epochs(n_rows: int, n_classes: int) -> int:
    """Choose as many passes over the rows as show 150,000 rows a class, from 5 to 40."""
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, math.ceil(n_classes * ROWS_PER_CLASS / n_rows)))


def _checked_class_weight(given: Any) -> str | dict[str, float] | None:
    if given is None or given == "balanced":
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(f"class_weight={given!r}, but it must be 'balanced' or a mapping of labels to weights")
    weights = {}
    for label, weight in given.items():
        try:
            number = float(label)
        except (TypeError, ValueError):
            raise ConfigError(f"class_weight names {label!r}, but labels are numbers") from None
        name = repr(number) if number % 1 else str(int(number))
        weights[name] = check_real(weight, f"class_weight of {label}", above=LEAST_WEIGHT, high=MOST_WEIGHT)
    return weights


def task_of(data: Any, task: str, losses: tuple[str | None, ...] = ()) -> str:
    """Task of the `LinearModel` that labels and options ask for.

    Parameters
    ----------
    data : ShardDataset
    task : {"auto", "classification", "regression"}
    losses : tuple of str
        A loss for regression asks for one.

    Raises
    ------
    ConfigError
        For a regression on lists of labels, and where labels take too many values to be classes.
    InputError
        The shards hold no rows, or were made without labels.
    """
    given = data.spec["input"]
    check_choice(task, "task", ("auto", "classification", "regression"))
    if data.n_rows == 0:
        raise InputError("the training shards hold no rows; featurize a source that does")
    if given.get("kind") == "parquet" and given.get("label") is None:
        raise InputError(
            "the training shards were made with label=None, so rows have no labels; featurize with label=COLUMN"
        )
    regression = task == "regression" or (task == "auto" and any(loss in REAL_LOSSES for loss in losses))
    if given.get("multilabel"):
        if regression:
            raise ConfigError(
                "these shards hold a list of labels for each row, which are classes; no regression can be trained"
            )
        return "multilabel"
    if regression:
        return "regression"
    if data.classes is None:
        raise ConfigError(
            "the shards' labels take more than 10,000 values, too many for classes; if they are quantities, train a "
            "regression: task='regression', --task regression"
        )
    return "binary" if len(data.classes) == 2 else "multiclass"


def classes_of(data: Any, task: str) -> NDArray[Any]:
    """Labels to tell apart, ascending; none for regression.

    Raises
    ------
    InputError
        There are not enough of them.
    ConfigError
        There are too many.
    """
    if task == "regression":
        return np.empty(0, np.float64)
    if data.classes is None:
        raise ConfigError("the shards' labels take more than 10,000 values, more than can be trained")
    classes = np.asarray(data.classes)
    if task == "multilabel":
        if not len(classes):
            raise InputError(f"none of the {data.n_rows:,} rows has a label")
    elif len(classes) < 2:
        only = ", ".join(str(label) for label in classes.tolist()) or "none"
        raise InputError(
            f"a classifier needs labels of two classes or more; all {data.n_rows:,} rows have the label {only}"
        )
    return classes


def check_same_features(data: Any, other: Any) -> None:
    """Check that validation or test shards have the features of the training shards.

    Raises
    ------
    SpecConflictError
        They come from another map or were read by other input options.
    """
    if data.map.fingerprint() != other.map.fingerprint():
        ours, theirs = data.map.to_spec(), other.map.to_spec()
        differing = ", ".join(
            f"{key} {ours.get(key)!r} and {theirs.get(key)!r}" for key in ours if ours[key] != theirs.get(key)
        )
        raise SpecConflictError(
            f"training and test shards come from different maps: {differing}; featurize the test rows with like=TRAIN"
        )
    for key in ("n_features", "zero_based", "multilabel"):
        ours, theirs = data.spec["input"].get(key), other.spec["input"].get(key)
        if ours != theirs:
            raise SpecConflictError(
                f"training rows were read with {key}={ours!r}, test rows with {key}={theirs!r}; "
                "featurize the test rows with like=TRAIN"
            )
