"""Pictures of curves, drawn from the plain values in the picture's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from ..experiment import Picture
from .figures import MARKERS, Style

__all__ = ["Curve", "Panel", "panels_picture"]

Look = Literal["line", "dashes", "marks", "both"]
HEIGHT = 2.9
"""Height of a panel in inches; panels are one below the other, to fit a phone's width."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of a panel: theory as a line, measurements as markers."""

    label: str
    """Label in the legend; empty: none."""
    x: Any
    y: Any
    color: int
    """Number of the colour and marker; negative: the colour of reference lines."""
    look: Look = "both"
    error: Any = None
    """Standard errors of y."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A pair of axes."""

    title: str
    xlabel: str
    ylabel: str
    curves: Sequence[Curve]
    xscale: Literal["linear", "log"] = "linear"
    yscale: Literal["linear", "log"] = "linear"
    ylim: tuple[float | None, float | None] = (None, None)


def panels_picture(name: str, title: str, panels: Sequence[Panel], alt: str, *, height: float | None = None) -> Picture:
    """Make a picture of panels, one below the other; if their labels are equal, with one legend above them."""
    data = [_plain(asdict(panel)) for panel in panels]
    inches = height or (4.4 if len(panels) == 1 else HEIGHT * len(panels))
    return Picture(name, title, partial(_paint, data), {"panels": data}, alt, height=inches)


def _paint(panels: list[dict[str, Any]], figure: Any, style: Style) -> None:
    labels = [[curve["label"] for curve in panel["curves"] if curve["label"]] for panel in panels]
    alike = len(panels) > 1 and all(each == labels[0] for each in labels)
    for axes, panel in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        axes.set_title(panel["title"], loc="left")
        axes.set(xlabel=panel["xlabel"], ylabel=panel["ylabel"], xscale=panel["xscale"], yscale=panel["yscale"])
        for curve in panel["curves"]:
            _curve(axes, curve, style)
        axes.set_ylim(*panel["ylim"])
        if panel["xscale"] == "log":
            ticks = sorted({x for curve in panel["curves"] if curve["look"] != "line" for x in curve["x"]})
            if len(ticks) <= 8:
                axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
                axes.set_xticks([], minor=True)
        if not alike:
            axes.legend()
    if alike:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=min(3, len(labels[0])))


def _curve(axes: Any, curve: dict[str, Any], style: Style) -> None:
    number, look = curve["color"], curve["look"]
    color = style.muted if number < 0 else style.colors[number % len(style.colors)]
    options: dict[str, Any] = {"color": color, "label": curve["label"] or None}
    options["linestyle"] = {"line": "-", "both": "-", "dashes": "--", "marks": ""}[look]
    if look in ("marks", "both"):
        options["marker"] = MARKERS[number % len(MARKERS)]
    if curve["error"] is not None:
        axes.errorbar(curve["x"], curve["y"], curve["error"], capsize=2, elinewidth=1, **options)
    else:
        axes.plot(curve["x"], curve["y"], **options)


def _plain(value: Any) -> Any:
    """Replace arrays, tuples and NumPy numbers by lists and plain numbers."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
