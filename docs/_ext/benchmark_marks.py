"""Tables at the end of the page of benchmarks: the marks that were saved, each kind of processor in a column."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAGE = "explanation/benchmarks"
KINDS = {512: "AVX-512", 256: "AVX2"}


def tables(kinds: Sequence[dict[str, Any]]) -> str:
    """Make the tables, from what was saved for each kind of processor."""
    machines = [kind["machine"] for kind in kinds]
    dates = [sorted({each["date"] for each in kind["benchmarks"].values()}) for kind in kinds]
    marks = [[mark for each in kind["benchmarks"].values() for mark in each["marks"]] for kind in kinds]
    head = [KINDS.get(machine["vector_bits"], f"{machine['vector_bits']} bits") for machine in machines]
    facts = {
        "processor": [f"{machine['processor']}; {machine['cores']} cores" for machine in machines],
        "loops compiled for": [machine["code_for"] for machine in machines],
        "vectors of these loops, bits": [machine["vector_bits"] for machine in machines],
        "NumPy uses up to": [machine["numpy_for"] for machine in machines],
        "BLAS": [machine["blas"] for machine in machines],
        "versions": [", ".join(map(" ".join, machine["versions"].items())) for machine in machines],
        "measured": [" to ".join(dict.fromkeys((each[0], each[-1]))) for each in dates],
        "marks that hold": [f"{sum(mark['holds'] for mark in each)} of {len(each)}" for each in marks],
    }
    parts = ["## What was measured on", table(["", *head], [[name, *cells] for name, cells in facts.items()])]
    for name in dict.fromkeys(name for kind in kinds for name in kind["benchmarks"]):
        of_kinds = [
            {mark["name"]: mark for mark in kind["benchmarks"].get(name, {"marks": []})["marks"]} for kind in kinds
        ]
        figures = dict.fromkeys(figure for marks in of_kinds for figure in marks)
        rows = [[figure, *cells([marks.get(figure) for marks in of_kinds])] for figure in figures]
        first, _, _ = str(
            ast.get_docstring(ast.parse((BENCHMARKS / f"{name}.py").read_text(encoding="utf-8")))
        ).partition("\n")
        parts += [f"## {name}", first, table(["", "mark", *head], rows)]
    return "\n\n".join(parts)


def cells(marks: Sequence[dict[str, Any] | None]) -> list[str]:
    """Make the cells of a figure: its mark, or the mark of each kind if they differ, and what was measured.

    Examples
    --------
    >>> cells([{"figure": 1.5, "least": 1, "holds": True}, {"figure": 1234, "most": 200, "holds": False}, None])
    ['≥ 1; ≤ 200', '1.5', '**1,234, missed**', '']
    """
    found = [mark for mark in marks if mark]
    bounds = [f"≥ {mark['least']:,g}" if "least" in mark else f"≤ {mark['most']:,g}" for mark in found]
    figures = [f"{mark['figure']:,g}" if mark else "" for mark in marks]
    return [
        "; ".join(dict.fromkeys(bounds)),
        *(
            f"**{figure}, missed**" if mark and not mark["holds"] else figure
            for figure, mark in zip(figures, marks, strict=True)
        ),
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Make a table in Markdown."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def read(_: Sphinx, docname: str, source: list[str]) -> None:
    """Add the tables to the page."""
    if docname == PAGE:
        paths = (BENCHMARKS / "results").glob("*.json")
        kinds = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        source[0] += tables(sorted(kinds, key=lambda kind: -kind["machine"]["vector_bits"]))


def setup(app: Sphinx) -> dict[str, Any]:
    """Complete the page when it is read."""
    app.connect("source-read", read)
    app.connect("env-get-outdated", lambda *_: [PAGE])  # marks may have been saved
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
