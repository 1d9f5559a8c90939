"""Every benchmark runs on small inputs, and prints what it promises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gcws", "ratio"),
        ("parser", "read_ratio"),
        ("projections", "ratio"),
        ("maclaurin", "ratio"),
        ("latency", "ratio"),
        pytest.param("training", "ratio", marks=pytest.mark.slow),
        pytest.param("checks", "ratio", marks=pytest.mark.slow),
        pytest.param("job", "ratio", marks=pytest.mark.slow),
    ],
)
def test_benchmark__runs_on_small_inputs(name, key, tmp_path):
    arguments = ["--quick", *(["--folder", str(tmp_path)] if name in ("job", "training", "checks") else [])]
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    ratios = [record[key] for record in records if key in record]
    assert ratios
    assert min(ratios) > 0


def test_runner__refuses_unknown_names():
    done = subprocess.run([sys.executable, FOLDER / "run.py", "gcsw"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown benchmark gcsw" in done.stderr
