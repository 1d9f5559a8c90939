"""Processes that die, stop, run out of memory or are slow: the run completes, or the run after its error does."""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import signal
import socket
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import dask
import psutil
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import dkfeat
from dkfeat.cli import cli
from dkfeat.engine.clusters.local import local_cluster
from dkfeat.engine.runners import distributed as distributed_runner
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ClusterError
from tests import programs
from tests.engine.helpers import BLOCK, featurized, gcws
from tests.engine.runners.test_local import fake_splits
from tests.faults.processes.saboteurs import Miscompute, Sabotage
from tests.faults.resumed import assert_resumes
from tests.invariants import assert_dataset_whole, dataset_state

pytestmark = pytest.mark.slow


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("sabotage", "message"),
    [
        pytest.param(
            Sabotage("die", split=5),
            r"^a\.svm, split 5 \(bytes 20,000 to 24,000\): 2 workers died",
            marks=pytest.mark.fault("P-04"),
            id="dies",
        ),
        pytest.param(
            Sabotage("allocate", split=5, amount=600 << 20),
            r"a\.svm, split 5 .*memory.*raise their memory_limit or, .* lower its blocksize",
            marks=pytest.mark.fault("P-08"),
            id="memory",
        ),
    ],
)
def test_split_that_kills_its_workers__is_named_and_the_others_are_kept(source, golden, tmp_path, sabotage, message):
    target = tmp_path / "features"
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        local_cluster(n_workers=2, threads_per_worker=1, memory_limit="512MiB") as client,
    ):
        client.register_plugin(sabotage)
        with pytest.raises(ClusterError, match=message) as caught:
            featurized(source, target, client=client)
    assert caught.value.exit_code == 5
    assert assert_resumes(source, target, golden) > 0


@pytest.mark.fault("P-07")
@pytest.mark.cluster
def test_worker_stopped_for_longer_than_its_time_to_live__run_completes_identical(source, golden, tmp_path):
    target = tmp_path / "features"
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": "6s"}),
        local_cluster(n_workers=2, threads_per_worker=1) as client,
    ):
        pids = list(client.run(os.getpid).values())

        def stop_one(state):
            if state.stage == "featurize" and state.tasks == 3:
                os.kill(pids[0], signal.SIGSTOP)

        try:
            featurized(source, target, client=client, progress=stop_one)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pids[0], signal.SIGCONT)
    assert dataset_state(target) == golden
    assert_dataset_whole(target, committed=True)


@pytest.mark.fault("P-11")
@pytest.mark.cluster
def test_worker_that_dawdles__gets_few_splits_and_the_run_is_identical(source, golden, tmp_path):
    target = tmp_path / "features"
    with local_cluster(n_workers=2, threads_per_worker=1) as client:
        slow, _ = client.run(os.getpid).values()
        client.register_plugin(Sabotage("sleep", pid=slow, amount=2.0, log=str(tmp_path / "log")))
        featurized(source, target, client=client)
    assert 1 <= (tmp_path / "log").stat().st_size < len(golden[0]) / 4  # an even distribution would be half
    assert dataset_state(target) == golden


@pytest.mark.fault("P-09")
@pytest.mark.cluster
def test_many_splits__driver_messages_and_results_stay_small(tiny_folder, tmp_path, monkeypatch):
    source = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=400)
    sizes, scattered, results = [], set(), []
    real = distributed_runner._Submissions._gather

    def measured(tasks, futures):
        gathered = real(tasks, futures)
        results.extend(len(pickle.dumps(result)) for _, batch in gathered.values() for result in batch)
        return gathered

    monkeypatch.setattr(distributed_runner._Submissions, "_gather", measured)
    with local_cluster(n_workers=2, threads_per_worker=1) as client:
        process = psutil.Process()

        def watch(_):
            sizes.append(process.memory_info().rss)
            tasks = list(client.cluster.scheduler.tasks.values())
            scattered.update(task.key for task in tasks if task.run_spec is None)

        featurized(source, tmp_path / "features", client=client, progress=watch)
        sent = client.scheduler_comm.byte_count
    assert len(results) > 2 * 180  # results of the scan and of the featurization
    assert max(results) < 64 << 10
    assert sent < 1 << 20
    assert scattered == set()
    assert sizes[-1] - sizes[len(sizes) // 4] < 32 << 20


QUIET = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL, "host": "127.0.0.1"}


