# ruff: noqa: ARG001, ARG002, ARG005 - tasks and callbacks have fixed signatures
from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import dask
import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster

from dkfeat.blocks import SourceFile, Split
from dkfeat.config import ExecutionConfig
from dkfeat.engine.clusters.local import local_cluster
from dkfeat.engine.runners import local
from dkfeat.engine.runners.connect import connect
from dkfeat.engine.runners.distributed import ClientRunner
from dkfeat.engine.runners.local import LocalRunner
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ClusterError, ConfigError, ParseError
from dkfeat.process_cache import ProcessCache

SCHEDULERS = ("synchronous", "threads")


def fake_splits(count: int) -> list[Split]:
    file = SourceFile(name="fake.svm", url="fake.svm", size=10 * count)
    return [Split(number=n, file=file, start=10 * n, stop=10 * n + 10) for n in range(count)]


@dataclass(frozen=True)
class Double:
    def __call__(self, split, stopped):
        assert not stopped()
        return 2 * split.number


@dataclass(frozen=True)
class FailAt:
    number: int
    pause: float = 0.0

    def __call__(self, split, stopped):
        if split.number == self.number:
            raise ParseError("indices must ascend", path="fake.svm", line=7, column=5, offset=99)
        time.sleep(self.pause)
        return split.number


@dataclass(frozen=True)
class DieAt:
    number: int

    def __call__(self, split, stopped):
        if split.number == self.number:
            os._exit(9)
        return split.number


@dataclass(frozen=True)
class Payload:
    """Task that counts its unpicklings in each process; or the first one fails late, as if its worker hung."""

    folder: str
    is_missed: bool = False

    def __setstate__(self, state):
        vars(self).update(state)
        with open(f"{self.folder}/{'tries' if self.is_missed else os.getpid()}", "a") as file:  # noqa: PTH123
            file.write("x")
            if self.is_missed and file.tell() == 1:
                time.sleep(1)
                raise ConnectionError

    def __call__(self, split, stopped):
        return os.getpid()


def run(runner, task, count):
    got = {}
    runner.run(task, fake_splits(count), lambda split, result: got.__setitem__(split.number, result))
    return got


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_local_runner__gives_every_result(scheduler):
    with open_runner(ExecutionConfig(scheduler=scheduler, n_workers=2)) as runner:
        assert run(runner, Double(), 7) == {n: 2 * n for n in range(7)}
        assert run(runner, Double(), 0) == {}


def test_local_runner__starts_tasks_in_the_order_given():
    order = []
    splits = fake_splits(30)[::-1]
    with open_runner(ExecutionConfig(scheduler="synchronous")) as runner:
        runner.run(Double(), splits, lambda split, result: order.append(split))
    assert order == splits


@pytest.mark.quick
@pytest.mark.cluster
def test_client_runner__gives_every_result(cluster_client):
    with open_runner(cluster_client) as runner:
        assert run(runner, Double(), 7) == {n: 2 * n for n in range(7)}
        assert run(runner, Double(), 0) == {}
        assert runner.memory_limit > 2**20
        assert runner.description == "2 worker processes with 2 threads"


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_local_runner__error_arrives_with_its_place(scheduler):
    with pytest.raises(ParseError) as caught, open_runner(ExecutionConfig(scheduler=scheduler, n_workers=2)) as runner:
        run(runner, FailAt(3), 10)
    assert str(caught.value) == "fake.svm:7:5: indices must ascend"
    assert (caught.value.line, caught.value.column, caught.value.offset) == (7, 5, 99)


@pytest.mark.cluster
def test_client_runner__first_error_stops_submission(cluster_client):
    started = []
    runner = ClientRunner(cluster_client)
    with pytest.raises(ParseError) as caught:
        runner.run(FailAt(5, pause=0.01), fake_splits(200), lambda split, result: started.append(result))
    assert (caught.value.line, caught.value.column) == (7, 5)
    assert len(started) < 100  # the other worker may run many tasks while one is slow
    assert run(runner, Double(), 3) == {0: 0, 1: 2, 2: 4}  # the cluster still works


