"""What commands print: one JSON object with ``--json``, nothing but results and errors with ``--quiet``."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dkfeat.cli import cli
from dkfeat.cli.output import print_json
from tests.cli.test_commands import SMALL, run
from tests.conftest import first_quick

LETTER = str(Path(__file__).parents[2] / "conf" / "letter.yaml")
PRINTING = first_quick([["train", "--help"], ["run", LETTER, "--dry-run"], ["--help"], ["--version"]])
OBJECTS = {
    "abort": {"target", "batch", "removed", "dry_run"},
    "clean": {"target", "removed", "size", "refused", "dry_run"},
    "drop-duplicates": {"target", "rows", "dropped", "shards", "size", "manifest"},
    "duplicates": {"duplicates", "shards", "threshold", "verify", "bands", "expected_recall"}
    | {"n_rows", "n_copies", "n_pairs", "n_groups", "n_kept", "largest_group"}
    | {"n_candidates", "n_compared"},
    "evaluate": {"task", "rows", "accuracy", "per_class", "confusion"},
    "explain": {"rows", "columns", "importances", "out"},
    "featurize": {"target", "rows", "empty_rows", "bad_rows", "shards", "size", "manifest"},
    "files": {"target", "files"},
    "inspect": {"kind", "target", "rows", "labels", "shards", "size", "features", "map", "input", "layout", "sources"},
    "neighbors": {"neighbors", "queries", "n_neighbors", "rows", "first_similarity", "last_similarity"}
    | {"standard_error"},
    "plan": {"target", "files", "source_size", "tasks", "task_memory", "blocksize", "rows", "size", "needs_scan"}
    | {"scale_warning", "advice"},
    "predict": {"predictions", "rows", "bad_rows", "shards", "size", "manifest"},
    "status": {"target", "state", "committed"},
    "train": {"model", "task", "rows", "classes", "epochs", "training", "scores"},
    "verify": {"kind", "target", "shards", "size", "problems", "not_listed", "inputs"},
}
"""Keys of each command's object, on which programs may rely; others may come."""
SILENT = {"drop-duplicates", "duplicates", "neighbors"}
SILENT |= {"abort", "clean", "evaluate", "explain", "featurize", "predict", "status", "train", "verify"}
"""Commands that have nothing to say but what they did."""


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A command line for each command, with the shards and the model that some of them need."""
    folder = tmp_path_factory.mktemp("words")
    rows = folder / "rows.svm"
    rows.write_text("".join(f"{1 + i % 2} {1 + i % 2}:{1 + i % 7} {3 + i % 5}:0.5\n" for i in range(60)))
    target, model = folder / "features", folder / "model"
    arguments = {
        "featurize": (rows, *SMALL, "--out", target),
        "train": (target, "--test", target, "--epochs", 2, "--out", model),
        "plan": (rows, *SMALL, "--out", target, "--scan"),
        "predict": (model, rows, "--out", folder / "predictions"),
        "evaluate": (model, target),
        "explain": (model, rows),
        "neighbors": (target, "--n-neighbors", 2, "--out", folder / "neighbors"),
        "duplicates": (target, "--threshold", 0.9, "--out", folder / "duplicates"),
        "drop-duplicates": (target, folder / "duplicates", "--out", folder / "distinct"),
        "files": (target,),
        "inspect": (target,),
        "status": (target,),
        "verify": (target, "--inputs", rows),
        "abort": (target,),
        "clean": (target,),
    }
    for name in ("featurize", "train"):
        run(name, *arguments[name])
    return arguments


def test_json__is_one_object_with_the_keys_that_are_promised(words):
    for name, arguments in words.items():
        told = run(name, *arguments, "--json").stdout
        assert OBJECTS[name] <= set(json.loads(told)), name
        assert told.count("\n") == 1


def test_quiet__says_nothing_of_what_goes_well(words):
    for name, arguments in words.items():
        told = run(name, *arguments, "-q")
        assert (told.output == "") == (name in SILENT), name
    assert run("--quiet", "verify", *words["verify"]).output == ""
    assert run("featurize", "none.svm", "--out", "x", "--quiet", status=2).stderr.startswith("dkfeat: error: ")


def test_quiet__keeps_objects(words):
    outcome = run("train", *words["train"], "--quiet", "--json")
    assert json.loads(outcome.stdout)["scores"]["test_accuracy"] == 1.0
    assert outcome.stderr == ""


def test_predict__labels_alone_are_no_object(words):
    model, rows, *_ = words["predict"]
    assert run("predict", model, rows, "--quiet").output == "1\n2\n" * 30
    assert "--json describes the output of --out" in run("predict", model, rows, "--json", status=2).stderr
    told = json.loads(run("predict", model, rows, "--out", rows.with_name("labels.csv"), "--json").stdout)
    assert (told["rows"], told["known_rows"], told["accuracy"]) == (60, 60, 1.0)


def test_every_command__offers_an_object_or_prints_something_else():
    assert all("as_json" in {p.name for p in command.params} for command in cli.commands.values())


def test_print_json__has_numbers_that_all_readers_know(capsys):
    print_json({"a": float("nan"), "b": [1.5, float("inf")], "c": ("x",)})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, None], "c": ["x"]}


@pytest.mark.parametrize("closed", first_quick([(0, 1, 2), (1,), (2,)]))
def test_closed_streams__a_command_runs_as_with_the_null_device(words, closed):
    def close():
        for descriptor in closed:
            os.close(descriptor)

    command = [sys.executable, "-m", "dkfeat", "status", str(words["status"][0])]
    done = subprocess.run(command, preexec_fn=close, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("complete" in done.stdout) == (1 not in closed)
    done = subprocess.run([*command, "x"], preexec_fn=close, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.parametrize(
    ("name", "option"), [("evaluate", "--out"), ("compare", "--out"), ("train", "--out"), ("train", "--checkpoint")]
)
def test_empty_path__is_an_error_and_nothing_is_written(words, tmp_path, monkeypatch, name, option):
    monkeypatch.chdir(tmp_path)
    arguments = {"evaluate": words["evaluate"], "compare": words["featurize"][:1], "train": words["evaluate"][1:]}
    told = run(name, *arguments[name], option, "", status=2).stderr
    assert re.search("the path is empty|='' is not the path of a folder", told), told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flag", PRINTING)
def test_output__into_a_pipe_that_its_reader_has_closed(flag):
    command = [sys.executable, "-m", "dkfeat", *flag]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("words", [["featurize", "--help"], ["status", "é😀"]])
def test_output__in_an_encoding_without_some_characters(words):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "dkfeat", *words]
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert (done.returncode, b"Traceback" in done.stderr) == (0 if "--help" in words else 3, False)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has this device")
def test_log__that_is_lost_on_a_full_disk_ends_no_run(tmp_path):
    (tmp_path / "rows.svm").write_text("+1 1:0.5\n-1 2:1\n")
    os.utime(tmp_path / "rows.svm", (2**34, 2**34))  # after 2262, beyond nanoseconds of 64 bits
    words = ["featurize", "rows.svm", "--n-components", "8", "--out", "features"]
    for arguments, status in ((words, 0), (["nope"], 2)):
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-m", "dkfeat", *arguments]
            done = subprocess.run(command, stderr=full, stdout=subprocess.PIPE, cwd=tmp_path, check=False)
        assert done.returncode == status
    assert (tmp_path / "features" / "_SUCCESS").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has this device")
@pytest.mark.parametrize("flag", PRINTING)
def test_output__onto_a_full_disk(flag):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "dkfeat", *flag]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert re.fullmatch("dkfeat: error: .*No space left on device\n", done.stderr)
