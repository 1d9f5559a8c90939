"""Several writers on one object store: one at a time, dead ones are replaced, and one commit wins."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import dkfeat
from dkfeat.errors import CommitConflictError, TargetBusyError
from dkfeat.store.commit import begin as commit
from dkfeat.store.commit.maintenance import abort, clean
from dkfeat.store.storage import base, object_store, open_storage
from dkfeat.store.storage.base import LOCK
from tests import programs
from tests.faults.stores.bucket import KEY, SECRET
from tests.invariants import dataset_state
from tests.programs import ROOT, end, start_until, wait_for_first
from tests.store.tiny_job import TinyJob, write_sources

VARIABLES = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
HOLDER = {"run_id": "a" * 32, "host": "here", "pid": 1, "since": "then"}


@pytest.fixture
def sources(tmp_path):
    return write_sources(tmp_path / "in")


@pytest.fixture
def golden(sources, tmp_path):
    TinyJob(sources, tmp_path / "golden").run()
    return dataset_state(tmp_path / "golden")


@pytest.fixture
def start(proxy, bucket, sources):
    """Function that starts programs that write to the bucket; the end of the test stops them."""
    started = []

    def go(*arguments, **environment):
        words = programs.module("tests.faults.stores.store_job", sources, bucket.url(), *arguments)
        started.append(programs.start(words, **VARIABLES, AWS_ENDPOINT_URL=proxy.url, **environment))
        return started[-1]

    yield go
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.fault("C-12")
def test_publish__another_run_takes_over_before_the_request_arrives__the_shard_is_found(
    bucket, storage, options, sources, monkeypatch
):
    job = TinyJob(sources, Path("unused"), storage=storage)
    run = commit.begin(storage, job.spec, job.files(), job.splits())
    other = replace(job, seed=7)
    put = object_store.ObjectStorage._put

    def late(own, name, data, **settings):
        if name.startswith("data/"):
            monkeypatch.undo()
            storage.remove(LOCK)  # as if the driver had died on another host
            abort(storage)
            other.run()
        put(own, name, data, **settings)

    monkeypatch.setattr(object_store.ObjectStorage, "_put", late)
    stray = next(iter(job.run_split(storage, run, run.splits[0]))).name
    [problem] = dkfeat.open_shards(bucket.url(), storage_options=options).verify().problems
    assert stray in problem
    write_sources(sources, files=1, first=5)
    other.run()
    assert clean(storage).removed == (f"data/{stray}",)
    assert dkfeat.open_shards(bucket.url(), storage_options=options).verify().problems == []


@pytest.mark.slow
@pytest.mark.fault("C-12")
def test_worker_stopped_for_longer_than_a_look_lasts__its_run_replaced__leaves_no_shard(
    bucket, storage, sources, proxy, monkeypatch
):
    monkeypatch.undo()  # the wait of `abort` is that of the other process
    words = [sys.executable, str(ROOT / "tests" / "faults" / "stores" / "store_job.py"), str(sources), bucket.url()]
    process = start_until("before_tmp:8", words, AWS_ENDPOINT_URL=proxy.url, **VARIABLES)
    try:
        assert len(bucket.keys("out/data/")) == 2  # it has looked at the lock
        storage.remove(LOCK)  # as if the driver had died on another host
        abort(storage)
        TinyJob(sources, Path("unused"), seed=7, storage=storage).run()
        before = bucket.state()
        process.send_signal(signal.SIGCONT)
    finally:
        ended = end(process)
    assert ended.status == CommitConflictError.exit_code, ended.err
    assert "does not hold the lock any more" in ended.err
    assert bucket.state() == before
    bucket.assert_whole(committed=True)


def test_lock__under_another_run_id__is_held_all_the_time(storage, monkeypatch):
    held = storage.acquire(HOLDER)
    put = object_store.ObjectStorage._put

    def put_while_held(own, *arguments, **settings):
        assert storage.holder() is not None
        put(own, *arguments, **settings)

    monkeypatch.setattr(object_store.ObjectStorage, "_put", put_while_held)
    held.rename("b" * 32)
    assert storage.holder().run_id == "b" * 32
    held.release()
    assert storage.holder() is None


@pytest.mark.slow
@pytest.mark.fault("C-01")
def test_two_runs_at_once__one_works_the_other_is_told(start, bucket, golden, tmp_path):
    barrier, release = tmp_path / "go", tmp_path / "release"
    both = [start("--barrier", barrier, "--until", release) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    barrier.touch()
    wait_for_first(both)
    release.touch()
    outputs = [process.communicate(timeout=240)[1] for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 4], outputs
    assert f"pid {both[codes.index(0)].pid}, since" in outputs[codes.index(4)]
    assert bucket.state() == golden
    bucket.assert_whole(committed=True)


def killed_run(start, kill_at):
    process = start(DKFEAT_KILL_AT=kill_at)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL, errors


@pytest.mark.slow
@pytest.mark.fault("P-01", "C-03")
def test_killed_run__on_this_host__is_taken_over_and_finished(start, bucket, storage, sources, golden, proxy, caplog):
    killed_run(start, "after_publish:6")
    dead = json.loads(bucket.get(f"out/{LOCK}"))
    bucket.assert_whole(finished=False)
    made = set(bucket.keys("out/data/"))
    assert made
    assert storage.holder().alive is False
    TinyJob(sources, Path("unused"), storage=storage).run()
    assert f"taking over from run {dead['run_id']}" in caplog.text
    assert bucket.state() == golden
    bucket.assert_whole(committed=True)
    assert not any(proxy.count("PUT", key) > 1 for key in made)  # nothing was written twice


@pytest.mark.slow
@pytest.mark.fault("P-01")
@pytest.mark.parametrize(
    "kill_at", [f"before_tmp:{k}" for k in range(1, 12)] + [f"after_publish:{k}" for k in range(1, 12)]
)
def test_killed_run__at_any_request__is_finished(start, bucket, storage, sources, golden, kill_at):
    killed_run(start, kill_at)
    bucket.assert_whole(finished=False)
    TinyJob(sources, Path("unused"), storage=storage).run()
    assert bucket.state() == golden
    bucket.assert_whole(committed=True)


@pytest.mark.parametrize(
    ("changes", "alive"),
    [
        ({}, True),
        ({"pid_start": "1"}, False),  # the number now belongs to another process
        ({"pid": 2**22 + 1}, False),
        ({"boot": "an earlier one"}, False),
        ({"boot": "an earlier one", "machine": "of the same name"}, None),
        ({"pid_namespace": "pid:[1]"}, None),
        ({"host": "elsewhere"}, None),
        ({"pid": "x"}, True),
        ({"pid": None}, True),
        ({"run_id": "released"}, False),
    ],
)
def test_process__counts_as_ended_when_that_is_proved(changes, alive, monkeypatch):
    monkeypatch.setattr(base, "_held", {"held"})
    assert base.is_alive({"run_id": "held", **base.this_process(), **changes}) is alive


def dead_lock(bucket):
    bucket.put(f"out/{LOCK}", json.dumps({**HOLDER, **base.this_process(), "pid": 2**22 + 1}).encode())


def test_lock__of_a_dead_run__many_takers__one_gets_it(bucket, options, monkeypatch):
    monkeypatch.setattr(base, "_OVERLAP_SECONDS", 2.0)  # longer than a request of a busy machine
    dead_lock(bucket)
    barrier, won = threading.Barrier(8), []

    def take(number):
        own = open_storage(bucket.url(), options)
        own.list("data")
        barrier.wait()
        with contextlib.suppress(TargetBusyError):
            won.append((number, own.acquire({**HOLDER, "run_id": f"{number:032}"})))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [(number, held)] = won
    assert json.loads(bucket.get(f"out/{LOCK}"))["run_id"] == f"{number:032}"
    held.release()
    assert bucket.keys() == []


@pytest.mark.fault("C-12")
def test_lock__of_a_dead_run__the_slower_taker_replaces_the_faster__which_may_not_publish(
    bucket, storage, options, sources, monkeypatch
):
    dead_lock(bucket)
    other = open_storage(bucket.url(), options)
    monkeypatch.setattr(base, "_OVERLAP_SECONDS", 0.0)
    remove, faster = object_store.ObjectStorage.remove, []
    job = TinyJob(sources, Path("unused"), storage=other)

    def overtaken(own, name, **more):
        if own is storage and name == LOCK and not faster:
            faster.append(None)  # this storage has read the holder twice; now another one takes the lock
            faster[0] = commit.begin(other, job.spec, job.files(), job.splits())
        remove(own, name, **more)

    monkeypatch.setattr(object_store.ObjectStorage, "remove", overtaken)
    slower = storage.acquire({**HOLDER, "run_id": "c" * 32})
    with pytest.raises(CommitConflictError, match="does not hold the lock any more"):
        next(iter(job.run_split(other, faster[0], faster[0].splits[0])))
    faster[0].close()
    assert storage.holder().run_id == "c" * 32
    slower.release()
    assert storage.holder() is None
    assert not bucket.keys("out/data/")


def test_lock__that_is_none_of_ours__is_left_alone(bucket, storage):
    bucket.put(f"out/{LOCK}", b"not JSON")
    with pytest.raises(TargetBusyError, match="was not written by dkfeat"):
        storage.acquire(HOLDER)
    assert bucket.get(f"out/{LOCK}") == b"not JSON"


@pytest.mark.slow
@pytest.mark.fault("C-05")
def test_commit__twelve_processes_race__one_wins(start, bucket, golden, tmp_path):
    process = start("--copies", 12, "--barrier", tmp_path / "race")
    statuses, errors = process.communicate(timeout=240)
    assert sorted(map(int, statuses.split())) == [0] + [4] * 11, errors
    assert errors.count("was committed first by run") == 11
    assert bucket.state() == golden
    bucket.assert_whole(committed=True)