@pytest.mark.fault("P-09")
@pytest.mark.parametrize(("scheduler", "most"), [("synchronous", 1), ("threads", 4)])
def test_local_runner__few_short_batches_are_under_way(scheduler, most, monkeypatch):
    sizes, pending = [], []
    run_batch = local.run_batch
    monkeypatch.setattr(local, "run_batch", lambda *args: sizes.append(len(args[1])) or run_batch(*args))
    wait = local.wait
    monkeypatch.setattr(local, "wait", lambda futures, **how: pending.append(len(futures)) or wait(futures, **how))
    with open_runner(ExecutionConfig(scheduler=scheduler, n_workers=2)) as runner:
        assert run(runner, Double(), 3000) == {n: 2 * n for n in range(3000)}
    assert sum(sizes) == 3000
    assert max(pending) == most
    assert (sizes[0], max(sizes)) == (1, 1 if scheduler == "synchronous" else local.MOST_JOINED)


@pytest.mark.fault("P-09")
@pytest.mark.cluster
def test_client_runner__tasks_under_way_stay_bounded():
    peak = Counter()
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):

        def watch(split, result):
            peak["tasks"] = max(peak["tasks"], len(cluster.scheduler.tasks), len(client.futures))
            peak["done"] += 1

        ClientRunner(client).run(Double(), fake_splits(600), watch)
    assert peak["done"] == 600
    assert peak["tasks"] <= 6  # twice two threads, and tasks that are just being released


@pytest.mark.cluster
def test_client_runner__short_splits_are_joined(cluster_client, monkeypatch):
    sent = []
    submit = cluster_client.map
    monkeypatch.setattr(
        cluster_client, "map", lambda *args, key, **kwargs: sent.extend(key) or submit(*args, key=key, **kwargs)
    )
    assert run(ClientRunner(cluster_client), Double(), 2000) == {n: 2 * n for n in range(2000)}
    assert len(set(sent)) == len(sent) < 400


@pytest.mark.quick
@pytest.mark.fault("P-09")
@pytest.mark.cluster
def test_client_runner__task_travels_once_to_each_worker(cluster_client, tmp_path):
    pids = set(run(ClientRunner(cluster_client), Payload(str(tmp_path)), 40).values())
    assert len(pids) == 2
    times = {path.name: len(path.read_text()) for path in tmp_path.iterdir()}
    for pid in pids:
        assert times[str(pid)] <= 2  # the nanny's process may forward the task


@pytest.mark.fault("P-20")
@pytest.mark.cluster
def test_client_runner__worker_that_missed_the_task_gets_it_for_all_its_threads(tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.engine.runners.distributed.PLUGIN_SECONDS", 1.0)
    with (
        LocalCluster(n_workers=1, threads_per_worker=16, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert len(run(ClientRunner(client), Payload(str(tmp_path), is_missed=True), 40)) == 40


class SkewedMap:
    """Map whose features differ in threads of workers."""

    n_features_in_ = 8

    def encode(self, X):
        return np.full((X.shape[0], 3), int(threading.current_thread() is threading.main_thread()))


class Mapped(Double):
    map = SkewedMap()


def take(mapped, split, stopped):
    return mapped(split, stopped)


@pytest.mark.quick
@pytest.mark.fault("P-13")
@pytest.mark.cluster
def test_client_runner__worker_that_makes_other_features_is_refused():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for task in (Mapped(), partial(take, Mapped())):
            with pytest.raises(ClusterError, match=r"worker inproc:.* makes other features of the same rows"):
                run(ClientRunner(client), task, 4)
        assert run(ClientRunner(client), Double(), 4) == {n: 2 * n for n in range(4)}


@pytest.mark.cluster
def test_client_runner__error_of_a_task_that_cannot_be_pickled(cluster_client):
    with pytest.raises(TypeError, match="cannot pickle"):
        run(ClientRunner(cluster_client), FailAt(0, threading.Lock()), 1)


@pytest.mark.slow
@pytest.mark.fault("P-04")
@pytest.mark.cluster
def test_client_runner__task_that_kills_its_workers_is_named_among_joined_ones():
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        open_runner(ExecutionConfig(scheduler="cluster", n_workers=2)) as runner,
        pytest.raises(ClusterError, match=r"fake\.svm, split 500 \(bytes 5,000 to 5,010\): 2 workers died"),
    ):
        run(runner, DieAt(500), 1500)


@pytest.mark.fault("P-04")
@pytest.mark.cluster
def test_local_cluster__nannies_that_fail_to_stop_hide_no_error(monkeypatch):
    """A nanny that is stopped while it restarts its worker fails an assertion."""

    async def fail(*_, **__):
        raise AssertionError("can only join a started process")

    monkeypatch.setattr("distributed.nanny.WorkerProcess.kill", fail)
    workers = []

    def work():
        with local_cluster(n_workers=1, threads_per_worker=1) as client:
            workers.extend(psutil.Process(pid) for pid in client.run(os.getpid).values())
            1 / 0  # noqa: B018 - the error of a run

    with pytest.raises(ZeroDivisionError):
        work()
    assert len(workers) == 1
    assert psutil.wait_procs(workers, timeout=30)[1] == []


def test_connect__another_server_is_named_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        begin = time.monotonic()
        with (
            pytest.raises(ClusterError, match=r"is no Dask scheduler; .* not that of its dashboard"),
            connect(f"tcp://127.0.0.1:{server.getsockname()[1]}"),
        ):
            pass
        thread.join()
    assert time.monotonic() - begin < 20


def test_connect__server_that_never_answers():
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "500ms"}),
        socket.create_server(("127.0.0.1", 0)) as server,  # the kernel accepts connections for it
        pytest.raises(ClusterError, match=r"no Dask scheduler answers at .* within 0\.5 s"),
        connect(f"tcp://127.0.0.1:{server.getsockname()[1]}"),
    ):
        pass


