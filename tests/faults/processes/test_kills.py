"""Processes that die during a run lose nothing, and the next run ends with the bytes of an undisturbed run."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import dask
import distributed  # noqa: F401 - sets the configuration that a test changes temporarily
import psutil
import pyarrow.parquet as pq
import pytest

from dkfeat.engine.clusters.local import local_cluster
from tests import programs
from tests.engine.helpers import featurized, gcws
from tests.faults.resumed import assert_resumes
from tests.invariants import assert_dataset_whole, dataset_state

pytestmark = pytest.mark.slow


def words(source, target, scheduler, splits=0):
    return programs.module("tests.engine.helpers", *source.urlpath, target, scheduler, splits)


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


@pytest.mark.fault("P-01")
@pytest.mark.cluster
def test_driver_killed__its_workers_leave(source, golden, tmp_path):
    target = tmp_path / "features"
    with programs.start(words(source, target, "cluster", 2)) as driver:
        programs.wait_until_stopped(driver)
        workers = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
        _, alive = psutil.wait_procs(workers, timeout=120)
        for worker in alive:
            worker.kill()
    assert alive == []
    assert_resumes(source, target, golden, finished=False)


@pytest.mark.fault("P-02", "P-03")
@pytest.mark.cluster
def test_worker_that_dies_while_it_writes__run_completes_identical(source, golden, tmp_path):
    target = tmp_path / "features"
    with (
        dask.config.set({"distributed.nanny.environ": {"DKFEAT_KILL_AT": "mid_write:13"}}),
        local_cluster(n_workers=1, threads_per_worker=1) as client,
        watched(target / "data") as (seen, faults),
    ):
        before = set(client.run(os.getpid).values())
        featurized(source, target, client=client)
        assert before.isdisjoint(client.run(os.getpid).values())
    assert faults == []
    assert len(seen) > len(golden[0]) / 2
    assert dataset_state(target) == golden
    assert_dataset_whole(target, committed=True)


@pytest.mark.fault("P-10")
@pytest.mark.cluster
def test_workers_join_and_leave__run_completes_identical(source, golden, tmp_path):
    target = tmp_path / "features"
    with local_cluster(n_workers=1, threads_per_worker=1) as client:
        (first,) = client.run(os.getpid)

        def change(state):
            if (state.stage, state.tasks) == ("featurize", 2):
                client.cluster.scale(2)
                client.wait_for_workers(2)
            elif (state.stage, state.tasks) == ("featurize", 6):
                client.retire_workers([first])

        featurized(source, target, client=client, progress=change)
        assert first not in client.nthreads()
        assert len(client.nthreads()) == 1
    assert dataset_state(target) == golden


@pytest.mark.quick
@pytest.mark.fault("C-11", "D-01")
@pytest.mark.cluster
def test_two_jobs_on_one_cluster__both_identical(source, golden, tmp_path, cluster_client):
    other = gcws(random_state=12)
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
