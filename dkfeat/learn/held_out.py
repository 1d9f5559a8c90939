"""Which rows of a data set are held out of training: a pure function of a seed and a row's place in the source."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.compiled.philox import draw_words
from dkfeat.random_streams import STREAM_HELD_OUT

__all__ = ["is_held_out"]

_GROUP = 4096
"""Rows whose words are drawn at once."""


def is_held_out(numbers: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Whether rows are held out.

    Parameters
    ----------
    numbers : ndarray of int64, shape (n,)
        Places of rows in the source, from 0.
    fraction : float
        Share of rows to hold out, in [0, 1): each one is with this probability, whatever the others are.
    seed : int
        In [0, 2**64).

    Returns
    -------
    held_out : ndarray of bool, shape (n,)
        The same for a row however shards are cut and shuffled, and when rows are added after it.

    Examples
    --------
    >>> is_held_out(np.arange(12), 0.25, seed=0).astype(int).tolist() == [
    ...     int(is_held_out(np.array([row]), 0.25, seed=0)[0]) for row in range(12)]
    True
    """
    held_out = np.zeros(len(numbers), np.bool_)
    limit = round(fraction * 2**32)
    words: NDArray[Any] = np.empty((_GROUP, 4), np.uint32)
    if not len(numbers):
        return held_out
    groups, place = np.divmod(numbers, _GROUP)
    order = np.argsort(groups, kind="stable")
    present, firsts = np.unique(groups[order], return_index=True)
    for group, rows in zip(present, np.split(order, firsts[1:]), strict=True):
        draw_words(np.uint64(group), np.uint64(STREAM_HELD_OUT), np.uint64(seed), words)
        held_out[rows] = words[place[rows], 0] < limit
    return held_out
