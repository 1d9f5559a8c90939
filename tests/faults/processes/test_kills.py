"""Processes that die during a run lose nothing, and the next run ends with the bytes of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dask
import distributed  # noqa: F401 - sets the configuration that a test changes temporarily
import psutil
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.engine.clusters import local_cluster
from tests.engine.helpers import BLOCK, featurized, gcws
from tests.faults import kills
from tests.invariants import assert_dataset_whole, dataset_state
from tests.programs import wait_until_stopped

ROOT = Path(dkfeat.__file__).parent.parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pattern(tiny_folder):
    return str(tiny_folder / "*.svm")


@pytest.fixture(scope="module")
def golden(pattern, tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden") / "features"
    featurized(dkfeat.LibsvmSource(pattern, blocksize=BLOCK), folder)
    return dataset_state(folder)


def start(pattern, target, scheduler, splits=0, **environment):
    command = [sys.executable, "-m", "tests.engine.helpers", pattern, str(target), scheduler, str(splits)]
    environment = {**os.environ, **environment}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def watched(folder):
    """Repeatedly read all files of a folder; yield the names seen and the errors found."""
    seen, faults, stop = set(), [], threading.Event()

    def watch():
        while not stop.wait(0.005):
            for path in folder.glob("*"):
                seen.add(path.name)
                try:
                    pq.ParquetFile(path, page_checksum_verification=True).read()
                except Exception as fault:  # the tests look for any error
                    faults.append(f"{path}: {fault}")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen, faults
    finally:
        stop.set()
        watcher.join()


def resumed(pattern, target, counted):
    """Finish the run; return the number of blocks that were encoded for it."""
    counted.clear()
    featurized(dkfeat.LibsvmSource(pattern, blocksize=BLOCK), target)
    return len(counted)


@pytest.fixture
def counted(monkeypatch):
    calls = []
    encode = dkfeat.GCWSFeatures.encode
    monkeypatch.setattr(dkfeat.GCWSFeatures, "encode", lambda self, X: (calls.append(X.shape[0]), encode(self, X))[1])
    return calls


def check_killed_and_resumed(kill_at, pattern, golden, target, counted):
    with start(pattern, target, "threads", DKFEAT_KILL_AT=kill_at) as driver:
        _, errors = driver.communicate(timeout=240)
    assert driver.returncode == -signal.SIGKILL, errors
    assert_dataset_whole(target, finished=False)
    made = len(list((target / "data").glob("*")))  # none if it was killed while it locked the target
    assert resumed(pattern, target, counted) == len(golden[0]) - made
    assert dataset_state(target) == golden
    assert_dataset_whole(target, committed=True)
    kills.SURVIVED[kill_at.partition(":")[0]] += 1


@pytest.mark.fault("P-01")
@pytest.mark.parametrize("kill_at", ["after_plan:1", "mid_write:10", "after_publish:7", "before_manifest:1"])
def test_driver_killed__resume_is_identical(kill_at, pattern, golden, tmp_path, counted):
    check_killed_and_resumed(kill_at, pattern, golden, tmp_path / "features", counted)


@pytest.mark.fault("P-01")
@pytest.mark.parametrize(
    "kill_at",
    [
        *(f"{point}:{k}" for point in ("before_tmp", "mid_write", "after_tmp") for k in (1, 3, 5, 8, 13, 20)),
        *(f"after_publish:{k}" for k in (1, 2, 3, 10, 18)),
        *("after_manifest:1", "after_success:1"),
    ],
)
def test_driver_killed__resume_is_identical_at_every_point(kill_at, pattern, golden, tmp_path, counted):
    check_killed_and_resumed(kill_at, pattern, golden, tmp_path / "features", counted)


@pytest.mark.fault("P-01")
@pytest.mark.cluster
@pytest.mark.parametrize("scheduler", ["processes", "cluster"])
def test_driver_killed__its_workers_leave(scheduler, pattern, golden, tmp_path, counted):
    target = tmp_path / "features"
    with start(pattern, target, scheduler, splits=2) as driver:
        wait_until_stopped(driver)
        workers = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
        _, alive = psutil.wait_procs(workers, timeout=120)
        for worker in alive:
            worker.kill()
    assert alive == []
    assert_dataset_whole(target, committed=False, finished=False)
    resumed(pattern, target, counted)
    assert dataset_state(target) == golden
    assert_dataset_whole(target, committed=True)


STARTING = """
import os, signal
from dkfeat.engine.runners import local
local.threadpool_limits = lambda threads: os.kill(os.getpid(), signal.SIGTERM)
local._start_process(None, 1)
"""


@pytest.mark.fault("P-05")
def test_process_of_a_pool_ended_while_it_starts__shows_no_error():
    ended = subprocess.run([sys.executable, "-c", STARTING], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGTERM, "")


@pytest.mark.fault("P-05")
@pytest.mark.cluster
@pytest.mark.parametrize("scheduler", ["threads", *(pytest.param(name) for name in ("cluster", "processes"))])
def test_driver_interrupted__workers_leave_and_resume_is_identical(scheduler, pattern, golden, tmp_path, counted):
    target = tmp_path / "features"
    with start(pattern, target, scheduler, splits=2) as driver:
        wait_until_stopped(driver)
        workers = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(signal.SIGINT)
        driver.send_signal(signal.SIGCONT)
        _, errors = driver.communicate(timeout=60)
    assert driver.returncode != 0
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == []
    assert_dataset_whole(target, committed=False)
    made = len(list((target / "data").glob("*")))  # none if it was killed while it locked the target
    assert made >= 2
    assert resumed(pattern, target, counted) == len(golden[0]) - made
    assert dataset_state(target) == golden


@pytest.mark.fault("P-02")
@pytest.mark.cluster
def test_worker_killed__run_completes_identical(pattern, golden, tmp_path):
    target = tmp_path / "features"
    with local_cluster(n_workers=2, threads_per_worker=1) as client:
        pids = list(client.run(os.getpid).values())

        def kill_one(state):
            if state.stage == "featurize" and state.tasks == 3:
                os.kill(pids[0], signal.SIGKILL)

        featurized(dkfeat.LibsvmSource(pattern, blocksize=BLOCK), target, client=client, progress=kill_one)
    assert dataset_state(target) == golden
    assert_dataset_whole(target, committed=True)


@pytest.mark.fault("P-03")
@pytest.mark.cluster
def test_worker_that_dies_while_it_writes__run_completes_identical(pattern, golden, tmp_path):
    target = tmp_path / "features"
    with (
        dask.config.set({"distributed.nanny.environ": {"DKFEAT_KILL_AT": "mid_write:13"}}),
        local_cluster(n_workers=1, threads_per_worker=1) as client,
        watched(target / "data") as (seen, faults),
    ):
        before = set(client.run(os.getpid).values())
        featurized(dkfeat.LibsvmSource(pattern, blocksize=BLOCK), target, client=client)
        assert before.isdisjoint(client.run(os.getpid).values())
    assert faults == []
    assert len(seen) > len(golden[0]) / 2
    assert dataset_state(target) == golden
    assert_dataset_whole(target, committed=True)


@pytest.mark.fault("C-01")
@pytest.mark.cluster
def test_two_runs_on_one_target__second_is_told_who_holds_it(pattern, golden, tmp_path):
    target = tmp_path / "features"
    with start(pattern, target, "synchronous", splits=1) as first:
        try:
            wait_until_stopped(first)
            with start(pattern, target, "synchronous") as second:
                _, errors = second.communicate(timeout=240)
        finally:
            first.send_signal(signal.SIGCONT)
        first.communicate(timeout=240)
    assert second.returncode == 1
    assert "is being written by run" in errors
    assert str(first.pid) in errors
    assert first.returncode == 0
    assert dataset_state(target) == golden


@pytest.mark.fault("P-10")
@pytest.mark.cluster
def test_workers_join_and_leave__run_completes_identical(pattern, golden, tmp_path):
    target = tmp_path / "features"
    with local_cluster(n_workers=1, threads_per_worker=1) as client:
        (first,) = client.run(os.getpid)

        def change(state):
            if (state.stage, state.tasks) == ("featurize", 2):
                client.cluster.scale(2)
                client.wait_for_workers(2)
            elif (state.stage, state.tasks) == ("featurize", 6):
                client.retire_workers([first])

        featurized(dkfeat.LibsvmSource(pattern, blocksize=BLOCK), target, client=client, progress=change)
        assert first not in client.nthreads()
        assert len(client.nthreads()) == 1
    assert dataset_state(target) == golden


@pytest.mark.quick
@pytest.mark.fault("C-11")
@pytest.mark.cluster
def test_two_jobs_on_one_cluster__both_identical(pattern, golden, tmp_path, cluster_client):
    source, other = dkfeat.LibsvmSource(pattern, blocksize=BLOCK), gcws(random_state=12)
    featurized(source, tmp_path / "alone", map=other)

    def work(name, map):
        featurized(source, tmp_path / name, client=cluster_client, map=map)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, ("one", "other", "another"), (gcws(), gcws(), other)))
    assert dataset_state(tmp_path / "one") == dataset_state(tmp_path / "other") == golden
    assert dataset_state(tmp_path / "another") == dataset_state(tmp_path / "alone") != golden
    assert cluster_client.run(lambda dask_worker: [name for name in dask_worker.plugins if "dkfeat" in name]) == {
        address: [] for address in cluster_client.nthreads()
    }
