"""Pages of the documentation: their blocks of code, and how these are run as they are printed."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from dkfeat.cli import cli
from tests.programs import ROOT

DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^(?:<!-- runs where (\w+) is installed -->\n)?```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A block of code."""

    language: str
    text: str
    needs: str | None
    """Package without which it is compiled and not run."""


def blocks(page: str) -> list[Block]:
    """Blocks of a page below docs/, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [Block(language, code, needs or None) for needs, language, code in _BLOCK.findall(text)]


def texts(page: str, language: str) -> list[str]:
    """Blocks of one language."""
    return [block.text for block in blocks(page) if block.language == language]


def run_command(line: str) -> str:
    """Run a line that starts with `dkfeat` in this process; what it printed."""
    words = shlex.split(line, comments=True)
    assert words[0] == "dkfeat", line
    done = CliRunner().invoke(cli, words[1:])
    assert done.exit_code == 0, f"{line}\n{done.output}"
    return done.output


def run_page(page: str, replaced: Callable[[str], str] = lambda text: text) -> dict[str, Any]:
    """Run the blocks `sh` and `python` of a page in the working folder; what its programs named.

    Parameters
    ----------
    page : str
        Path below docs/.
    replaced : callable
        Makes, of a block's text, the text that is run.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        text = replaced(block.text)
        if block.language == "python":
            program = compile(text, str(Path(page)), "exec")
            if block.needs is None or importlib.util.find_spec(block.needs):
                exec(program, names)
        elif block.language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                run_command(line)
    return names
