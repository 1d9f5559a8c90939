"""Stochastic gradient descent over batches of rows, run by compiled loops."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dkfeat.blocks import PackedCodes
from dkfeat.compiled import descent as compiled
from dkfeat.compiled.descent import BatchRows
from dkfeat.compiled.jit import aligned, owned
from dkfeat.compiled.simd import LANES
from dkfeat.errors import ShardError

LOSSES: Mapping[str, tuple[int, float]] = {
    "squared_hinge": (compiled.SQUARED_HINGE, 0.5),
    "hinge": (compiled.HINGE, 1.0),
    "log_loss": (compiled.LOG_LOSS, 3.96),
    "squared_error": (compiled.SQUARED_ERROR, 1.0),
    "huber": (compiled.HUBER, 1.0),
}
"""Losses: number of the loss in the compiled loops, and the step size for rows of unit length."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Loss and penalty of one of the models that are trained in the same descent."""

    loss: str
    """One of `LOSSES`."""
    alpha: float
    """Strength of the l2 penalty, above 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescentConfig:
    """Losses, penalties, classes, weights and scales of a descent."""

    task: str
    """Task of the resulting `LinearModel`."""
    classes: NDArray[Any]
    """All labels, ascending; empty for regression."""
    variants: tuple[Variant, ...]
    """Models to train in the same descent, at least one."""
    average: bool = True
    """Also keep the mean of the weights over all steps."""
    code_bits: int = 0
    """Bits of a code if rows are packed codes; 0 for other rows."""
    scale: float = 1.0
    """Factor of the features; `Weights.model` multiplies the weights by it."""
    class_weights: NDArray[np.float64] | None = None
    """Weight of the rows of each class, shape (n_classes,); None: 1."""
    typical_weight: float = 1.0
    """Mean of the row weights, weighted by themselves. If it is above 1, steps are divided by its square root."""
    weight_scale: float = 1.0
    """Factor of the row weights."""
    target_mean: float = 0.0
    """For regression: the training targets are (labels - `target_mean`) / `target_scale`."""
    target_scale: float = 1.0

    @property
    def n_outputs(self) -> int:
        """Number of outputs of one model, each with a row of weights."""
        return len(self.classes) if self.task in ("multiclass", "multilabel") else 1

    @property
    def n_lanes(self) -> int:
        """Number of columns of the table of weights: outputs of all variants, if several padded to a multiple of 16."""
        used = self.n_outputs * len(self.variants)
        return used if used == 1 else -(-used // LANES) * LANES

    def lanes(self, variant: int) -> slice:
        """Return the lanes of a variant."""
        return slice(variant * self.n_outputs, (variant + 1) * self.n_outputs)

    def step_size(self, loss: str) -> float:
        """Step size of a row of weight 1, reduced so that rows of typical weight do not all step to their targets."""
        return LOSSES[loss][1] * math.sqrt(1 / max(1.0, self.typical_weight))


HUBER_ERROR = 0.1
"""Error, in units of `target_scale`, at which the Huber loss changes from squared to absolute error."""
INTERCEPT_RATE = 0.01
"""Step size of the intercept divided by that of the weights: every row changes the intercept, but few rows change a
given weight."""
WINDOW_ROWS = 65_536
"""A window of averaging ends after the first batch that brings it to this many rows, or earlier if a penalty has shrunk
the scale of a lane below `SMALLEST_SCALE`."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """State of a descent between two windows, as plain arrays that can be averaged over several descents.

    Lane ``v * n_outputs + o`` is output o of variant v; lanes beyond the last variant are 0.
    """

    coef: NDArray[np.float32]
    """Shape (n_features, n_lanes)."""
    intercept: NDArray[np.float64]
    """Shape (n_lanes,)."""
    mean_coef: NDArray[np.float32] | None
    """Mean of `coef` over all steps so far, with the shape of `coef`; None if not computed."""
    mean_intercept: NDArray[np.float64]
    """Shape (n_lanes,)."""
    loss: NDArray[np.float64]
    """Mean loss of the rows so far, computed before each row changed the weights, shape (n_lanes,)."""
    steps: int = 0
    """Number of rows seen."""
    before_coef: NDArray[np.float32] | None = None
    """Of several descents: average before the last one, from which its momentum is computed; None otherwise."""
    before_intercept: NDArray[np.float64] | None = None

    @classmethod
    def zeros(cls, config: DescentConfig, n_features: int) -> Weights:
        """Return initial weights, all zero."""
        shape = n_features, config.n_lanes
        lanes = [np.zeros(config.n_lanes) for _ in range(3)]
        return cls(_zeros(shape), lanes[0], _zeros(shape) if config.average else None, lanes[1], lanes[2])

    def start_from(self, config: DescentConfig, coef: NDArray[Any], intercept: NDArray[Any]) -> None:
        """Set all variants of initial weights to a model, in the form that `model` returns."""
        for variant in range(len(config.variants)):
            lanes = config.lanes(variant)
            self.coef[:, lanes] = coef.T / (config.target_scale * config.scale)
            self.intercept[lanes] = (intercept - config.target_mean) / config.target_scale
        if self.before_coef is not None and self.before_intercept is not None:
            self.before_coef[...], self.before_intercept[...] = self.coef, self.intercept

    def objective(self, config: DescentConfig, variant: int, batches: Iterable[Any]) -> tuple[float, float]:
        """Compute what a training minimises for a model: the mean loss over rows and outputs, and the penalty.

        Both are for labels in their own units. The penalty is ``alpha / 2`` times the squared length of the weights of
        an output for scaled rows, without the intercept.
        """
        (table, intercept), lanes = self.averaged, config.lanes(variant)
        start = Weights(table, intercept, None, np.zeros(config.n_lanes), np.zeros(config.n_lanes))
        still = Descent(start, replace(config, average=False), moves=False)
        for X, y, weight in batches:
            still.run_batch(X, y, weight)
        loss, weights = still.weights().loss[lanes].mean(), table[:, lanes]
        squares = np.einsum("ij,ij->", weights, weights, dtype=np.float64)  # without a copy of the table
        penalty = config.variants[variant].alpha / 2 * squares / config.n_outputs
        return float(loss) * config.target_scale**2, float(penalty) * config.target_scale**2

    def model(self, config: DescentConfig, variant: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return a variant's weights and intercepts for unscaled rows and labels: means over the steps if `average`.

        Returns
        -------
        coef : ndarray of float32, shape (n_outputs, n_features)
        intercept : ndarray of float64, shape (n_outputs,)
        """
        lanes, (table, intercepts) = config.lanes(variant), self.averaged
        coef = np.multiply(table[:, lanes].T, np.float32(config.target_scale * config.scale), order="F")
        return coef, intercepts[lanes] * config.target_scale + config.target_mean

    @property
    def averaged(self) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Table of weights and intercepts of the models: the means if they are computed, else the last values."""
        if self.mean_coef is None:
            return self.coef, self.intercept
        return self.mean_coef, self.mean_intercept

    def is_finite(self, config: DescentConfig, variant: int) -> bool:
        """Return True if a variant has not diverged."""
        lanes, (table, intercepts) = config.lanes(variant), self.averaged
        return bool(np.isfinite(table[:, lanes]).all() and np.isfinite(intercepts[lanes]).all())


class Descent:
    """Descent in progress.

    Parameters
    ----------
    weights : Weights
        Initial weights; their arrays are changed.
    config : DescentConfig
    moves : bool, default=True
        False leaves the weights as they are, to compute their loss.

    Examples
    --------
    >>> config = DescentConfig(task="binary", classes=np.array([-1, 1]), variants=(Variant("hinge", 1e-6),))
    >>> descent = Descent(Weights.zeros(config, 2), config)
    >>> for _ in range(3):
    ...     descent.run_batch(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), np.array([-1, 1]))
    >>> weights = descent.weights()
    >>> weights.coef.round(2).T.tolist(), weights.steps
    ([[-1.0, 1.0]], 6)
    """

    def __init__(self, weights: Weights, config: DescentConfig, *, moves: bool = True) -> None:
        self._config = config
        self._steps, self._window = weights.steps, 0
        self._coef = _aligned(weights.coef)
        self._mean = np.empty(0, np.float32) if weights.mean_coef is None else _aligned(weights.mean_coef)
        self._lag = _zeros(self._mean.size)
        n_lanes, kinds = config.n_lanes, np.zeros(config.n_lanes, np.int64)
        step_sizes, alphas = np.zeros((2, n_lanes))
        for number, variant in enumerate(config.variants):
            lanes = config.lanes(number)
            kinds[lanes] = LOSSES[variant.loss][0]
            step_sizes[lanes], alphas[lanes] = config.step_size(variant.loss) * moves, variant.alpha
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
        """Number of rows seen, including those from which the initial weights were trained."""
        return self._steps + self._window

    @property
    def is_at_window_end(self) -> bool:
        """True if a window has just ended, so that a call of `weights` does not change later results."""
        return self._window == 0

    def run_batch(self, X: Any, y: Any, weight: NDArray[np.float64] | None = None) -> None:
        """Run the descent over the rows of a batch, in their order, with equal bits on any number of threads.

        Parameters
        ----------
        X : csr_matrix or ndarray of shape (n_rows, n_features), or PackedCodes
            Rows; `PackedCodes` for ``config.code_bits``.
        y : array of shape (n_rows,), or csr_matrix of shape (n_rows, n_classes)
            Labels, numbers for regression, or an indicator matrix for lists of labels.
        weight : ndarray of float64, shape (n_rows,), or None
            Weights of the rows; None for equal ones.

        Raises
        ------
        ShardError
            For a label that is not among the classes.
        """
        config = self._config
        rows, targets = _rows(X, config, len(self._coef)), _targets(y, weight, config)
        options = HUBER_ERROR, INTERCEPT_RATE, self._coef.reshape(-1), self._lag
        n_rows, start = X.shape[0], 0
        while start < n_rows:
            if config.n_lanes == 1:
                stop = compiled.descend_one(rows, targets, start, self._lanes, *options)
            else:
                stop = compiled.descend(rows, targets, start, self._lanes, config.n_outputs, *options)
            self._window += stop - start
            start = stop
            if start < n_rows or self._window >= WINDOW_ROWS:
                self._end_window()

    def weights(self) -> Weights:
        """Return the weights after the rows so far and end the window; later rows change the arrays, so copy them."""
        self._end_window()
        lanes, mean = self._lanes, self._mean if self._config.average else None
        return Weights(self._coef, lanes.intercepts, mean, lanes.mean_intercepts, lanes.mean_losses, self._steps)

    def _end_window(self) -> None:
        if self._window:
            mean = self._mean.reshape(-1)
            compiled.end_window(self._lanes, self._window, self._steps, self._coef.reshape(-1), self._lag, mean)
            self._steps, self._window = self._steps + self._window, 0


def _zeros(shape: int | tuple[int, int]) -> NDArray[np.float32]:
    """Make a table of zeros in which each block of 16 lanes is one cache line."""
    table = aligned(int(np.prod(shape)), np.float32).reshape(shape)
    table.fill(0)
    return table


def _aligned(table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the table itself if it begins at a cache line, like those of `_zeros`, else a copy."""
    if table.ctypes.data % 64 == 0:
        return table
    made = _zeros(table.shape)
    made[...] = table
    return made


