"""Size of the project, by package: ``make size`` prints it, and the test holds the totals.

Lines of code are those with code on them, docstrings left out, also those of attributes as PEP 257 calls them: strings
after an assignment. Every ``.py`` file of the package is a module; lines of tests are all lines of the ``.py`` files
below tests/.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

MOST_CODE = 30_954
MOST_MODULES = 223
MOST_TEST_LINES = 39_712

NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Lines of a module with code on them."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        for text in docstrings(node):
            lines.difference_update(range(text.lineno, (text.end_lineno or 0) + 1))
    return len(lines)


def docstrings(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the docstring of a module, class or function, and those of the names that it assigns to."""
    body = node.body if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else []
    for before, each in zip([None, *body], body, strict=False):
        is_text = (
            isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
        )
        if is_text and (before is None or isinstance(before, ast.Assign | ast.AnnAssign)):
            yield each


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
        '"""Module."""\n\n# comment\nx = """two\nlines"""\n"""Text."""\n\n\n'
        'def f():\n    """Nothing."""\n    return x  # more\n'
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
