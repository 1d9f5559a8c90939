"""Status, abort, clean, the verification of inputs and lines of JSON, as the command line offers them."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.cli.test_commands import run
from tests.invariants import assert_dataset_whole
from tests.store.commit.test_maintenance import die_in_run
from tests.store.tiny_job import TinyJob, write_sources


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A data set of two sources, killed while a third was added."""
    folder = tmp_path_factory.mktemp("cli")
    job = TinyJob(write_sources(folder / "in"), folder / "out")
    job.run()
    write_sources(job.sources, files=1, first=2)
    die_in_run(job, "after_publish:6")
    return job


@pytest.fixture
def job(interrupted, tmp_path):
    sources, target = tmp_path / "in", tmp_path / "out"
    return TinyJob(shutil.copytree(interrupted.sources, sources), shutil.copytree(interrupted.target, target))


def test_status__tells_what_was_left(job):
    text = run("status", job.target).stdout
    facts = dict(line.split("  ", 1) for line in text.splitlines())
    facts = {name: value.strip() for name, value in facts.items()}
    assert facts["state"].startswith("unfinished: ")
    assert facts["rows"] == "48"
    assert facts["lock"].endswith("ended without removing its lock")
    assert facts["batch"].startswith("2: 1 of ")
    assert facts["batch sources"] == "1 (day2.txt)"
    assert "not listed" not in facts
    values = json.loads(run("status", job.target, "--json").stdout)
    assert values["state"] == "unfinished"
    assert values["committed"]["rows"] == 48


def test_status__check_is_for_scripts(job):
    run("status", job.target, "--check", status=4)
    job.run()
    assert "complete" in run("status", job.target, "--check").stdout
    next((job.target / "data").iterdir()).unlink()
    outcome = run("status", job.target, "--check", "--json", status=3)
    assert json.loads(outcome.stdout)["state"] == "damaged"
    assert "1 committed shards are missing or have another size" in outcome.stderr
    run("status", job.sources, status=3)


def test_abort__lists_then_deletes(job):
    told = run("abort", job.target, "--dry-run").stdout
    assert "batch 2 would be aborted, with 3 shards" in told
    done = run("abort", job.target).stdout
    assert told.replace("would delete", "deleted").replace("would be aborted", "is aborted") == done
    assert_dataset_whole(job.target, committed=True)
    assert "nothing to abort" in run("abort", job.target).stdout


@pytest.mark.fault("X-03")
def test_clean__lists_then_deletes(job):
    stray = job.target / "data" / "part-000000-0000-0123456789ab.parquet"
    stray.write_bytes(b"x" * 2048)
    (job.target / "data" / "mine.parquet").write_bytes(b"x")
    told = run("clean", job.target, "--dry-run").stdout
    assert f"would delete: data/{stray.name}" in told
    assert "left alone, not made by dkfeat: data/mine.parquet" in told
    assert run("clean", job.target).stdout == told.replace("would delete", "deleted").replace("would be ", "")
    assert not stray.exists()
    aside = job.target / "_dkfeat" / "set-aside" / f"{stray.name}.{0:032x}"
    aside.write_bytes(b"x")
    run("clean", job.target)
    assert aside.exists()
    assert aside.name in run("clean", job.target, "--set-aside").stdout


def lock_from_elsewhere(target, run_id="7f3a"):
    lock = target / "_dkfeat" / "lock.json"
    lock.write_text(json.dumps({"run_id": run_id, "host": "elsewhere", "pid": 12, "since": "2001-01-01T00:00:00Z"}))


def test_break_lock__frees_the_target_of_the_named_run(job):
    lock_from_elsewhere(job.target)
    assert "break-lock" in run("clean", job.target, status=4).stderr
    assert "elsewhere" in run("break-lock", job.target, "other", status=4).stderr
    done = run("break-lock", job.target, "7f3a", "--json")
    assert json.loads(done.stdout) == {"target": str(job.target), "run_id": "7f3a", "broken": True}
    assert run("break-lock", job.target, "7f3a").stdout == f"{job.target}: there is no lock\n"
    run("clean", job.target)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "a.svm").write_text("1 1:1\n2 2:1\n" * 20)
    (folder / "b.svm").write_text("1 3:1\n2 4:1\n" * 20)
    run("featurize", folder / "*.svm", "--n-components", 16, "--out", folder / "features")
    return folder


def test_verify_inputs__then_changed(features):
    text = run("verify", features / "features", "--inputs", features / "*.svm").stdout
    assert "2 sources, 1 range, unchanged" in text
    (features / "a.svm").write_text("1 1:1\n2 2:1\n" * 20)
    (features / "c.svm").write_text("1 1:1\n")
    text = run("verify", features / "features", "--inputs", features / "*.svm").stdout
    assert "same bytes, but another modification time or version tag, so a run would fail: a.svm" in text
    assert "not committed yet: c.svm" in text
    (features / "b.svm").rename(features / "d.svm")
    outcome = run("verify", features / "features", "--inputs", features / "*.svm", status=4)
    assert "problem: source 'b.svm' is missing" in outcome.stdout
    assert "its source has changed; 1 problem is listed" in outcome.stderr


def lines(outcome):
    return [json.loads(line) for line in outcome.stderr.splitlines()]


def test_log_format__json(features, tmp_path):
    json_lines = ("--log-format", "json")
    out = tmp_path / "features"
    made = run(*json_lines, "featurize", features / "a.svm", "--n-components", 16, "--out", out)
    assert {(line["event"], line["stage"]) for line in lines(made)} == {("progress", "scan"), ("progress", "featurize")}
    assert made.stdout.startswith("rows")
    trained = run(*json_lines, "train", out, "--epochs", 2)
    assert [line["epoch"] for line in lines(trained)] == [1, 2]
    assert lines(run(*json_lines, "train", out, "--epochs", 2, "--no-progress")) == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("train", "none"), 3, "train: "),
        (("trai",), 2, "did you mean 'train'?"),
        (("featurize", "x.svm"), 2, "--out must be given"),
        (("featurize", "x.svm", "--out"), 2, "requires an argument"),
    ],
)
def test_log_format__errors_are_lines_too(arguments, status, words):
    outcome = run("--log-format", "json", *arguments, status=status)
    (line,) = lines(outcome)
    assert (line["event"], line["level"], line["exit_code"]) == ("error", "error", status)
    assert words in line["message"]
