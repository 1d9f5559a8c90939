"""A scheduler and workers that people start by Dask's own commands, and dkfeat's commands and jobs on them."""

import runpy
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from dkfeat.cli import cli
from dkfeat.engine.clusters.local import local_cluster
from dkfeat.engine.runners.connect import read_address
from dkfeat.learn.model import load_model
from tests.programs import ROOT, start

DASK = [sys.executable, "-m", "dask"]
SCHEDULER = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
WORKER = ["--nthreads", "1", "--memory-limit", "2GiB", "--no-dashboard", "--death-timeout", "60"]


@contextmanager
def started(words):
    """A process that is ended at the end, whatever happens."""
    process = start(words)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The file of a scheduler with two worker processes."""
    folder = tmp_path_factory.mktemp("cluster")
    file = folder / "scheduler.json"
    with ExitStack() as stack:
        stack.enter_context(started([*DASK, "scheduler", *SCHEDULER, "--scheduler-file", str(file)]))
        for number in range(2):
            own = ["--scheduler-file", str(file), "--local-directory", str(folder / f"worker-{number}")]
            stack.enter_context(started([*DASK, "worker", *WORKER, *own]))
        yield file


def run(*words):
    """Run a command in this process; worker processes are what the test is about."""
    outcome = CliRunner().invoke(cli, [*map(str, words)])
    assert outcome.exit_code == 0, outcome.output
    return outcome


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "data").iterdir())}


@pytest.mark.cluster
def test_commands__on_a_running_cluster_give_the_same_bytes(cluster, tiny_folder, tmp_path):
    """The scheduler and its workers are told by file, by address and in a job file."""
    rows = tiny_folder / "*.svm"
    settings = ["--n-components", 16, "--seed", 0, "--blocksize", 4096, "--no-progress"]
    run("featurize", rows, *settings, "--scheduler", "threads", "--out", tmp_path / "local")
    run("featurize", rows, *settings, "--scheduler-file", cluster, "--out", tmp_path / "features")
    assert bytes_of(tmp_path / "features") == bytes_of(tmp_path / "local")

    training = [tmp_path / "local", "--parts", 2, "--epochs", 2, "--no-progress", "--out"]
    run("train", *training, tmp_path / "local-model", "--scheduler", "threads")
    run("train", *training, tmp_path / "model", "--scheduler", read_address(cluster))
    local, other = (load_model(tmp_path / name) for name in ("local-model", "model"))
    np.testing.assert_array_equal(other.coef_, local.coef_)
    np.testing.assert_array_equal(other.intercept_, local.intercept_)

    predicting = [tmp_path / "model", rows, "--no-progress", "--out"]
    run("predict", *predicting, tmp_path / "local-labels", "--scheduler", "threads")
    part = {"model": str(tmp_path / "model"), "source": {"urlpath": str(rows)}, "out": str(tmp_path / "labels")}
    where = {"scheduler_file": str(cluster), "progress": False}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"predict": [part], "run": where}))
    main = runpy.run_path(str(ROOT / "jobs" / "predict.py"))["main"]
    assert CliRunner().invoke(main, [str(tmp_path / "job.yaml")]).exit_code == 0
    assert bytes_of(tmp_path / "labels") == bytes_of(tmp_path / "local-labels")


@pytest.mark.cluster
def test_job__parts_share_one_cluster(tiny_folder, tmp_path, monkeypatch):
    started_clusters = []
    monkeypatch.setattr(
        "dkfeat.engine.clusters.open.local_cluster",
        lambda *sizes: started_clusters.append(sizes) or local_cluster(*sizes),
    )
    (tmp_path / "c.yaml").write_text("{kind: local, n_workers: 2}")
    parts = [
        {
            "source": {"urlpath": str(tiny_folder / f"{name}.svm")},
            "map": {"name": "gcws", "n_components": 8, "seed": 0},
            "out": str(tmp_path / name),
        }
        for name in "ab"
    ]
    where = {"cluster": str(tmp_path / "c.yaml"), "n_workers": 1, "memory_limit": "2GiB", "progress": False}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"featurize": parts, "run": where}))
    main = runpy.run_path(str(ROOT / "jobs" / "featurize.py"))["main"]
    outcome = CliRunner().invoke(main, [str(tmp_path / "job.yaml")])
    assert outcome.exit_code == 0, outcome.output
    assert started_clusters == [(1, None, "2GiB")]
    # what is done already starts none
    assert CliRunner().invoke(main, [str(tmp_path / "job.yaml")]).exit_code == 0
    assert len(started_clusters) == 1


def test_memory_limit_too_small__error_names_the_flag_or_the_key(tiny_folder, tmp_path):
    (tmp_path / "c.yaml").write_text("{kind: local, memory_limit: 511MiB}")
    words = ["featurize", str(tiny_folder / "*.svm"), "--out", str(tmp_path / "out")]
    for option, name in (
        (["--memory-limit", "511MiB"], "--memory-limit"),
        (["--cluster", str(tmp_path / "c.yaml")], "memory_limit"),
    ):
        outcome = CliRunner().invoke(cli, [*words, *option])
        assert outcome.exit_code == 2
        assert f" {name}='511MiB', but a worker's limit is a size of at least 512 MiB" in outcome.stderr
    outcome = CliRunner().invoke(cli, ["featurize", "memory_limit.svm", "--out", str(tmp_path / "out")])
    assert "memory_limit.svm" in outcome.stderr.split()  # the name of a file stays
