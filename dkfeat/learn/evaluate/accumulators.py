"""Counts of an evaluation in bounded memory: score histograms for curves, confusion, calibration and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dkfeat.learn.score import Moments

if TYPE_CHECKING:
    from dkfeat.learn.model import LinearModel


_SIGN = np.uint32(1 << 31)


class ScoreBins:
    """Histogram of scores, with counts of positive and negative rows.

    Scores are exact while they have at most `most` different values. If there are more, the lowest bit of all scores is
    dropped, repeatedly, so that neighbouring bins merge until they are few enough. The result depends on the scores
    only, not on their order or batches.

    Parameters
    ----------
    most : int
        Maximum number of bins, at least 2.

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
        """Number of positive rows in each bin."""
        self.negative = np.empty(0, np.int64)
        """Number of negative rows in each bin."""

    def add(self, scores: NDArray[np.float32], positive: NDArray[np.bool_]) -> None:
        """Count rows with finite scores; both arrays have shape (n_rows,)."""
        bits = (scores.astype(np.float32) + np.float32(0)).view(np.uint32)  # -0.0 becomes 0.0
        keys = np.where(bits & _SIGN, ~bits, bits | _SIGN) >> np.uint32(self._shift)  # in the order of the numbers
        self._join(keys, positive.astype(np.int64), (~positive).astype(np.int64))

    def merge(self, other: ScoreBins) -> None:
        """Add the counts of another histogram with the same `most`."""
        shift = max(self._shift, other._shift)
        self._keys = self._keys >> np.uint32(shift - self._shift)
        self._shift = shift
        self._join(other._keys >> np.uint32(shift - other._shift), other.positive, other.negative)

    def _join(self, keys: NDArray[Any], positive: NDArray[np.int64], negative: NDArray[np.int64]) -> None:
        keys = np.concatenate([self._keys, keys])
        positive, negative = np.concatenate([self.positive, positive]), np.concatenate([self.negative, negative])
        while True:
            found, bins = np.unique(keys, return_inverse=True)
            if len(found) <= self._most:
                break
            keys >>= np.uint32(1)
            self._shift += 1
        self._keys = found
        # sums of float64 are exact below 2**53 rows
        self.positive, self.negative = (
            np.bincount(bins, counts, len(found)).astype(np.int64) for counts in (positive, negative)
        )

    @property
    def scores(self) -> NDArray[np.float32]:
        """Score of each bin, ascending: exact, or the middle of its range."""
        half = (1 << self._shift) >> 1
        keys = (self._keys << np.uint32(self._shift)) | np.uint32(half)
        bits = np.where(keys & _SIGN, keys ^ _SIGN, ~keys)
        return bits.astype(np.uint32).view(np.float32)

    @property
    def is_exact(self) -> bool:
        """True if no different scores were merged."""
        return self._shift == 0

    @property
    def auc_error(self) -> float:
        """Bound on the error of the area under the ROC curve computed from the bins; 0 if the bins are exact."""
        pairs = float(self.positive.sum()) * float(self.negative.sum())
        if self.is_exact or not pairs:
            return 0.0
        return float((self.positive.astype(float) * self.negative).sum()) / 2 / pairs


CALIBRATION_BINS = 10
MOST_CURVES = 256
"""Maximum number of classes with curves."""
ALL_BINS, MOST_BINS = 1 << 19, 1 << 16
"""Maximum number of score bins of all classes together, and of one class."""
SAMPLED = 5_000
"""Number of rows of a regression that are kept for its plots."""


