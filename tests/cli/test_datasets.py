"""The commands, as a person and as a program would use them."""

import json

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from dkfeat.cli import cli
from dkfeat.datasets import DATASETS
from tests.cli.test_commands import run as command
from tests.datasets.toy import PLACE, TRAIN, toy
from tests.sources.web_server import Kept, WebServer


@pytest.fixture(autouse=True)
def _toy(monkeypatch, tmp_path):
    monkeypatch.setitem(DATASETS, "toy", toy())
    monkeypatch.setenv("DKFEAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server():
    with WebServer() as server:
        server.files = {PLACE: Kept(TRAIN)}
        yield server


def run(*arguments, status=0):
    return command("datasets", *arguments, status=status)


def test_list__has_a_line_for_each():
    lines = run("list").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(DATASETS)
    assert next(line for line in lines if line.startswith("webspam")).split()[1:4] == ["350,000", "254", "2"]


def test_list__tells_what_is_here(server, tmp_path):
    run("fetch", "toy", "--part", "train", "--mirror", server.address)
    assert next(line for line in run("list").stdout.splitlines() if line.startswith("toy")).split()[5] == "train"
    found = {info["name"]: info for info in map(json.loads, run("list", "--json").stdout.splitlines())}
    assert found["toy"]["files"] == {"train": str(tmp_path / "cache" / "datasets" / "toy" / "toy.scale")}
    assert found["letter"]["rows"] == {"train": 15_000, "test": 5_000}
    assert run("list", "--folder", tmp_path, "--json").stdout.count("toy.scale") == 0


def test_fetch__prints_paths_alone(server, tmp_path):
    outcome = run("fetch", "toy", "--part", "train", "--mirror", server.address)
    assert outcome.stdout == f"{tmp_path}/cache/datasets/toy/toy.scale\n"
    assert "toy.scale: 926.7 KiB" in outcome.stderr
    assert run("fetch", "toy", "--part", "train").stderr == ""  # it is here


def test_fetch__as_an_object(server, tmp_path):
    arguments = ("fetch", "toy", "--part", "train", "--mirror", server.address, "--folder", tmp_path / "mine", "--json")
    outcome = run(*arguments, "--quiet")
    found = json.loads(outcome.stdout)
    assert found["files"] == {"train": str(tmp_path / "mine" / "toy" / "toy.scale")}
    assert outcome.stderr == ""


def test_fetch__logs_lines_of_json(server):
    arguments = ["--log-format", "json", "datasets", "fetch", "toy", "--part", "train", "--mirror", server.address]
    lines = [json.loads(line) for line in CliRunner().invoke(cli, arguments).stderr.splitlines()]
    assert (lines[-1]["event"], lines[-1]["file"], lines[-1]["bytes"]) == ("progress", "toy.scale", len(TRAIN))


def test_fetch__a_wrong_name_ends_it_before_anything_is_fetched(server):
    outcome = run("fetch", "toy", "lettre", "--mirror", server.address, status=2)
    assert outcome.stderr == "dkfeat: error: fetch: there is no data set 'lettre'; did you mean 'letter'?\n"
    assert server.requests == []


def test_fetch__offline_is_a_fault_of_storage():
    outcome = run("fetch", "toy", "--mirror", "http://127.0.0.1:9", "--retry-seconds", 0, status=3)
    assert "or download the file elsewhere and put it at" in outcome.stderr


def test_names__are_completed():
    words = ShellComplete(cli, {}, "dkfeat", "_DKFEAT_COMPLETE").get_completions(["datasets", "fetch"], "cov")
    assert [word.value for word in words] == ["covtype", "covtype.binary"]
