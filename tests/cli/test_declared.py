"""Options made from fields of settings: flag, type, default and help."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import click
import pytest

from dkfeat.cli import cli
from dkfeat.cli.declared import help_of, option_of
from dkfeat.config import DefaultsConfig, ExecutionConfig, RunConfig
from dkfeat.config.settings import Positive, Settings
from dkfeat.config.train import SGD, Liblinear


@dataclass(frozen=True, slots=True, kw_only=True)
class Example(Settings):
    """Settings of this test."""

    name: str
    n_workers: Positive | None = None
    kind: Literal["a", "b"] | None = "a"
    fast: bool = False
    shown: bool = True
    size: int | str = "1MiB"
    ratio: float | None = None
    alpha: float | Sequence[float] = 1e-6
    tags: str | tuple[str, ...] = ()


def option(name, **given):
    @click.command
    @option_of(Example, name, help="", **given)
    def command(**_):
        pass

    (made,) = command.params
    return made


@pytest.mark.parametrize(
    ("name", "flags", "default", "given", "value"),
    [
        ("n_workers", ["--n-workers"], None, "3", 3),
        ("kind", ["--kind"], "a", "b", "b"),
        ("fast", ["--fast"], False, None, True),
        ("shown", ["--shown", "--no-shown"], True, None, True),
        ("size", ["--size"], "1MiB", "7", "7"),
        ("ratio", ["--ratio"], None, "0.5", 0.5),
        ("alpha", ["--alpha"], (1e-6,), "2", (2.0,)),
        ("tags", ["--tags"], (), "x", ("x",)),
    ],
)
def test_option_of__follows_the_field(name, flags, default, given, value):
    made = option(name)
    assert made.opts + made.secondary_opts == flags
    assert not made.required
    command = click.Command("x", params=[made])
    assert command.make_context("x", []).params == {name: default}
    words = [flags[0]] if given is None else [flags[0], given]
    assert command.make_context("x", words).params == {name: value}


def test_option_of__a_field_without_a_default_is_required():
    assert option("name").required


def test_option_of__bounds_are_those_of_the_type():
    with pytest.raises(click.BadParameter, match="x>=1"):
        click.Command("x", params=[option("n_workers")]).make_context("x", ["--n-workers", "0"])
    with pytest.raises(ValueError, match="n_workers=0, but it must be at least 1"):
        Example(name="x", n_workers=0)


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