class Curves:
    """Score histograms of each class against the rest; none beyond `MOST_CURVES` classes or without scores."""

    def __init__(self, n_outputs: int) -> None:
        few = n_outputs <= MOST_CURVES
        self.bins = [ScoreBins(min(MOST_BINS, ALL_BINS // n_outputs)) for _ in range(n_outputs if few else 0)]

    def add(self, scores: NDArray[np.float32] | None, is_positive: Callable[[int], NDArray[np.bool_]]) -> None:
        """Count rows by scores of shape (n_rows, n_outputs); `is_positive` selects the positive rows of an output."""
        if scores is None:
            self.bins = []
        for output, bins in enumerate(self.bins):
            bins.add(scores[:, output], is_positive(output))  # type: ignore[index]  # there are scores

    def __iadd__(self, other: Curves) -> Self:
        """Add the counts of other rows."""
        if len(self.bins) != len(other.bins):
            self.bins = []
        for ours, theirs in zip(self.bins, other.bins, strict=False):
            ours.merge(theirs)
        return self


class Batch(NamedTuple):
    """Rows to count."""

    y: Any
    """Labels; for lists of labels an indicator matrix."""
    predicted: Any
    """Predictions, in the same form as `y`."""
    scores: NDArray[np.float32] | None = None
    """Scores as ``decision_function`` returns them, if they are available."""
    probabilities: NDArray[np.float64] | None = None
    """Probabilities as ``predict_proba`` returns them, if the model has them."""
    seed: Any = 0
    """Seed of the sample; equal seeds draw equal rows."""


class Accumulator:
    """Counts of rows, which can be sent between processes and merged.

    Parameters
    ----------
    model : LinearModel
        Model whose predictions are counted.
    """

    sums: tuple[str, ...] = ()
    """Attributes that are added when counts are merged."""

    def __init__(self, model: LinearModel) -> None:
        self.task, self.classes = model.task, model.classes  # not the model, which is large
        self.n_rows = self.n_unknown = 0
        self.curves = Curves(model.coef.shape[0])

    def add(self, batch: Batch) -> None:
        """Count rows."""
        raise NotImplementedError

    def merge(self, other: Accumulator) -> None:
        """Add the counts of other rows."""
        for name in ("n_rows", "n_unknown", "curves", *self.sums):
            total = getattr(self, name)
            total += getattr(other, name)
            setattr(self, name, total)


class LabelAccumulator(Accumulator):
    """Counts of rows with one label each."""

    sums = ("cells", "n_without_probabilities", "calibration", "log_loss", "brier")

    def __init__(self, model: LinearModel) -> None:
        super().__init__(model)
        self.cells: Counter[tuple[int, int]] = Counter()
        """Number of rows by indices of the true and the predicted label in the classes."""
        self.n_without_probabilities = 0
        """Number of batches without probabilities."""
        self.calibration = np.zeros((3, CALIBRATION_BINS))
        """For each bin of probabilities: number of rows, sum of probabilities, and number of rows that are positive."""
        self.log_loss = self.brier = 0.0
        """Sums over rows."""

    def add(self, batch: Batch) -> None:
        """Count rows; rows whose label is not among the classes are left out."""
        classes = self.classes
        actual = np.minimum(np.searchsorted(classes, batch.y), len(classes) - 1)
        known = classes[actual] == batch.y
        self.n_rows += len(known)
        self.n_unknown += int(np.count_nonzero(~known))
        actual, predicted = actual[known], np.searchsorted(classes, batch.predicted[known])
        cells, counts = np.unique(actual * len(classes) + predicted, return_counts=True)
        self.cells.update(
            {divmod(cell, len(classes)): n for cell, n in zip(cells.tolist(), counts.tolist(), strict=True)}
        )
        scores = batch.scores
        if scores is not None:
            scores = scores[known] if scores.ndim == 2 else scores[known, None]
        second = self.task == "binary"  # the only score is that of the second class
        self.curves.add(scores, lambda output: actual == output + second)
        if batch.probabilities is None:
            self.n_without_probabilities += 1
        elif len(actual):
            self._calibrate(actual, predicted, batch.probabilities[known])

    def _calibrate(self, actual: NDArray[Any], predicted: NDArray[Any], probabilities: NDArray[np.float64]) -> None:
        of_actual = probabilities[np.arange(len(actual)), actual]
        self.log_loss -= float(np.log(np.maximum(of_actual, np.finfo(np.float64).tiny)).sum())
        if self.task == "binary":
            expected, true = probabilities[:, 1], actual == 1
            self.brier += float(np.square(expected - true).sum())
        else:
            expected, true = probabilities[np.arange(len(actual)), predicted], actual == predicted
        bins = np.minimum((expected * CALIBRATION_BINS).astype(np.intp), CALIBRATION_BINS - 1)
        for row, weights in enumerate((None, expected, true)):
            self.calibration[row] += np.bincount(bins, weights, CALIBRATION_BINS)


class ListAccumulator(Accumulator):
    """Counts of rows with lists of labels."""

    sums = ("n_right", "counts")

    def __init__(self, model: LinearModel) -> None:
        super().__init__(model)
        self.n_right = 0
        self.counts = np.zeros((3, len(model.classes)), np.int64)
        """For each class: number of true positives, false positives and false negatives."""

    def add(self, batch: Batch) -> None:
        """Count rows; rows with labels beyond the classes, counted in a last column of `y`, are left out."""
        y, width = batch.y, len(self.classes)
        known = np.asarray(y[:, width:].sum(axis=1)).ravel() == 0
        actual, predicted = y[known, :width] != 0, batch.predicted[known] != 0
        self.n_rows += len(known)
        self.n_unknown += len(known) - actual.shape[0]
        self.n_right += int(np.count_nonzero(np.asarray((actual != predicted).sum(axis=1)).ravel() == 0))
        both, actual_sums, predicted_sums = (
            np.asarray(each.sum(axis=0)).ravel() for each in (actual.multiply(predicted), actual, predicted)
        )
        self.counts += np.stack([both, predicted_sums - both, actual_sums - both]).astype(np.int64)
        columns = actual.tocsc()
        scores = None if batch.scores is None else batch.scores[known]
        self.curves.add(scores, lambda output: columns[:, [output]].toarray().ravel())


class NumberAccumulator(Accumulator):
    """Counts and errors of rows whose label is a number."""

    sums = ("absolute", "squared", "labels")

    def __init__(self, model: LinearModel) -> None:
        super().__init__(model)
        self.absolute = self.squared = 0.0
        """Sums of absolute and of squared errors."""
        self.labels = Moments()
        self.sample = np.empty((0, 3))
        """Randomly drawn rows: priority, label, prediction."""

    def add(self, batch: Batch) -> None:
        """Count rows."""
        actual, predicted = batch.y.astype(np.float64), batch.predicted.astype(np.float64)
        self.n_rows += len(actual)
        self.absolute += float(np.abs(actual - predicted).sum())
        self.squared += float(np.square(actual - predicted).sum())
        self.labels.add(actual)
        priority = np.random.default_rng(batch.seed).random(len(actual))
        self._draw(np.column_stack([priority, actual, predicted]))

    def merge(self, other: Accumulator) -> None:
        """Add the counts of other rows."""
        super().merge(other)
        self._draw(other.sample)  # type: ignore[attr-defined]  # of the same class

    def _draw(self, rows: NDArray[np.float64]) -> None:
        both = np.concatenate([self.sample, rows])
        self.sample = both[np.argsort(both[:, 0], kind="stable")[:SAMPLED]]


def accumulator_for(model: LinearModel) -> Accumulator:
    """Return an empty accumulator for the task of a model."""
    kinds: dict[str, type[Accumulator]] = {"multilabel": ListAccumulator, "regression": NumberAccumulator}
    return kinds.get(model.task, LabelAccumulator)(model)
