"""Style of all pictures, axes to draw on, and figures as PNG."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from dkfeat.errors import ConfigError
from dkfeat.store.outputs import PNG_MARK

BLUE, RED, GREY = "#1f5fa8", "#b8433a", "#8a8f98"

LINES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"))
"""Colours of the Okabe-Ito palette, which are distinct for colour-blind readers too, each with its own marker."""
LEVELS = (("#000000", "-"), ("#555555", "--"), ("#555555", ":"))

STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "grid.color": "#e4e6ea",
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "legend.frameon": False,
}


def has_matplotlib() -> bool:
    """Return True if matplotlib, of the extra ``plot``, is installed."""
    return find_spec("matplotlib") is not None


def check_plots() -> None:
    """Raise an error if matplotlib is not installed.

    Raises
    ------
    ConfigError
        If matplotlib is not installed; the message names the extra that installs it.
    """
    if not has_matplotlib():
        raise ConfigError("pictures need matplotlib, which is not installed; run: pip install 'dkfeat[plot]'")


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

    with mpl.rc_context(STYLE):
        return plt.subplots(figsize=(width, height), layout="constrained")[1]


def draw(paint: Callable[[Any], None], width: float = 6.0, height: float = 4.2) -> bytes:
    """Draw a figure and return it as PNG.

    Parameters
    ----------
    paint : callable
        Function that draws on the matplotlib axes passed to it.
    width, height : float, default=6.0 and 4.2
        Size in inches, at 130 pixels per inch.

    Returns
    -------
    png : bytes
    """
    check_plots()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
        canvas = FigureCanvasAgg(figure)  # no window, whatever backend is set
        paint(figure.add_subplot())
        buffer = io.BytesIO()
        canvas.print_png(buffer, metadata=dict([PNG_MARK]))
    return buffer.getvalue()
