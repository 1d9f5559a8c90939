"""The directive ``command-help``: what ``dkfeat COMMAND --help`` prints, so that the site cannot lag behind it."""

from __future__ import annotations

from typing import Any, ClassVar

from click.testing import CliRunner
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from dkfeat.cli import cli

WIDTH = "80"


def help_of(*words: str) -> str:
    """Text of a command's help."""
    done = CliRunner().invoke(cli, [*words, "--help"], env={"COLUMNS": WIDTH, "NO_COLOR": "1"}, prog_name="dkfeat")
    if done.exit_code:
        message = f"dkfeat {' '.join(words)} --help: {done.output}"
        raise RuntimeError(message)
    return done.output


class CommandHelp(SphinxDirective):
    """The help of ``dkfeat`` itself, then a section for each command, groups of commands with theirs."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Make the sections, in the order of the commands."""
        made: list[nodes.Node] = [self._block(help_of())]
        for name, command in cli.commands.items():
            section = nodes.section(ids=[f"dkfeat-{name}"], names=[f"dkfeat {name}"])
            section += nodes.title("", "", nodes.literal(text=f"dkfeat {name}"))
            section += self._block(help_of(name))
            for part in getattr(command, "commands", ()):
                section += self._block(help_of(name, part))
            self.state.document.note_implicit_target(section)
            made.append(section)
        return made

    def _block(self, text: str) -> nodes.literal_block:
        block = nodes.literal_block(text, text, language="text")
        self.set_source_info(block)
        return block


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    app.connect("env-get-outdated", lambda *_: ["reference/command-line"])  # any module of the command may have changed
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
