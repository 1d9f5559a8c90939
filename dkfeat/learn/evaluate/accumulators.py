"""Counts of rows by label, prediction and score, which tasks make and the evaluation merges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    precision_recall_curve,
    precision_recall_fscore_support,
    roc_auc_score,
    roc_curve,
)

from dkfeat.learn.evaluate.evaluation import RATES, Evaluation
from dkfeat.learn.model import LinearModel
from dkfeat.learn.scores import Moments

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
    def auc_error(self) -> float:
        """Bound on the error of the area under the ROC curve computed from the bins; 0 if the bins are exact."""
        pairs = float(self.positive.sum()) * float(self.negative.sum())
        if not self._shift or not pairs:
            return 0.0
        return float((self.positive.astype(float) * self.negative).sum()) / 2 / pairs


CALIBRATION_BINS = 10
MOST_CURVES = 256
"""Maximum number of classes with curves."""
ALL_BINS, MOST_BINS = 1 << 19, 1 << 16
"""Maximum number of score bins of all classes together, and of one class."""
CURVE_POINTS = 513
SAMPLED = 5_000
"""Number of rows of a regression that are kept for its plots."""


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
        self.names = model.names
        self.n_rows = self.n_unknown = 0
        n_outputs = len(model.coef)
        self.bins = [
            ScoreBins(min(MOST_BINS, ALL_BINS // n_outputs))
            for _ in range(n_outputs if n_outputs <= MOST_CURVES else 0)
        ]
        """Score histogram of each class against the rest, empty without scores; none beyond `MOST_CURVES` classes."""

    def add(self, y: Any, predicted: Any, scores: Any = None, probabilities: Any = None, *, seed: Any = 0) -> None:
        """Count rows.

        Parameters
        ----------
        y, predicted : ndarray of shape (n_rows,), or for lists of labels indicator matrix
            Labels and predictions.
        scores, probabilities : ndarray or None
            As ``decision_function`` and ``predict_proba`` return them; None if there are none.
        seed : int or sequence of int
            Seed of the sample; equal seeds draw equal rows.
        """
        raise NotImplementedError

    def add_scores(self, scores: Any, is_positive: Callable[[int], NDArray[np.bool_]]) -> None:
        """Count scores of shape (n_rows, n_outputs) or None; `is_positive` selects the positive rows of an output."""
        for output, bins in enumerate(self.bins if scores is not None else ()):
            bins.add(scores[:, output], is_positive(output))

    def merge(self, other: Accumulator) -> None:
        """Add the counts of other rows."""
        for name in ("n_rows", "n_unknown", *self.sums):
            total = getattr(self, name)
            total += getattr(other, name)
            setattr(self, name, total)
        for ours, theirs in zip(self.bins, other.bins, strict=True):
            ours.merge(theirs)

    def evaluation(self) -> Evaluation:
        """Compute the scores of the rows, of which at least one was counted."""
        raise NotImplementedError


class LabelAccumulator(Accumulator):
    """Counts of rows with one label each."""

    sums = ("cells", "calibration", "log_loss", "brier")

    def __init__(self, model: LinearModel) -> None:
        super().__init__(model)
        self.cells = csr_matrix((len(self.classes),) * 2, dtype=np.int64)
        """Number of rows by indices of the true and the predicted label in the classes."""
        self.calibration = np.zeros((3, CALIBRATION_BINS))
        """For each bin of probabilities: number of rows, sum of probabilities, and number of rows that are positive."""
        self.log_loss = self.brier = 0.0
        """Sums over rows."""

    def add(self, y: Any, predicted: Any, scores: Any = None, probabilities: Any = None, *, seed: Any = 0) -> None:  # noqa: ARG002 - as in the base class
        """Count rows; rows whose label is not among the classes are left out."""
        classes = self.classes
        actual = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        known = classes[actual] == y
        self.n_rows += len(known)
        self.n_unknown += int(np.count_nonzero(~known))
        actual, predicted = actual[known], np.searchsorted(classes, predicted[known])
        ones = np.ones(len(actual), np.int64)
        self.cells = self.cells + csr_matrix((ones, (actual, predicted)), shape=self.cells.shape)
        if scores is not None:
            scores = scores[known] if scores.ndim == 2 else scores[known, None]
        second = self.task == "binary"  # the only score is that of the second class
        self.add_scores(scores, lambda output: actual == output + second)
        if probabilities is not None and len(actual):
            self._calibrate(actual, predicted, probabilities[known])

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

    def evaluation(self) -> Evaluation:
        """See `Accumulator.evaluation`."""
        self.cells.sum_duplicates()
        actual, predicted = self.cells.nonzero()
        rows = self.cells.data
        n_rows = int(rows.sum())
        positions = range(len(self.classes))
        rates = precision_recall_fscore_support(
            actual, predicted, labels=positions, sample_weight=rows, zero_division=0
        )
        summary = {
            "accuracy": float(accuracy_score(actual, predicted, sample_weight=rows)),
            "balanced_accuracy": float(np.mean(rates[1][rates[3] > 0])),
        }
        losses = {}
        calibration: list[tuple[float, float, int]] = []
        if self.calibration.any():  # there are probabilities
            bins = zip(*self.calibration, strict=True)
            calibration = [(float(p / n), float(t / n), int(n)) for n, p, t in bins if n]
            losses["log_loss"] = self.log_loss / n_rows
            if self.task == "binary":
                losses["brier"] = self.brier / n_rows
            losses["calibration_error"] = sum(n * abs(p - t) for p, t, n in calibration) / n_rows
        largest = np.argsort(-rows, kind="stable")
        confusion = tuple(zip(*(values[largest].tolist() for values in (actual, predicted, rows)), strict=True))
        occurring = np.union1d(actual, predicted)  # macro averages leave other classes out, as in scikit-learn
        facts = {"confusion": confusion, "calibration": tuple(calibration)}
        return _of_classes(self, rates, summary, losses, occurring, **facts)


class ListAccumulator(Accumulator):
    """Counts of rows with lists of labels."""

    sums = ("n_right", "counts")

    def __init__(self, model: LinearModel) -> None:
        super().__init__(model)
        self.n_right = 0
        self.counts = np.zeros((3, len(model.classes)), np.int64)
        """For each class: number of true positives, false positives and false negatives."""

    def add(self, y: Any, predicted: Any, scores: Any = None, probabilities: Any = None, *, seed: Any = 0) -> None:  # noqa: ARG002 - as in the base class
        """Count rows; rows with labels beyond the classes, counted in a last column of `y`, are left out."""
        width = len(self.classes)
        known = np.asarray(y[:, width:].sum(axis=1)).ravel() == 0
        actual, predicted = y[known, :width] != 0, predicted[known] != 0
        self.n_rows += len(known)
        self.n_unknown += len(known) - actual.shape[0]
        self.n_right += int(np.count_nonzero(np.asarray((actual != predicted).sum(axis=1)).ravel() == 0))
        both, actual_sums, predicted_sums = (
            np.asarray(each.sum(axis=0)).ravel() for each in (actual.multiply(predicted), actual, predicted)
        )
        self.counts += np.stack([both, predicted_sums - both, actual_sums - both]).astype(np.int64)
        columns = actual.tocsc()
        self.add_scores(
            None if scores is None else scores[known], lambda output: columns[:, [output]].toarray().ravel()
        )

    def evaluation(self) -> Evaluation:
        """See `Accumulator.evaluation`."""
        by_class = self.counts.astype(np.float64)
        micro = zip(RATES, _rates(by_class.sum(axis=1, keepdims=True)), strict=False)
        summary = {"accuracy": self.n_right / (self.n_rows - self.n_unknown)}
        summary |= {f"micro_{name}": float(value[0]) for name, value in micro}
        return _of_classes(self, _rates(by_class), summary, {})


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

    def add(self, y: Any, predicted: Any, scores: Any = None, probabilities: Any = None, *, seed: Any = 0) -> None:  # noqa: ARG002 - as in the base class
        """Count rows."""
        actual, predicted = y.astype(np.float64), predicted.astype(np.float64)
        self.n_rows += len(actual)
        self.absolute += float(np.abs(actual - predicted).sum())
        self.squared += float(np.square(actual - predicted).sum())
        self.labels.add(actual)
        priority = np.random.default_rng(seed).random(len(actual))
        self._draw(np.column_stack([priority, actual, predicted]))

    def merge(self, other: Accumulator) -> None:
        """Add the counts of other rows."""
        super().merge(other)
        self._draw(other.sample)  # type: ignore[attr-defined]  # of the same class

    def _draw(self, rows: NDArray[np.float64]) -> None:
        both = np.concatenate([self.sample, rows])
        self.sample = both[np.argsort(both[:, 0], kind="stable")[:SAMPLED]]

    def evaluation(self) -> Evaluation:
        """See `Accumulator.evaluation`."""
        summary = {"rmse": (self.squared / self.n_rows) ** 0.5, "mae": self.absolute / self.n_rows}
        if self.labels.squared_deviations > 0:
            summary["r2"] = 1 - self.squared / self.labels.squared_deviations
        return Evaluation(task=self.task, n_rows=self.n_rows, summary=summary, sample=self.sample[:, 1:])


def accumulator_for(model: LinearModel) -> Accumulator:
    """Return an empty accumulator for the task of a model."""
    kinds: dict[str, type[Accumulator]] = {"multilabel": ListAccumulator, "regression": NumberAccumulator}
    return kinds.get(model.task, LabelAccumulator)(model)


def _rates(counts: NDArray[np.float64]) -> Sequence[NDArray[np.float64]]:
    """Compute precision, recall, F1 and support; 0 if not defined, as in scikit-learn with ``zero_division=0``."""
    both, extra, missed = counts
    quotients = [(both, both + extra), (both, both + missed), (2 * both, 2 * both + extra + missed)]
    return [*(np.divide(a, b, out=np.zeros_like(a), where=b > 0) for a, b in quotients), both + missed]


def _of_classes(
    counts: Accumulator,
    rates: Sequence[NDArray[np.float64]],
    summary: Mapping[str, float],
    losses: Mapping[str, float],
    counted: Any = slice(None),
    **facts: Any,
) -> Evaluation:
    """Make an evaluation from precision, recall, F1 and support of each class, and scores over all rows.

    Macro averages are taken over the classes `counted`.
    """
    averages = {f"macro_{name}": float(np.mean(values[counted])) for name, values in zip(RATES, rates, strict=False)}
    if rates[3].sum():
        averages["weighted_f1"] = float(np.average(rates[2], weights=rates[3]))
    rows = zip(counts.names.tolist(), *(values.tolist() for values in rates[:3]), map(int, rates[3]), strict=True)
    per_class = [dict(zip(("label", *RATES, "support"), row, strict=True)) for row in rows]
    curves, areas = _curves(counts.bins, per_class, is_binary=counts.task == "binary")
    return Evaluation(
        task=counts.task,
        n_rows=counts.n_rows - counts.n_unknown,
        n_unknown=counts.n_unknown,
        summary={**summary, **averages, **losses, **areas},
        per_class=per_class,
        curves=curves,
        **facts,
    )


def _curves(
    all_bins: list[ScoreBins], per_class: list[dict[str, Any]], *, is_binary: bool
) -> tuple[dict[str, Any], dict[str, float]]:
    """Compute curves and the areas under them; the areas of each class are added to `per_class`."""
    areas, rates, precisions = [], [], []
    grid = np.linspace(0, 1, CURVE_POINTS)
    for entry, bins in zip(per_class[1:] if is_binary else per_class, all_bins, strict=False):
        if not len(bins.scores):  # no scores are known
            break
        entry["auc"] = entry["average_precision"] = None
        if not bins.positive.sum() or not bins.negative.sum():
            continue
        # weighted rows that represent the rows of the bins
        weights = np.concatenate([bins.positive, bins.negative])
        kept = weights > 0
        truth, scores = np.repeat([1, 0], len(bins.scores))[kept], np.tile(bins.scores, 2)[kept]
        weighted = {"sample_weight": weights[kept]}
        entry["auc"] = float(roc_auc_score(truth, scores, **weighted))
        entry["average_precision"] = float(average_precision_score(truth, scores, **weighted))
        areas.append((entry["auc"], entry["average_precision"], bins.auc_error))
        false, true, _ = roc_curve(truth, scores, **weighted)
        rates.append(np.interp(grid, false, true))
        precision, recall, _ = precision_recall_curve(truth, scores, **weighted)
        precisions.append(precision[np.searchsorted(-recall, -grid, side="right") - 1])
    if not areas:
        return {}, {}
    auc, average_precision, error = np.array(areas).T
    prefix = "" if is_binary else "macro_"
    figures = {f"{prefix}auc": float(auc.mean()), f"{prefix}average_precision": float(average_precision.mean())}
    if error.max() > 0:
        figures["auc_error"] = float(error.max())
    points = {
        "roc": [grid.tolist(), np.mean(rates, axis=0).tolist()],
        "precision_recall": [grid.tolist(), np.mean(precisions, axis=0).tolist()],
    }
    return points, figures
