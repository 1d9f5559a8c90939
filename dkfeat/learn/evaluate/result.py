"""Results of an evaluation, computed from counts by scikit-learn's metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    precision_recall_curve,
    precision_recall_fscore_support,
    roc_auc_score,
    roc_curve,
)

from dkfeat.errors import InputError
from dkfeat.learn.evaluate.accumulators import (
    Accumulator,
    Curves,
    LabelAccumulator,
    ListAccumulator,
    NumberAccumulator,
    ScoreBins,
)
from dkfeat.learn.evaluate.report import write_report

CURVE_POINTS = 513
LARGEST_CELLS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of a comparison of predictions with labels, made by `dkfeat.evaluate`."""

    task: str
    """Task of the model: "binary", "multiclass", "multilabel" or "regression"."""
    n_rows: int
    """Number of rows compared, without rows of unknown label."""
    n_unknown: int = 0
    """Number of rows left out because the model does not know their label."""
    summary: Mapping[str, float] = field(default_factory=dict)
    """Figures by name: accuracy, macro and weighted averages, areas under curves; for regression rmse, mae and r2."""
    per_class: Sequence[Mapping[str, Any]] = ()
    """For each class: label, precision, recall, f1, support, and with curves auc and average_precision; None if a value
    is not defined."""
    confusion: Sequence[tuple[int, int, int]] = ()
    """Positions of the true and the predicted label among the classes, and number of rows; largest first."""
    curves: Mapping[str, Any] = field(default_factory=dict)
    """``roc`` (false and true positive rate) and ``precision_recall`` (recall and precision), as two lists each; for
    two classes those of the second class, else the mean over the classes."""
    calibration: Sequence[tuple[float, float, int]] = ()
    """For each bin of probabilities that has rows: mean probability, share of positive rows, number of rows."""
    sample: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 2)), repr=False, compare=False)
    """For regression: labels and predictions of randomly drawn rows."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values, without the sample; the confusion with labels and only its largest cells."""
        labels = [entry["label"] for entry in self.per_class]
        cells = [
            {"label": labels[own], "prediction": labels[found], "rows": rows}
            for own, found, rows in self.confusion[:LARGEST_CELLS]
        ]
        return {
            "task": self.task,
            "rows": self.n_rows,
            "rows_of_unknown_label": self.n_unknown,
            **self.summary,
            "per_class": [dict(entry) for entry in self.per_class],
            "confusion": cells,
            "curves": dict(self.curves),
            "calibration": [list(entry) for entry in self.calibration],
        }

    def save(self, folder: str | PathLike[str], title: str = "Evaluation") -> None:
        """Write ``evaluation.json``, plots as PNG, and ``evaluation.html``, one page that contains all of them.

        Existing files of these names are replaced. Equal evaluations give equal files with the same version of
        matplotlib.

        Raises
        ------
        dkfeat.errors.ConfigError
            If matplotlib (the extra ``plot``) is not installed.
        """
        write_report(self.to_mapping(), folder, title, confusion=self.confusion, sample=self.sample)


def evaluation_of(counts: Accumulator) -> Evaluation:
    """Compute the figures of an accumulator.

    Raises
    ------
    InputError
        If it counted no rows.
    """
    unknown = counts.n_unknown
    if counts.n_rows == unknown:
        message = "there are no rows to evaluate"
        if unknown:
            message = f"the model knows the label of none of the {unknown:,} rows"
        raise InputError(message)
    if isinstance(counts, NumberAccumulator):
        return _of_numbers(counts)
    return _of_labels(counts) if isinstance(counts, LabelAccumulator) else _of_lists(counts)


def _of_numbers(counts: NumberAccumulator) -> Evaluation:
    summary = {"rmse": (counts.squared / counts.n_rows) ** 0.5, "mae": counts.absolute / counts.n_rows}
    if counts.labels.spread > 0:
        summary["r2"] = 1 - counts.squared / counts.labels.spread
    return Evaluation(task=counts.task, n_rows=counts.n_rows, summary=summary, sample=counts.sample[:, 1:])


def _of_labels(counts: LabelAccumulator) -> Evaluation:
    cells = np.array([(*cell, rows) for cell, rows in sorted(counts.cells.items())], np.int64)
    own, found, rows = cells.T
    n_rows = int(rows.sum())
    names = range(len(counts.classes))
    each = precision_recall_fscore_support(own, found, labels=names, sample_weight=rows, zero_division=0)
    summary = {
        "accuracy": float(accuracy_score(own, found, sample_weight=rows)),
        "balanced_accuracy": float(np.mean(each[1][each[3] > 0])),
        **_averages(each),
    }
    per_class = _per_class(counts.classes, each)
    curves, areas = _curves(counts.curves, per_class, two=counts.task == "binary")
    calibration: list[tuple[float, float, int]] = []
    if counts.has_probabilities:
        bins = zip(*counts.calibration, strict=True)
        calibration = [(float(p / n), float(t / n), int(n)) for n, p, t in bins if n]
        summary["log_loss"] = counts.log_loss / n_rows
        if counts.task == "binary":
            summary["brier"] = counts.brier / n_rows
        summary["calibration_error"] = sum(n * abs(p - t) for p, t, n in calibration) / n_rows
    order = np.argsort(-rows, kind="stable")
    return Evaluation(
        task=counts.task,
        n_rows=n_rows,
        n_unknown=counts.n_unknown,
        summary={**summary, **areas},
        per_class=per_class,
        confusion=tuple((int(a), int(b), int(n)) for a, b, n in cells[order]),
        curves=curves,
        calibration=tuple(calibration),
    )


