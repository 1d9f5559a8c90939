"""Options made from fields of settings: flag, type, default and help."""

import re

import click
import pytest
from click.testing import CliRunner

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
                if not (parameter.required or parameter.multiple or parameter.is_flag or parameter.metavar):
                    _, shown = parameter.get_help_record(click.Context(command)) or ("", "[default: hidden]")
                    assert re.search(r"\[default: \S|left out: \S|by default \S", shown, re.I), (command.name, shown)


FULL_WIDTH = "".join(map(chr, (0xFF11, 0xFF10)))  # 10


@pytest.mark.parametrize("number", [FULL_WIDTH, "1_0"])
@pytest.mark.parametrize(
    "words",
    [
        "duplicates shards --out d --threshold {}",
        "featurize a.svm --out f --n-workers {}",
        "featurize a.svm --out f --n-workers 1 --memory-limit {}GiB",
        "featurize a.svm --out f --n-features {}",
        "featurize a.svm --out f --seed {}",
        "featurize a.svm --out f --labels -1,{}",
        "featurize a.svm --out f --max-bad-rows {}%",
        "featurize a.svm --out f --map maclaurin --kernel maclaurin --kernel-param b={}",
        "featurize a.svm --out f --map maclaurin --coefficients 1,{}",
        "train shards --class-weight 1={}",
        "compare a.svm --k 8,{}",
        "compare a.svm --minutes {}",
    ],
)
@pytest.mark.fault("I-43")
def test_numbers__only_in_ascii_digits(words, number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.svm").write_text("1 1:2\n-1 2:1\n")
    outcome = CliRunner().invoke(cli, words.format(number).split())
    assert outcome.exit_code == 2
    assert number in outcome.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


def test_numbers__may_have_a_sign_and_blanks_around(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:2\n-1 2:1\n")
    words = [
        "plan",
        str(tmp_path / "a.svm"),
        "--map",
        "gcws",
        "--out",
        str(tmp_path / "f"),
        "--n-components",
        " +8",
        "--labels",
        "-1, +1",
    ]
    outcome = CliRunner().invoke(cli, words)
    assert outcome.exit_code == 0, outcome.output
