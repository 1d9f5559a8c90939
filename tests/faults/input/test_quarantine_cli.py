"""Bad rows on the command line and in job files."""

from __future__ import annotations

import json
import re

import pytest

from dkfeat.cli.commands.run import run_featurize
from dkfeat.config import JobConfig
from tests.cli.test_commands import run

ROWS = ["1 1:1", "spam", "0 2:1", "1 2:x\x1b", "0 1:2"]
SMALL = ("--n-components", "16", "--i-bits", "4")


@pytest.fixture
def made(tmp_path):
    """A source with two bad rows of five, and the output of the command for it."""
    (tmp_path / "rows.svm").write_text("\n".join(ROWS) + "\n")
    asked = (tmp_path / "rows.svm", *SMALL, "--on-bad-row", "quarantine", "--out", tmp_path / "out")
    return tmp_path, asked, run("featurize", *asked, "--max-bad-rows", "40%")


@pytest.mark.fault("I-40")
def test_featurize__tells_of_bad_rows_and_refuses_more_than_allowed(made):
    folder, asked, outcome = made
    assert outcome.stdout.splitlines()[:2] == [
        "rows      3", f"bad rows  2, see `dkfeat quarantine {folder / 'out'}`",
    ]  # fmt: skip
    assert "bad rows set aside: 2 of 5" in outcome.stderr
    other = (*asked[:-1], folder / "other")
    outcome = run("featurize", *other, "--no-progress", status=2)
    assert outcome.stderr.startswith(f"dkfeat: error: {folder / 'rows.svm'}:2:1: bad rows: 2 of 5, more than")
    assert "--max-bad-rows=0.01 of the rows, this one for instance: expected a number as label" in outcome.stderr
    run("featurize", *other, "--max-bad-rows", "1", "--no-progress", status=2)
    run("featurize", *other, "--max-bad-rows", "many", "--no-progress", status=2)
    run("featurize", *other, "--max-bad-rows", "2")


@pytest.mark.fault("I-40", "X-10")
def test_quarantine__lists_rows(made):
    folder, *_ = made
    outcome = run("quarantine", folder / "out")
    assert outcome.stdout.splitlines() == [
        "rows.svm:2:1: expected a number as label, got 'spam': spam",
        r"rows.svm:4:3: this is not LIBSVM text: byte 0x1B in '2:x\x1b': 1 2:x\x1b",
    ]
    found = [json.loads(line) for line in run("quarantine", folder / "out", "--json").stdout.splitlines()]
    assert [(row["source"], row["line"], row["column"], row["reason"]) for row in found] == [
        ("rows.svm", 2, 1, "bad label"), ("rows.svm", 4, 3, "bad value"),
    ]  # fmt: skip


def test_inspect_and_plan__count_bad_rows(made):
    folder, asked, _ = made
    output = json.loads(run("inspect", folder / "out", "--json").stdout)
    assert (output["bad_rows"], output["bad_rows_by_source"]) == (2, {"rows.svm": 2})
    assert output["bad_rows_by_reason"] == {"bad label": 1, "bad value": 1}
    assert re.search(r"^bad rows +2$", run("inspect", folder / "out").stdout, re.MULTILINE)
    assert "rows       3" in run("plan", *asked[:-1], folder / "planned", "--scan").stdout


@pytest.mark.fault("I-40")
@pytest.mark.parametrize("most", [2, 0.4, "40%"])
def test_job_file__sets_rows_aside(made, most):
    folder, *_ = made
    part = {"source": {"urlpath": str(folder / "rows.svm")}, "out": str(folder / "job"), "map": {"name": "gcws"}}
    job = JobConfig.from_mapping({"featurize": [{**part, "on_bad_row": "quarantine", "max_bad_rows": most}]})
    assert job.featurize[0].to_mapping()["max_bad_rows"] == most
    assert run_featurize(job.featurize[0], job.run).n_bad_rows == 2


def test_bad_row__names_the_option_that_sets_it_aside_where_there_is_one(tmp_path):
    path, out = tmp_path / "rows.svm", ("--out", tmp_path / "out")
    path.write_text("1 1:1\n1 9:nan\n")
    output = run("featurize", path, *out, "--scheduler", "synchronous", "--no-progress", status=2).stderr
    assert re.fullmatch(r"dkfeat: error: \S+rows\.svm:2:3: .*; --on-bad-row quarantine sets .*\n", output)
    assert "--on-bad-row quarantine" in run("plan", path, *out, "--scan", status=2).stderr
    output = run("featurize", path, *out, "--max-line-bytes", "4", "--n-features", "9", status=2).stderr
    assert "--max-line-bytes" in output
    assert "quarantine" not in output
    output = run("compare", path, *out, status=2).stderr
    assert "rows.svm:2:3: " in output
    assert "quarantine" not in output
