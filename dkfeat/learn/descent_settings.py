"""What a descent is told beside its rows: losses, penalties, classes, weights and scales."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled import losses
from dkfeat.compiled.simd import LANES

__all__ = ["CLASS_LOSSES", "LOSSES", "REAL_LOSSES", "Settings", "Variant"]

CLASS_LOSSES: Mapping[str, tuple[int, float]] = {
    "squared_hinge": (losses.SQUARED_HINGE, 0.5),
    "hinge": (losses.HINGE, 1.0),
    "log_loss": (losses.LOG_LOSS, 3.96),
}
"""Losses for classes: the compiled loop's number, and the step size for rows of unit length."""
REAL_LOSSES: Mapping[str, tuple[int, float]] = {
    "squared_error": (losses.SQUARED_ERROR, 1.0),
    "huber": (losses.HUBER, 1.0),
}
"""Losses for regression."""
LOSSES = {**CLASS_LOSSES, **REAL_LOSSES}


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the models that are trained side by side."""

    loss: str
    """One of `LOSSES`."""
    alpha: float
    """Strength of the l2 penalty, above 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settings:
    """All that decides, beside the rows and where weights start, where they go."""

    task: str
    """Of the `LinearModel` to be."""
    classes: NDArray[Any]
    """All labels, ascending; of no length for regression."""
    variants: tuple[Variant, ...]
    """Models to train side by side, at least one."""
    average: bool = True
    """Whether the mean of the weights over all steps is wanted, too."""
    value: float | None = None
    """Stored values all count as this: for ones-only features. None: as they are, times `scale`."""
    scale: float = 1.0
    """Stored values are multiplied by this; it is folded into the weights that `Weights.model` gives."""
    fit_intercept: bool = True
    class_weights: NDArray[np.float64] | None = None
    """Weight of the rows of each class, shape (n_classes,); None: 1."""
    typical_weight: float = 1.0
    """Mean weight of the rows, each counted by its weight; steps are divided by the root of it, if it is above 1."""
    n_descents: int = 1
    """Descents whose weights are averaged, which shortens what each one learns: steps are multiplied by its root."""
    weight_scale: float = 1.0
    """Row weights are multiplied by this."""
    target_mean: float = 0.0
    """Regression: labels less this, divided by `target_scale`, are what is trained on."""
    target_scale: float = 1.0
    epsilon: float = 0.1
    """Error, in units of `target_scale`, at which the Huber loss turns from square to absolute."""

    @property
    def n_outputs(self) -> int:
        """Rows of weights that one model has."""
        return len(self.classes) if self.task in ("multiclass", "multilabel") else 1

    @property
    def n_lanes(self) -> int:
        """Columns of the table of weights: outputs of all variants, filled up to a multiple of 16 if there are many."""
        used = self.n_outputs * len(self.variants)
        return used if used == 1 else -(-used // LANES) * LANES

    def step_size(self, loss: str) -> float:
        """Step of a row of weight 1: so short that rows of typical weight do not all step to their targets alike."""
        return LOSSES[loss][1] * math.sqrt(self.n_descents / max(1.0, self.typical_weight))
