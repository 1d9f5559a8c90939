"""Charts as SVG, in the colours of the page around them: text stays text, and nothing but the page is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise

__all__ = ["CSS", "Points", "bars", "columns", "scatter", "steps"]

Points = Sequence[tuple[float, float]]

CSS = """
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: .5rem 2rem; }
.charts figure { display: block; margin: .8rem 0; min-width: 0; } figcaption { color: var(--quiet); font-size: .9rem; }
.chart { display: block; width: 100%; max-width: 36rem; height: auto; font: 13px system-ui, sans-serif; }
.chart text { fill: var(--quiet); paint-order: stroke; stroke: var(--back); stroke-width: 4px; stroke-linejoin: round; }
.chart .name { fill: var(--text); font-weight: 600; font-size: 14px; }
.chart .grid { stroke: var(--line); stroke-width: 1; } .chart .axis { stroke: var(--quiet); stroke-width: 1; }
.chart .bar { fill: var(--mark); fill-opacity: .75; } .chart .area { fill: var(--mark); fill-opacity: .18; }
.chart .line { fill: none; stroke: var(--mark); stroke-width: 2; stroke-linejoin: round; }
.chart .dot { fill: var(--mark); fill-opacity: .45; } .chart .band { fill: var(--quiet); fill-opacity: .25; }
.chart .level { stroke: var(--text); stroke-width: 1; stroke-dasharray: 5 4; opacity: .7; }
""".strip()

WIDTH, HEIGHT = 460, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 34, 46
_TICKS = 5


class _Frame:
    """Title, axes and grid of a chart; turns values into places."""

    def __init__(
        self, title: str, x: tuple[float, float], y: tuple[float, float], x_label: str, height: int = HEIGHT
    ) -> None:
        self.x, self.y, self.title, self.height = _wide(x), _wide(y), title, height
        self.parts: list[str] = []
        self.base = height - _BOTTOM
        for at in _ticks(*self.y):
            place = self.down(at)
            self.parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{place}" y2="{place}"/>')
            self._text(_short(at), _LEFT - 6, place + 4, "end")
        for at in _ticks(*self.x):
            self._text(_short(at), self.across(at), self.base + 18, "middle")
        line = f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{self.base}" y2="{self.base}"/>'
        self.parts.append(line)
        self._text(title, 0, 15, "start", "name")
        self._text(x_label, WIDTH - _RIGHT, height - 8, "end")

    def across(self, value: float) -> float:
        """Pixels from the left."""
        share = (value - self.x[0]) / (self.x[1] - self.x[0])
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def down(self, value: float) -> float:
        """Pixels from the top."""
        share = (value - self.y[0]) / (self.y[1] - self.y[0])
        return round(self.base - share * (self.base - _TOP), 1)

    def path(self, points: Points) -> str:
        """Give places of a line."""
        return " ".join(f"{self.across(x)},{self.down(y)}" for x, y in points)

    def level(self, value: float, text: str) -> None:
        """Draw a dashed line across, and say what it is."""
        place = self.down(value)
        self.parts.append(f'<line class="level" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{place}" y2="{place}"/>')
        self._text(text, WIDTH - _RIGHT, place - 5 if place > _TOP + 12 else place + 14, "end")

    def _text(self, text: str, x: float, y: float, anchor: str, kind: str = "") -> None:
        named = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}"{named}>{escape(text)}</text>')

    def svg(self, what: str) -> str:
        """Give the chart; `what` says what it shows to those who do not see it."""
        return _figure(self.title, self.parts, self.height, what)


def steps(title: str, edges: Sequence[float], values: Sequence[float], x_label: str, what: str) -> str:
    """Line of steps with its area: a value for each stretch between two of `edges`, and their mean.

    Examples
    --------
    >>> "mean 15" in steps("Speed", [0, 1, 2], [10, 20], "seconds", "Rows a second over time")
    True
    """
    frame = _Frame(title, (edges[0], edges[-1]), (0, 1.05 * max(values, default=0)), x_label)
    corners = [(at, value) for (a, b), value in zip(pairwise(edges), values, strict=True) for at in (a, b)]
    ground = [(edges[0], 0.0), *corners, (edges[-1], 0.0)]
    frame.parts.append(f'<polygon class="area" points="{frame.path(ground)}"/>')
    frame.parts.append(f'<polyline class="line" points="{frame.path(corners)}"/>')
    whole = sum((b - a) * value for (a, b), value in zip(pairwise(edges), values, strict=True))
    mean = whole / (edges[-1] - edges[0]) if edges[-1] > edges[0] else 0.0
    frame.level(mean, f"mean {_short(mean)}")
    return frame.svg(what)


def columns(title: str, edges: Sequence[float], values: Sequence[float], x_label: str, what: str) -> str:
    """Upright bars, one for each stretch between two of `edges`.

    Examples
    --------
    >>> columns("Rows", [0, 1, 2], [10, 20], "shard", "Rows of each shard").count('class="bar"')
    2
    """
    frame = _Frame(title, (edges[0], edges[-1]), (0, 1.05 * max(values, default=0)), x_label)
    for (a, b), value in zip(pairwise(edges), values, strict=True):
        left, right, top = frame.across(a), frame.across(b), frame.down(value)
        width = max(0.5, (right - left) * 0.88)
        tall = round(frame.base - top, 1)
        frame.parts.append(f'<rect class="bar" x="{left}" y="{top}" width="{width:.1f}" height="{tall}"/>')
    return frame.svg(what)


def bars(title: str, values: Sequence[tuple[str, float]], show: Callable[[float], str], what: str) -> str:
    """Bars that lie, each with its name before and its value behind.

    Examples
    --------
    >>> bars("Labels", [("-1", 3), ("1", 4)], lambda rows: f"{rows} rows", "Rows of each label").count("rows</text>")
    2
    """
    step, top = 22, 26
    height = top + step * len(values) + 6
    most = max((value for _, value in values), default=0) or 1
    frame = [f'<text x="0" y="15" class="name">{escape(title)}</text>']
    left, room = 92, WIDTH - 92 - 120
    for place, (name, value) in enumerate(values):
        y = top + step * place
        wide = round(room * value / most, 1)
        cut = name if len(name) <= 13 else f"{name[:12]}…"
        frame.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(cut)}</text>')
        frame.append(f'<rect class="bar" x="{left}" y="{y + 2}" width="{max(wide, 0.5)}" height="{step - 6}"/>')
        frame.append(f'<text x="{left + wide + 7}" y="{y + 14}">{escape(show(value))}</text>')
    return _figure(title, frame, height, what)


def scatter(
    title: str,
    points: Points,
    x_label: str,
    what: str,
    *,
    band: Sequence[tuple[float, float, float]] = (),
) -> str:
    """Dots around the diagonal; `band` are its edges, as places across with their lowest and highest values.

    Examples
    --------
    >>> scatter("Kernel", [(0.2, 0.3), (0.4, 0.5)], "exact", "Estimates").count("<circle")
    2
    """
    across = [*(x for x, _ in points), *(x for x, _, _ in band)] or [0.0, 1.0]
    values = [*across, *(y for _, y in points)]
    frame = _Frame(title, (min(across), max(across)), (min(values), max(values)), x_label, height=WIDTH - 60)
    if band:
        edge = [*((x, high) for x, _, high in band), *((x, low) for x, low, _ in reversed(band))]
        box = (_LEFT, _TOP, WIDTH - _LEFT - _RIGHT, frame.base - _TOP)
        inner = f'x="{box[0]}" y="{box[1]}" width="{box[2]}" height="{box[3]}" viewBox="{" ".join(map(str, box))}"'
        frame.parts.append(f'<svg {inner}><polygon class="band" points="{frame.path(edge)}"/></svg>')  # cuts it off
    ends = [(at, at) for at in frame.x]
    frame.parts.append(f'<polyline class="axis" points="{frame.path(ends)}"/>')
    radius = 2.5 if len(points) <= 500 else 1.6
    for x, y in points:
        frame.parts.append(f'<circle class="dot" cx="{frame.across(x)}" cy="{frame.down(y)}" r="{radius}"/>')
    return frame.svg(what)


def _figure(title: str, parts: Sequence[str], height: float, what: str) -> str:
    label = escape(f"{title}: {what}")
    inside = "\n".join(parts)
    return (
        f'<figure><svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">\n{inside}\n</svg>'
        f"<figcaption>{escape(what)}</figcaption></figure>"
    )


def _wide(ends: tuple[float, float]) -> tuple[float, float]:
    """Give ends that differ."""
    low, high = ends
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers in a range.

    Examples
    --------
    >>> _ticks(0, 98)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(step * place, 12) for place in range(first, math.floor(high / step + 1e-9) + 1)]


def _short(value: float) -> str:
    """Show a number in a few digits.

    Examples
    --------
    >>> [_short(value) for value in (0, 0.25, 999.7, 1500, 20_000, 999_700, 3_400_000, -0.2)]
    ['0', '0.25', '1k', '1.5k', '20k', '1M', '3.4M', '-0.2']
    """
    size = abs(value)
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= 0.9995 * factor:  # which three digits round up to it
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"
