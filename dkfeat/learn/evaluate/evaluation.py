"""Result of an evaluation, and its report: plots and one page."""

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
from sklearn.metrics import ConfusionMatrixDisplay, PrecisionRecallDisplay, PredictionErrorDisplay, RocCurveDisplay

from dkfeat.html import render
from dkfeat.learn.explanation import Explanation
from dkfeat.plot import DARK, LIGHT, ExplanationDisplay, check_plots, draw, style_of
from dkfeat.store.outputs import check_folder, write_output

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
    explanation: Explanation | str = field(default="", repr=False, compare=False)
    """Explanation of the first rows, at most 1,000; or the reason why there is none."""

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
        for name, ((light, _), _) in pictures.items():
            write_output(root / f"{name}.png", light)
        facts = self.to_mapping()
        page = render(
            "evaluation.html",
            title=title,
            found=self,
            pictures=pictures,
            most_classes=TABLE_ROWS,
            errors=[cell for cell in facts["confusion"] if cell["label"] != cell["prediction"]][:CELLS_SHOWN],
        )
        write_output(root / "evaluation.html", page)
        write_output(root / "evaluation.json", json.dumps(facts, indent=1, sort_keys=True) + "\n")


_PICTURES = ("explanation", "confusion", "roc", "precision_recall", "calibration", "predicted", "residuals")
_FILES = ("evaluation.html", "evaluation.json", *(f"{name}.png" for name in _PICTURES))


def check_report_folder(folder: str | PathLike[str], *, inputs: Sequence[str] = (), overwrite: bool = False) -> Path:
    """Check, before an evaluation, that `Evaluation.save` can write into a folder, and return its path.

    Raises
    ------
    ConfigError
        As from `Evaluation.save`, and if a file is among the `inputs`.
    """
    check_plots()
    return check_folder(folder, _FILES, kind="an evaluation", inputs=inputs, overwrite=overwrite)


def _pictures(found: Evaluation) -> dict[str, tuple[list[bytes], str]]:
    """Draw the plots: PNG for light and for dark pages, and description of each, by the name of its file."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex
    from matplotlib.ticker import AutoLocator

    pictures: dict[str, tuple[list[bytes], str]] = {}

    def add(name: str, title: str, display: Any, size: tuple[float, float] = (6.0, 4.2), **options: Any) -> None:
        def paint(axes: Any) -> None:
            style = style_of(axes)
            if name == "confusion":
                options["cmap"] = LinearSegmentedColormap.from_list(name, [style.paper, style.colors[0]])
            display.plot(ax=axes, **options)
            axes.set_title(title)
            axes.grid(visible=name != "confusion")
            if name == "predicted":
                axes.xaxis.set_major_locator(AutoLocator())
                axes.yaxis.set_major_locator(AutoLocator())
            for line in axes.lines:
                if to_hex(line.get_color()) == "#000000":  # reference lines of scikit-learn
                    line.set_color(style.muted)
            if axes.get_legend():
                axes.legend()

        pictures[name] = [draw(paint, *size, style=style) for style in (LIGHT, DARK)], title

    labels = [str(entry["label"]) for entry in found.per_class]
    of_mean, prefix = ("", "") if found.task == "binary" else (", mean over the classes", "macro_")
    if found.confusion and 2 <= len(labels) <= MOST_CLASSES:
        counts = np.zeros((len(labels), len(labels)))
        for actual, predicted, rows in found.confusion:
            counts[actual, predicted] = rows
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        side, turn = 3.2 + 0.2 * len(labels), "vertical" if len(labels) > 8 else "horizontal"
        options = {
            "xticks_rotation": turn,
            "colorbar": len(labels) > 12,
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
        dots: Any = {"scatter_kwargs": {"color": "C0", "alpha": 0.25, "s": 10, "linewidths": 0}}
        add("predicted", "Predictions by labels", display, kind="actual_vs_predicted", **dots)
        add("residuals", "Errors of predictions", display, kind="residual_vs_predicted", **dots)
    if not isinstance(explanation := found.explanation, str):

        def paint_bars(axes: Any) -> None:
            ExplanationDisplay.from_explanation(explanation, n_columns=CELLS_SHOWN, ax=axes)

        height = 1.0 + 0.26 * min(len(explanation.columns), CELLS_SHOWN)
        drawn = [draw(paint_bars, height=height, style=style) for style in (LIGHT, DARK)]
        pictures["explanation"] = drawn, "Importances of columns"
    return pictures
