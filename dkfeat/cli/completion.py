"""``dkfeat completion``: what makes shells complete commands, options, their values and paths."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._values import Choice

__all__ = ["complete_paths", "completion"]

VARIABLE = "_DKFEAT_COMPLETE"
"""In which the scripts tell the command that it is asked for completions."""
FOLDERS = {"DIR", "MODEL", "RUN", "SHARDS", "TARGET"}
FILES = {"CONF", "DIR|FILE", "FILE", "FILES", "SOURCE", "SOURCE2"}


class _Place(click.ParamType):
    """Text that is most often a path, as which shells complete it; it may be a glob or a URL."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        """Leave it to the shell."""
        return [CompletionItem(incomplete, type=self._kind)]


def complete_paths(group: click.Group) -> None:
    """Have paths completed in all commands of a group: texts whose metavar, or name, says that they are some."""
    for command in group.commands.values():
        if isinstance(command, click.Group):
            complete_paths(command)
            continue
        for parameter in command.params:
            written = parameter.metavar or (
                str(parameter.name).upper() if isinstance(parameter, click.Argument) else ""
            )
            if parameter.type is click.STRING and written in FOLDERS | FILES:
                parameter.type = _Place("dir" if written in FOLDERS else "file")


@click.command(cls=DkfeatCommand)
@click.argument("shell", type=Choice(["bash", "zsh", "fish"]))
def completion(shell: Any) -> None:
    """Print a script that lets SHELL complete dkfeat: bash, zsh or fish.

    It completes commands, options, their values, and paths. It is a file that
    the shell reads when it starts; open a new shell afterwards.

    For example:
      dkfeat completion bash >> ~/.bashrc
      dkfeat completion fish > ~/.config/fish/completions/dkfeat.fish

    For zsh, into a folder of its fpath, before compinit is called:
      mkdir -p ~/.zfunc && dkfeat completion zsh > ~/.zfunc/_dkfeat
      fpath+=~/.zfunc; autoload -Uz compinit; compinit      # in ~/.zshrc
    """
    from dkfeat.cli import cli  # which mounts this command

    found = get_completion_class(shell)
    assert found is not None  # click has these three
    click.echo(found(cli, {}, "dkfeat", VARIABLE).source().strip())
