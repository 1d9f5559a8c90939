"""The page of results in the documentation: tables and pictures of a full run, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from dkfeat.errors import ConfigError
from dkfeat.store.outputs import check_outputs

from ..parts import write_whole
from .html_report import cell_text, explained, minutes, verdict_mark

__all__ = ["check_page", "column", "write_page"]

MOST_BYTES = 2 * 2**20
"""Maximum size of all pictures together."""
TITLE = "# The papers' experiments"
"""First line of the page, by which an earlier one is recognised."""
ORIGIN = (
    "## How this page is made\n\n`python jobs/reproduce.py --data DIR --out report --mode full --docs docs/results.md` "
    "runs the experiments and writes this page; do not edit it by hand. Each experiment is a module of "
    "`jobs/reproduction/experiments/`, and its section ends with the date, the machine and the versions of its run."
)
MARKS = (
    "Each experiment tests statements of a paper: ✓ confirmed by the numbers in its section, ✗ not confirmed, "
    "– not measured."
)
EQUAL_K, FEWER, LINEAR = (
    "Accuracy in percent at equal k, GCWS with b = 8",
    "How many fewer samples GCWS needs for the same accuracy",
    "Smallest k that beats the linear machine",
)
"""Titles of the tables that the page begins with."""
END = '<a id="origin"></a>'


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
    sections = dict(zip(names, (section for _, section in every), strict=True))
    contents = [MARKS, "\n".join(entry for entry, _ in every), *_not_confirmed(sections)]
    write_whole(page, "\n\n".join([TITLE, *_conclusion(sections), *contents, *sections.values(), END, ORIGIN]) + "\n")


def column(text: str, title: str, name: str) -> dict[str, float]:
    """Read a column of the table under a title, by the names in its first column; "< 1" is read as 1."""
    table = text.partition(f"### {title}\n")[2].strip().split("\n\n")[0].splitlines()
    head, _, *rows = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table)
    place = head.index(name)
    return {row[0].split(",")[0]: float(row[place].strip("<> ").replace(",", "")) for row in rows}


def _conclusion(sections: Mapping[str, str]) -> list[str]:
    """Return three sentences and a table, all of them read from the sections."""
    text = "\n\n".join(sections.values())
    if f"### {EQUAL_K}\n" not in text:
        return []
    linear, factors = column(text, LINEAR, "Linear, %"), column(text, FEWER, "Factor")
    nrff, gcws, exact = (column(text, EQUAL_K, name) for name in ("NRFF, k = 1,024", "GCWS, k = 1,024", "Exact GMM"))
    gains = {name: gcws[name] - linear[name] for name in sorted(linear, key=lambda name: linear[name] - gcws[name])}
    near = [name for name in gains if exact[name] - gcws[name] < 1]
    losses, far = [name for name in gains if gains[name] <= 0], [name for name in gains if name not in near]
    fewer = [factor for factor in factors.values() if factor > 1]
    signs = re.findall(r"^- ([✓✗]) \(", text, re.MULTILINE)
    yes, no = signs.count("✓"), signs.count("✗")
    rows = [[name, *(f"{values[name]:.2f}" for values in (linear, nrff, gcws, exact))] for name in gains]
    columns = ["Set", "linear, raw rows", "linear, NRFF", "linear, GCWS", "exact GMM"]
    sentences = [
        f"Linear models on 1,024 GCWS samples of a row beat linear models on the row itself on "
        f"{len(gains) - len(losses)} of {len(gains)} data sets (not on {', '.join(losses)}), by up to "
        f"{max(gains.values()):.0f} points, and on {len(near)} come within a point of the exact GMM kernel machine or "
        f"beat it (not on {', '.join(far)}).",
        f"For the accuracy that random Fourier features (NRFF) have at their largest k, GCWS needs fewer samples on "
        f"{len(fewer)} of {len(factors)} sets, in the median {median(factors.values()):.1f} times fewer.",
        f"Of {yes + no} statements of the papers that were measured, {yes} are confirmed and {no} are "
        "[not, for the reasons below](#not-confirmed).",
    ]
    return [
        "\n".join(f"- {sentence}" for sentence in sentences),
        _table({"columns": columns, "rows": rows}),
        "Test accuracy in percent, with 1,024 features or samples of 8 bits a row; largest gain first. More "
        "columns and other k: [accuracy against the number of samples](#accuracy_curves).",
    ]


def _not_confirmed(sections: Mapping[str, str]) -> list[str]:
    """Return the list of statements that do not hold, each with the reason, as its section has them."""
    found = [
        f"- ✗ {sentence}. {told.rpartition('Why: ')[2]} ([{section.splitlines()[2].removeprefix('## ')}](#{name}))"
        for name, section in sections.items()
        for sentence, told in re.findall(r"^- ✗ \(not confirmed\) (.*?)\.(?: (.*))?$", section, re.MULTILINE)
    ]
    return ["## Not confirmed", "\n".join(found)] if found else []


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
    detail = f" {explained(verdict)}" if explained(verdict) else ""
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