def _of_lists(counts: ListAccumulator) -> Evaluation:
    both, extra, missed = counts.counts.astype(np.float64)
    each = _rates(both, extra, missed)
    all_classes = _rates(*(np.array([count.sum()]) for count in (both, extra, missed)))
    names = ("precision", "recall", "f1")
    n_rows = counts.n_rows - counts.n_unknown
    summary = {"accuracy": counts.n_right / n_rows}
    summary |= {f"micro_{name}": float(value[0]) for name, value in zip(names, all_classes, strict=False)}
    summary |= _averages(each)
    per_class = _per_class(counts.classes, each)
    curves, areas = _curves(counts.curves, per_class, two=False)
    return Evaluation(
        task=counts.task,
        n_rows=n_rows,
        n_unknown=counts.n_unknown,
        summary={**summary, **areas},
        per_class=per_class,
        curves=curves,
    )


def _rates(both: Any, extra: Any, missed: Any) -> tuple[Any, Any, Any, Any]:
    """Precision, recall, F1 and support; 0 if not defined, as in scikit-learn with ``zero_division=0``."""
    quotients = [(both, both + extra), (both, both + missed), (2 * both, 2 * both + extra + missed)]
    found = [np.divide(a, b, out=np.zeros_like(a), where=b > 0) for a, b in quotients]
    return found[0], found[1], found[2], both + missed


def _averages(each: Sequence[Any]) -> dict[str, float]:
    named = dict(zip(("precision", "recall", "f1"), each, strict=False))
    averages = {f"macro_{name}": float(np.mean(values)) for name, values in named.items()}
    if each[3].sum():
        averages["weighted_f1"] = float(np.average(each[2], weights=each[3]))
    return averages


def _per_class(classes: NDArray[Any], each: Sequence[Any]) -> list[dict[str, Any]]:
    rows = zip(classes.tolist(), *(np.asarray(values).tolist() for values in each), strict=True)
    return [{"label": label, "precision": p, "recall": r, "f1": f, "support": int(n)} for label, p, r, f, n in rows]


def _curves(curves: Curves, per_class: list[dict[str, Any]], *, two: bool) -> tuple[dict[str, Any], dict[str, float]]:
    """Curves and the areas under them; the areas of each class are added to `per_class`."""
    shown = per_class[1:] if two else per_class
    areas, rates, precisions = [], [], []
    grid = np.linspace(0, 1, CURVE_POINTS)
    for entry, bins in zip(shown, curves.bins, strict=False):
        entry["auc"] = entry["average_precision"] = None
        if not bins.positive.sum() or not bins.negative.sum():
            continue
        truth, scores, weights = _weighted(bins)
        entry["auc"] = float(roc_auc_score(truth, scores, sample_weight=weights))
        entry["average_precision"] = float(average_precision_score(truth, scores, sample_weight=weights))
        areas.append((entry["auc"], entry["average_precision"], bins.auc_error))
        false, true, _ = roc_curve(truth, scores, sample_weight=weights)
        rates.append(np.interp(grid, false, true))
        precision, recall, _ = precision_recall_curve(truth, scores, sample_weight=weights)
        precisions.append(precision[np.searchsorted(-recall, -grid, side="right") - 1])
    if not areas:
        return {}, {}
    auc, average_precision, error = np.array(areas).T
    names = ("auc", "average_precision") if two else ("macro_auc", "macro_average_precision")
    figures = {names[0]: float(auc.mean()), names[1]: float(average_precision.mean())}
    if error.max() > 0:
        figures["auc_error"] = float(error.max())
    points = {
        "roc": [grid.tolist(), np.mean(rates, axis=0).tolist()],
        "precision_recall": [grid.tolist(), np.mean(precisions, axis=0).tolist()],
    }
    return points, figures


def _weighted(bins: ScoreBins) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Weighted rows that represent the rows of the bins: positive or not, score, weight."""
    scores = bins.scores
    truth = np.repeat([1, 0], len(scores))
    weights = np.concatenate([bins.positive, bins.negative])
    kept = weights > 0
    return truth[kept], np.concatenate([scores, scores])[kept], weights[kept]
