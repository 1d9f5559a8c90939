"""Plot of accuracy against the number of components, as in the papers' figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from dkfeat.plot.style import LEVELS, LINES, axes_of


def accuracy_against_k(
    results: Any,
    *,
    levels: Mapping[str, float] | None = None,
    ax: Any = None,
) -> Any:
    """Plot accuracies against the number of components, on a log axis.

    Parameters
    ----------
    results : Comparison, or mapping of str to pairs of sequences
        Result of `dkfeat.compare`; or a mapping from names to a pair: numbers of components, and accuracies in [0, 1].
    levels : mapping of str to float, or None
        Accuracies of models without components, such as an exact kernel machine, by name. None: those of a comparison.
    ax : matplotlib.axes.Axes or None
        Axes to draw on; None creates a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    dkfeat.errors.ConfigError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import dkfeat.plot
    >>> ax = dkfeat.plot.accuracy_against_k({"gcws": ([64, 128], [0.91, 0.94])}, levels={"linear": 0.85})
    >>> [line.get_label() for line in ax.lines]
    ['gcws', 'linear']
    """
    axes = axes_of(ax, 7.4, 4.6)
    lines: Mapping[str, tuple[Sequence[int], Sequence[float]]]
    lines, own_levels = (results, {}) if isinstance(results, Mapping) else _of_comparison(results)
    flat = {**own_levels, **(levels or {})}
    sizes = sorted({int(size) for line in lines.values() for size in line[0]})
    for (name, (size, accuracy)), (color, marker) in zip(lines.items(), cycle(LINES), strict=False):
        percent = [100 * share for share in accuracy]
        axes.plot(list(size), percent, color=color, marker=marker, markersize=5, linewidth=1.6, label=name)
    for (name, share), (color, style) in zip(flat.items(), cycle(LEVELS), strict=False):
        axes.axhline(100 * share, color=color, linestyle=style, linewidth=1.2, label=name)
    if not isinstance(results, Mapping):
        _mark_recommended(axes, results)
    _label_sizes(axes, sizes)
    axes.set_ylabel("test accuracy (%)")
    axes.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axes


def _of_comparison(comparison: Any) -> tuple[dict[str, tuple[list[int], list[float]]], dict[str, float]]:
    lines: dict[str, tuple[list[int], list[float]]] = {}
    for each in comparison.results:
        if each.k is not None:
            size, accuracy = lines.setdefault(each.name, ([], []))
            size.append(each.k)
            accuracy.append(each.accuracy)
    return lines, {each.name: each.accuracy for each in comparison.results if each.k is None}


def _mark_recommended(axes: Any, comparison: Any) -> None:
    chosen = comparison.recommended
    ring: dict[str, Any] = {"marker": "o", "markersize": 13, "fillstyle": "none", "color": "#000000"}
    axes.plot([chosen.k], [100 * chosen.accuracy], linestyle="none", label="recommended\n(by held-out rows)", **ring)
    axes.set_title(f"{comparison.n_train:,} training rows, {comparison.n_test:,} test rows")


def _label_sizes(axes: Any, sizes: Sequence[int]) -> None:
    from matplotlib.ticker import NullLocator  # late import: `axes_of` has checked that matplotlib is installed

    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("components k (log scale)")
