"""Options made from fields of settings: flag, type, default and help."""

import click
import pytest

from dkfeat.cli import cli
from dkfeat.cli.declared import help_of
from dkfeat.config import DefaultsConfig, ExecutionConfig, RunConfig
from dkfeat.config.train import SGD, Liblinear


def test_help_of__reads_texts_under_fields_and_in_docstrings():
    assert (
        help_of(RunConfig, "n_workers") == help_of(ExecutionConfig, "n_workers") == help_of(DefaultsConfig, "n_workers")
    )
    assert help_of(RunConfig, "resume").startswith("Continue")
    assert help_of(SGD, "alpha").startswith("Strength of the l2 penalty")
    assert help_of(Liblinear, "C").startswith("Weight of the losses")
    with pytest.raises(LookupError, match=r"RunConfig\.nothing has no text"):
        help_of(RunConfig, "nothing")


def test_help__of_every_option_is_a_sentence():
    groups = [command for command in cli.commands.values() if isinstance(command, click.Group)]
    commands = [*cli.commands.values(), *(command for group in groups for command in group.commands.values())]
    for command in commands:
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                text = parameter.help
                assert text, (command.name, parameter.name)
                assert text.endswith(".") or "[default: " in text, (command.name, text)
