"""The page of results in the documentation: tables and pictures of a full run, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dkfeat.errors import ConfigError
from dkfeat.store.outputs import check_outputs

from ..parts import write_whole
from .html_report import cell_text, minutes, verdict_mark

__all__ = ["check_page", "write_page"]

MOST_BYTES = 2 * 2**20
"""Maximum size of all pictures together."""
TITLE = "# The papers' experiments"
"""First line of the page, by which an earlier one is recognised."""
ORIGIN = (
    "Written by `python jobs/reproduce.py --data DIR --out report --mode full --docs docs/results.md`; do not edit "
    "it by hand. Each experiment is a module of `jobs/reproduction/experiments/`."
)


def check_page(page: str) -> None:
    """Check that the page may be written: there is none, or an earlier one.

    Raises
    ------
    ConfigError
        If the file is another one, or lies in a data set or a model.
    """
    is_earlier = Path(page).is_file() and Path(page).read_bytes().startswith(TITLE.encode())
    check_outputs([page], overwrite=is_earlier)


def write_page(page: Path, out: Path, results: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Write the page and, into ``images/results`` beside it, its pictures.

    Experiments without a result keep the sections and pictures that they have on an earlier page.

    Parameters
    ----------
    page : Path
        Markdown file.
    out : Path
        Folder of the results.
    results : sequence of mapping
    names : sequence of str
        Experiments that the page must have.

    Raises
    ------
    ConfigError
        If an experiment is missing or was not run in full mode, or if the pictures are too large.
    """
    found = {result["name"]: result for result in results}
    kept = {name: section for name, section in _sections(page).items() if name in names and name not in found}
    lacking = [name for name in names if name not in kept and found.get(name, {}).get("mode") != "full"]
    if lacking:
        raise ConfigError(f"{page} keeps full runs only, but {', '.join(lacking)} had none; run with --mode full first")
    folder = page.parent / "images" / "results"
    pictures = {
        name: (folder / name).read_bytes()
        for _, section in kept.values()
        for name in re.findall(r'="images/results/([^"]+)"', section)
    } | {
        f"{result['name']}-{picture['name']}-{style}.png": (
            out / result["name"] / f"{picture['name']}-{style}.png"
        ).read_bytes()
        for result in results
        for picture in result["pictures"]
        for style in ("light", "dark")
    }
    if (size := sum(map(len, pictures.values()))) > MOST_BYTES:
        raise ConfigError(
            f"the pictures take {size:,} bytes, but {page} may keep {MOST_BYTES:,}; draw fewer or smaller ones"
        )
    for name, png in pictures.items():
        write_whole(folder / name, png)
    for stale in sorted(folder.glob("*.png")):
        if stale.name not in pictures:
            stale.unlink()
    every = [kept[name] if name in kept else (_entry(found[name]), _section(found[name])) for name in names]
    contents = "\n".join(entry for entry, _ in every)
    write_whole(page, "\n\n".join([TITLE, ORIGIN, contents, *(section for _, section in every)]) + "\n")


def _sections(page: Path) -> dict[str, tuple[str, str]]:
    """Read the entry in the contents and the section of each experiment on an earlier page, by name."""
    opening, *rest = re.split(r'^(?=<a id=")', page.read_text(encoding="utf-8") if page.is_file() else "", flags=re.M)
    entries = {found[2]: found[0] for found in re.finditer(r"^- \[(.*)\]\(#(\w+)\).*$", opening, re.M)}
    sections = {section.split('"')[1]: section.rstrip() for section in rest}
    return {name: (entries[name], section) for name, section in sections.items() if name in entries}


def _entry(result: Mapping[str, Any]) -> str:
    signs = "".join(verdict_mark(verdict["holds"])[0] for verdict in result["verdicts"])
    return f"- [{result['title']}](#{result['name']}) {signs}".rstrip()


def _section(result: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    parts = [
        f'<a id="{result["name"]}"></a>',
        f"## {result['title']}",
        f"{result['source']}. {result['split_note']}",
    ]
    if result["verdicts"]:
        parts += ["Statements of the paper:", "\n".join(map(_verdict, result["verdicts"]))]
    for table in result["tables"]:
        parts += [f"### {table['title']}", _table(table), *filter(None, (table.get("distance"), table["note"]))]
    for picture in result["pictures"]:
        parts += [f"### {picture['title']}", _picture(result["name"], picture), picture["alt"]]
    if result["differences"]:
        parts += ["Differences from the paper:", "\n".join(f"- {text}" for text in result["differences"])]
    parts.append(
        f"Run on {result['date']} with seed {result['seed']}: {minutes(result['processor_seconds'])} of one core in "
        f"{result['processes']} processes; {result['machine']}; {versions}."
    )
    return "\n\n".join(parts)


def _verdict(verdict: Mapping[str, Any]) -> str:
    sign, words = verdict_mark(verdict["holds"])
    detail = f" {verdict['detail']}" if verdict["detail"] else ""
    return f"- {sign} ({words}) {verdict['sentence']}{detail}"


def _table(table: Mapping[str, Any]) -> str:
    rows = [[_text(cell) for cell in row] for row in (table["columns"], *table["rows"])]
    under = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], under, *rows[1:]))


def _text(cell: object) -> str:
    return cell_text(cell).replace("|", "\\|")


def _picture(experiment: str, picture: Mapping[str, Any]) -> str:
    base = f"images/results/{experiment}-{picture['name']}"
    alt = picture["alt"].replace('"', "'")
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{base}-dark.png">'
        f'<img alt="{alt}" src="{base}-light.png" width="{round(picture["width"] * 100)}"></picture>'
    )