@contextmanager
def external_cluster(folder, n_workers=1, **of_first):
    """Start scheduler and workers as separate processes, as an operator does; yield them with the address.

    The first worker has the variables `of_first`.
    """
    address = folder / f"scheduler-{n_workers}.json"
    quiet = ("--no-dashboard", "--scheduler-file", address)
    scheduler = programs.module("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *quiet)
    scheduler += ["--dashboard-address", "127.0.0.1:0"]
    worker = programs.module("distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1", *quiet)
    worker += ["--local-directory", str(folder)]
    variables = [{}, of_first, *[{}] * (n_workers - 1)]
    commands = [scheduler, *[worker] * n_workers]
    processes = [
        programs.start(words, cwd=folder, quiet=True, **own) for words, own in zip(commands, variables, strict=True)
    ]
    try:
        programs.wait_until(lambda: address.exists() and address.stat().st_size, processes[0])
        with Client(scheduler_file=str(address), set_as_default=False) as client:
            client.wait_for_workers(n_workers)
            url = client.scheduler.address
        yield url, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("victims", "message"),
    [
        pytest.param(slice(1), "scheduler was lost", marks=pytest.mark.fault("P-06"), id="scheduler"),
        pytest.param(
            slice(1, None),
            r"no worker for ([89]|\d\d+) s; .* tasks wait, such as .*svm.*start workers",
            marks=pytest.mark.fault("P-18"),
            id="workers",
        ),
    ],
)
def test_cluster_killed__error_5_then_identical_on_a_new_cluster(
    source, golden, tmp_path, monkeypatch, caplog, victims, message
):
    target = tmp_path / "features"
    monkeypatch.setattr(distributed_runner, "WARN_SECONDS", 1.0)
    monkeypatch.setattr(distributed_runner, "GATHER_SECONDS", 3.0)  # of results that were lost with their worker
    monkeypatch.setattr(logging.getLogger("distributed.client"), "handlers", [caplog.handler])
    with external_cluster(tmp_path, 2) as (address, processes):

        def kill(state):
            if state.stage == "featurize" and state.tasks == 3:
                for process in processes[victims]:
                    process.kill()

        begin = time.monotonic()
        with dask.config.set({"dkfeat.no-worker-seconds": 8}), pytest.raises(ClusterError, match=message) as caught:
            featurized(source, target, scheduler=address, progress=kill)
        assert time.monotonic() - begin < 60
    assert caught.value.exit_code == 5
    assert not [record for record in caplog.records if record.name == "distributed.client" and record.exc_info]
    warned = [record.message for record in caplog.records if "no worker" in record.message]
    assert all("or the run ends after 8 s" in message for message in warned)
    assert bool(warned) == (victims != slice(1))
    with external_cluster(tmp_path) as (address, _):  # a killed worker leaves its temporary file
        assert_resumes(source, target, golden, finished=False, scheduler=address)


