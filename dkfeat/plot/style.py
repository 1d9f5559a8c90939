"""One look for all pictures."""

from __future__ import annotations

from typing import Any

from dkfeat.errors import ConfigError

__all__ = ["BLUE", "GREY", "LEVELS", "LINES", "RED", "STYLE", "axes_of", "check_plots"]

BLUE, RED, GREY = "#1f5fa8", "#b8433a", "#8a8f98"

LINES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"))
"""Colours that people tell apart whatever colours they see (Okabe and Ito), each with a mark of its own."""
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


def check_plots() -> None:
    """Find out whether pictures can be made.

    Raises
    ------
    ConfigError
        Matplotlib is not installed; names the extra that brings it.
    """
    try:
        import matplotlib  # noqa: F401 - asked for by name alone
    except ImportError:
        message = "pictures need matplotlib, which is not installed; run: pip install 'dkfeat[plot]'"
        raise ConfigError(message) from None


def axes_of(ax: Any, width: float = 6.4, height: float = 4.4) -> Any:
    """Axes to draw on: those given, or those of a new figure of `width` by `height` inches.

    A new figure belongs to pyplot, so that notebooks and windows show it; what the user has set for figures in general
    is left alone.
    """
    check_plots()
    if ax is not None:
        return ax
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):
        return plt.subplots(figsize=(width, height), layout="constrained")[1]
