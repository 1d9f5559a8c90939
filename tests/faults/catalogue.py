"""Faults that dkfeat must withstand, and the table of the tests that cover them.

tests/data/fault_cases.txt has a line for each case: id, fault, expected result.

    python -m tests.faults.catalogue

writes the table at the end of docs/explanation/reliability.md. A test names its cases by
``@pytest.mark.fault("P-02")``; ids are literals, so that the table can be made without running the tests.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "reliability.md"
MARK = "<!-- From here on written by: python -m tests.faults.catalogue -->"

SECTIONS = {
    "I": "Bad input",
    "P": "Processes",
    "S": "Storage",
    "C": "Concurrency",
    "D": "Determinism",
    "V": "Change between runs",
    "X": "Security",
}


def _read(path: Path) -> dict[str, tuple[str, str]]:
    rows = [line.split(" | ") for line in path.read_text(encoding="utf-8").splitlines()]
    return {case: (done, required) for case, done, required in rows}


CASES = _read(ROOT / "tests" / "data" / "fault_cases.txt")
"""Fault and expected result of each case."""

REASONS: dict[str, str] = {
    "P-08": "The driver cannot see why workers died: the message names memory as the likely cause.",
    "S-05": "A flipped bit in a committed shard of the right size is found by reading it, as verify and training do; "
    "featurize compares only names and sizes. Delete the shards that verify names, and the next run makes them "
    "again.",
    "D-07": "Needs several interpreters and environments. `make lowest` runs `make test` on the oldest versions "
    "allowed; stored data sets (V-07) and reference values (D-11) compare versions.",
}
"""Reasons for cases without a test, or with a partial test."""


def covering_tests(folder: Path = ROOT / "tests") -> dict[str, list[str]]:
    """Cases with the tests that are marked to cover them, as file::test, in order."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if ".fault(" not in text:
            continue
        for name, case in _marks(ast.parse(text)):
            tests = found.setdefault(case, [])
            place = f"{path.relative_to(folder).as_posix()}::{name}"
            if place not in tests:
                tests.append(place)
    return found


def _marks(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Pairs of test and case; a mark belongs to a test, or to one of its parameters."""
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef):
            for decorator in statement.decorator_list:
                for call in ast.walk(decorator):
                    if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.fault":
                        yield from ((statement.name, ast.literal_eval(case)) for case in call.args)


def table() -> str:
    """Markdown table of each section: cases with their tests, or the reason for having none."""
    tests = covering_tests()
    covered = sum(case in tests for case in CASES)
    n_tests = len({test for names in tests.values() for test in names})
    lines = [
        f"{covered} of {len(CASES)} cases have tests; the tables name {n_tests} tests, some of them for several cases.",
        "",
    ]
    for letter, title in SECTIONS.items():
        lines += [f"## {title}", "", "| case | fault | expected result | tests |", "| --- | --- | --- | --- |"]
        for case, (done, required) in CASES.items():
            if case.startswith(letter):
                cells = [f"`{place}`" for place in tests.get(case, [])]
                cells += [f"*{REASONS[case]}*"] if case in REASONS else []
                lines.append(f"| {case} | {done} | {required} | {'<br>'.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """Return the page with its current table; the text above the mark stays unchanged."""
    return PAGE.read_text(encoding="utf-8").partition(MARK)[0] + MARK + "\n\n" + table()


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
