"""Size of the project, by package: ``make size`` prints it, and the test holds the totals.

Lines of code are those with code on them, docstrings of modules, classes and functions left out; every ``.py`` file of
the package is a module; lines of tests are all lines of the ``.py`` files below tests/.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent

MOST_CODE = 32_007
MOST_MODULES = 222
MOST_TEST_LINES = 39_868

NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Lines of a module with code on them."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def sizes(root: Path = ROOT) -> dict[str, Counter[str]]:
    """Lines of code, modules and lines of tests, each by package."""
    found: dict[str, Counter[str]] = {"code": Counter(), "modules": Counter(), "tests": Counter()}
    for path in (root / "dkfeat").rglob("*.py"):
        package = _package(path, root / "dkfeat")
        found["code"][package] += code_lines(path.read_text(encoding="utf-8"))
        found["modules"][package] += 1
    for path in (root / "tests").rglob("*.py"):
        found["tests"][_package(path, root / "tests")] += len(path.read_text(encoding="utf-8").splitlines())
    return found


def _package(path: Path, tree: Path) -> str:
    folder, *file = path.relative_to(tree).parts
    return folder if file else "."


def test_sizes__stay_within_the_totals():
    found = sizes()
    code, modules, tests = (found[name].total() for name in ("code", "modules", "tests"))
    assert (code <= MOST_CODE, modules <= MOST_MODULES, tests <= MOST_TEST_LINES) == (True, True, True), (
        f"{code:,} lines of code (at most {MOST_CODE:,}), {modules} modules (at most {MOST_MODULES}) and {tests:,} "
        f"lines of tests (at most {MOST_TEST_LINES:,}): delete what became superfluous, or raise the total here and "
        "say in the commit what the lines are for"
    )


def test_code_lines__leave_out_docstrings_comments_and_blank_lines():
    source = (
        '"""Module."""\n\n# comment\nx = """two\nlines"""\n\n\ndef f():\n    """Nothing."""\n    return x  # more\n'
    )
    assert code_lines(source) == 4


def table() -> str:
    """The sizes of each package and in total, a line each."""
    found = sizes()
    code, modules, tests = (found[kind] for kind in ("code", "modules", "tests"))
    lines = [(name, code[name], modules[name], tests[name]) for name in sorted(code | tests)]
    lines.append(("total", code.total(), modules.total(), tests.total()))
    return f"{'package':16}{'code':>8}{'modules':>9}{'tests':>8}\n" + "".join(
        f"{name:16}{n_code:>8,}{n_modules:>9}{n_tests:>8,}\n" for name, n_code, n_modules, n_tests in lines
    )


if __name__ == "__main__":
    sys.stdout.write(table())
