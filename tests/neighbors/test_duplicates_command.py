"""``dkfeat duplicates``: its summary and JSON record, and bad options."""

import json
import subprocess
import sys

import numpy as np
import pytest

import dkfeat
from tests.cli.test_commands import run


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:4 3:1\n1 2:3\n1 1:4 3:1.1\n1 2:3\n")
    dart = dkfeat.DartFeatures(n_components=512, random_state=0)
    dkfeat.featurize(tmp_path / "rows.svm", tmp_path / "features", dart, progress=False)
    return tmp_path


def find(folder, *options, status=0):
    return run("duplicates", folder / "features", "--out", folder / "out", *options, status=status)


def test_duplicates__summary_record_and_the_same_command_again(folder):
    result = find(folder, "--threshold", "0.9")
    assert "bands of" in result.stderr
    lines = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert lines["rows"].strip() == "4"
    assert lines["copies"].strip().startswith("1 row ")
    assert lines["rows kept"].strip() == "2, 50.00%"
    assert lines["groups"].strip() == "2, the largest of 2 rows"
    assert "chains" not in result.stdout
    record = json.loads(find(folder, "--threshold", "0.9", "--json").stdout)
    assert record["largest_group"] == 2
    assert (record["n_rows"], record["n_pairs"], record["n_groups"], record["n_kept"]) == (4, 2, 2, 2)
    assert record["duplicates"] == str(folder / "out")
    assert np.array_equal(dkfeat.neighbors.Duplicates.open(folder / "out").pairs, [[0, 2], [1, 3]])


def test_duplicates__says_that_chains_join_most_rows(tmp_path):
    (tmp_path / "rows.svm").write_text("".join(f"1 1:{1.1**step:.4f}\n" for step in range(20)))
    dart = dkfeat.DartFeatures(n_components=512, random_state=0)
    dkfeat.featurize(tmp_path / "rows.svm", tmp_path / "features", dart, progress=False)
    result = find(tmp_path)
    assert "1, the largest of 20 rows" in result.stdout
    assert "20 of the 20 rows are one group: chains of pairs connect rows" in result.stdout
    for command in ("inspect", "report"):
        shown = run(command, tmp_path / "out", status=3).stderr
        assert "out holds duplicates, not a data set" in shown
        assert f"its tables are {tmp_path}/out/groups and {tmp_path}/out/pairs" in shown
    (tmp_path / "rows.svm").write_text("1 1:4\n" * 20)
    dkfeat.featurize(tmp_path / "rows.svm", tmp_path / "equal", dart, progress=False)
    assert not dkfeat.neighbors.duplicates(tmp_path / "equal", progress=False).chain_note


def test_duplicates__exact(folder):
    options = ["--verify", "exact", "--source", str(folder / "rows.svm"), "--threshold", "0.9", "--json", "-q"]
    result = find(folder, *options)
    assert json.loads(result.stdout)["verify"] == "exact"


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--verify", "all"], 2, "there is no 'all'"),
        (["--verify", "exact"], 2, "needs the source of the shards"),
        (["--threshold", "0.8"], 4, "threshold: 0.9 there, 0.8 asked"),
    ],
)
def test_duplicates__bad_options(options, status, message, folder):
    find(folder, "--threshold", "0.9")
    assert message in find(folder, *options, status=status).stderr


@pytest.mark.slow
def test_duplicates__do_not_load_scikit_learn(folder):
    code = (
        "import sys; from dkfeat.neighbors import drop_duplicates, duplicates; none = {'progress': False}; "
        "duplicates('features', target='out', **none); drop_duplicates('features', 'out', 'distinct', **none); "
        "drop_duplicates('rows.svm', 'out', 'left', **none); print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
