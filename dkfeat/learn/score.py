"""How good predictions are, gathered batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse

__all__ = ["Score", "predictions_of"]


def predictions_of(task: str, classes: NDArray[Any], scores: NDArray[Any]) -> Any:
    """Predictions that belong to scores, as `LinearModel.predict` gives them; equal scores go to the lower label.

    Parameters
    ----------
    task : str
        Of a `LinearModel`.
    classes : ndarray of shape (n_classes,)
    scores : ndarray of shape (n,), or (n, n_classes) for several classes and lists of labels
    """
    if task == "regression":
        return scores
    if task == "multilabel":
        return csr_matrix((scores > 0).astype(np.uint8))
    return classes[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]


class Score:
    """Accuracy of a classifier, or the coefficient of determination R² of a regression, over batches of rows.

    Parameters
    ----------
    task : str
        Of a `LinearModel`.

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
        self._error = self._mean = self._spread = 0.0

    def add(self, predicted: Any, own: Any) -> None:
        """Count rows: their predictions and their own labels, both of one shape.

        An indicator matrix of own labels may have columns beyond the predicted ones, for labels that no prediction can
        name: rows that have them are misses.
        """
        n_rows = own.shape[0]
        if not n_rows:
            return
        if self._regression:
            own = np.asarray(own, dtype=np.float64)
            self._error += float(np.square(own - predicted).sum())
            # Chan, Golub and LeVeque (1983): squared deviations of two groups of rows, joined
            mean, total = float(own.mean()), self.n_rows + n_rows
            self._spread += float(np.square(own - mean).sum()) + (mean - self._mean) ** 2 * self.n_rows * n_rows / total
            self._mean += (mean - self._mean) * n_rows / total
        elif issparse(own) or issparse(predicted) or own.ndim == 2:
            width = predicted.shape[1]
            differences = np.asarray((predicted != own[:, :width]).sum(axis=1)).ravel()
            self._hits += int(np.count_nonzero(differences + np.asarray(own[:, width:].sum(axis=1)).ravel() == 0))
        else:
            self._hits += int(np.count_nonzero(predicted == own))
        self.n_rows += n_rows

    @property
    def value(self) -> float | None:
        """The score so far; None without rows, or for a regression whose rows all have one label."""
        if self._regression:
            return 1 - self._error / self._spread if self._spread > 0 else None
        return self._hits / self.n_rows if self.n_rows else None