@pytest.mark.fault("P-08")
@pytest.mark.slow
@pytest.mark.cluster
def test_client_runner__refuses_workers_with_too_little_memory():
    quiet = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL, "host": "127.0.0.1"}
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="511MiB", **quiet) as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(ConfigError, match=r"^worker tcp://127[^ ]*: memory_limit=511\.0 MiB, but .* at least 512 MiB"),
        open_runner(client) as runner,
    ):
        run(runner, Double(), 1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"scheduler": "thread"}, "scheduler='thread'.*'threads', 'synchronous'"),
        ({"scheduler": "threads", "memory_limit": "1GiB"}, "belong to scheduler='cluster'"),
        ({"scheduler": "threads", "n_workers": 0}, "n_workers=0"),
        ({"scheduler": "cluster", "memory_limit": "511MiB"}, "at least 512 MiB"),
        ({"n_workers": 1, "memory_limit": "12"}, "memory_limit='12'"),
        ({"scheduler": "cluster", "memory_limit": float("inf")}, "memory_limit=inf"),
        ({"scheduler": "cluster", "memory_limit": [1]}, r"memory_limit=\[1\]"),
        ({"n_workers": "2"}, "n_workers='2'"),
        ({"scheduler": "cluster", "threads_per_worker": 1.0}, r"threads_per_worker=1\.0"),
        ({"scheduler": ["threads"]}, r"scheduler=\['threads'\]"),
    ],
)
def test_open_runner__refuses(settings, words):
    with pytest.raises(ConfigError, match=words):
        open_runner(ExecutionConfig(**settings))


def test_open_runner__refuses_what_is_no_client():
    with pytest.raises(ConfigError, match=r"client='tcp://.*must be a distributed\.Client"):
        open_runner("tcp://127.0.0.1:9")


def test_open_runner__default_is_threads():
    with open_runner() as runner:
        assert isinstance(runner, LocalRunner)
        assert runner.scheduler == "threads"


def test_open_runner__follows_dask_configuration():
    with dask.config.set(scheduler="sync"), open_runner() as runner:
        assert runner.scheduler == "synchronous"


@pytest.mark.cluster
def test_open_runner__uses_the_active_client():
    address = {"dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=1, processes=False, **address) as cluster, Client(cluster) as own:
        with open_runner() as runner:
            assert runner.client is own
        with dask.config.set(scheduler="threads"), open_runner() as runner:  # Dask itself does so, too
            assert isinstance(runner, LocalRunner)


def test_process_cache__makes_a_value_once_however_many_threads_ask():
    cache, made, start = ProcessCache(1), [], threading.Barrier(8)

    def make():
        time.sleep(0.05)  # the other threads call get() meanwhile
        made.append(object())
        return made[-1]

    def ask(_):
        start.wait()
        return cache.get("key", make)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(8)))
    assert len(made) == 1
    assert all(value is made[0] for value in found)


def test_process_cache__forgets_what_was_asked_for_least_recently():
    cache, made = ProcessCache(2), []

    def get(key):
        return cache.get(key, lambda: made.append(key) or key)

    for key in "abaca":  # c replaces b
        assert get(key) == key
    assert made == ["a", "b", "c"]
    get("b")
    assert made == ["a", "b", "c", "b"]
