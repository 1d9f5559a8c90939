"""What pages name exists: files that they link to or run, their anchors, and commands of dkfeat with their options."""

from __future__ import annotations

import re

import click
import pytest

from dkfeat.cli import cli
from tests.docs.pages import DOCS
from tests.programs import ROOT

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted(path for path in DOCS.rglob("*.md") if not {"_build", "generated"} & set(path.parts)),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def anchors(text):
    """Names to which links into a page can lead: those of its headings, and those that it gives."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings} | set(
        re.findall(r'id="(.+?)"', text)
    )


@by_page
def test_page__links_lead_somewhere(page):
    for path, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", page.read_text(encoding="utf-8")):
        to = page.parent / path if path else page
        assert to.exists() or "gallery" in path, path  # made with the site
        assert not anchor or anchor in anchors(to.read_text(encoding="utf-8")), f"{path}#{anchor}"


@by_page
def test_page__programs_and_settings_exist(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w/.-])((?:benchmarks|conf|jobs|tests)/[\w/.-]+\.\w+)([^\n`]*)", text)
    named = [(path.rstrip("."), options) for path, options in named]
    assert [path for path, _ in named if not (ROOT / path).exists()] == []
    for path, options in named:
        for option in re.findall(r"(?<=\s)--[a-z0-9-]+", options) if path.endswith(".py") else ():
            assert f'"{option}"' in (ROOT / path).read_text(encoding="utf-8"), f"{path} {option}"


@by_page
def test_page__commands_and_their_options_exist(page):
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"`dkfeat ([^`\n]+)`", text) + re.findall(r"^ {4}dkfeat (.*)$", text, re.MULTILINE):
        command, options = cli, {"--help", "--version"}
        for word in re.split(r"[\s=]+", line):
            if isinstance(command, click.Group) and word in command.commands:
                command = command.commands[word]
            options |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            assert not word.startswith("--") or word in options, line
        assert command is not cli or line.startswith(("COMMAND", "-")), line
