"""One training by gradient descent, from checked options to a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dkfeat.errors import ConfigError
from dkfeat.learn.averaging import open_averaging
from dkfeat.learn.checkpoint import Checkpoints
from dkfeat.learn.descent_settings import Settings
from dkfeat.learn.epoch_lines import EpochLines
from dkfeat.learn.epochs import Candidate, Training
from dkfeat.learn.judges import judged_batches
from dkfeat.learn.memory import check_fits
from dkfeat.learn.model import LinearModel
from dkfeat.learn.sgd_options import Options
from dkfeat.learn.training_rows import Survey, TrainingRows, batch_rows

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from dkfeat.engine.dataset import ShardDataset

__all__ = ["Run", "make_settings"]

WIDEST = 2**31 - 1
"""Columns that are told apart."""
UNIT = 0.01
"""Rows whose lengths are so near to 1 are taken as they are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """What trainings on the same shards have in common; the rest of `dkfeat.train`'s options comes with each."""

    data: ShardDataset
    task: str
    classes: NDArray[Any]
    test: ShardDataset | None
    """Shards that are scored only."""
    loaders: int
    resume: bool
    progress: bool | Callable[[Mapping[str, Any]], None]
    where: Mapping[str, Any]
    """Options of `open_averaging` that tell where parts run."""

    def __call__(
        self, options: Options, validation: ShardDataset | None, checkpoint: str | os.PathLike[str] | None
    ) -> LinearModel:
        """Train.

        Parameters
        ----------
        options : Options
            With losses and a number of epochs.
        validation : ShardDataset or None
            Shards that choose.
        checkpoint : str, path or None
            Folder.
        """
        data, task, classes, epochs = self.data, self.task, self.classes, options.epochs or 0
        rows = TrainingRows(
            data,
            fraction=options.held_out,
            seed=options.seed,
            shuffle_rows=options.shuffle_rows,
            loaders=self.loaders,
        )
        needs_survey = task == "regression" or options.held_out or options.class_weight or rows.is_weighted
        settings = make_settings(data, rows, task, classes, options, rows.survey(classes) if needs_survey else None)
        _check_memory(settings, data.map.n_features_out)
        averaging = open_averaging(
            data,
            settings,
            **self.where,
            fraction=options.held_out,
            seed=options.seed,
            shuffle_rows=options.shuffle_rows,
        )
        judge = rows.held_out if options.held_out else None
        if validation is not None:
            judge = judged_batches(validation, task, classes)
        lines = EpochLines(epochs) if self.progress is True else None
        training = Training(
            rows=rows,
            settings=settings,
            n_features=data.map.n_features_out,
            epochs=epochs,
            held_out=judge,
            test=None if self.test is None else judged_batches(self.test, task, classes),
            patience=options.patience,
            tell=self.progress if callable(self.progress) else lines,
        )
        with averaging as training.averaging, lines or nullcontext():
            n_parts = None if training.averaging is None else training.averaging.n_parts
            if checkpoint is not None:
                judges = {"validation": validation, "test": self.test}
                training.checkpoints = Checkpoints(checkpoint, _pins(data, options, judges) | {"parts": n_parts})
            chosen = training.run(resume=self.resume)
        return _model(data, settings, training, chosen, options, n_parts)


def make_settings(
    data: Any, rows: TrainingRows, task: str, classes: NDArray[Any], options: Options, survey: Survey | None
) -> Settings:
    """Make the settings of the descent over the rows of a data set.

    Parameters
    ----------
    data : ShardDataset
    rows : TrainingRows
        Of it.
    task, classes
        As in `LinearModel`.
    options : Options
    survey : Survey or None
        Of the rows; None if they have no weights, are classes and count alike.
    """
    codes = data.map.layout == "codes"
    length = 1.0 if codes else rows.row_length()
    class_weights = None if survey is None else options.class_weights(classes, survey.class_counts)
    return Settings(
        task=task,
        classes=classes,
        variants=options.variants,
        average=options.average,
        value=1 / math.sqrt(data.map.n_components) if codes else None,
        scale=1.0 if abs(length - 1) < UNIT else 1 / length,
        class_weights=class_weights,
        typical_weight=1.0 if survey is None else survey.typical_weight(class_weights),
        weight_scale=1.0 if survey is None else 1 / survey.mean_weight,
        target_mean=0.0 if survey is None else survey.label_mean,
        target_scale=(survey.label_deviation or 1.0) if survey is not None and task == "regression" else 1.0,
    )


def _pins(data: Any, options: Options, judges: Mapping[str, Any]) -> dict[str, Any]:
    """Name what decides the weights after a number of rows."""
    facts = options.to_mapping()
    del facts["epochs"]
    manifests = {name: judge.manifest.sha256 for name, judge in judges.items() if judge is not None}
    return {"manifest": data.manifest.sha256, "batch_rows": batch_rows(data), **facts, **manifests}


def _model(
    data: Any, settings: Settings, training: Training, chosen: Candidate, options: Options, n_parts: int | None
) -> LinearModel:
    variant = settings.variants[chosen.variant]
    told = options.to_mapping() | {"loss": variant.loss, "alpha": variant.alpha, "epoch": chosen.epoch}
    del told["variants"]
    if n_parts is not None:
        told["parts"] = n_parts
    if len(settings.variants) > 1:
        told["grid"] = training.grid
    return LinearModel(
        map_spec=data.map.to_spec(),
        map_arrays=data.map.fitted_arrays(),
        input_spec=data.spec["input"],
        classes=settings.classes,
        coef=chosen.coef,
        intercept=chosen.intercept,
        task=settings.task,
        training=told,
        history=tuple(training.history),
        manifest_sha256=data.manifest.sha256,
    )


def _check_memory(settings: Settings, width: int) -> None:
    if width > WIDEST:
        message = f"the features have {width:,} columns, more than {WIDEST:,}; lower n_components or i_bits"
        raise ConfigError(message)
    # float32: the tables of weights, and the model that is handed out with a second one while epochs are judged
    tables = settings.n_lanes * (3 if settings.average else 1)
    projected = 4 * width * (tables + 2 * settings.n_outputs)
    what = f"training of {settings.n_lanes:,} models with {width:,} columns"
    check_fits(projected, what, "lower n_components or i_bits, or train fewer alphas at once")
