"""Style of the pictures of the gallery."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl

STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "axes.titlesize": "medium",
    "axes.prop_cycle": mpl.cycler(color=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"]),
    "figure.constrained_layout.use": True,
    "grid.color": "#e4e6ea",
    "legend.frameon": False,
}


def set_style(_: Any, __: Any) -> None:
    """Set the style; called before each example, with the gallery's settings and the path of the example."""
    mpl.rcParams.update(STYLE)
