"""How many rows of two kinds have which score, in bounded memory: all that ROC and precision-recall curves need."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ScoreBins"]

_SIGN = np.uint32(1 << 31)


class ScoreBins:
    """Counts of positive and negative rows by score.

    Scores are kept one by one while they take at most `most` different values. Beyond that the lowest bit of all of
    them is dropped, neighbours become one, and so on: bins grow until they are few enough. What comes out depends on
    the scores alone, not on their order or on how they were batched.

    Parameters
    ----------
    most : int
        Bins, at least 2.

    Examples
    --------
    >>> bins = ScoreBins(100)
    >>> bins.add(np.array([0.5, -1.0, 0.5], np.float32), np.array([True, False, False]))
    >>> bins.scores.tolist(), bins.positive.tolist(), bins.negative.tolist()
    ([-1.0, 0.5], [0, 1], [1, 1])
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._shift = 0
        self._keys = np.empty(0, np.uint32)
        self.positive = np.empty(0, np.int64)
        """Positive rows of each bin."""
        self.negative = np.empty(0, np.int64)
        """Negative rows of each bin."""

    def add(self, scores: NDArray[np.float32], positive: NDArray[np.bool_]) -> None:
        """Count rows: their scores, finite, and whether they are positive, both of shape (n_rows,)."""
        bits = (scores.astype(np.float32) + np.float32(0)).view(np.uint32)  # -0.0 becomes 0.0
        keys = np.where(bits & _SIGN, ~bits, bits | _SIGN) >> np.uint32(self._shift)  # in the order of the numbers
        self._join(keys, positive.astype(np.int64), (~positive).astype(np.int64))

    def merge(self, other: ScoreBins) -> None:
        """Count the rows of another one of the same `most` too."""
        shift = max(self._shift, other._shift)
        self._keys = self._keys >> np.uint32(shift - self._shift)
        self._shift = shift
        self._join(other._keys >> np.uint32(shift - other._shift), other.positive, other.negative)

    def _join(self, keys: NDArray[Any], positive: NDArray[np.int64], negative: NDArray[np.int64]) -> None:
        keys = np.concatenate([self._keys, keys])
        positive, negative = np.concatenate([self.positive, positive]), np.concatenate([self.negative, negative])
        while True:
            found, places = np.unique(keys, return_inverse=True)
            if len(found) <= self._most:
                break
            keys >>= np.uint32(1)
            self._shift += 1
        self._keys = found
        self.positive = _sums(places, positive, len(found))
        self.negative = _sums(places, negative, len(found))

    @property
    def scores(self) -> NDArray[np.float32]:
        """Score of each bin, ascending: exact, or the middle of the scores that it stands for."""
        half = (1 << self._shift) >> 1
        keys = (self._keys << np.uint32(self._shift)) | np.uint32(half)
        bits = np.where(keys & _SIGN, keys ^ _SIGN, ~keys)
        return bits.astype(np.uint32).view(np.float32)

    @property
    def is_exact(self) -> bool:
        """Whether no two scores became one."""
        return self._shift == 0

    @property
    def auc_error(self) -> float:
        """Most that the area under the ROC curve of the bins can differ from that of the scores; 0 if exact."""
        pairs = float(self.positive.sum()) * float(self.negative.sum())
        if self.is_exact or not pairs:
            return 0.0
        return float((self.positive.astype(float) * self.negative).sum()) / 2 / pairs


def _sums(places: NDArray[Any], values: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    sums = np.zeros(n, np.int64)
    np.add.at(sums, places, values)
    return sums
