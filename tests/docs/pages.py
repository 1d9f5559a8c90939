"""Pages of the documentation: their blocks of code, how these are run as printed, and the output that the pages show.

A block `console` has commands after the prompt ``$ ``, each with the output that it prints below it; a block `text`
right after a block `python` or `sh` has what that program, or its last command, prints. What is shown is compared with
what came: ``...`` stands for any text, as in doctest, white space counts as one space, and what differs between
machines and runs (`WILDCARDS`) is equal. What a command writes on standard error may be left out, and so may the whole
output.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from dkfeat.cli import cli
from tests.programs import ROOT

DOCS = ROOT / "docs"
_BLOCK = re.compile(
    r"^(?:<!-- runs where (\w+) is installed -->\n)?```(\w+)\n(.*?)^```(?:\n+```text\n(.*?)^```)?",
    re.DOTALL | re.MULTILINE,
)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)

WILDCARDS = {
    r"[\d.,]+ ?(?:ns|µs|ms|s|min|h)\b": "TIME",
    r"[\d.,]+ ?[kKMGT]?i?B\b": "SIZE",
    r"[\d.,]+ (?:rows|tasks)/s": "RATE",
    r"(?<=loss |alty )\d[\d.e-]+": "LOSS",
    r"\b\d+\.\d+\.\d+\b": "VERSION",
    r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{6,64}\b": "HASH",
    r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z| UTC)?": "DATE",
}
"""Patterns of what differs between machines and runs."""

NOT_RUN = {
    "pip install": "it installs packages, as the environment of the tests was made",
    "python3 -m venv": "as pip install",
    "source .venv": "as pip install",
    ".venv/bin/pip install": "as pip install",
    "make bench": "a long measurement; tests/benchmarks runs its scripts on a few rows",
    "dkfeat featurize 'days/*.parquet'": "clusters of several machines; tests/engine/clusters has them in small",
}
"""Commands that begin like this are not run, for this reason."""


class Block(NamedTuple):
    """A block of code."""

    language: str
    text: str
    needs: str | None
    """Package without which it is compiled and not run."""
    shown: str
    """Output that the page shows in a block `text` right after it."""


def blocks(page: str) -> list[Block]:
    """Blocks of a page below docs/, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [Block(language, code, needs or None, shown) for needs, language, code, shown in _BLOCK.findall(text)]


def texts(page: str, language: str) -> list[str]:
    """Blocks of one language."""
    return [block.text for block in blocks(page) if block.language == language]


def commands(block: Block) -> list[tuple[str, str]]:
    """Commands of a block `sh` or `console`, each on one line, with the output shown below it."""
    if block.language == "sh":
        *lines, last = block.text.replace("\\\n", " ").splitlines()
        return [*((line, "") for line in lines), (last, block.shown)]
    found = _COMMAND.findall(block.text) if block.language == "console" else []
    return [(line.replace("\\\n", " "), shown) for line, shown in found]


def check_output(shown: str, *came: str) -> None:
    """Compare output that a page shows with what came, in any of its forms."""

    def plain(text: str) -> str:
        for pattern, name in WILDCARDS.items():
            text = re.sub(pattern, name, text)
        return re.sub(r"\s*(\.\.\.|…)\s*", "...", text)

    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    same = (doctest.OutputChecker().check_output(plain(shown).strip(), plain(text).strip(), flags) for text in came)
    assert not shown or any(same), f"shown:\n{shown}\nprinted:\n{came[0]}"


def run_command(line: str, shown: str = "") -> str:
    """Run a command, those of dkfeat in this process, and compare its output with what is shown; what it printed."""
    if line.startswith(tuple(NOT_RUN)):
        return ""
    words = shlex.split(line, comments=True)
    is_for_shell = {"|", ">", ">>", "&&", "<"} & set(words) or re.search(r"\s[^\s']*\*", line)
    if words[0] == "dkfeat" and not is_for_shell:
        done = CliRunner().invoke(cli, words[1:], prog_name="dkfeat")
        status, out, both = done.exit_code, done.stdout, done.output
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ran = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
        )
        status, out, both = ran.returncode, ran.stdout, ran.stdout + ran.stderr
    assert status == 0 or shown.startswith("dkfeat: error"), f"{line}\n{both}"
    check_output(shown, both, out)
    return both


def run_page(page: str, replaced: Callable[[str], str] = lambda text: text) -> dict[str, Any]:
    """Run the blocks `sh`, `console` and `python` of a page in the working folder; what its programs named.

    Parameters
    ----------
    page : str
        Path below docs/.
    replaced : callable
        Makes, of a block's text, the text that is run.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        block = block._replace(text=replaced(block.text))
        if block.language == "python":
            program = compile(block.text, str(Path(page)), "exec")
            if block.needs is None or importlib.util.find_spec(block.needs):
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(program, names)
                check_output(block.shown, out.getvalue())
                sys.stdout.write(out.getvalue())  # for tests that read it
        for line, shown in commands(block):
            run_command(line, shown)
    return names