def _rows(X: Any, config: DescentConfig, n_features: int) -> BatchRows:
    column = np.uint32 if n_features <= 2**31 else np.int64
    indices, values, codes = np.empty(0, column), np.empty(0, np.float32), np.empty((0, 0), np.uint8)
    if isinstance(X, PackedCodes):
        codes = owned(X.codes)
        indptr = np.concatenate([[0], np.cumsum(~X.empty)]) * (n_features >> config.code_bits)
    elif issparse(X):
        indptr, indices, values = X.indptr, owned(X.indices), np.asarray(X.data, np.float32)
    else:
        indptr, values = np.arange(X.shape[0] + 1) * X.shape[1], np.ascontiguousarray(X, np.float32).reshape(-1)
    return BatchRows(indptr, indices, values, codes, config.code_bits, float(config.scale))


def _targets(y: Any, weight: NDArray[np.float64] | None, config: DescentConfig) -> compiled.Targets:
    n_rows = y.shape[0]
    weights = np.ones(n_rows) if weight is None else weight * config.weight_scale
    reals, offsets, positives = np.empty(0), np.zeros(1, np.int64), np.empty(0, np.int64)
    if config.task == "regression":
        reals = (np.asarray(y, dtype=np.float64) - config.target_mean) / config.target_scale
    elif config.task == "multilabel":
        offsets, positives = y.indptr.astype(np.int64), y.indices.astype(np.int64)
    else:
        numbers = _numbered(y, config.classes)
        if config.class_weights is not None:
            weights = weights * config.class_weights[numbers]
        if config.task == "binary":
            offsets = np.concatenate([offsets, np.cumsum(numbers)])
            positives = np.zeros(int(offsets[-1]), np.int64)
        else:
            offsets, positives = np.arange(n_rows + 1), numbers
    return compiled.Targets(offsets, positives, reals, weights)


def _numbered(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    if len(classes) == 2:  # several times faster than searchsorted
        numbers = (y == classes[1]).astype(np.int64)
    else:
        numbers = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if not np.array_equal(classes[numbers], y):
        strange = y[classes[numbers] != y][0]
        raise ShardError(f"a row has the label {strange}, which the manifest does not list; verify the shards")
    return numbers