@pytest.mark.fault("P-20")
@pytest.mark.cluster
def test_worker_that_hangs__others_get_its_tasks_and_all_is_identical(
    source, golden, tiny_rows, tmp_path, monkeypatch, caplog
):
    for name, seconds in (("SILENT", 1.5), ("REFRESH", 0.5), ("GATHER", 2.0)):
        monkeypatch.setattr(distributed_runner, f"{name}_SECONDS", seconds)
    target, training = tmp_path / "features", {"solver": dkfeat.SGD(epochs=3, parts=3), "random_state": 5}
    reported = []

    def searched(options):
        return dkfeat.neighbors.search(target, tiny_rows[0][:8], n_neighbors=2, rerank=2, source=source, **options)

    with external_cluster(tmp_path, 3) as (address, processes), Client(address, set_as_default=False) as client:
        hanging = client.run(os.getpid)
        (hung,) = (name for name, pid in hanging.items() if pid == processes[1].pid)

        def stop(*_):
            processes[1].send_signal(signal.SIGSTOP)

        def completed(call, before=False):
            """Call with one worker that hangs, before the call or during it; continue it, and call again."""
            caplog.clear()
            results = []
            for progress in (stop, False):
                if before and not results:
                    stop()
                begin = time.monotonic()
                try:
                    results.append(call({"client": client, "progress": progress}))
                finally:
                    processes[1].send_signal(signal.SIGCONT)
                assert time.monotonic() - begin < 120
            reported.append([record.message for record in caplog.records if hung in record.message])
            return results

        completed(lambda options: featurized(source, target, **options) and None, before=True)
        assert dataset_state(target) == golden
        models = completed(lambda options: dkfeat.train(target, **training, **options))
        found = completed(searched)
    expected = dkfeat.train(target, **training, progress=False)
    assert {model.coef.tobytes() for model in models} == {expected.coef.tobytes()}
    same = searched({"progress": False})
    assert all((one.rows == same.rows).all() and (one.similarities == same.similarities).all() for one in found)
    assert all(any("has sent no heartbeat" in message for message in messages) for messages in reported)


@pytest.mark.fault("P-13")
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param({}, rf"{dkfeat.__version__} \(code \w{{12}}\)", id="other-loop"),
        pytest.param(
            {
                "def code()": "def other()",
                "plugin.code != code()": "plugin.version",
                "= name, task, code()": "= (0,) * 3",
            },
            r"no digest \(.*\)",
            id="no-digest",
        ),
    ],
)
def test_worker_with_other_code_of_the_same_version__is_refused(source, tmp_path, changes, found):
    copy = tmp_path / "other"
    shutil.copytree(Path(dkfeat.__file__).parent, copy / "dkfeat", ignore=shutil.ignore_patterns("__pycache__"))
    module = copy / "dkfeat" / "engine" / "runners" / "distributed.py"
    text = module.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    module.write_text(text + "\n")
    with (
        external_cluster(tmp_path, 2, PYTHONPATH=f"{copy}{os.pathsep}{programs.ROOT}") as (address, _),
        Client(address, set_as_default=False) as client,
        pytest.raises(
            ClusterError, match=rf"{dkfeat.__version__} \(code \w{{12}}\), but workers .*: {found} on tcp://.*install"
        ),
    ):
        featurized(source, tmp_path / "features", client=client)


@pytest.mark.fault("P-13")
@pytest.mark.cluster
def test_worker_that_computes_other_codes__is_refused_before_it_makes_a_shard(source, golden, tmp_path):
    target = tmp_path / "features"
    with local_cluster(n_workers=2, threads_per_worker=1) as client:
        address, pid = next(iter(client.run(os.getpid).items()))
        client.register_plugin(Miscompute(pid))
        refused = pytest.raises(ClusterError, match=rf"worker {address} makes other features .* `dkfeat doctor`")
        with refused:
            featurized(source, target, client=client)
        assert_resumes(source, target, golden)
        options = {"client": client, "progress": False}
        with refused:
            dkfeat.neighbors.search(target, dkfeat.open_shards(target), **options)
        with refused:
            dkfeat.evaluate(dkfeat.train(target, progress=False), source, **options)


