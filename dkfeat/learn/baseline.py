"""The usual baseline: a linear model on the raw features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.preprocessing import normalize

from dkfeat.engine.prefetch import prefetch
from dkfeat.learn.descent import Weights, run_epoch
from dkfeat.learn.descent_settings import Settings, Variant

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    from dkfeat.io.source import Source

__all__ = ["raw_accuracy"]

ALPHA = 1e-6


def raw_accuracy(train: Source, test: Source, classes: NDArray[Any], epochs: int, seed: int = 0) -> float:
    """Held-out accuracy of a linear model on the raw features, the usual baseline.

    Hinge loss, rows scaled to unit l2 length, no bias: read block by block and trained as `dkfeat.train` trains.

    Parameters
    ----------
    train, test : Source
        Settled.
    classes : ndarray of shape (n_classes,)
        All labels, ascending.
    epochs : int
        Passes over the training rows.
    seed : int, default=0
        Of the order in which a block's rows are seen.

    Returns
    -------
    accuracy : float
        In [0, 1].
    """

    def batches(epoch: int) -> Iterator[tuple[csr_matrix, NDArray[Any], None]]:
        random = np.random.default_rng([seed, epoch])
        for X, y in _unit_blocks(train):
            order = random.permutation(len(y))
            yield X[order], y[order], None

    settings = Settings(
        task="binary" if len(classes) == 2 else "multiclass",
        classes=classes,
        variants=(Variant("hinge", ALPHA),),
        fit_intercept=False,
    )
    weights = Weights.zeros(settings, int(train.n_features or 0))
    for epoch in range(epochs):
        weights = run_epoch(weights, prefetch(batches(epoch)), settings)
    coef, _ = weights.model(settings, 0)
    hits = rows = 0
    for X, y in _unit_blocks(test):
        scores = X @ coef.T
        best = (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)
        hits += int(np.count_nonzero(classes[best] == y))
        rows += len(y)
    return hits / max(1, rows)


def _unit_blocks(source: Source) -> Iterator[tuple[csr_matrix, NDArray[Any]]]:
    for split in source.splits():
        for piece in source.read(split, checksum=False):
            if piece.block.n_rows:
                yield normalize(piece.block.X.astype(np.float64)), piece.block.y
