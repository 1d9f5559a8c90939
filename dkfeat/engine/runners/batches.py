"""Batches of splits, one for each task of a cluster's scheduler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

BATCH_SECONDS = 0.5
"""Duration to which short splits are joined in one task of the scheduler, whose own cost is some milliseconds."""

BATCHES_PER_SECOND = 200
"""Rate that sets the longer duration of batches on many workers; as splits are whole, up to twice as many are done. A
scheduler can handle more."""

MOST_IN_BATCH = 256
"""Maximum number of splits in a batch."""


class Batches:
    """Splits of a run, cut into batches: short splits are joined, because a task of the scheduler has its own cost.

    Batches grow as long as they take less than `BATCH_SECONDS`, or on many workers less than the time in which
    `BATCHES_PER_SECOND` make one for each thread. They shrink towards the end, so that no worker gets a long one last.

    Parameters
    ----------
    splits : sequence
        In the order in which they start.
    most : int
        Maximum number of splits in a batch.

    Examples
    --------
    >>> batches = Batches(range(100))
    >>> batches.take(2, window=4)
    [(0,), (1,)]
    >>> batches.measured(1, seconds=0.01)
    >>> batches.take(1, window=4)
    [(2, 3)]
    """

    def __init__(self, splits: Sequence[Any], most: int = MOST_IN_BATCH) -> None:
        self._splits, self._most = splits, most
        self._start, self._size, self._seconds = 0, 1, math.inf

    def measured(self, size: int, seconds: float) -> None:
        """Set the size of the next batches by the duration of one."""
        self._size, self._seconds = 2 * size, seconds / size

    def take(self, count: int, window: int) -> list[tuple[Any, ...]]:
        """Return the next batches, at most `count`, of which `window` are submitted at a time."""
        seconds = max(BATCH_SECONDS, window / (2 * BATCHES_PER_SECOND))
        taken: list[tuple[Any, ...]] = []
        while len(taken) < count and (left := len(self._splits) - self._start):
            size = min(self._size, self._most, int(seconds / max(self._seconds, 1e-9)), left // window)
            stop = self._start + max(size, 1)
            taken.append(tuple(self._splits[self._start : stop]))
            self._start = stop
        return taken
