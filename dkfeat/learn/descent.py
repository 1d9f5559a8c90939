"""Stochastic gradient descent over batches of rows: a pure function of weights, batches and settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dkfeat.compiled import descent as compiled
from dkfeat.compiled.descent_rows import Rows
from dkfeat.errors import ShardError
from dkfeat.learn.descent_settings import LOSSES, Settings

__all__ = ["INTERCEPT_RATE", "Batches", "Descent", "Weights", "run_epoch"]

Batches = Iterable[tuple[Any, Any, NDArray[np.float64] | None]]
"""Rows as csr_matrix or ndarray, their labels, and their weights or None for equal ones."""

INTERCEPT_RATE = 0.01
"""Step of the intercept, which every row has, as a share of the step of the weights, which it shares with few rows."""
WINDOW_ROWS = 65_536
"""Rows after which a window of averaging ends at the latest, at the end of their batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Where a descent is between two windows: plain arrays, all of which may be averaged over several descents.

    Lane ``v * n_outputs + o`` is output o of variant v; lanes beyond the last variant are 0.
    """

    coef: NDArray[np.float32]
    """Shape (n_features, n_lanes)."""
    intercept: NDArray[np.float64]
    """Shape (n_lanes,)."""
    mean_coef: NDArray[np.float32] | None
    """Mean of `coef` over all steps so far, of its shape; None if it is not wanted."""
    mean_intercept: NDArray[np.float64]
    """Shape (n_lanes,)."""
    loss: NDArray[np.float64]
    """Mean loss of the rows so far, each before it changed the weights, shape (n_lanes,)."""
    steps: int = 0
    """Rows seen."""

    @classmethod
    def zeros(cls, settings: Settings, n_features: int) -> Weights:
        """Weights to start from."""
        shape = n_features, settings.n_lanes
        lanes = [np.zeros(settings.n_lanes) for _ in range(3)]
        mean = np.zeros(shape, np.float32) if settings.average else None
        return cls(np.zeros(shape, np.float32), lanes[0], mean, lanes[1], lanes[2])

    def model(self, settings: Settings, variant: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Weights and intercepts of one variant, averaged if that is wanted, for rows and labels as they came.

        Returns
        -------
        coef : ndarray of float32, shape (n_outputs, n_features)
        intercept : ndarray of float64, shape (n_outputs,)
        """
        lanes = slice(variant * settings.n_outputs, (variant + 1) * settings.n_outputs)
        table, intercepts = self.averaged
        factor = settings.target_scale * (settings.scale if settings.value is None else settings.value)
        coef = np.multiply(table[:, lanes].T, np.float32(factor), order="F")
        return coef, intercepts[lanes] * settings.target_scale + settings.target_mean

    @property
    def averaged(self) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Table of weights and intercepts that models are made of: the means, where they are kept."""
        if self.mean_coef is None:
            return self.coef, self.intercept
        return self.mean_coef, self.mean_intercept

    def is_finite(self, settings: Settings, variant: int) -> bool:
        """Whether a variant has not diverged."""
        lanes = slice(variant * settings.n_outputs, (variant + 1) * settings.n_outputs)
        table, intercepts = self.averaged
        return bool(np.isfinite(table[:, lanes]).all() and np.isfinite(intercepts[lanes]).all())


def run_epoch(weights: Weights, batches: Batches, settings: Settings) -> Weights:
    """Show every row of the batches once, in their order.

    Parameters
    ----------
    weights : Weights
        Where to start; not changed.
    batches : iterable of (X, y, weight)
        X is a csr_matrix or ndarray of shape (n, n_features). y are labels of shape (n,), numbers for regression, or an
        indicator matrix for lists of labels. weight is None or float64 of shape (n,).
    settings : Settings

    Returns
    -------
    weights : Weights
        Equal bit for bit for equal arguments, on any number of threads.

    Raises
    ------
    ShardError
        For a label that is not among the classes.

    Examples
    --------
    >>> from dkfeat.learn.descent_settings import Variant
    >>> settings = Settings(task="binary", classes=np.array([-1, 1]), variants=(Variant("hinge", 1e-6),))
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), np.array([-1, 1])
    >>> weights = run_epoch(Weights.zeros(settings, 2), [(X, y, None)] * 3, settings)
    >>> weights.coef.round(2).T.tolist(), weights.steps
    ([[-1.0, 1.0]], 6)
    """
    descent = Descent(weights, settings)
    for X, y, weight in batches:
        descent.show(X, y, weight)
    return descent.weights()


class Descent:
    """A descent under way, which owns its arrays.

    Parameters
    ----------
    weights : Weights
        Where to start.
    settings : Settings
    copy : bool, default=True
        False lets the descent change the arrays of `weights`.
    """

    def __init__(self, weights: Weights, settings: Settings, *, copy: bool = True) -> None:
        self._settings = settings
        self._steps, self._window = weights.steps, 0
        self._coef = weights.coef.copy() if copy else weights.coef
        empty = np.empty(0, np.float32)
        self._mean = empty if weights.mean_coef is None else weights.mean_coef.copy() if copy else weights.mean_coef
        self._lag = np.zeros(len(self._mean.ravel()), np.float32)
        n_lanes, used = settings.n_lanes, settings.n_outputs * len(settings.variants)
        kinds, step_sizes, alphas = np.zeros(n_lanes, np.int64), np.zeros(n_lanes), np.zeros(n_lanes)
        for values, given in (
            (kinds, [LOSSES[variant.loss][0] for variant in settings.variants]),
            (step_sizes, [settings.step_size(variant.loss) for variant in settings.variants]),
            (alphas, [variant.alpha for variant in settings.variants]),
        ):
            values[:used] = np.repeat(given, settings.n_outputs)
        self._lanes = compiled.Lanes(
            kinds=kinds,
            step_sizes=step_sizes,
            decays=1 / (1 + step_sizes * alphas),
            scales=np.ones(n_lanes),
            sums=np.zeros(n_lanes),
            intercepts=weights.intercept.copy(),
            intercept_sums=np.zeros(n_lanes),
            losses=np.zeros(n_lanes),
            mean_intercepts=weights.mean_intercept.copy(),
            mean_losses=weights.loss.copy(),
        )

    @property
    def steps(self) -> int:
        """Rows seen, with those that the weights to start from had seen."""
        return self._steps + self._window

    @property
    def is_settled(self) -> bool:
        """Whether a window has just ended: then asking for the weights does not change those to come."""
        return self._window == 0

    def show(self, X: Any, y: Any, weight: NDArray[np.float64] | None = None) -> None:
        """Show the rows of a batch, as `run_epoch` does."""
        settings = self._settings
        rows, targets = _rows(X, settings), _targets(y, weight, settings)
        coef, rate = self._coef.reshape(-1), INTERCEPT_RATE if settings.fit_intercept else 0.0
        n_rows, start = X.shape[0], 0
        while start < n_rows:
            if settings.n_lanes == 1:
                stop = compiled.descend_one(rows, targets, start, self._lanes, settings.epsilon, rate, coef, self._lag)
            else:
                stop = compiled.descend(
                    rows, targets, start, self._lanes, settings.n_outputs, settings.epsilon, rate, coef, self._lag
                )
            self._window += stop - start
            start = stop
            if start < n_rows or self._window >= WINDOW_ROWS:
                self._settle()

    def weights(self) -> Weights:
        """Weights after the rows so far, ending the window; they share memory with the descent: copy to keep them."""
        self._settle()
        lanes, mean = self._lanes, self._mean if self._settings.average else None
        return Weights(self._coef, lanes.intercepts, mean, lanes.mean_intercepts, lanes.mean_losses, self._steps)

    def _settle(self) -> None:
        if self._window:
            mean = self._mean.reshape(-1)
            compiled.settle(self._lanes, self._window, self._steps, self._coef.reshape(-1), self._lag, mean)
            self._steps, self._window = self._steps + self._window, 0


def _rows(X: Any, settings: Settings) -> Rows:
    scale = settings.scale if settings.value is None else settings.value
    if issparse(X):
        values = np.empty(0, np.float32) if settings.value is not None else np.asarray(X.data, np.float32)
        return Rows(X.indptr, X.indices, values, float(scale))
    X = np.ascontiguousarray(X, dtype=np.float32)
    indptr = np.arange(X.shape[0] + 1, dtype=np.int64) * X.shape[1]
    return Rows(indptr, np.empty(0, np.int32), X.reshape(-1), float(scale))


def _targets(y: Any, weight: NDArray[np.float64] | None, settings: Settings) -> compiled.Targets:
    n_rows = y.shape[0]
    weights = np.ones(n_rows) if weight is None else weight * settings.weight_scale
    reals, offsets, positives = np.empty(0), np.zeros(1, np.int64), np.empty(0, np.int64)
    if settings.task == "regression":
        reals = (np.asarray(y, dtype=np.float64) - settings.target_mean) / settings.target_scale
    elif settings.task == "multilabel":
        offsets, positives = y.indptr.astype(np.int64), y.indices.astype(np.int64)
    else:
        numbers = _numbered(y, settings.classes)
        if settings.class_weights is not None:
            weights = weights * settings.class_weights[numbers]
        if settings.task == "binary":
            offsets = np.concatenate([offsets, np.cumsum(numbers)])
            positives = np.zeros(int(offsets[-1]), np.int64)
        else:
            offsets, positives = np.arange(n_rows + 1), numbers
    return compiled.Targets(offsets, positives, reals, weights)


def _numbered(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    if len(classes) == 2:  # several times faster than a search
        numbers = (y == classes[1]).astype(np.int64)
    else:
        numbers = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if not np.array_equal(classes[numbers], y):
        strange = y[classes[numbers] != y][0]
        message = f"a row has the label {strange}, which the manifest does not list; verify the shards"
        raise ShardError(message)
    return numbers
