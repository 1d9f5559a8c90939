"""What a benchmark prints: lines of JSON, and in the end its marks, figures with the least or the most they may be."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


class Report:
    """Records of one benchmark.

    Parameters
    ----------
    benchmark : str
        Name of the script.
    """

    def __init__(self, benchmark: str) -> None:
        self.benchmark = benchmark
        self.marks: list[dict[str, Any]] = []

    def emit(self, what: str, **values: Any) -> dict[str, Any]:
        """Print a line of JSON."""
        record = {"benchmark": self.benchmark, "what": what, **values}
        print(json.dumps(record), flush=True)
        return record

    def mark(self, name: str, figure: float, *, least: float | None = None, most: float | None = None) -> None:
        """Note a figure, a ratio unless its name has a unit, of which the least or the most is asked."""
        holds = figure <= most if least is None else figure >= least
        bound = {"most": most} if least is None else {"least": least}
        values = {"name": name, "figure": float(f"{figure:.4g}"), **bound, "holds": bool(holds)}
        self.marks.append({"benchmark": self.benchmark, "what": "mark", **values})

    def end(self, *, quick: bool) -> int:
        """Print the marks as lines of JSON, then as a table; return 1 if one is missed, except of small inputs."""
        for mark in self.marks:
            print(json.dumps(mark))
        print_marks(self.marks)
        return int(not quick and not all(mark["holds"] for mark in self.marks))


def print_marks(marks: Iterable[dict[str, Any]]) -> None:
    """Print a table of figures, marks, and whether they hold."""
    for mark in marks:
        bound = f"≤ {mark['most']:,g}" if "most" in mark else f"≥ {mark['least']:,g}"
        holds = "holds" if mark["holds"] else "missed"
        print(f"{mark['benchmark']:<12}{mark['name']:<66}{mark['figure']:>10,g}  {bound:<10}{holds}")
