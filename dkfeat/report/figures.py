"""One look for all pictures, as PNG bytes that depend on the data and the version of matplotlib alone."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from dkfeat.errors import ConfigError

__all__ = ["BLUE", "GREY", "RED", "check_plots", "draw"]

BLUE, RED, GREY = "#1f5fa8", "#b8433a", "#8a8f98"

_STYLE: Any = {
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


def draw(paint: Callable[[Any], None], width: float = 6.0, height: float = 4.2) -> bytes:
    """Make a picture.

    Parameters
    ----------
    paint : callable
        Draws on the matplotlib axes that it is given.
    width, height : float
        Inches; 130 pixels each.

    Returns
    -------
    png : bytes
    """
    check_plots()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
        canvas = FigureCanvasAgg(figure)  # no window, whatever backend is set
        paint(figure.add_subplot())
        buffer = io.BytesIO()
        canvas.print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()
