"""``dkfeat completion``: scripts for shell completion of commands, options, values and paths."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from dkfeat.cli.group import DkfeatCommand
from dkfeat.cli.options.from_settings import Choice

VARIABLE = "_DKFEAT_COMPLETE"
"""Environment variable that completion scripts set when they call the command."""
FOLDERS = {"DIR", "MODEL", "RUN", "SHARDS", "TARGET"}
FILES = {"CONF", "DIR|FILE", "FILE", "FILES", "SOURCE", "SOURCE2"}


class _Place(click.ParamType):
    """Parameter type of text that shells complete as a path; the text may also be a glob or a URL."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        """Return a request that the shell completes the path itself."""
        return [CompletionItem(incomplete, type=self._kind)]


def complete_paths(group: click.Group) -> None:
    """Let shells complete paths in all commands of a group, identified by metavar or name."""
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
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that lets SHELL complete dkfeat: bash, zsh or fish.

    It completes commands, options, their values, and paths. Shells read it when
    they start, so open a new one afterwards.

    For example:
      dkfeat completion bash >> ~/.bashrc
      dkfeat completion fish > ~/.config/fish/completions/dkfeat.fish

    For zsh, into a folder of its fpath, before compinit is called:
      mkdir -p ~/.zfunc && dkfeat completion zsh > ~/.zfunc/_dkfeat
      fpath+=~/.zfunc; autoload -Uz compinit; compinit      # in ~/.zshrc
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click supports these three
    assert ctx.parent is not None  # the group of this command
    click.echo(kind(ctx.parent.command, {}, "dkfeat", VARIABLE).source().strip())
