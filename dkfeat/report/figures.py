"""Pictures as PNG bytes that depend on the data and the version of matplotlib alone."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from dkfeat.plot.style import BLUE, GREY, RED, STYLE, check_plots

__all__ = ["BLUE", "GREY", "RED", "check_plots", "draw"]


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

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
        canvas = FigureCanvasAgg(figure)  # no window, whatever backend is set
        paint(figure.add_subplot())
        buffer = io.BytesIO()
        canvas.print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()