@pytest.mark.fault("P-18")
@pytest.mark.cluster
def test_workers_that_join_within_the_wait__continue_the_run(source, golden, tmp_path, monkeypatch):
    target, warnings = tmp_path / "features", []
    monkeypatch.setattr(distributed_runner, "WARN_SECONDS", 1.0)
    with local_cluster(n_workers=1, threads_per_worker=1) as client:

        def leave(state):
            if state.stage == "featurize" and state.tasks == 3:
                client.cluster.scale(0)

        def join(*arguments):
            warnings.append(arguments)
            client.cluster.scale(1)

        monkeypatch.setattr(distributed_runner.logger, "warning", join)
        with dask.config.set({"dkfeat.no-worker-seconds": 60}):
            featurized(source, target, client=client, progress=leave)
    assert warnings
    assert dataset_state(target) == golden


@pytest.mark.fault("P-21")
@pytest.mark.cluster
def test_all_workers_paused__warning_then_error_5_with_their_memory(source, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(distributed_runner, "WARN_SECONDS", 1.0)
    settings = {"distributed.worker.memory.pause": 0.05, "dkfeat.no-worker-seconds": 4}
    state = r"all workers have been paused by Dask.* \(\d+\.\d MiB of 1\.0 GiB on tcp://127.*svm.*memory_limit"
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="1GiB", **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(ClusterError, match=state) as caught,
    ):
        featurized(source, tmp_path / "features", client=client)
    assert caught.value.exit_code == 5
    assert any(re.search(state, record.message) for record in caplog.records if record.levelno == logging.WARNING)


@pytest.mark.fault("P-22")
@pytest.mark.cluster
def test_workers_restarted_without_end__error_5_with_a_split(source, golden, tmp_path, monkeypatch):
    monkeypatch.setattr(distributed_runner, "MOST_LOSSES", 2)
    target = tmp_path / "features"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # restarted workers have the same address
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 10_000}),
        LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="1GiB", worker_port=port, **QUIET) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.register_plugin(Sabotage("die"))
        message = r"restarted \d+ times while no task ended.*\.svm, split .*memory_limit"
        with pytest.raises(ClusterError, match=message) as caught:
            featurized(source, target, client=client)
    assert caught.value.exit_code == 5
    assert_resumes(source, target, golden)


def time_out(split, stopped):  # noqa: ARG001 - the signature of a task
    raise TimeoutError("the store did not answer")


@pytest.mark.cluster
def test_task_that_raises_timeout_error__ends_the_run(cluster_client):
    with pytest.raises(ClusterError, match="did not answer"), open_runner(cluster_client) as runner:
        runner.run(time_out, fake_splits(4), lambda *_: None)


@pytest.mark.fault("C-12")
@pytest.mark.cluster
@pytest.mark.parametrize("at", ["create", "link"])
def test_worker_stopped__its_run_replaced__leaves_no_shard_when_it_continues(source, tmp_path, at):
    target = tmp_path / "features"
    with external_cluster(tmp_path) as (address, processes):
        with Client(address, set_as_default=False) as client:
            client.register_plugin(Sabotage("stop", split=2, at=at))
        driver = programs.start(programs.module("tests.engine.helpers", *source.urlpath, target, address), quiet=True)
        worker = psutil.Process(processes[1].pid)
        programs.wait_until(lambda: worker.status() == psutil.STATUS_STOPPED, driver)
        driver.kill()
        driver.wait()
        dkfeat.abort(target)
        manifest = featurized(source, target, map=gcws(random_state=12), scheduler="synchronous")
        worker.resume()
        with Client(address, set_as_default=False) as client:
            assert client.submit(abs, -1).result(timeout=60) == 1  # the worker has one thread: its task has ended
    assert [path.name for path in sorted((target / "data").iterdir())] == [entry.name for entry in manifest.shards]
    assert dkfeat.open_shards(target).verify().problems == []


