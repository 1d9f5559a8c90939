"""Stochastic gradient descent for a linear classifier, over batches that are shown once an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse
from sklearn.linear_model import SGDClassifier

from dkfeat.engine.prefetch import prefetch
from dkfeat.errors import ConfigError, ShardError

__all__ = ["DEFAULT_ALPHA", "LOSSES", "Batches", "fit_epochs"]

Batches = Iterable[tuple[Any, NDArray[Any]]]  # rows as csr_matrix or ndarray, and their labels

LOSSES = ("hinge", "log_loss")
WORTH_THREADS = 40_000_000
"""Updates of a batch, stored values times classes, that take about 0.1 s on one core."""
DEFAULT_ALPHA = 1e-6
STEP_SIZE = {"hinge": 1.0, "log_loss": 4.0}
"""Constant learning rates for rows of unit length."""


def fit_epochs(
    batches: Callable[[int], Batches],
    classes: NDArray[Any],
    epochs: int,
    *,
    loss: str = "hinge",
    alpha: float = DEFAULT_ALPHA,
    average: bool = True,
    random_state: int = 0,
    scale: float | None = None,
    fit_intercept: bool = True,
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64], int]]:
    """Weights after each epoch of gradient descent, on sparse or dense batches.

    Parameters
    ----------
    batches : callable
        Gives the batches ``(X, y)`` of an epoch, numbered from 0, in the order in which rows are to be seen.
    classes : ndarray of shape (n_classes,)
        All labels, ascending.
    epochs : int
    loss, alpha, average
        As in `train`.
    random_state : int, default=0
        At least 0, of any size.
    scale : float, optional
        All stored values of X count as this: for ones-only features. None: X as it is.
    fit_intercept : bool, default=True

    Yields
    ------
    coef : ndarray of float64, shape (1 or n_classes, n_features)
        For X as it came: the scale is in the weights.
    intercept : ndarray of float64, shape (1 or n_classes,)
    n_rows : int
        Rows seen in the epoch.
    """
    classifier = SGDClassifier(
        loss=loss,
        alpha=alpha,
        average=average,
        learning_rate="constant",
        eta0=STEP_SIZE[loss],
        shuffle=False,  # the batches come mixed
        random_state=int(np.random.SeedSequence(random_state).generate_state(1)[0]),  # it takes 32 bits only
        fit_intercept=fit_intercept,
    )
    numbers = np.arange(len(classes))
    values = np.empty(0)
    for epoch in range(epochs):
        n_rows = 0
        for X, y in prefetch(batches(epoch)):
            if scale is not None:
                if X.nnz > len(values):
                    values = np.full(X.nnz, scale)  # one array serves all batches
                X = csr_matrix((values[: X.nnz], X.indices, X.indptr), shape=X.shape, copy=False)
            # classes are trained side by side in threads where that is worth joblib's waiting loops
            stored = X.nnz if issparse(X) else X.size
            classifier.n_jobs = -1 if len(classes) > 2 and stored * len(classes) >= WORTH_THREADS else None
            try:
                classifier.partial_fit(X, _numbered(y, classes), classes=numbers)
            except ValueError as error:
                if "overflow" not in str(error):
                    raise
                raise ConfigError(_diverged(alpha, epoch)) from None
            n_rows += X.shape[0]
        if not (np.isfinite(classifier.coef_).all() and np.isfinite(classifier.intercept_).all()):
            raise ConfigError(_diverged(alpha, epoch))
        yield classifier.coef_ * (1.0 if scale is None else scale), classifier.intercept_.copy(), n_rows


def _numbered(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    numbers = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    if not np.array_equal(classes[numbers], y):
        strange = y[classes[numbers] != y][0]
        message = f"a row has the label {strange}, which the manifest does not list; verify the shards"
        raise ShardError(message)
    return numbers


def _diverged(alpha: float, epoch: int) -> str:
    return f"the weights were no longer finite in epoch {epoch + 1} with alpha={alpha}; try alpha={DEFAULT_ALPHA}"
