"""Every benchmark runs on small inputs, and prints what it promises."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def records_of(name, arguments, **variables):
    """Run a benchmark, and give its lines of JSON."""
    command = [sys.executable, FOLDER / f"{name}.py", *arguments]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert all(record["benchmark"] == name and record["what"] for record in records)
    return records


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gcws", "ratio"),
        ("darts", "gcws_ratio"),
        ("minhash", "map_us"),
        ("parser", "read_ratio"),
        ("projections", "ratio"),
        ("maclaurin", "ratio"),
        ("latency", "ratio"),
        ("duplicates", "ratio"),
        ("ngrams", "ratio"),
        ("corpus", "us_a_document"),
        ("explain", "times"),
        pytest.param("training", "ratio", marks=pytest.mark.slow),
        pytest.param("checks", "ratio", marks=pytest.mark.slow),
        pytest.param("job", "ratio", marks=pytest.mark.slow),
        pytest.param("sizing", "ratio", marks=pytest.mark.slow),
        pytest.param("workers", "command_seconds", marks=pytest.mark.slow),
        pytest.param("nights", "ratio", marks=pytest.mark.slow),
    ],
)
def test_benchmark__runs_on_small_inputs(name, key, tmp_path):
    arguments = ["--quick", *(["--folder", str(tmp_path)] if name in ("job", "training", "checks") else [])]
    arguments += ["--speed"] * (name == "explain")
    records = records_of(name, arguments)
    ratios = [record[key] for record in records if key in record]
    assert ratios
    assert min(ratios) > 0


@pytest.mark.data
def test_descent__runs_on_the_papers_data(data_folder):
    records = records_of("descent", ["--quick"], DKFEAT_DATA=str(data_folder))
    ratios = [record["ratio"] for record in records if record["what"] != "mark"]
    assert len(ratios) == 8
    assert min(ratios) > 0


@pytest.mark.data
def test_continued__nights_come_near_one_training(data_folder):
    (record,) = records_of("continued", ["--quick", "--nights", "3"], DKFEAT_DATA=str(data_folder))
    assert record["ratio"] > 0.97


@pytest.mark.data
def test_neighbors__finds_the_nearest_rows(data_folder):
    records = records_of("neighbors", ["--quick"], DKFEAT_DATA=str(data_folder))
    recalls = {record["way"]: record["recall"] for record in records if record["what"] == "recall"}
    assert recalls["GMMNeighbors, gcws, 100 exact"] > 0.98
    assert min(recalls.values()) > 0.5


@pytest.mark.data
def test_webspam__draws_rows_like_those_of_the_set(data_folder):
    records = records_of("webspam", ["rows", "--quick"], DKFEAT_DATA=str(data_folder))
    found = {record["what"]: record for record in records}
    assert found["drawn trigrams"]["nonzeros"] == pytest.approx(3728, rel=0.1)
    assert found["columns that occur"]["expected"]["350000"] == pytest.approx(680_000, rel=0.1)


@pytest.mark.data
def test_webspam__runs_on_few_rows(data_folder):
    records = records_of("webspam", ["job", "accuracy", "--quick"], DKFEAT_DATA=str(data_folder))
    assert [record["ratio"] for record in records if record["what"].endswith("all rows")]
    assert [record.get("map") for record in records if record["what"] == "accuracy"] == [
        None,
        "dart",
        "dart",
        "gcws",
        "gcws",
    ]


def test_runner__names_the_machine_and_ends_with_the_marks():
    command = [sys.executable, FOLDER / "run.py", "--quick", "--avx2", "maclaurin"]
    environment = os.environ | {"NUMBA_CPU_NAME": "generic"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "--avx2 needs a processor with AVX2" in done.stderr:
        pytest.skip("this processor has no AVX2")
    assert done.returncode == 0, done.stderr
    machine, *lines = done.stdout.splitlines()
    assert json.loads(machine)["vector_bits"] == 256
    assert "512" not in json.loads(machine)["numpy_for"]
    marks = [json.loads(line) for line in lines if '"what": "mark"' in line]
    assert [mark["least"] for mark in marks] == [1, 3]
    head = next(at for at, line in enumerate(lines) if line.startswith("== marks on"))
    assert "vectors of 256 bits" in lines[head]
    for mark, line in zip(marks, lines[head + 1 :], strict=True):
        assert mark["name"] in line
        assert line.endswith("holds" if mark["figure"] >= mark["least"] else "missed")


@pytest.mark.quick
def test_runner__refuses_unknown_names():
    done = subprocess.run([sys.executable, FOLDER / "run.py", "gcsw"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown benchmark gcsw" in done.stderr
