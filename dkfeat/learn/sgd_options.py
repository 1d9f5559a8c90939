"""What a user can ask of gradient descent, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.errors import ConfigError
from dkfeat.learn.descent_settings import CLASS_LOSSES, LOSSES, REAL_LOSSES, Variant
from dkfeat.random_streams import check_seed
from dkfeat.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DEFAULT_ALPHA", "LEAST_WEIGHT", "MOST_WEIGHT", "Options", "checked_options"]

DEFAULT_ALPHA = 1e-6
LEAST_WEIGHT, MOST_WEIGHT = 1e-60, 1e60
"""Weights of rows, unless they are 0, and of classes: products of their squares then stay within float64."""
DEFAULT_FRACTION = 0.1
"""Share of the rows held out where there is something to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Checked options; see `dkfeat.train`."""

    task: str
    losses: tuple[str, ...] | None
    alphas: tuple[float, ...]
    epochs: int | None
    average: bool
    class_weight: str | Mapping[str, float] | None
    patience: int | None
    validation_fraction: float | None
    has_validation: bool
    shuffle_rows: int | None
    seed: int

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Models to train side by side."""
        return tuple(Variant(loss, alpha) for loss in self.losses or () for alpha in self.alphas)

    @property
    def held_out(self) -> float:
        """Share of the rows to hold out."""
        if self.validation_fraction is not None:
            return self.validation_fraction
        chooses = len(self.variants) > 1 or self.patience is not None
        return DEFAULT_FRACTION if chooses and not self.has_validation else 0.0

    def for_task(self, task: str) -> Options:
        """Options with the default loss of a model's task.

        Raises
        ------
        ConfigError
            Losses or class weights that the task does not have.
        """
        fit = REAL_LOSSES if task == "regression" else CLASS_LOSSES
        losses = (next(iter(fit)),) if self.losses is None else self.losses
        strange = [loss for loss in losses if loss not in fit]
        if strange:
            kind = "a regression" if task == "regression" else "classes"
            message = f"loss={strange[0]!r} is not a loss for {kind}; choose from {', '.join(fit)}"
            raise ConfigError(message)
        if self.class_weight is not None and task in ("regression", "multilabel"):
            rows = "rows of a regression" if task == "regression" else "rows with lists of labels"
            message = f"class_weight={self.class_weight!r}, but {rows} have no single class; leave it out"
            raise ConfigError(message)
        return replace(self, losses=tuple(losses))

    def for_refit(self, training: Mapping[str, Any]) -> Options:
        """Options to train what was chosen on all rows, given the record of the training that chose."""
        epochs = self.epochs if self.patience is None else training["epoch"]
        return replace(
            self,
            losses=(training["loss"],),
            alphas=(training["alpha"],),
            epochs=epochs,
            patience=None,
            validation_fraction=None,
        )

    def with_epochs(self, epochs: int) -> Options:
        """Options with a number of epochs."""
        return replace(self, epochs=epochs)

    def class_weights(self, classes: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Weight of each class; None for 1.

        Raises
        ------
        ConfigError
            A weight for a label that is none of the classes.
        """
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, str):
            present = np.maximum(counts, 1)
            return np.asarray(counts.sum() / (np.count_nonzero(counts) * present), dtype=np.float64)
        weights = np.ones(len(classes))
        for label, weight in self.class_weight.items():
            found = np.flatnonzero(classes == float(label))
            if not len(found):
                some = ", ".join(str(value) for value in classes[:10].tolist())
                message = f"class_weight names the label {label}, but the classes are {some}"
                raise ConfigError(message)
            weights[found] = weight
        return weights

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "variants": [[variant.loss, variant.alpha] for variant in self.variants],
            "average": self.average,
            "class_weight": self.class_weight,
            "epochs": self.epochs,
            "patience": self.patience,
            "random_state": self.seed,
            "shuffle_rows": self.shuffle_rows,
            "validation_fraction": self.held_out or None,
        }


def checked_options(
    *,
    task: Any,
    loss: Any,
    alpha: Any,
    epochs: Any,
    average: Any,
    class_weight: Any,
    patience: Any,
    validation_fraction: Any,
    has_validation: bool,
    shuffle_rows: Any,
    random_state: Any,
) -> Options:
    """Check what `dkfeat.train` was given.

    Raises
    ------
    ConfigError
        For a setting out of range.
    """
    if validation_fraction is not None:
        validation_fraction = check_real(validation_fraction, "validation_fraction", above=0)
        if not validation_fraction < 1:
            message = f"validation_fraction={validation_fraction}, but a share of rows must be below 1"
            raise ConfigError(message)
        if has_validation:
            message = "both validation= and validation_fraction= are given; rows are held out by one of them"
            raise ConfigError(message)
    try:
        seed = check_seed(random_state)
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
    return Options(
        task=check_choice(task, "task", ("auto", "classification", "regression")),
        losses=None
        if loss is None
        else tuple(check_choice(item, "loss", tuple(LOSSES)) for item in _items(loss, "loss")),
        alphas=(DEFAULT_ALPHA,)
        if alpha is None
        else tuple(check_real(item, "alpha", above=0) for item in _items(alpha, "alpha")),
        epochs=None if epochs is None else check_integer(epochs, "epochs", low=1),
        average=True if average is None else bool(average),
        class_weight=_class_weight(class_weight),
        patience=None if patience is None else check_integer(patience, "patience", low=1),
        validation_fraction=validation_fraction,
        has_validation=has_validation,
        shuffle_rows=None if shuffle_rows is None else check_integer(shuffle_rows, "shuffle_rows", low=1),
        seed=seed,
    )


def _items(given: Any, name: str) -> tuple[Any, ...]:
    """One value or several different ones, as a tuple."""
    several = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    items = tuple(given) if several else (given,)
    if not items or len(set(items)) < len(items):
        message = f"{name}={given!r}, but it must be one value or several different ones"
        raise ConfigError(message)
    return items


def _class_weight(given: Any) -> str | dict[str, float] | None:
    if given is None or given == "balanced":
        return given
    if not isinstance(given, Mapping):
        message = f"class_weight={given!r}, but it must be 'balanced' or a mapping of labels to weights"
        raise ConfigError(message)
    weights = {}
    for label, weight in given.items():
        try:
            number = float(label)
        except (TypeError, ValueError):
            message = f"class_weight names {label!r}, but labels are numbers"
            raise ConfigError(message) from None
        name = repr(number) if number % 1 else str(int(number))
        weights[name] = check_real(weight, f"class_weight of {label}", above=LEAST_WEIGHT, high=MOST_WEIGHT)
    return weights
