"""What evaluation keeps of the rows it has seen: counts that can be added up, of a size that rows do not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.learn.score_bins import ScoreBins

if TYPE_CHECKING:
    from dkfeat.learn.model import LinearModel

__all__ = ["CALIBRATION_BINS", "LabelTally", "ListTally", "NumberTally", "Tally", "tally_for"]

CALIBRATION_BINS = 10
MOST_CURVES = 256
"""With more classes, no curves are made."""
ALL_BINS, MOST_BINS = 1 << 19, 1 << 16
"""Score bins of all classes together, and of one class."""
SAMPLED = 5_000
"""Rows of a regression that are kept for its picture."""


class Curves:
    """Score bins of each class, one against the rest; none beyond `MOST_CURVES` classes or without scores."""

    def __init__(self, n_outputs: int) -> None:
        few = n_outputs <= MOST_CURVES
        self.bins = [ScoreBins(min(MOST_BINS, ALL_BINS // n_outputs)) for _ in range(n_outputs if few else 0)]

    def add(self, scores: NDArray[np.float32] | None, is_positive: Callable[[int], NDArray[np.bool_]]) -> None:
        """Count rows: scores of shape (n_rows, n_outputs), and what tells the positive rows of an output."""
        if scores is None:
            self.bins = []
            return
        for place, bins in enumerate(self.bins):
            bins.add(scores[:, place], is_positive(place))

    def merge(self, other: Curves) -> None:
        """Count the rows of another one too."""
        if len(self.bins) != len(other.bins):
            self.bins = []
        for ours, theirs in zip(self.bins, other.bins, strict=False):
            ours.merge(theirs)


class LabelTally:
    """Rows with one label each."""

    def __init__(self, model: LinearModel) -> None:
        self.task, self.classes = model.task, model.classes  # not the model, for tallies travel
        self.n_rows = self.n_unknown = 0
        self.cells: Counter[tuple[int, int]] = Counter()
        """Rows by the places of their own and their predicted label among the classes."""
        self.curves = Curves(model.coef.shape[0])
        self.has_probabilities = True
        self.calibration = np.zeros((3, CALIBRATION_BINS))
        """Of each bin of probabilities: rows, their sum, and rows for which it came true."""
        self.log_loss = self.brier = 0.0
        """Sums over rows."""

    def add(
        self,
        y: NDArray[Any],
        predicted: NDArray[Any],
        scores: NDArray[np.float32] | None,
        probabilities: NDArray[np.float64] | None,
        seed: Any,  # noqa: ARG002 - as all tallies
    ) -> None:
        """Count rows: their own labels, those predicted, scores and probabilities as the model gives them."""
        classes = self.classes
        own = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        known = classes[own] == y
        self.n_rows += len(y)
        self.n_unknown += int(np.count_nonzero(~known))
        own, found = own[known], np.searchsorted(classes, predicted[known])
        places, counts = np.unique(own * len(classes) + found, return_counts=True)
        self.cells.update({divmod(int(p), len(classes)): int(count) for p, count in zip(places, counts, strict=True)})
        if scores is not None:
            scores = scores[known] if scores.ndim == 2 else scores[known, None]
        second = self.task == "binary"  # whose one score is that of the second class
        self.curves.add(scores, lambda place: own == place + second)
        if probabilities is None:
            self.has_probabilities = False
        elif len(own):
            self._calibrate(own, found, probabilities[known])

    def _calibrate(self, own: NDArray[Any], found: NDArray[Any], probabilities: NDArray[np.float64]) -> None:
        of_own = probabilities[np.arange(len(own)), own]
        self.log_loss -= float(np.log(np.maximum(of_own, np.finfo(np.float64).tiny)).sum())
        if self.task == "binary":
            told, true = probabilities[:, 1], own == 1
            self.brier += float(np.square(told - true).sum())
        else:
            told, true = probabilities[np.arange(len(own)), found], own == found
        bins = np.minimum((told * CALIBRATION_BINS).astype(np.intp), CALIBRATION_BINS - 1)
        for row, weights in enumerate((None, told, true)):
            self.calibration[row] += np.bincount(bins, weights, CALIBRATION_BINS)

    def merge(self, other: LabelTally) -> None:
        """Count the rows of another one too."""
        self.n_rows += other.n_rows
        self.n_unknown += other.n_unknown
        self.cells.update(other.cells)
        self.curves.merge(other.curves)
        self.has_probabilities &= other.has_probabilities
        self.calibration += other.calibration
        self.log_loss += other.log_loss
        self.brier += other.brier


class ListTally:
    """Rows with lists of labels."""

    def __init__(self, model: LinearModel) -> None:
        self.task, self.classes = model.task, model.classes
        self.n_rows = self.n_unknown = self.n_right = 0
        self.counts = np.zeros((3, len(model.classes)), np.int64)
        """Of each class: rows that have it and get it, that get it only, that have it only."""
        self.curves = Curves(model.coef.shape[0])

    def add(
        self,
        y: Any,
        predicted: Any,
        scores: NDArray[np.float32] | None,
        probabilities: Any,  # noqa: ARG002 - as all tallies
        seed: Any,  # noqa: ARG002 - as all tallies
    ) -> None:
        """Count rows: indicator matrices of their own labels and of those predicted, and scores.

        Rows with labels beyond the classes, which `y` then has a last column for, are left out.
        """
        width = len(self.classes)
        known = np.asarray(y[:, width:].sum(axis=1)).ravel() == 0
        own, found = y[known, :width] != 0, predicted[known] != 0  # in the columns alone that have some
        self.n_rows += len(known)
        self.n_unknown += len(known) - own.shape[0]
        self.n_right += int(np.count_nonzero(np.asarray((own != found).sum(axis=1)).ravel() == 0))
        both, mine, theirs = (np.asarray(each.sum(axis=0)).ravel() for each in (own.multiply(found), own, found))
        self.counts += np.stack([both, theirs - both, mine - both]).astype(np.int64)
        columns = own.tocsc()
        scores = None if scores is None else scores[known]
        self.curves.add(scores, lambda place: columns[:, [place]].toarray().ravel())

    def merge(self, other: ListTally) -> None:
        """Count the rows of another one too."""
        self.n_rows += other.n_rows
        self.n_unknown += other.n_unknown
        self.n_right += other.n_right
        self.counts += other.counts
        self.curves.merge(other.curves)


class NumberTally:
    """Rows whose label is a number."""

    def __init__(self, model: LinearModel) -> None:
        self.task = model.task
        self.n_rows = self.n_unknown = 0  # sources refuse labels that are no finite numbers
        self.absolute = self.squared = self.mean = self.spread = 0.0
        """Sums of errors, mean of the labels, and the sum of their squared distances from it."""
        self.sample = np.empty((0, 3))
        """Rows drawn at random: priority, label, prediction."""

    def add(
        self,
        y: NDArray[Any],
        predicted: NDArray[Any],
        scores: Any,  # noqa: ARG002 - as all tallies
        probabilities: Any,  # noqa: ARG002 - as all tallies
        seed: Any,
    ) -> None:
        """Count rows: their own numbers and those predicted; equal seeds draw equal rows."""
        if not len(y):
            return
        own, found = y.astype(np.float64), predicted.astype(np.float64)
        self.absolute += float(np.abs(own - found).sum())
        self.squared += float(np.square(own - found).sum())
        self._join(len(own), float(own.mean()), float(np.square(own - own.mean()).sum()))
        priority = np.random.default_rng(seed).random(len(own))
        self._draw(np.column_stack([priority, own, found]))

    def merge(self, other: NumberTally) -> None:
        """Count the rows of another one too."""
        self.absolute += other.absolute
        self.squared += other.squared
        self._join(other.n_rows, other.mean, other.spread)
        self._draw(other.sample)

    def _join(self, n_rows: int, mean: float, spread: float) -> None:
        """Join squared deviations of two groups of rows (Chan, Golub and LeVeque 1983)."""
        total = self.n_rows + n_rows
        if n_rows:
            self.spread += spread + (mean - self.mean) ** 2 * self.n_rows * n_rows / total
            self.mean += (mean - self.mean) * n_rows / total
        self.n_rows = total

    def _draw(self, rows: NDArray[np.float64]) -> None:
        both = np.concatenate([self.sample, rows])
        self.sample = both[np.argsort(both[:, 0], kind="stable")[:SAMPLED]]


Tally = LabelTally | ListTally | NumberTally


def tally_for(model: LinearModel) -> Tally:
    """Empty tally for the task of a model."""
    kinds: dict[str, type[LabelTally] | type[ListTally] | type[NumberTally]] = {
        "multilabel": ListTally,
        "regression": NumberTally,
    }
    return kinds.get(model.task, LabelTally)(model)
