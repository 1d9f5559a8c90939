"""An evaluation as JSON, pictures and one page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.html import page, picture, table
from dkfeat.plot.style import BLUE, GREY, RED, check_plots, draw

MOST_CLASSES = 30
"""Classes beyond which pictures of them all say nothing."""
TABLE_ROWS = 200
CELLS_SHOWN = 20


def write_report(
    facts: Mapping[str, Any],
    folder: str | PathLike[str],
    title: str,
    *,
    confusion: Sequence[tuple[int, int, int]],
    sample: NDArray[np.float64],
) -> None:
    """Write ``evaluation.json``, ``evaluation.html`` and pictures into a folder, which is made if missing.

    Parameters
    ----------
    facts : mapping
        Plain values, as ``Evaluation.to_mapping()`` gives them.
    folder : str or path
    title : str
        Of the page.
    confusion, sample
        As in `Evaluation`.

    Raises
    ------
    dkfeat.errors.ConfigError
        Matplotlib is not installed.
    """
    check_plots()
    pictures = _pictures(facts, confusion, sample)
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    for name, (png, _) in pictures.items():
        (root / f"{name}.png").write_bytes(png)
    parts = [_summary(facts), *(picture(png, what) for png, what in pictures.values())]
    classes = facts["per_class"]
    parts.append(table("Classes", classes[:TABLE_ROWS], _left_out(len(classes), TABLE_ROWS, "classes")))
    wrong = [cell for cell in facts["confusion"] if cell["label"] != cell["prediction"]]
    parts.append(table("Most frequent errors", wrong[:CELLS_SHOWN]))
    (root / "evaluation.html").write_text(page(title, [part for part in parts if part]), encoding="utf-8")
    (root / "evaluation.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _summary(facts: Mapping[str, Any]) -> str:
    figures = {key: value for key, value in facts.items() if isinstance(value, float | int)}
    if not figures["rows_of_unknown_label"]:
        del figures["rows_of_unknown_label"]
    return table("Summary", [{"figure": key.replace("_", " "), "value": value} for key, value in figures.items()])


def _left_out(there: int, shown: int, what: str) -> str:
    return f"The first {shown:,} of {there:,} {what}; evaluation.json has all." if there > shown else ""


def _pictures(
    facts: Mapping[str, Any], confusion: Sequence[tuple[int, int, int]], sample: NDArray[np.float64]
) -> dict[str, tuple[bytes, str]]:
    """PNG and description of each picture, by the name of its file."""
    found: dict[str, tuple[bytes, str]] = {}
    labels = [str(entry["label"]) for entry in facts["per_class"]]
    few = 2 <= len(labels) <= MOST_CLASSES
    of_mean = "" if facts["task"] == "binary" else ", mean over the classes"
    if confusion and few:
        side = 3.6 + 0.24 * len(labels)
        what = "Share of each class's rows by prediction"
        found["confusion"] = draw(lambda axes: _confusion(axes, confusion, labels), side + 1, side), what
    if few and facts["task"] != "binary":
        found["f1"] = (
            draw(lambda axes: _bars(axes, facts["per_class"]), 6, 1.4 + 0.26 * len(labels)),
            "F1 of each class",
        )
    if "roc" in facts["curves"]:
        area = facts.get("auc", facts.get("macro_auc"))
        found["roc"] = draw(lambda axes: _roc(axes, facts["curves"]["roc"], area, of_mean)), f"ROC curve{of_mean}"
        mean = facts.get("average_precision", facts.get("macro_average_precision"))
        points = facts["curves"]["precision_recall"]
        found["precision_recall"] = (
            draw(lambda axes: _precision_recall(axes, points, mean, of_mean)),
            f"Precision by recall{of_mean}",
        )
    if facts["calibration"]:
        is_binary = facts["task"] == "binary"
        found["calibration"] = draw(lambda axes: _calibration(axes, facts["calibration"], is_binary)), "Calibration"
    if len(sample):
        found["predicted"] = draw(lambda axes: _scatter(axes, sample)), "Predictions by labels"
        found["residuals"] = draw(lambda axes: _residuals(axes, sample)), "Errors of predictions"
    return found


def _confusion(axes: Any, confusion: Sequence[tuple[int, int, int]], labels: Sequence[str]) -> None:
    counts = np.zeros((len(labels), len(labels)))
    for own, predicted, rows in confusion:
        counts[own, predicted] = rows
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.figure.colorbar(image, ax=axes, fraction=0.046, label="share of the class's rows")
    ticks = range(len(labels))
    axes.set_xticks(ticks, labels, rotation=90 if len(labels) > 8 else 0)
    axes.set_yticks(ticks, labels)
    axes.grid(visible=False)
    axes.set(xlabel="predicted", ylabel="own label", title="Confusion")
    for own, predicted, rows in confusion if len(labels) <= 12 else ():
        color = "white" if shares[own, predicted] > 0.5 else "#1c1e21"
        size = 10 if len(labels) <= 5 else 7
        axes.text(predicted, own, f"{rows:,}", ha="center", va="center", color=color, fontsize=size)


def _bars(axes: Any, classes: Sequence[Mapping[str, Any]]) -> None:
    places = range(len(classes))
    axes.barh(places, [entry["f1"] for entry in classes], color=BLUE, height=0.7)
    axes.set_yticks(places, [str(entry["label"]) for entry in classes])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(0, 1), xlabel="F1", ylabel="class", title="F1 of each class")


def _roc(axes: Any, points: Sequence[Sequence[float]], area: float, of_mean: str) -> None:
    false, true = points
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="chance")
    axes.plot([0, *false], [0, *true], color=BLUE, linewidth=2, label=f"area {area:.4f}")
    axes.set(xlim=(-0.01, 1), ylim=(0, 1.01), xlabel="false positive rate", ylabel="true positive rate")
    axes.set_title(f"ROC{of_mean}")
    axes.legend(loc="lower right")


def _precision_recall(axes: Any, points: Sequence[Sequence[float]], area: float, of_mean: str) -> None:
    axes.plot(*points, color=BLUE, linewidth=2, label=f"average precision {area:.4f}")
    axes.set(xlim=(0, 1.01), ylim=(0, 1.01), xlabel="recall", ylabel="precision")
    axes.set_title(f"Precision and recall{of_mean}")
    axes.legend(loc="lower left")


def _calibration(axes: Any, bins: Sequence[Sequence[float]], is_binary: bool) -> None:
    expected, true, rows = np.array(bins, dtype=float).T
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="perfect")
    axes.plot(expected, true, color=BLUE, linewidth=1.2)
    axes.scatter(expected, true, s=15 + 150 * rows / rows.max(), color=BLUE, label="area of a dot: its rows", zorder=3)
    what = "the second class" if is_binary else "the predicted class"
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel=f"mean probability of {what}", ylabel="share that came true")
    axes.set_title("Calibration")
    axes.legend(loc="upper left")


def _scatter(axes: Any, sample: NDArray[np.float64]) -> None:
    low, high = float(sample.min()), float(sample.max())
    axes.plot([low, high], [low, high], color=RED, linewidth=1.2, label="equal")
    axes.scatter(sample[:, 0], sample[:, 1], s=8, alpha=0.35, color=BLUE, linewidths=0)
    axes.set(xlabel="label", ylabel="prediction", title=f"{len(sample):,} rows drawn at random")
    axes.legend(loc="upper left")


def _residuals(axes: Any, sample: NDArray[np.float64]) -> None:
    axes.hist(sample[:, 1] - sample[:, 0], bins=40, color=BLUE)
    axes.axvline(0, color=RED, linewidth=1.2)
    axes.set(xlabel="prediction - label", ylabel="rows", title="Errors")
