"""Rows that judge a training without taking part in it: batches of shards, their lists of labels in its classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from dkfeat.learn.training_rows import batch_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["judged_batches", "relabelled"]


def judged_batches(data: Any, task: str, classes: NDArray[Any]) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """Return what gives the batches ``(X, y)`` of a data set, in its order.

    Parameters
    ----------
    data : ShardDataset
    task, classes
        Of the model that is judged. Indicator matrices of shards have a column for each label of their own, which
        `relabelled` turns into columns of these classes.
    """

    def batches() -> Iterator[tuple[Any, Any]]:
        for X, y in data.batches(batch_rows(data), shuffle=False):
            yield X, relabelled(y, np.asarray(data.classes), classes) if task == "multilabel" else y

    return batches


def relabelled(y: Any, own: NDArray[Any], classes: NDArray[Any]) -> csr_matrix:
    """Turn an indicator matrix of some labels into one of others.

    Parameters
    ----------
    y : csr_matrix of shape (n_rows, len(own))
    own, classes : ndarray
        Labels, ascending.

    Returns
    -------
    y : csr_matrix of shape (n_rows, len(classes)) or one column more
        The last column counts a row's labels that are none of `classes`, if there are such labels.

    Examples
    --------
    >>> y = csr_matrix(np.array([[1, 0, 1], [0, 1, 0]], np.uint8))
    >>> relabelled(y, np.array([1, 2, 4]), np.array([1, 2, 3])).toarray().tolist()
    [[1, 0, 0, 1], [0, 1, 0, 0]]
    """
    if np.array_equal(own, classes):
        return y
    columns = np.searchsorted(classes, own)
    known = np.isin(own, classes)
    columns[~known] = len(classes)
    width = len(classes) + (not known.all())
    taken = csr_matrix((np.ones(len(own), np.int64), (np.arange(len(own)), columns)), shape=(len(own), width))
    return csr_matrix(y.astype(np.int64) @ taken)