@pytest.mark.fault("P-05")
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("signals", "status"),
    [pytest.param((signal.SIGTERM,), 143, id="term"), pytest.param((signal.SIGINT, signal.SIGINT), 130, id="int-int")],
)
def test_driver_signalled__leaves_soon_with_its_workers_and_resumes_identical(tmp_path, signals, status):
    with (tmp_path / "rows.svm").open("w") as file:
        file.writelines(f"{1 + i % 2} {1 + i % 5}:1 {10 + i % 7}:2 {30 + i % 11}:0.5\n" for i in range(50_000))
    options = {"n_features": 41, "zero_based": False, "label_dtype": "int64", "blocksize": 32 << 10}
    source, target = dkfeat.LibsvmSource(str(tmp_path / "rows.svm"), **options), tmp_path / "features"
    featurized(source, tmp_path / "golden")
    words = ["featurize", *source.urlpath, "--n-components", "24", "--seed", "11", "--blocksize", "32KiB"]
    words += ["--n-features", "41", "--zero-based", "false", "--label-dtype", "int64", "--n-workers", "2"]
    with programs.start(programs.command(*words, "--scheduler", "cluster", "--out", target)) as driver:
        programs.wait_until(lambda: list(target.glob("data/*.parquet")), driver)
        workers = psutil.Process(driver.pid).children(recursive=True)
        for number in signals:
            driver.send_signal(number)
            time.sleep(0.1)
        _, errors = driver.communicate(timeout=60)
    assert driver.returncode == status, errors
    assert "Traceback" not in errors
    assert len(workers) >= 2
    assert "run the same command again to continue" in errors
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == []
    made = assert_resumes(source, target, dataset_state(tmp_path / "golden"), finished=len(signals) == 1)
    assert made > 0


class StubbornError(Exception):
    def __reduce__(self):
        raise TypeError("cannot be pickled")


class ForgetfulError(Exception):
    def __init__(self, one, two):
        super().__init__(one + two)  # pickle calls the class again with only one argument


@dataclass(frozen=True)
class Fail:
    kind: str

    def __call__(self, split, stopped):
        assert not stopped()
        reason = "on purpose"
        if split.number == 3:
            if self.kind == "stubborn":
                raise StubbornError(reason)
            if self.kind == "forgetful":
                raise ForgetfulError(reason, "!")
            raise ValueError(reason + 50_000_000 * "x")
        return split.number


@pytest.mark.quick
@pytest.mark.fault("P-12")
@pytest.mark.cluster
def test_error_that_does_not_travel__arrives(cluster_client):
    for kind in ("stubborn", "forgetful", "long"):
        with pytest.raises(Exception, match="on purpose"), open_runner(cluster_client) as runner:
            runner.run(Fail(kind), fake_splits(8), lambda *_: None)


@pytest.mark.quick
@pytest.mark.fault("P-12", "X-10")
def test_error_of_many_characters__is_shown_cut(monkeypatch):
    def fail(*_, **__):
        raise ValueError("on purpose \x1b[2J" + 5_000_000 * "x")

    monkeypatch.setattr("dkfeat.engine.dataset.dataset.open_shards", fail)
    outcome = CliRunner().invoke(cli, ["verify", "somewhere"])
    assert outcome.exit_code == 1
    assert "on purpose" in outcome.stderr
    assert "5,000,0" in outcome.stderr
    assert "\x1b" not in outcome.stderr
    assert len(outcome.stderr) < 50_000


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from dkfeat.cli import main
if __name__ == "__main__":
    main()
"""


@pytest.mark.fault("P-16")
@pytest.mark.parametrize(
    "where",
    [
        pytest.param(("--scheduler", "threads"), marks=pytest.mark.slow),
        pytest.param(("--n-workers", "2"), marks=pytest.mark.cluster),
    ],
    ids=["threads", "cluster"],
)
def test_few_open_files__are_enough(source, golden, tmp_path, where):
    (tmp_path / "limited.py").write_text(LIMITED)
    options = ("--n-components", "24", "--seed", "11", "--blocksize", str(BLOCK), "--out", str(tmp_path / "features"))
    done = programs.run([sys.executable, str(tmp_path / "limited.py"), "featurize", *source.urlpath, *options, *where])
    assert done.status == 0, done.err
    assert dataset_state(tmp_path / "features") == golden
