"""Charts of reports, as matplotlib's SVG with searchable text and the colours of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkfeat.html import render
from dkfeat.plot import STYLE, has_matplotlib, kernel_estimates

if TYPE_CHECKING:
    from dkfeat.maps._kernel_estimates import KernelPairs


# Colours that matplotlib writes, and the page's variables that replace them.
MARK, TEXT, QUIET, LINE = "#1f5fa8", "#1c1e21", "#5f6670", "#e4e6ea"
COLORS = {MARK: "var(--mark)", TEXT: "var(--text)", QUIET: "var(--quiet)", LINE: "var(--line)"}
LOOK = STYLE | {
    "font.size": 9.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": QUIET,
    "axes.labelcolor": QUIET,
    "axes.spines.left": False,
    "axes.grid.axis": "y",
    "grid.color": LINE,
    "legend.labelcolor": QUIET,
    "text.color": QUIET,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "ytick.left": False,
    "svg.fonttype": "none",
}
WIDTH, HEIGHT = 4.8, 2.8


def steps(title: str, edges: NDArray[np.float64], values: Sequence[float], x_label: str, caption: str) -> str:
    """Step chart with one step for each pair of neighbouring `edges`, and the mean.

    Examples
    --------
    >>> "mean 150" in steps("Speed", np.arange(3.0), [100, 200], "seconds", "Rows a second over time")
    True
    """

    def paint(axes: Any) -> None:
        axes.stairs(values, edges, fill=True, color=MARK, alpha=0.18)
        axes.stairs(values, edges, color=MARK, linewidth=1.6)
        mean = float(np.average(values, weights=np.diff(edges)))
        label = f"mean {mean:,.0f}" if mean >= 100 else f"mean {mean:.3g}"
        axes.axhline(mean, color=TEXT, linestyle="--", linewidth=1, label=label)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)  # above the chart
        axes.set(xlabel=x_label, xlim=(edges[0], edges[-1]), ylim=(0, 1.05 * max(values) or 1))
        axes.yaxis.set_major_formatter(_short())

    return _figure(paint, title, caption)


def bars(title: str, values: Sequence[tuple[str, float]], show: Callable[[float], str], caption: str) -> str:
    """Chart of horizontal bars, each with a name before and a value after it.

    Examples
    --------
    >>> bars("Labels", [("-1", 3), ("1", 4)], lambda rows: f"{rows} rows", "Rows of each label").count("rows</text>")
    2
    """

    def paint(axes: Any) -> None:
        names = [name if len(name) <= 13 else f"{name[:12]}…" for name, _ in values]
        drawn = axes.barh(range(len(values)), [value for _, value in values], 0.72, color=MARK, alpha=0.75)
        axes.bar_label(drawn, [show(value) for _, value in values], padding=5)  # the layout makes room for the labels
        axes.set_yticks(range(len(values)), names)
        axes.set_xticks([])
        axes.set_ylim(len(values) - 0.5, -0.5)
        axes.margins(x=0)
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)

    return _figure(paint, title, caption, height=0.15 + 0.23 * len(values))


def estimates(title: str, pairs: KernelPairs, caption: str) -> str:
    """Chart of kernel estimates against exact values."""
    return _figure(lambda axes: kernel_estimates(pairs, ax=axes), title, caption, height=4.2)


def _short() -> Any:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")


def _figure(paint: Callable[[Any], None], title: str, caption: str, height: float = HEIGHT) -> str:
    """HTML of a chart, drawn by `paint` on matplotlib axes, with its caption; empty without matplotlib."""
    if not has_matplotlib():
        return ""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context({**LOOK, "svg.hashsalt": title}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(buffer, metadata=nothing)
    inside = re.sub(r"(?s)^.*?<svg[^>]*>|<style.*?</style>| id=\"[\w.]+_\d+\"", "", buffer.getvalue())
    for color, variable in COLORS.items():
        inside = inside.replace(color, variable)
    box = f"0 0 {72 * WIDTH:g} {72 * height:g}"
    return render("chart.html", title=title, caption=caption, box=box, inside=inside)
