"""Common style of all pictures, for light and for dark pages; equal data give equal bytes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dkfeat.plot import check_plots

if TYPE_CHECKING:
    from ..experiment import Picture

__all__ = ["DARK", "LIGHT", "MARKERS", "Style", "draw"]

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Markers that distinguish lines without colours."""
_DPI = 140
_COLOURS = 128
"""Number of colours of a PNG's palette: text stays smooth, and a picture takes about 20 kB."""


@dataclass(frozen=True, slots=True)
class Style:
    """Colours of a page."""

    name: str
    paper: str
    ink: str
    muted: str
    """Colour of reference lines."""
    grid: str
    colors: tuple[str, ...]
    """Colours of lines: blue, vermilion, green, purple, orange, sky, grey (Okabe and Ito's, lighter on dark)."""


LIGHT = Style(
    name="light",
    paper="#ffffff",
    ink="#1c1e21",
    muted="#5c636b",
    grid="#e4e6ea",
    colors=("#0072b2", "#d55e00", "#009e73", "#b5499a", "#c48800", "#3aa0dd", "#777777"),
)
DARK = Style(
    name="dark",
    paper="#16181b",
    ink="#e6e7e9",
    muted="#a4abb3",
    grid="#33373d",
    colors=("#56b4e9", "#ff8b52", "#3fd0a0", "#e58fca", "#f2c14b", "#9ad4ff", "#b0b4ba"),
)


def draw(picture: Picture, style: Style) -> bytes:
    """Draw a picture as PNG.

    Raises
    ------
    dkfeat.errors.ConfigError
        If matplotlib is not installed; the message names the extra.
    """
    check_plots()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    with mpl.rc_context(_settings(style)):
        figure = Figure(figsize=(picture.width, picture.height), dpi=_DPI, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        picture.paint(figure, style)
        canvas.draw()
        pixels = Image.fromarray(_opaque(canvas))
    buffer = io.BytesIO()
    pixels.quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        buffer, "png", optimize=True
    )
    return buffer.getvalue()


def _opaque(canvas: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])


def _settings(style: Style) -> dict[str, Any]:
    ink, paper = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), style.ink), style.paper
    return {
        **ink,
        "font.family": "DejaVu Sans",  # comes with matplotlib
        "font.size": 11,
        "axes.titlesize": 11,
        "axes.labelsize": 11,
        "xtick.labelsize": 10,
        "ytick.labelsize": 10,
        "legend.fontsize": 10,
        "legend.frameon": False,
        "axes.edgecolor": style.muted,
        "axes.facecolor": paper,
        "figure.facecolor": paper,
        "axes.prop_cycle": _cycle(style),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": style.grid,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
    }


def _cycle(style: Style) -> Any:
    from matplotlib import cycler

    return cycler(color=list(style.colors))
