"""One HTML page with everything in it: no scripts, no links, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["page", "picture", "table"]

_CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c1e21; background: #fff; max-width: 62rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #e4e6ea; }
th:first-child, td:first-child { text-align: left; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; }
img { max-width: 100%; height: auto; }
""".strip()


def page(title: str, parts: Sequence[str]) -> str:
    """Page of a title and of parts that are HTML already.

    Examples
    --------
    >>> "<h1>a &lt; b</h1>" in page("a < b", [])
    True
    """
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    head = f'<meta charset="utf-8">\n<title>{escape(title)}</title>\n<style>\n{_CSS}\n</style>'
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def picture(png: bytes, what: str) -> str:
    """Picture as part of a page; `what` says what it shows to those who do not see it."""
    data = base64.b64encode(png).decode("ascii")
    return f'<figure><img alt="{escape(what)}" src="data:image/png;base64,{data}"></figure>'


def table(title: str, rows: Sequence[Mapping[str, object]], note: str = "") -> str:
    """Table of rows, a column for each key of any of them, numbers shown short; nothing for no rows.

    Examples
    --------
    >>> table("Classes", [{"label": 1}, {"label": 2, "f1": 0.5}]).splitlines()[-2:]
    ['<tr><td>2</td><td>0.5000</td></tr>', '</table>']
    """
    if not rows:
        return ""
    lines = [f"<h2>{escape(title)}</h2>", *([f"<p>{escape(note)}</p>"] if note else []), "<table>"]
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines.append("<tr>" + "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names) + "</tr>")
    shown = [[escape(_shown(row.get(name))) for name in names] for row in rows]
    lines += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in shown]
    return "\n".join([*lines, "</table>"])


def _shown(value: object) -> str:
    if value is None:
        return "–"  # noqa: RUF001 - the dash that tables have for nothing
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 1000 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and abs(value) > 9999 else str(value)
