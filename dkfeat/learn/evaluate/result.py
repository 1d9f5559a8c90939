"""Results of an evaluation: scores computed from counts by scikit-learn's metrics, and their report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    PrecisionRecallDisplay,
    PredictionErrorDisplay,
    RocCurveDisplay,
    accuracy_score,
    average_precision_score,
    precision_recall_curve,
    precision_recall_fscore_support,
    roc_auc_score,
    roc_curve,
)

from dkfeat.errors import InputError
from dkfeat.html import page, picture, table
from dkfeat.learn.evaluate.accumulators import (
    Accumulator,
    Curves,
    LabelAccumulator,
    ListAccumulator,
    NumberAccumulator,
)
from dkfeat.plot.style import check_plots, draw
from dkfeat.store.outputs import check_folder, write_output

CURVE_POINTS = 513
LARGEST_CELLS = 50
MOST_CLASSES = 30
"""Maximum number of classes in plots of all classes."""
TABLE_ROWS = 200
CELLS_SHOWN = 20
RATES = ("precision", "recall", "f1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of a comparison of predictions with labels, made by `dkfeat.evaluate`."""

    task: str
    """Task of the model: "binary", "multiclass", "multilabel" or "regression"."""
    n_rows: int
    """Number of rows compared, without rows of unknown label."""
    n_unknown: int = 0
    """Number of rows left out because their label is not among the model's classes."""
    summary: Mapping[str, float] = field(default_factory=dict)
    """Scores by name: accuracy, macro and weighted averages, areas under curves; for regression rmse, mae and r2. Macro
    averages of precision, recall and F1 are over the classes that occur among the labels or the predictions."""
    per_class: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    """For each class: label, precision, recall, f1, support and, if there are curves, auc and average_precision; None
    if a value is not defined."""
    confusion: Sequence[tuple[int, int, int]] = field(default=(), repr=False)
    """Indices of the true and the predicted label in the classes, and number of rows; largest first."""
    curves: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """``roc`` (false and true positive rate) and ``precision_recall`` (recall and precision), as two lists each; for
    two classes the curves of the second class, else the mean over the classes."""
    calibration: Sequence[tuple[float, float, int]] = field(default=(), repr=False)
    """For each bin of probabilities that has rows: mean probability, share of positive rows, number of rows."""
    sample: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 2)), repr=False, compare=False)
    """For regression: labels and predictions of randomly drawn rows."""

    def to_mapping(self) -> dict[str, Any]:
        """Convert to plain JSON values, without the sample; the confusion has labels and only its largest cells."""
        labels = [entry["label"] for entry in self.per_class]
        cells = [
            {"label": labels[actual], "prediction": labels[predicted], "rows": rows}
            for actual, predicted, rows in self.confusion[:LARGEST_CELLS]
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

    def save(self, folder: str | PathLike[str], title: str = "Evaluation", *, overwrite: bool = False) -> None:
        """Write ``evaluation.json``, plots as PNG, and ``evaluation.html``, one page that contains all of them.

        The files of an earlier evaluation are replaced. Equal evaluations give equal files with the same version of
        matplotlib.

        Parameters
        ----------
        folder : str or path
            Folder on this machine, outside of data sets and models.
        title : str, default="Evaluation"
            Title of the page.
        overwrite : bool, default=False
            Replace also files of these names that do not belong to an earlier evaluation.

        Raises
        ------
        dkfeat.errors.ConfigError
            If matplotlib (the extra ``plot``) is not installed, if a file may not be replaced, or if the folder is a
            data set or a model, or in one.
        """
        root = check_report_folder(folder, overwrite=overwrite)
        pictures = _pictures(self)
        for name, (png, _) in pictures.items():
            write_output(root / f"{name}.png", png)
        facts = self.to_mapping()
        figures = {name: value for name, value in facts.items() if isinstance(value, float | int)}
        if not self.n_unknown:
            del figures["rows_of_unknown_label"]
        n_classes = len(self.per_class)
        note = f"The first {TABLE_ROWS} of {n_classes:,} classes; evaluation.json has all."
        wrong = [cell for cell in facts["confusion"] if cell["label"] != cell["prediction"]]
        parts = [
            table("Summary", [{"figure": name.replace("_", " "), "value": value} for name, value in figures.items()]),
            *(picture(png, what) for png, what in pictures.values()),
            table("Classes", facts["per_class"][:TABLE_ROWS], note if n_classes > TABLE_ROWS else ""),
            table("Most frequent errors", wrong[:CELLS_SHOWN]),
        ]
        write_output(root / "evaluation.html", page(title, [part for part in parts if part]))
        write_output(root / "evaluation.json", json.dumps(facts, indent=1, sort_keys=True) + "\n")


_PICTURES = ("confusion", "roc", "precision_recall", "calibration", "predicted", "residuals")
_FILES = ("evaluation.html", "evaluation.json", *(f"{name}.png" for name in _PICTURES))


def check_report_folder(folder: str | PathLike[str], *, inputs: Sequence[str] = (), overwrite: bool = False) -> Path:
    """Check, before an evaluation, that `Evaluation.save` can write into a folder, and return its path.

    Raises
    ------
    ConfigError
        As from `Evaluation.save`, and if a file is among the `inputs`.
    """
    check_plots()
    return check_folder(folder, _FILES, inputs=inputs, overwrite=overwrite)


def evaluation_of(counts: Accumulator) -> Evaluation:
    """Compute the scores of an accumulator.

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
    if isinstance(counts, LabelAccumulator):
        return _of_labels(counts)
    assert isinstance(counts, ListAccumulator)
    return _of_lists(counts)


def _of_numbers(counts: NumberAccumulator) -> Evaluation:
    summary = {"rmse": (counts.squared / counts.n_rows) ** 0.5, "mae": counts.absolute / counts.n_rows}
    if counts.labels.squared_deviations > 0:
        summary["r2"] = 1 - counts.squared / counts.labels.squared_deviations
    return Evaluation(task=counts.task, n_rows=counts.n_rows, summary=summary, sample=counts.sample[:, 1:])


def _of_labels(counts: LabelAccumulator) -> Evaluation:
    cells = np.array([(*cell, rows) for cell, rows in sorted(counts.cells.items())], np.int64)
    actual, predicted, rows = cells.T
    n_rows = int(rows.sum())
    positions = range(len(counts.classes))
    rates = precision_recall_fscore_support(actual, predicted, labels=positions, sample_weight=rows, zero_division=0)
    summary = {
        "accuracy": float(accuracy_score(actual, predicted, sample_weight=rows)),
        "balanced_accuracy": float(np.mean(rates[1][rates[3] > 0])),
    }
    losses = {}
    calibration: list[tuple[float, float, int]] = []
    if not counts.n_without_probabilities:
        bins = zip(*counts.calibration, strict=True)
        calibration = [(float(p / n), float(t / n), int(n)) for n, p, t in bins if n]
        losses["log_loss"] = counts.log_loss / n_rows
        if counts.task == "binary":
            losses["brier"] = counts.brier / n_rows
        losses["calibration_error"] = sum(n * abs(p - t) for p, t, n in calibration) / n_rows
    largest = cells[np.argsort(-rows, kind="stable")]
    confusion = tuple((int(a), int(b), int(n)) for a, b, n in largest)
    occurring = np.union1d(actual, predicted)  # macro averages leave other classes out, as in scikit-learn
    facts = {"confusion": confusion, "calibration": tuple(calibration)}
    return _of_classes(counts, rates, summary, losses, occurring, **facts)


def _of_lists(counts: ListAccumulator) -> Evaluation:
    by_class = counts.counts.astype(np.float64)
    micro = zip(RATES, _rates(by_class.sum(axis=1, keepdims=True)), strict=False)
    summary = {"accuracy": counts.n_right / (counts.n_rows - counts.n_unknown)}
    summary |= {f"micro_{name}": float(value[0]) for name, value in micro}
    return _of_classes(counts, _rates(by_class), summary, {})


def _rates(counts: NDArray[np.float64]) -> Sequence[NDArray[np.float64]]:
    """Compute precision, recall, F1 and support; 0 if not defined, as in scikit-learn with ``zero_division=0``."""
    both, extra, missed = counts
    quotients = [(both, both + extra), (both, both + missed), (2 * both, 2 * both + extra + missed)]
    return [*(np.divide(a, b, out=np.zeros_like(a), where=b > 0) for a, b in quotients), both + missed]


def _of_classes(
    counts: LabelAccumulator | ListAccumulator,
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
    rows = zip(counts.classes.tolist(), *(values.tolist() for values in rates[:3]), map(int, rates[3]), strict=True)
    per_class = [dict(zip(("label", *RATES, "support"), row, strict=True)) for row in rows]
    curves, areas = _curves(counts.curves, per_class, is_binary=counts.task == "binary")
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
    curves: Curves, per_class: list[dict[str, Any]], *, is_binary: bool
) -> tuple[dict[str, Any], dict[str, float]]:
    """Compute curves and the areas under them; the areas of each class are added to `per_class`."""
    areas, rates, precisions = [], [], []
    grid = np.linspace(0, 1, CURVE_POINTS)
    for entry, bins in zip(per_class[1:] if is_binary else per_class, curves.bins, strict=False):
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


def _pictures(found: Evaluation) -> dict[str, tuple[bytes, str]]:
    """Draw the plots: PNG and description of each, by the name of its file."""
    pictures: dict[str, tuple[bytes, str]] = {}

    def add(name: str, title: str, display: Any, size: tuple[float, float] = (6.0, 4.2), **options: Any) -> None:
        def paint(axes: Any) -> None:
            display.plot(ax=axes, **options)
            axes.set_title(title)

        pictures[name] = draw(paint, *size), title

    labels = [str(entry["label"]) for entry in found.per_class]
    of_mean, prefix = ("", "") if found.task == "binary" else (", mean over the classes", "macro_")
    if found.confusion and 2 <= len(labels) <= MOST_CLASSES:
        counts = np.zeros((len(labels), len(labels)))
        for actual, predicted, rows in found.confusion:
            counts[actual, predicted] = rows
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        side, turn = 3.6 + 0.24 * len(labels), "vertical" if len(labels) > 8 else "horizontal"
        options = {
            "cmap": "Blues",
            "xticks_rotation": turn,
            "include_values": len(labels) <= 12,
            "values_format": ".2f",
        }
        display = ConfusionMatrixDisplay(shares, display_labels=labels)
        add("confusion", "Share of each class's rows by prediction", display, (side + 1, side), **options)
    if found.curves:
        false, true = map(np.asarray, found.curves["roc"])
        display = RocCurveDisplay(fpr=false, tpr=true, roc_auc=found.summary[f"{prefix}auc"])
        add("roc", f"ROC curve{of_mean}", display, plot_chance_level=True)
        recall, precision = map(np.asarray, found.curves["precision_recall"])
        mean = found.summary[f"{prefix}average_precision"]
        display = PrecisionRecallDisplay(precision, recall, average_precision=mean)
        add("precision_recall", f"Precision by recall{of_mean}", display)
    if found.calibration:
        expected, true, _ = np.array(found.calibration, dtype=float).T
        add("calibration", "Calibration", CalibrationDisplay(true, expected, expected))
    if len(found.sample):
        display = PredictionErrorDisplay(y_true=found.sample[:, 0], y_pred=found.sample[:, 1])
        add("predicted", "Predictions by labels", display, kind="actual_vs_predicted")
        add("residuals", "Errors of predictions", display, kind="residual_vs_predicted")
    return pictures
