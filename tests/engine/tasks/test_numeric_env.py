"""Numeric environments of the processes that make shards are recorded for maps whose last bits depend on them."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from itertools import count

import pytest

import dkfeat
from dkfeat.engine.run import UNKNOWN_ENVIRONMENT
from dkfeat.engine.tasks import job
from dkfeat.engine.tasks.job import numeric_env
from dkfeat.store.shards import codec as shards
from tests import programs
from tests.cli.test_commands import run
from tests.engine.helpers import BLOCK, featurized, gcws

FOURIER = dkfeat.FourierFeatures(32, projection="circulant", random_state=1)


@pytest.fixture
def alternating(monkeypatch):
    """Make every second split of this process in another environment."""
    numbers = count()
    monkeypatch.setattr("dkfeat.engine.tasks.job.numeric_env", lambda: ("one", "two")[next(numbers) % 2])


def source_of(folder):
    return dkfeat.LibsvmSource(str(folder / "*.svm"), blocksize=BLOCK)


def test_one_environment__is_recorded_as_one(tiny_folder, tmp_path):
    manifest = featurized(source_of(tiny_folder), tmp_path / "out", map=FOURIER, scheduler="synchronous")
    assert manifest.run["numeric_env"] == numeric_env()
    assert "numeric_envs" not in manifest.run
    assert dkfeat.open_shards(tmp_path / "out").manifest.numeric_envs == (numeric_env(),)
    assert "numeric environments" not in run("verify", tmp_path / "out").stdout


@pytest.mark.usefixtures("alternating")
def test_unlike_environments__are_recorded_and_verify_says_so(tiny_folder, tmp_path):
    target = tmp_path / "out"
    manifest = featurized(source_of(tiny_folder), target, map=FOURIER, scheduler="synchronous")
    assert manifest.run["numeric_envs"] == ["one", "two"]
    assert "processes of 2 numeric environments made the shards" in run("verify", target).stdout
    assert json.loads(run("verify", target, "--json").stdout)["numeric_envs"] == ["one", "two"]


@pytest.mark.usefixtures("alternating")
def test_exact_map__records_no_list(tiny_folder, tmp_path):
    manifest = featurized(source_of(tiny_folder), tmp_path / "out", map=gcws(), scheduler="synchronous")
    assert "numeric_envs" not in manifest.run


def test_next_batch__keeps_the_environments_of_earlier_ones(tmp_path, monkeypatch):
    for batch in ("one", "two", "three"):
        (tmp_path / f"{batch}.svm").write_text("1 1:1 3:2\n2 2:1\n")
        monkeypatch.setattr("dkfeat.engine.tasks.job.numeric_env", lambda batch=batch: batch)
        source = dkfeat.LibsvmSource(str(tmp_path / "*.svm"), n_features=3)
        manifest = featurized(source, tmp_path / "out", map=FOURIER, scheduler="synchronous")
    assert manifest.run["numeric_envs"] == ["one", "three", "two"]


def test_shard_that_another_attempt_published_meanwhile__may_be_of_an_unknown_environment(
    tiny_folder, tmp_path, monkeypatch
):
    encode, publish, encoded = shards.encode_shard, job.publish, []

    def encode_two(layout, block, footer, **options):
        encoded.append(encode(layout, replace(block, X=block.X + 1), footer, **options))
        return encode(layout, block, footer, **options)

    def publish_second(storage, name, shard, *, run_id):
        if len(encoded) == 1:
            publish(storage, name, encoded[0], run_id=run_id)
        return publish(storage, name, shard, run_id=run_id)

    monkeypatch.setattr(shards, "encode_shard", encode_two)
    monkeypatch.setattr(job, "publish", publish_second)
    manifest = featurized(source_of(tiny_folder), tmp_path / "out", map=FOURIER, scheduler="synchronous")
    assert set(manifest.run["numeric_envs"]) == {numeric_env(), UNKNOWN_ENVIRONMENT}


KILLED = """
import os, signal, sys
from pathlib import Path
from dkfeat.engine.tasks import job
from tests.engine.tasks.test_numeric_env import FOURIER, featurized, source_of
job.numeric_env = lambda: "another"
def stop(state):
    if (state.stage, state.tasks) == ("featurize", 3):
        os.kill(os.getpid(), signal.SIGKILL)
featurized(source_of(Path(sys.argv[1])), Path(sys.argv[2]), map=FOURIER, scheduler="synchronous", progress=stop)
"""


@pytest.mark.slow
@pytest.mark.parametrize("logs", [True, False], ids=["with-log", "without-log"])
def test_killed_run_in_another_environment__is_recorded_by_the_run_that_resumes_it(tiny_folder, tmp_path, logs):
    target = tmp_path / "out"
    ended = programs.run([sys.executable, "-c", KILLED, str(tiny_folder), str(target)])
    assert ended.status == -signal.SIGKILL, ended.err
    if not logs:
        for log in (target / "_dkfeat").glob("log-*"):
            log.unlink()
    manifest = featurized(source_of(tiny_folder), target, map=FOURIER, scheduler="synchronous")
    (other,) = set(manifest.run["numeric_envs"]) - {numeric_env()}
    assert other == ("another" if logs else UNKNOWN_ENVIRONMENT)
