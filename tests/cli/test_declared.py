"""Options made from fields of settings: flag, type, default and help."""

import click

from dkfeat.cli import cli


def test_help__of_every_option_is_a_sentence():
    groups = [command for command in cli.commands.values() if isinstance(command, click.Group)]
    commands = [*cli.commands.values(), *(command for group in groups for command in group.commands.values())]
    for command in commands:
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                text = parameter.help
                assert text, (command.name, parameter.name)
                assert text.endswith(".") or "[default: " in text, (command.name, text)
