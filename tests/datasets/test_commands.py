"""The commands, as a person and as a program would use them."""

import json

from click.shell_completion import ShellComplete

from dkfeat import datasets
from dkfeat.cli import cli
from dkfeat.datasets import DATASETS
from tests.cli.test_commands import run as command


def run(*arguments, status=0):
    return command("datasets", *arguments, status=status)


def test_list__has_a_line_for_each():
    lines = run("list").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(DATASETS)
    assert next(line for line in lines if line.startswith("webspam")).split()[1:4] == ["350,000", "254", "2"]


def test_list__tells_what_is_here(tmp_path):
    run("fetch", "toy", "--part", "train")
    assert next(line for line in run("list").stdout.splitlines() if line.startswith("toy")).split()[5] == "train"
    found = {info["name"]: info for info in map(json.loads, run("list", "--json").stdout.splitlines())}
    assert found["toy"]["files"] == {"train": str(tmp_path / "cache" / "datasets" / "toy" / "toy.scale")}
    assert found["letter"]["rows"] == {"train": 15_000, "test": 5_000}
    assert run("list", "--folder", tmp_path, "--json").stdout.count("toy.scale") == 0


def test_fetch__prints_paths_alone(tmp_path):
    outcome = run("fetch", "toy", "--part", "train")
    assert outcome.stdout == f"{tmp_path}/cache/datasets/toy/toy.scale\n"
    assert outcome.stderr == "toy: fetching what is missing …\n"


def test_fetch__as_an_object(tmp_path):
    outcome = run("fetch", "toy", "--part", "train", "--folder", tmp_path / "mine", "--json", "--quiet")
    found = json.loads(outcome.stdout)
    assert found["files"] == {"train": str(tmp_path / "mine" / "toy" / "toy.scale")}
    assert outcome.stderr == ""


def test_fetch__a_wrong_name_ends_it_before_anything_is_fetched(server):
    outcome = run("fetch", "toy", "lettre", status=2)
    assert outcome.stderr == "dkfeat: error: fetch: there is no data set 'lettre'; did you mean 'letter'?\n"
    assert server.requests == []


def test_fetch__offline_is_a_fault_of_storage(monkeypatch):
    monkeypatch.setattr(datasets, "COLLECTION", "http://127.0.0.1:9")
    assert "or download the file elsewhere" in run("fetch", "toy", status=3).stderr


def test_names__are_completed():
    words = ShellComplete(cli, {}, "dkfeat", "_DKFEAT_COMPLETE").get_completions(["datasets", "fetch"], "cov")
    assert [word.value for word in words] == ["covtype", "covtype.binary"]
