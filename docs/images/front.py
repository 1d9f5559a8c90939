"""Draws the picture of the home page and the README from the tables of docs/results.md: docs/images/front-*.svg.

    python docs/images/front.py

Needs the extra `plot`. The same page gives the same files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

sys.path.insert(0, str(Path(__file__).parents[2] / "jobs"))

from reproduction.pages.results_page import column

HERE = Path(__file__).parent
LOOKS = {
    "light": {"text": "#1c1e21", "quiet": "#5f6670", "line": "#d5d8dd", "mark": "#1f5fa8", "exact": "#c4501b"},
    "dark": {"text": "#e3e6ea", "quiet": "#a0a7b1", "line": "#3c414a", "mark": "#7db4f0", "exact": "#f2975f"},
}


def main() -> None:
    """Draw both pictures."""
    linear, gcws, _, exact = read_accuracies()
    names = sorted(linear, key=lambda name: linear[name] - gcws[name], reverse=True)
    for look, colors in LOOKS.items():
        draw(names, linear, gcws, exact, colors, HERE / f"front-{look}.svg")


def read_accuracies() -> list[dict[str, float]]:
    """Accuracies by set: of the linear machine, of GCWS with 1,024 and 4,096 samples, and of the kernel machine."""
    text = (HERE.parent / "results.md").read_text(encoding="utf-8")
    title = "Accuracy in percent at equal k, GCWS with b = 8"
    names = ("GCWS, k = 1,024", "GCWS, k = 4,096", "Exact GMM")
    linear = column(text, "Smallest k that beats the linear machine", "Linear, %")
    return [linear, *(column(text, title, name) for name in names)]


def draw(
    names: list[str],
    linear: dict[str, float],
    gcws: dict[str, float],
    exact: dict[str, float],
    colors: dict[str, str],
    file: Path,
) -> None:
    """Draw a line for each data set, from the linear model on the raw rows to the one on features."""
    look = {"svg.fonttype": "none", "svg.hashsalt": "dkfeat", "font.family": "sans-serif", "font.size": 10}
    ink = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    with mpl.rc_context({**look, **dict.fromkeys(ink, colors["text"])}):
        figure, axes = plt.subplots(figsize=(5.2, 4.3), layout="constrained")
        places = range(len(names))
        for place, name in zip(places, names, strict=True):
            axes.plot([linear[name], gcws[name]], [place, place], color=colors["line"], linewidth=4, zorder=1)
        series = (
            ("linear model, raw columns", linear, {"color": colors["quiet"], "s": 45}),
            ("linear model, dkfeat's features", gcws, {"color": colors["mark"], "s": 60}),
            ("exact kernel machine", exact, {"edgecolors": colors["exact"], "facecolors": "none", "s": 120}),
        )
        for (label, values, style), above in zip(series, (2, 3, 4), strict=True):
            axes.scatter([values[name] for name in names], places, label=label, zorder=above, linewidths=1.6, **style)
        axes.set_yticks(list(places), names)
        axes.tick_params(length=0)
        axes.set(xlabel="test accuracy in percent", xlim=(50, 101.5))
        axes.grid(axis="x", color=colors["line"], linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
        axes.legend(loc="lower left", frameon=False, borderaxespad=0, handletextpad=0.2)
        figure.savefig(file, transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        plt.close(figure)


if __name__ == "__main__":
    main()
