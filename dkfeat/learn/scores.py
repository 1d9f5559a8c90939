"""Predictions from scores, and how good they are: accuracy and R² over batches of rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NotRequired, Self, TypedDict

import numpy as np
from scipy.sparse import csr_matrix, issparse

from dkfeat.canonical import Count

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Entry(TypedDict):
    """Entry of the history of a model: what is known of one epoch."""

    epoch: Count
    rows: Count
    loss: NotRequired[float | None]
    train_loss: NotRequired[float | None]
    penalty: NotRequired[float | None]
    alpha: NotRequired[float]
    trained_loss: NotRequired[str]
    validation_accuracy: NotRequired[float | None]
    validation_r2: NotRequired[float | None]
    test_accuracy: NotRequired[float | None]
    test_r2: NotRequired[float | None]


def predictions_of(task: str, classes: NDArray[Any], scores: NDArray[Any]) -> Any:
    """Turn scores into predictions, as `LinearModel.predict` returns them; equal scores go to the lower label.

    Parameters
    ----------
    task : str
        Task of a `LinearModel`.
    classes : ndarray of shape (n_classes,)
    scores : ndarray of shape (n, n_outputs), or (n,) for one output
    """
    if task == "multilabel":
        return csr_matrix((scores > 0).astype(np.uint8))
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if task == "regression":
        return scores
    return classes[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]


CALIBRATED = 1 << 24
"""Maximum number of scores in memory to calibrate a model; of more, those of every second row stay."""


def calibrate(model: Any, batches: Iterable[tuple[Any, Any]]) -> list[list[float]]:
    """Fit the sigmoid of Platt to the scores of each output of a model, as scikit-learn does.

    Parameters
    ----------
    model : LinearModel
    batches : iterable of (X, y)
        Rows that it was not trained on.

    Returns
    -------
    parameters : list of [slope, offset]
        The log-odds of output j are ``-(slope * score + offset)``.
    """
    from sklearn.calibration import _SigmoidCalibration  # late: loads scikit-learn

    parts: list[tuple[Any, Any]] = []
    step = held = 1
    for X, y in batches:
        scores = model.score_features(X)[::step].astype(np.float64)
        parts.append((scores.reshape(len(scores), -1), y[::step]))
        held += scores.size
        if held > CALIBRATED:
            parts, step, held = [(scores[::2], y[::2]) for scores, y in parts], 2 * step, held // 2
    columns = np.concatenate([scores for scores, _ in parts]).T
    targets = [y[:, : len(columns)].toarray() if issparse(y) else y[:, None] == model.classes for _, y in parts]
    pairs = zip(columns, np.concatenate(targets).T[-len(columns) :], strict=True)  # of two classes the second
    fits = [_SigmoidCalibration().fit(column, target.astype(np.float64)) for column, target in pairs]
    return [[float(fit.a_), float(fit.b_)] for fit in fits]


class Moments:
    """Number, mean and sum of squared deviations of values, added batch by batch.

    Notes
    -----
    Batches are combined by the formulas of Chan, Golub and LeVeque (1983).

    Examples
    --------
    >>> moments = Moments()
    >>> moments.add(np.array([1.0, 2.0]))
    >>> moments.add(np.array([6.0]))
    >>> moments.n, moments.mean, moments.squared_deviations
    (3, 3.0, 14.0)
    """

    def __init__(self) -> None:
        self.n = 0
        self.mean = self.squared_deviations = 0.0

    def add(self, values: NDArray[Any]) -> None:
        """Add values of shape (n,)."""
        if len(values):
            mean = float(np.mean(values, dtype=np.float64))
            self._join(len(values), mean, float(np.square(values - mean).sum()))

    def __iadd__(self, other: Moments) -> Self:
        """Add the values of other moments."""
        if other.n:
            self._join(other.n, other.mean, other.squared_deviations)
        return self

    def _join(self, n: int, mean: float, squared_deviations: float) -> None:
        total, shift = self.n + n, mean - self.mean
        self.squared_deviations += squared_deviations
        self.squared_deviations += shift * (shift * self.n * n / total)  # `shift**2` raises an error on overflow
        self.mean += shift * n / total
        self.n = total


class Score:
    """Accuracy of a classifier, or the coefficient of determination R² of a regression, over batches of rows.

    Parameters
    ----------
    task : str
        Task of a `LinearModel`.

    Examples
    --------
    >>> score = Score("binary")
    >>> score.add(np.array([1, 1]), np.array([1, -1]))
    >>> score.add(np.array([-1]), np.array([-1]))
    >>> round(score.value, 2)
    0.67
    """

    def __init__(self, task: str) -> None:
        self._regression = task == "regression"
        self.n_rows = 0
        self._hits = 0
        self._error = 0.0
        self._labels = Moments()

    def add(self, predicted: Any, y_true: Any) -> None:
        """Add rows with their predictions and labels.

        An indicator matrix of labels may have additional columns for labels that are not classes; rows with such labels
        count as wrong.
        """
        n_rows = y_true.shape[0]
        if not n_rows:
            return
        if self._regression:
            y_true = np.asarray(y_true, dtype=np.float64)
            self._error += float(np.square(y_true - predicted).sum())
            self._labels.add(y_true)
        elif issparse(y_true) or issparse(predicted) or y_true.ndim == 2:
            width = predicted.shape[1]
            differences = np.asarray((predicted != y_true[:, :width]).sum(axis=1)).ravel()
            self._hits += int(np.count_nonzero(differences + np.asarray(y_true[:, width:].sum(axis=1)).ravel() == 0))
        else:
            self._hits += int(np.count_nonzero(predicted == y_true))
        self.n_rows += n_rows

    @property
    def value(self) -> float | None:
        """Score of the rows so far; None without rows, or for a regression whose labels are all equal."""
        if self._regression:
            return 1 - self._error / self._labels.squared_deviations if self._labels.squared_deviations > 0 else None
        return self._hits / self.n_rows if self.n_rows else None


def paired_difference(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> tuple[float, float]:
    """Compare two models on the same rows.

    Parameters
    ----------
    one, other : ndarray of bool, shape (n_samples,)
        For each row, whether the model is right.

    Returns
    -------
    difference : float
        Accuracy of `one` less that of `other`.
    error : float
        Its standard error. Rows on which both are right or both wrong add nothing to it.

    Examples
    --------
    >>> difference, error = paired_difference(np.array([True] * 9 + [False]), np.array([True] * 8 + [False] * 2))
    >>> f"{difference:.2f} {error:.2f}"
    '0.10 0.10'
    """
    differences = one.astype(np.float64) - other
    n_rows = len(differences)
    return float(differences.mean()), float(differences.std() / max(n_rows - 1, 1) ** 0.5)
