"""Pictures for light and for dark pages; equal data give equal bytes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from dkfeat.plot import DARK, LIGHT, MARKERS, Style, check_plots

if TYPE_CHECKING:
    from ..experiment import Picture

__all__ = ["DARK", "LIGHT", "MARKERS", "Style", "draw"]

_DPI = 140
_COLOURS = 128
"""Number of colours of a PNG's palette: text stays smooth, and a picture takes about 20 kB."""


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

    with mpl.rc_context(style.settings):
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
