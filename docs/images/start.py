"""Draws the pictures of docs/getting-started.md from what its programs make.

    python docs/images/start.py

Needs the extra `plot`, and pandas. The same page gives the same files.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
from front import HERE, LOOKS
from matplotlib import pyplot as plt

import dkfeat

INK = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")


def main() -> None:
    """Draw all pictures."""
    page = (HERE.parent / "getting-started.md").read_text(encoding="utf-8")
    table, training = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[:2]
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(table + training, names)
    found = dkfeat.explain(names["model"], names["rows"][3000:])
    for look, colors in LOOKS.items():
        style = {"svg.fonttype": "none", "svg.hashsalt": "dkfeat", "font.family": "sans-serif", "font.size": 10}
        with mpl.rc_context({**style, **dict.fromkeys(INK, colors["text"])}):
            save(draw_orders(names["orders"], colors), HERE / f"orders-{look}.svg")
            save(draw_importances(found, colors), HERE / f"importances-{look}.svg")


def draw_orders(orders: Any, colors: dict[str, str]) -> Any:
    """Draw a panel for each vehicle: hour and distance of the orders, those that are late in another colour."""
    figure, panels = plt.subplots(1, 2, figsize=(7.4, 3), layout="constrained", sharey=True)
    for axes, (vehicle, part) in zip(panels, orders[:1000].groupby("vehicle"), strict=True):
        for label, color in (("on time", colors["mark"]), ("late", colors["exact"])):
            chosen = part[part["late"] == label]
            shift = (chosen.index * 0.618) % 0.8 - 0.4  # so that orders of an hour do not lie above each other
            axes.scatter(chosen["hour"] + shift, chosen["km"], s=7, color=color, label=label, linewidths=0)
        axes.set(title=f"by {vehicle}", xlabel="hour", ylim=(0, 14))
    panels[0].set_ylabel("km")
    panels[1].legend(frameon=False, markerscale=2, loc="upper left", bbox_to_anchor=(1, 1), handletextpad=0.1)
    return figure


def draw_importances(found: Any, colors: dict[str, str]) -> Any:
    """Draw the importances of the columns, and the contributions to the score of the first row."""
    figure, panels = plt.subplots(1, 2, figsize=(7.4, 2), layout="constrained")
    for axes, row, title in zip(panels, (None, 0), ("all test rows", "the first test row"), strict=True):
        shown = dkfeat.plot.ExplanationDisplay.from_explanation(found, row, ax=axes)
        for bar, value in zip(axes.patches, shown.values, strict=True):
            bar.set_color(colors["exact" if value < 0 else "mark"])
        axes.set_title(title)
    return figure


def save(figure: Any, file: Path) -> None:
    """Save a picture that fits on pages of any colour."""
    for axes in figure.axes:
        axes.patch.set_visible(False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    figure.savefig(file, transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    plt.close(figure)


if __name__ == "__main__":
    main()
