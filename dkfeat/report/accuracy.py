"""Accuracy against the number of components, in the form of the papers' figures."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from dkfeat.report.figures import draw

if TYPE_CHECKING:
    from dkfeat.learn.comparison import Comparison

__all__ = ["paint", "plot_accuracy"]

# colours that people tell apart whatever colours they see (Okabe and Ito), each with a mark of its own
STYLES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"))
LEVELS = (("#000000", "-"), ("#555555", "--"), ("#555555", ":"))


def plot_accuracy(comparison: Comparison) -> bytes:
    """Draw a comparison: a line for each map over k on a log axis, level lines for what has no components.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    png : bytes
        Equal for equal results, with the same version of matplotlib.

    Raises
    ------
    ConfigError
        If matplotlib, of the extra ``plot``, is not installed.
    """
    return draw(lambda axes: paint(axes, comparison), width=7.4, height=4.6)


def paint(axes: Any, comparison: Comparison) -> None:
    """Draw a comparison on matplotlib axes."""
    from matplotlib.ticker import NullLocator  # `draw` has found it to be there

    mapped = [each for each in comparison.results if each.k is not None]
    for name, (color, marker) in zip(dict.fromkeys(each.name for each in mapped), cycle(STYLES), strict=False):
        line = [(each.k, 100 * each.accuracy) for each in mapped if each.name == name]
        axes.plot(*zip(*line, strict=True), color=color, marker=marker, markersize=5, linewidth=1.6, label=name)
    flat = [each for each in comparison.results if each.k is None]
    for each, (color, style) in zip(flat, cycle(LEVELS), strict=False):
        axes.axhline(100 * each.accuracy, color=color, linestyle=style, linewidth=1.2, label=each.name)
    chosen = comparison.recommended
    ring: dict[str, Any] = {"marker": "o", "markersize": 13, "fillstyle": "none", "color": "#000000"}
    axes.plot([chosen.k], [100 * chosen.accuracy], linestyle="none", label="recommended\n(by held-out rows)", **ring)
    sizes = sorted({each.k for each in mapped if each.k is not None})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("components k (log scale)")
    axes.set_ylabel("test accuracy (%)")
    axes.set_title(f"{comparison.n_train:,} training rows, {comparison.n_test:,} test rows")
    axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
