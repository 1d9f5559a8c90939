"""HTML for people: whole pages, and the cards that notebooks show; no scripts, no links, nothing loaded from elsewhere.

Colours follow the reader's: a page that of the system, light or dark, a card that of the text around it. What comes
from data or files is escaped here.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

__all__ = ["card", "page", "picture", "sparkline", "table"]

_PAGE = """
:root { color-scheme: light dark; --text: #1c1e21; --back: #fff; --line: #e4e6ea; --quiet: #5f6670; --mark: #1f5fa8; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e3e6ea; --back: #16181c; --line: #33373e; --quiet: #a0a7b1; --mark: #7db4f0; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 62rem;
       margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
""".strip()

# Notebooks have themes of their own, light and dark: text keeps their colour, and greys are made of transparency. They
# also have rules for all tables, stripes and alignment, which win over others unless these are important.
_CARD = """
.dkfeat-card { display: inline-block; max-width: 46rem; border: 1px solid rgba(128,128,128,.45); border-radius: 6px;
  padding: .5em .9em .6em; font-size: 13px; line-height: 1.45; }
.dkfeat-card .dkfeat-title { font-weight: 600; font-size: 14px; margin: 0 0 .3em; }
.dkfeat-card .dkfeat-quiet { font-weight: 400; opacity: .7; }
.dkfeat-card table { border-collapse: collapse; border: 0; margin: 0; font-size: 13px; table-layout: auto; }
.dkfeat-card tr, .dkfeat-card th, .dkfeat-card td { background: transparent !important; }
.dkfeat-card th, .dkfeat-card td { border: 0 !important; padding: .1em 1.2em .1em 0 !important;
  text-align: left !important; vertical-align: top; color: inherit; white-space: normal; max-width: none;
  overflow-wrap: anywhere; }
.dkfeat-card th { font-weight: 400 !important; opacity: .7; white-space: nowrap; }
.dkfeat-card .dkfeat-grid th, .dkfeat-card .dkfeat-grid td { text-align: right !important; white-space: nowrap; }
.dkfeat-card .dkfeat-grid th:first-child, .dkfeat-card .dkfeat-grid td:first-child { text-align: left !important; }
.dkfeat-card details { margin-top: .4em; } .dkfeat-card summary { cursor: pointer; opacity: .7; }
.dkfeat-card svg { vertical-align: middle; }
""".strip()

_BARS = 60
"""Bars of a sparkline; more values are joined."""


def page(title: str, parts: Sequence[str], css: str = "") -> str:
    """Page of a title and of parts that are HTML already, with styles of their own; light or dark as the system is.

    Examples
    --------
    >>> "<h1>a &lt; b</h1>" in page("a < b", [])
    True
    """
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    head = "\n".join(
        [
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_PAGE}\n{css}</style>",
        ]
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def picture(png: bytes, what: str) -> str:
    """Picture as part of a page; `what` says what it shows to those who do not see it."""
    data = base64.b64encode(png).decode("ascii")
    return f'<figure><img alt="{escape(what)}" src="data:image/png;base64,{data}"></figure>'


def table(title: str, rows: Sequence[Mapping[str, object]], note: str = "") -> str:
    """Table of rows under its title, a column for each key of any of them, numbers short; nothing for no rows.

    Examples
    --------
    >>> table("Classes", [{"label": 1}, {"label": 2, "f1": 0.5}]).splitlines()[-2:]
    ['<tr><td>2</td><td>0.5000</td></tr>', '</table></div>']
    """
    if not rows:
        return ""
    lines = [*([f"<h2>{escape(title)}</h2>"] if title else []), *([f"<p>{escape(note)}</p>"] if note else [])]
    lines += ['<div class="wide"><table>', *_rows(rows)]
    return "\n".join([*lines, "</table></div>"])


def card(
    title: str,
    facts: Mapping[str, object],
    *,
    note: str = "",
    details: Mapping[str, Mapping[str, object] | Sequence[Mapping[str, object]]] | None = None,
    pictures: Mapping[str, str] | None = None,
) -> str:
    """Card of an object, as a notebook shows it in place of its ``repr``.

    Parameters
    ----------
    title : str
        What it is.
    facts : mapping
        What there is to know at a glance, by name.
    note : str
        Beside the title, such as its state.
    details : mapping or None
        By their headings, further facts or rows of a table, folded away; what is empty is left out.
    pictures : mapping or None
        HTML such as `sparkline` gives it, by the name of the fact it stands for.

    Examples
    --------
    >>> "<th>kernel</th><td>a &lt; b</td>" in card("Map", {"kernel": "a < b"})
    True
    """
    beside = f' <span class="dkfeat-quiet">{escape(note)}</span>' if note else ""
    lines = [f"<style>{_CARD}</style>", '<div class="dkfeat-card">']
    lines += [f'<div class="dkfeat-title">{escape(title)}{beside}</div>', "<table>", *_facts(facts)]
    lines += [f"<tr><th>{escape(name)}</th><td>{html}</td></tr>" for name, html in (pictures or {}).items()]
    lines.append("</table>")
    for name, held in (details or {}).items():
        if held:
            is_facts = isinstance(held, Mapping)
            inside = _facts(held) if isinstance(held, Mapping) else _rows(held)
            kind = "" if is_facts else ' class="dkfeat-grid"'
            lines += [f"<details><summary>{escape(name)}</summary><table{kind}>", *inside, "</table></details>"]
    return "\n".join([*lines, "</div>"])


def sparkline(values: Sequence[float], what: str, *, width: int = 240, height: int = 28) -> str:
    """Row of bars in the colour of the text, as SVG of fixed size: the shape of many numbers at a glance.

    Parameters
    ----------
    values : sequence of float
        At least 0. Where there are more than 60, a bar is the mean of neighbours.
    what : str
        What it shows, to those who do not see it.
    width, height : int
        Pixels.

    Examples
    --------
    >>> sparkline([1.0, 2.0], "rows by shard").count("<rect")
    2
    >>> sparkline([], "rows by shard")
    ''
    """
    if not values:
        return ""
    n = min(len(values), _BARS)
    bounds = [len(values) * bar // n for bar in range(n + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    top, step = max(means) or 1.0, min(width / n, 12.0)
    bars = []
    for bar, mean in enumerate(means):
        tall = max(1.0, height * mean / top)
        bars.append(
            f'<rect x="{bar * step:.2f}" y="{height - tall:.2f}" width="{step * 0.8:.2f}" height="{tall:.2f}"/>'
        )
    wide = step * n
    return (
        f'<svg width="{wide:.0f}" height="{height}" viewBox="0 0 {wide:.0f} {height}" fill="currentColor" '
        f'fill-opacity="0.55" role="img" aria-label="{escape(what)}"><title>{escape(what)}</title>{"".join(bars)}</svg>'
    )


def _facts(facts: Mapping[str, object]) -> list[str]:
    return [f"<tr><th>{escape(name)}</th><td>{escape(_shown(value))}</td></tr>" for name, value in facts.items()]


def _rows(rows: Sequence[Mapping[str, object]]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["<tr>" + "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names) + "</tr>"]
    shown = [[escape(_shown(row.get(name))) for name in names] for row in rows]
    return lines + ["<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in shown]


def _shown(value: object) -> str:
    if value is None:
        return "–"  # noqa: RUF001 - the dash that tables have for nothing
    if isinstance(value, float):
        if 0 < abs(value) < 0.001:
            return f"{value:.3g}"
        return f"{value:.4f}" if abs(value) < 1000 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and abs(value) > 9999 else str(value)
