"""``dkfeat neighbors`` from text to a table, what other commands say of the table, and mistakes."""

import json
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from dkfeat.neighbors import search
from tests.cli.test_commands import run
from tests.programs import run_killed

OTHERS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows, queries that are near copies of the first three, and shards of the rows."""
    folder = tmp_path_factory.mktemp("job")
    rows = np.random.default_rng(0).lognormal(size=(OTHERS, 30)).round(3)
    for name, X in (("rows", rows), ("queries", rows[:3] * 1.01)):
        lines = [" ".join(["1", *(f"{i + 1}:{value:.6g}" for i, value in enumerate(row))]) for row in X]
        (folder / f"{name}.svm").write_text("\n".join(lines) + "\n")
    run("featurize", folder / "rows.svm", "--n-components", 256, "--out", folder / "features")
    return folder


def test_queries_in_text(folder, tmp_path):
    words = ("--n-neighbors", 4, "--out", tmp_path / "found")
    command = ("neighbors", folder / "features", folder / "queries.svm", *words)
    first = run(*command)
    assert "queries            3\n" in first.stdout
    assert f"neighbors          4 of 40 rows for each, in {tmp_path / 'found'}\n" in first.stdout
    assert "method             exact, each is compared with all rows\n" in first.stdout
    assert "search: done" in first.stderr
    again = run(*command)
    assert again.stdout == first.stdout
    assert "found is complete already: 12 rows; nothing to do" in again.stderr
    table = pq.read_table(tmp_path / "found" / "data")
    assert table["neighbor"].to_pylist()[::4] == [0, 1, 2]
    for name in ("status", "verify", "inspect"):
        assert str(tmp_path / "found") in run(name, tmp_path / "found").stdout
    shown = json.loads(run("inspect", tmp_path / "found", "--json").stdout)
    assert shown["columns"] == ["query", "rank", "neighbor", "similarity", "standard_error"]
    assert not shown.keys() & {"features", "labels"}
    run("report", tmp_path / "found", "--out", tmp_path / "report.html")


def test_json_of_exact_neighbours(folder, tmp_path):
    exact = ("--n-neighbors", 2, "--rerank", 9, "--source", folder / "rows.svm")
    command = ("neighbors", folder / "features", folder / "queries.svm", *exact)
    record = json.loads(run(*command, "--out", tmp_path / "found", "--json").stdout)
    given = {"rerank": 9, "source": folder / "rows.svm", "progress": False}
    expected = search(folder / "features", folder / "queries.svm", 2, **given)
    assert record == {
        "neighbors": str(tmp_path / "found"),
        "queries": 3,
        "rows": OTHERS,
        "n_neighbors": 2,
        "method": "exact",
        "recall": None,
        "first_similarity": np.median(expected.similarities[:, 0]),
        "last_similarity": np.median(expected.similarities[:, 1]),
        "standard_error": 0.0,
    }


def test_graph(folder, tmp_path):
    command = ("neighbors", folder / "features", "--method", "graph", "--n-neighbors", 5, "--out", tmp_path / "graph")
    first = run(*command)
    assert "method             approximate, recall 100.0% by a sample of the rows\n" in first.stdout
    assert "approximate graph: 100.0% of the nearest rows of 40 rows are in it\n" in first.stderr
    assert "search by graph, recall 100.0%: done, 40 rows" in first.stderr
    again = run(*command, "--json")
    assert {"method": "graph", "recall": 1.0}.items() <= json.loads(again.stdout).items()
    assert "graph is complete already: 200 rows; nothing to do" in again.stderr
    assert "round" not in again.stderr
    run("report", tmp_path / "graph", "--out", tmp_path / "report.html")
    assert "search by graph, recall 100.0%" in (tmp_path / "report.html").read_text()
    assert run("inspect", tmp_path / "graph").stdout.split()[-4:] == ["method", "graph", "recall", "100.0%"]


@pytest.mark.slow
def test_graph__has_its_recall_after_a_kill_before_the_commit(folder, tmp_path):
    command = ("neighbors", folder / "features", "--method", "graph", "--n-neighbors", 5, "--out", tmp_path / "graph")
    run_killed("before_manifest:1", [sys.executable, "-m", "dkfeat", *map(str, command)])
    left = sorted((tmp_path / "graph" / "data").iterdir())
    again = run(*command)
    assert sorted((tmp_path / "graph" / "data").iterdir()) == left != []
    assert "round" not in again.stderr
    assert "search by graph, recall 100.0%: done, 40 rows" in again.stderr
    assert "method             approximate, recall 100.0%" in again.stdout


def test_all_rows_exactly(folder, tmp_path):
    ended = run("neighbors", folder / "features", "--n-neighbors", 5, "--out", tmp_path / "found")
    assert "method             exact, each is compared with all rows\n" in ended.stdout
    assert "search, exact: done" in ended.stderr
    assert run("inspect", tmp_path / "found").stdout.split()[-2:] == ["method", "exact"]
    words = ("--n-neighbors", 5, "--method", "graph", "--out", tmp_path / "found")
    ended = run("neighbors", folder / "features", *words, status=4)
    assert 'method: "exact" there, "graph" asked' in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["features", "--source", "rows.svm"], 2, "--rerank 100 needs the source"),
        (["features", "features", "--label", "y"], 2, "leave out --label"),
        (["features", "queries.svm", "--method", "graph"], 2, "leave out the queries, or it"),
        (["features", "nowhere.svm"], 2, "no file matches nowhere.svm"),
        (["nowhere"], 3, "there is no such folder"),
        (["features", "dart"], 4, "featurize the queries with --like"),
    ],
)
def test_mistakes(arguments, status, words, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    if "dart" in arguments:
        run("featurize", "rows.svm", "--map", "dart", "--n-components", 16, "--out", "dart")
    assert words in run("neighbors", *arguments, "--out", tmp_path / "found", status=status).stderr
    assert not (tmp_path / "found").exists()
