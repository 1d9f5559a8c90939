"""Pictures of kernel estimates and feature maps, drawn on matplotlib axes.

Each function takes plain arrays, or an object of dkfeat that holds them, and an optional `ax`; it draws there, or on a
figure of its own, and returns the axes, so that you can change titles, limits and colours. Needs the extra ``plot``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dkfeat.errors import ConfigError
from dkfeat.maps._kernel_estimates import error_band
from dkfeat.store.outputs import PNG_MARK

__all__ = ["ExplanationDisplay", "accuracy_against_k", "kernel_estimates"]

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Markers that distinguish lines without colours."""
_SETTINGS = Path(__file__).parent / "templates" / "figures.mplstyle"


@dataclass(frozen=True, slots=True)
class Style:
    """Colours of pictures on a light or a dark page."""

    name: str
    paper: str
    ink: str
    muted: str
    """Colour of reference lines."""
    grid: str
    colors: tuple[str, ...]
    """Colours of lines, distinct for colour-blind readers: blue, vermilion, green, purple, orange, sky, grey (Okabe and
    Ito's, lighter on dark)."""

    @property
    def settings(self) -> Any:
        """Settings of matplotlib for pictures of this style."""
        from matplotlib import rc_params_from_file, rcsetup

        colors: dict[str, Any] = dict.fromkeys(
            ("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), self.ink
        )
        colors |= {"axes.facecolor": self.paper, "figure.facecolor": self.paper, "axes.edgecolor": self.muted}
        colors |= {"grid.color": self.grid, "axes.prop_cycle": rcsetup.cycler(color=self.colors)}
        return rc_params_from_file(_SETTINGS, use_default_template=False) | colors


LIGHT_COLORS = ("#0072b2", "#d55e00", "#009e73", "#b5499a", "#c48800", "#3aa0dd", "#777777")
DARK_COLORS = ("#56b4e9", "#ff8b52", "#3fd0a0", "#e58fca", "#f2c14b", "#9ad4ff", "#b0b4ba")
LIGHT = Style("light", paper="#ffffff", ink="#1c1e21", muted="#5c636b", grid="#e4e6ea", colors=LIGHT_COLORS)
DARK = Style("dark", paper="#16181b", ink="#e6e7e9", muted="#a4abb3", grid="#33373d", colors=DARK_COLORS)


def style_of(axes: Any) -> Style:
    """Return the style that is legible on the background of matplotlib axes."""
    (*below, cover), (*color, alpha) = axes.figure.get_facecolor(), axes.get_facecolor()  # on white paper
    light = alpha * sum(color) + (1 - alpha) * (cover * sum(below) + (1 - cover) * 3)
    return LIGHT if light > 1.5 else DARK


def has_matplotlib() -> bool:
    """Return True if matplotlib, of the extra ``plot``, is installed."""
    return find_spec("matplotlib") is not None


def check_plots() -> None:
    """Raise an error if matplotlib is not installed.

    Raises
    ------
    ConfigError
        If matplotlib is not installed; the message says how to install it.
    """
    if not has_matplotlib():
        raise ConfigError("pictures need matplotlib, which is not installed; run: pip install matplotlib")


def axes_of(ax: Any, width: float = 6.4, height: float = 4.4) -> Any:
    """Return `ax`, or if it is None the axes of a new figure of `width` by `height` inches.

    A new figure belongs to pyplot, so that notebooks and windows show it. The user's global figure settings stay
    unchanged.
    """
    check_plots()
    if ax is not None:
        return ax
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    with mpl.rc_context(LIGHT.settings):
        return plt.subplots(figsize=(width, height), layout="constrained")[1]


def draw(paint: Callable[[Any], None], width: float = 6.0, height: float = 4.2, style: Style = LIGHT) -> bytes:
    """Draw a figure and return it as PNG.

    Parameters
    ----------
    paint : callable
        Function that draws on the matplotlib axes passed to it.
    width, height : float, default=6.0 and 4.2
        Size in inches, at 130 pixels per inch.
    style : Style, default=LIGHT
        Colours.

    Returns
    -------
    png : bytes
    """
    check_plots()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(style.settings):
        figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
        canvas = FigureCanvasAgg(figure)  # no window, whatever backend is set
        paint(figure.add_subplot())
        buffer = io.BytesIO()
        canvas.print_png(buffer, metadata=dict([PNG_MARK]))
    return buffer.getvalue()


MOST_CHARACTERS = 40
"""Maximum length of the label of a bar."""
MOST_DOTS = 2500
"""Maximum number of pairs that are drawn, at random."""


def kernel_estimates(
    exact: Any, estimates: ArrayLike | None = None, *, deviations: ArrayLike | None = None, ax: Any = None
) -> Any:
    """Draw estimates of a kernel against its exact values, a dot for each pair of rows, of at most 2,500.

    Parameters
    ----------
    exact : array of any shape, or KernelPairs
        Exact values; or the result of ``features.kernel_pairs(X)``, which has all three arrays.
    estimates : array of the same shape, or None
        Estimates of the kernel for the same pairs.
    deviations : array of the same shape, or None
        Theoretical standard error of each estimate, for a band of two standard errors on either side.
    ax : matplotlib.axes.Axes or None
        Axes to draw in; None makes a figure.

    Returns
    -------
    ax : matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If the arrays differ in shape, or there are no estimates.
    dkfeat.errors.ConfigError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import dkfeat.plot
    >>> ax = dkfeat.plot.kernel_estimates([0.2, 0.5], [0.25, 0.48], deviations=[0.03, 0.04])
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('exact kernel', 'estimate')
    """
    name = "kernel"
    if estimates is None and hasattr(exact, "estimates"):
        name, exact, estimates, deviations = exact.kernel, exact.exact, exact.estimates, exact.deviations
    if estimates is None:
        raise ValueError(
            "estimates are missing; pass them beside the exact values, or pass the result of features.kernel_pairs(X)"
        )
    arrays = [np.asarray(values, np.float64) for values in (exact, estimates, deviations) if values is not None]
    if len({array.shape for array in arrays}) > 1 or not arrays[0].size:
        listed = ", ".join(str(array.shape) for array in arrays)
        raise ValueError(f"arrays have the shapes {listed}, but they must have one shape and at least one element")
    true, found, *deviation = (array.reshape(-1) for array in arrays)
    axes = axes_of(ax, 5.6, 5.0)
    style = style_of(axes)
    low, high = float(min(true.min(), found.min())), float(max(true.max(), found.max()))
    axes.plot([low, high], [low, high], color=style.muted, linewidth=1, zorder=2)
    if deviation:
        at, half = error_band(true, *deviation)
        label = "theory, ± 2 standard errors"
        color = style.colors[1]
        axes.fill_between(at, at - 2 * half, at + 2 * half, color=color, alpha=0.18, linewidth=0, label=label)
    error = float(np.sqrt(np.mean((found - true) ** 2)))
    kept = np.sort(np.random.default_rng(0).permutation(len(true))[:MOST_DOTS])
    size = 12 if len(kept) <= 1000 else 5
    dots = f"{len(true):,} pairs of rows,\nRMS error {error:.3g}"
    shape: dict[str, Any] = {"color": style.colors[0], "alpha": 0.45, "linewidths": 0, "gid": "dots"}
    axes.scatter(true[kept], found[kept], size, zorder=3, label=dots, **shape)
    axes.set(xlabel=f"exact {name}", ylabel="estimate")
    axes.legend(fontsize=9, frameon=False, loc="upper left")
    return axes


def accuracy_against_k(results: Any, *, levels: Mapping[str, float] | None = None, ax: Any = None) -> Any:
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
    from matplotlib.ticker import NullLocator  # `axes_of` has checked that matplotlib is installed

    lines, flat = (results, {}) if isinstance(results, Mapping) else _of_comparison(results)
    style = style_of(axes)
    for (name, (size, accuracy)), color, marker in zip(
        lines.items(), cycle(style.colors), cycle(MARKERS), strict=False
    ):
        percent = [100 * share for share in accuracy]
        axes.plot(list(size), percent, color=color, marker=marker, markersize=5, linewidth=1.6, label=name)
    for (name, share), dashes in zip({**flat, **(levels or {})}.items(), cycle(("-", "--", ":")), strict=False):
        axes.axhline(100 * share, color=style.muted, linestyle=dashes, linewidth=1.2, label=name)
    if not isinstance(results, Mapping):
        chosen = results.recommended
        ring: dict[str, Any] = {"marker": "o", "markersize": 13, "fillstyle": "none", "color": style.ink}
        label = "recommended\n(by held-out rows)"
        axes.plot([chosen.k], [100 * chosen.accuracy], linestyle="none", label=label, **ring)
        axes.set_title(f"{results.n_train:,} training rows, {results.n_test:,} test rows")
    sizes = sorted({int(size) for line in lines.values() for size in line[0]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("components k (log scale)")
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


class ExplanationDisplay:
    """Bars of the importances of columns, or of their contributions to one row's score.

    It is used like the display objects of scikit-learn: `from_explanation` makes and plots one.

    Parameters
    ----------
    columns : sequence of str
        Labels of the bars, from the top.
    values : array of shape (n_columns,)
        Lengths of the bars; negative ones have another colour.
    name : str, default="contribution"
        Meaning of the values.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Axes of the last plot.
    figure_ : matplotlib.figure.Figure
        Figure of the last plot.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import dkfeat.plot
    >>> display = dkfeat.plot.ExplanationDisplay(["age", "income"], [0.7, -0.2]).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['age', 'income']
    """

    def __init__(self, columns: Sequence[str], values: ArrayLike, *, name: str = "contribution") -> None:
        self.columns, self.values, self.name = list(columns), np.asarray(values, np.float64), name

    @classmethod
    def from_explanation(cls, explanation: Any, row: int | None = None, *, n_columns: int = 20, ax: Any = None) -> Self:
        """Plot the most important columns, or the largest contributions to the score of one row.

        Parameters
        ----------
        explanation : Explanation
            Result of `dkfeat.explain`.
        row : int or None
            Number of an explained row, from 0; None: the importances over all rows.
        n_columns : int, default=20
            Maximum number of bars.
        ax : matplotlib.axes.Axes or None
            Axes to draw on; None creates a figure.

        Returns
        -------
        display : ExplanationDisplay

        Raises
        ------
        dkfeat.errors.ConfigError
            If matplotlib is not installed.
        """
        if row is None:
            ranked = list(explanation.ranked().items())[:n_columns]
            names, values = [str(name) for name, _ in ranked], [value for _, value in ranked]
            return cls(names, values, name="mean |contribution - baseline|").plot(ax=ax)
        found = explanation.row(row)[:n_columns]
        names = [
            str(each["column"]) if each["value"] is None else f"{each['column']} = {each['value']}" for each in found
        ]
        return cls(names, [each["contribution"] for each in found]).plot(ax=ax)

    def plot(self, ax: Any = None, **options: Any) -> Self:
        """Draw the bars, on `ax` or a new figure, with further options of ``matplotlib.axes.Axes.barh``.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Axes to draw on; None creates a figure.
        **options
            Such as ``color``.

        Returns
        -------
        display : ExplanationDisplay
            The object itself.
        """
        self.ax_ = axes_of(ax, 6.4, 1.0 + 0.26 * max(len(self.columns), 4))
        self.figure_ = self.ax_.figure
        colors = np.where(self.values < 0, *reversed(style_of(self.ax_).colors[:2]))
        places = np.arange(len(self.columns))
        self.ax_.barh(places, self.values, **{"color": colors, **options})
        shown = [name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}…" for name in self.columns]
        self.ax_.set_yticks(places, shown)
        self.ax_.invert_yaxis()
        self.ax_.grid(visible=False, axis="y")
        self.ax_.set_xlabel(self.name)
        return self
