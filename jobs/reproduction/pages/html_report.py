"""All results as one self-contained HTML page: embedded pictures, light and dark, and no scripts."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["cell_text", "explained", "minutes", "verdict_mark", "write_html"]

_CSS = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #ffffff; --line: #dfe2e6; --soft: #5c636b;
        --yes: #00704f; --no: #b3261e; --link: #005a9c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e7e9; --paper: #16181b; --line: #33373d; --soft: #a4abb3; --yes: #3fd0a0; --no: #ff8f85;
          --link: #7cc4f0; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
       margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.25rem; margin-top: 3rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; } a { color: var(--link); }
.soft, figcaption { color: var(--soft); font-size: .9rem; } p { margin: .4rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; display: block; }
ul.verdicts { list-style: none; padding: 0; } ul.verdicts li { padding-left: 1.6rem; text-indent: -1.6rem; }
.yes { color: var(--yes); } .no { color: var(--no); } .mark { display: inline-block; width: 1.6rem; text-indent: 0; }
""".strip()

MARKS = {True: ("✓", "yes", "confirmed"), False: ("✗", "no", "not confirmed"), None: ("–", "soft", "not measured")}


def write_html(file: Path, out: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write the page of results whose pictures are below `out`."""
    from ..parts import write_whole

    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>The papers' experiments</title>\n<style>\n{_CSS}\n</style>"
    )
    body = "\n".join([_opening(results), *(_section(out, result) for result in results)])
    write_whole(file, f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n')


def cell_text(value: object) -> str:
    """Format a table cell.

    Examples
    --------
    >>> [cell_text(value) for value in (97.2, 0.000123456, 15000, None, "b = 8", 0.0)]
    ['97.20', '0.0001235', '15,000', '–', 'b = 8', '0']
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:#.4g}" if value else "0"
    return f"{value:,}" if isinstance(value, int) else str(value)


def verdict_mark(holds: bool | None) -> tuple[str, str]:
    """Return the symbol of a verdict, and its meaning."""
    sign, _, words = MARKS[holds]
    return sign, words


def explained(verdict: Mapping[str, Any]) -> str:
    """Return the numbers of a verdict and, if the statement does not hold, the reason."""
    reason = verdict.get("reason") if verdict["holds"] is False else ""
    return f"{verdict['detail']} Why: {reason}".lstrip() if reason else verdict["detail"]


def minutes(seconds: float) -> str:
    """Format a duration."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def _opening(results: Sequence[Mapping[str, Any]]) -> str:
    every = [verdict["holds"] for result in results for verdict in result["verdicts"]]
    counts = f"{every.count(True)} confirmed, {every.count(False)} not confirmed, {every.count(None)} not measured"
    links = "\n".join(
        f'<li><a href="#{escape(result["name"])}">{escape(result["title"])}</a>{_tally(result)}</li>'
        for result in results
    )
    title = "<h1>The papers' experiments, with dkfeat</h1>"
    return f"{title}\n<p>Statements of the papers: {counts}.</p>\n<ol>\n{links}\n</ol>"


def _tally(result: Mapping[str, Any]) -> str:
    signs = [MARKS[verdict["holds"]] for verdict in result["verdicts"]]
    shown = "".join(f'<span class="{kind}" title="{words}">{sign}</span>' for sign, kind, words in signs)
    return f" {shown}" if shown else ""


def _section(out: Path, result: Mapping[str, Any]) -> str:
    parts = [
        f'<h2 id="{escape(result["name"])}">{escape(result["title"])}</h2>',
        f'<p class="soft">{escape(result["source"])}</p>',
        f"<p>{escape(result['split_note'])}</p>",
        _verdicts(result["verdicts"]),
        *(_table(table) for table in result["tables"]),
        *(_picture(out / result["name"], picture) for picture in result["pictures"]),
    ]
    if result["differences"]:
        items = "\n".join(f"<li>{escape(text)}</li>" for text in result["differences"])
        parts.append(f"<h3>Differences from the paper</h3>\n<ul>\n{items}\n</ul>")
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    parts.append(
        f'<p class="soft">{escape(result["mode"])} mode, seed {result["seed"]}, {escape(result["date"])}, '
        f"{minutes(result['processor_seconds'])} of one core in {result['processes']} processes; "
        f"{escape(result['machine'])}; {escape(versions)}.</p>"
    )
    return "\n".join(parts)


def _verdicts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for verdict in verdicts:
        sign, kind, words = MARKS[verdict["holds"]]
        told = explained(verdict)
        detail = f'<br><span class="soft">{escape(told)}</span>' if told else ""
        mark = f'<span class="mark {kind}" title="{words}" aria-label="{words}">{sign}</span>'
        lines.append(f"<li>{mark}{escape(verdict['sentence'])}{detail}</li>")
    return f'<h3>Statements of the papers</h3>\n<ul class="verdicts">\n{chr(10).join(lines)}\n</ul>' if lines else ""


def _table(table: Mapping[str, Any]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table["columns"])
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell_text(cell))}</td>" for cell in row) + "</tr>" for row in table["rows"]
    )
    distance = f"\n<p>{escape(table['distance'])}</p>" if table.get("distance") else ""
    note = f'\n<p class="soft">{escape(table["note"])}</p>' if table["note"] else ""
    shown = f'<div class="wide"><table>\n<tr>{head}</tr>\n{rows}\n</table></div>'
    return f"<h3>{escape(table['title'])}</h3>\n{shown}{distance}{note}"


def _picture(folder: Path, picture: Mapping[str, Any]) -> str:
    light, dark = (_inlined(folder / f"{picture['name']}-{style}.png") for style in ("light", "dark"))
    size = f'width="{round(picture["width"] * 112)}" height="{round(picture["height"] * 112)}"'
    return (
        f'<h3>{escape(picture["title"])}</h3>\n<figure><picture><source media="(prefers-color-scheme: dark)" '
        f'srcset="{dark}"><img {size} alt="{escape(picture["alt"])}" src="{light}"></picture>'
        f"<figcaption>{escape(picture['alt'])}</figcaption></figure>"
    )


def _inlined(file: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"
