"""Cost of many tasks: tiny ones on threads and worker processes, empty ones, and sleeping ones on many workers.

    python benchmarks/workers.py [tiny|empty|many] [--quick] [--folder DIR] [--tasks 10000] [--repeats 3]

"tiny" runs the command on blocks of 2 kB, each of which is scanned and made a shard of, and subtracts what the command
takes for a few of them. Processor time is that of all processes; other load of the machine can double it, therefore the
least of the repeats is printed. "many" has the driver and the scheduler in one process and all workers in another; its
tasks sleep as long as usual tasks compute: first tasks that do nothing else, then those of a search for neighbours, of
a search for duplicates and of a training in parts, on shards of few rows. Their busy share counts the sleep alone. Each
call is made once before without sleep, for imports. The tasks of a search for neighbours sleep four times as long, 2 to
4 s: one compares 4,096 queries with at least a shard, which takes 1.4 s for 52,000 rows. In a training workers wait for
the longest part of each round, so that the share is at most 0.75.
"""

import argparse
import asyncio
import ctypes
import logging
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import scipy.sparse as sp
from distributed import Client, LocalCluster, Worker
from marks import Report
from text_workload import N_FEATURES, write_rcv1_like

import dkfeat
from dkfeat.blocks import SourceFile, Split
from dkfeat.config import ExecutionConfig
from dkfeat.engine.runners import distributed
from dkfeat.engine.runners.open import open_runner
from dkfeat.neighbors import duplicates, search
from dkfeat.neighbors.deduplication import runs, stages

PARTS = ("tiny", "empty", "many")
BLOCK, FEW, COMPONENTS = 2000, 40, 64
COMMAND = "from dkfeat.cli import main; main()"
WITHOUT_FLUSH = f"import os; os.fsync = lambda descriptor: None; {COMMAND}"
WAYS = {
    "2 threads": (COMMAND, "--scheduler", "threads", "--n-workers", "2"),
    "2 threads, nothing flushed to disk": (WITHOUT_FLUSH, "--scheduler", "threads", "--n-workers", "2"),
    "2 worker processes": (COMMAND, "--n-workers", "2", "--threads-per-worker", "1"),
}
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "10s",
    "distributed.admin.system-monitor.interval": "10s",
}
"""What each of many workers in one process would otherwise do many times a second."""


SHARDS_A_WORKER, EPOCHS = 8, 4
QUERIES = 5 * 4096  # five batches


def nothing(item: Any, stopped: Callable[[], bool]) -> None:
    """Task that does nothing."""


@dataclass(frozen=True)
class Slept:
    """Seconds, and items, of all tasks that slept; shared by two processes."""

    seconds: Any
    items: Any
    least: Any
    """Least seconds of an item; 0 while a call is made for the first time, for its imports."""

    def run_batch(
        self, run: Callable[..., Any], task: Any, items: Sequence[Any], stopped: Callable[[], bool]
    ) -> tuple[float, list[Any]]:
        """Sleep between once and twice the least seconds for each item, then run them."""
        seconds, least = 0.0, self.least.value
        for item in items:
            step = getattr(item, "step", None)  # of a sum; those without items take no time to speak of
            for _ in item.item if step == "items" else [item] if step is None else []:
                with self.items.get_lock():
                    self.items.value += 1
                    seconds += least * (1 + self.items.value * 0.618 % 1)
        time.sleep(seconds)
        with self.seconds.get_lock():
            self.seconds.value += seconds
        took, results = run(task, items, stopped)
        return seconds + took, results


emit = Report("workers").emit


def splits_of(n_tasks):
    file = SourceFile(name="rows.svm", url="rows.svm", size=n_tasks)
    return [Split(number=n, file=file, start=n, stop=n + 1) for n in range(n_tasks)]


def text_of(folder, n_tasks):
    path = folder / f"tiny-{n_tasks}.svm"
    if not path.exists():
        write_rcv1_like(path, n_tasks * BLOCK - BLOCK // 2)
    return path


def timed(folder, source, program, *options):
    """Return seconds, and processor seconds of all processes, of one command."""
    out = folder / "features"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-c", program, "featurize", str(source), "--out", str(out), "--no-progress"]
    command += ["--n-components", str(COMPONENTS), "--seed", "0", "--blocksize", str(BLOCK), *options]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stderr}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tiny(folder, n_tasks, repeats):
    few, source = text_of(folder, FEW), text_of(folder, n_tasks)
    timed(folder, few, COMMAND)  # compiles
    for name, options in WAYS.items():
        start, whole = ([timed(folder, path, *options) for _ in range(repeats)] for path in (few, source))
        seconds, cpu = (min(each) for each in zip(*whole, strict=True))
        start_seconds, start_cpu = (min(each) for each in zip(*start, strict=True))
        emit(
            f"tiny tasks, {name}",
            tasks=n_tasks,
            tasks_per_second=round((n_tasks - FEW) / (seconds - start_seconds)),
            cpu_ms_per_task=round(1000 * (cpu - start_cpu) / (n_tasks - FEW), 2),
            command_seconds=round(seconds, 1),
            command_cpu=round(cpu, 1),
            load=round(os.getloadavg()[0], 1),
        )


def empty(n_tasks):
    """Measure the memory of the driver over many tasks that do nothing."""
    driver, splits = psutil.Process(), splits_of(n_tasks)
    for settings in ({"scheduler": "threads", "n_workers": 2}, {"n_workers": 2, "threads_per_worker": 1}):
        with open_runner(ExecutionConfig(**settings)) as runner:
            runner.run(nothing, splits[:100], lambda *_: None)
            begin = peak = driver.memory_info().rss
            began, count = time.perf_counter(), 0

            def done(split, result):  # noqa: ARG001
                nonlocal peak, count
                count += 1
                if count % 100 == 0:
                    peak = max(peak, driver.memory_info().rss)

            runner.run(nothing, splits, done)
            seconds = time.perf_counter() - began
            emit(
                f"empty tasks, {runner.description}",
                tasks=count,
                tasks_per_second=round(count / seconds),
                growth_MB=round((peak - begin) / 1e6, 1),
            )


def run_nothing(client, n_tasks):
    with open_runner(client) as runner:
        runner.run(nothing, splits_of(n_tasks), lambda *_: None)


def cut_as_many_rows():
    """Cut few rows into as many runs and partitions as a billion rows, in a search for duplicates."""
    stages.RUN_ROWS, stages._TASK_KEYS, runs.PARTITION_ROWS = 1, 0, 1


async def _host(address, n_workers):
    workers = [Worker(address, nthreads=1, memory_limit=0, dashboard=False) for _ in range(n_workers)]
    await asyncio.gather(*workers)
    await asyncio.gather(*(worker.finished() for worker in workers))


def host(address, n_workers, slept):
    """Run all workers in this process, until the scheduler closes them."""
    logging.getLogger("distributed").setLevel(logging.ERROR)
    dask.config.set(QUIET)
    cut_as_many_rows()
    distributed.run_batch = partial(slept.run_batch, distributed.run_batch)
    asyncio.run(_host(address, n_workers))


@contextmanager
def crowd(n_workers):
    """Start workers in one process; yield a function that measures a call with a client."""
    spawn, driver = multiprocessing.get_context("spawn"), psutil.Process()
    slept = Slept(*(spawn.Value(kind, 0) for kind in (ctypes.c_double, ctypes.c_longlong, ctypes.c_double)))
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        workers = spawn.Process(target=host, args=(cluster.scheduler_address, n_workers, slept))
        workers.start()
        client.wait_for_workers(n_workers)
        run_nothing(client, 2 * n_workers)
        hosted = psutil.Process(workers.pid)

        def state():
            cpu = [sum(process.cpu_times()[:2]) for process in (driver, hosted)]
            return slept.seconds.value, slept.items.value, *cpu, time.thread_time(), time.perf_counter()

        def measured(what, least, call):
            slept.least.value = 0.0
            call(client)
            slept.least.value = least
            before, rss = state(), driver.memory_info().rss
            call(client)
            seconds, n_tasks, cpu, hosted_cpu, main, elapsed = (
                now - earlier for now, earlier in zip(state(), before, strict=True)
            )
            emit(
                f"many workers, {what}",
                workers=n_workers,
                tasks=n_tasks,
                least_seconds=least,
                tasks_per_second=round(n_tasks / elapsed),
                busy=round(seconds / (n_workers * elapsed), 3),
                driver_and_scheduler_ms=round(1000 * cpu / n_tasks, 2),
                of_which_main_thread_ms=round(1000 * main / n_tasks, 2),
                workers_ms=round(1000 * hosted_cpu / n_tasks, 2),
                driver_growth_MB=round((driver.memory_info().rss - rss) / 1e6),
                workers_MB=round(hosted.memory_info().rss / 1e6),
                load=round(os.getloadavg()[0], 1),
            )

        yield measured
        client.retire_workers(close_workers=True)
        workers.join(30)
        workers.kill()


def many(folder, n_workers, n_tasks, least):
    """Measure how long workers wait for tasks, and what the driver and the scheduler take."""
    text, features = folder / "rows.svm", folder / f"features-{n_workers}"
    if not features.exists():
        write_rcv1_like(text, SHARDS_A_WORKER * n_workers * BLOCK)
        source = dkfeat.LibsvmSource(text, n_features=N_FEATURES, zero_based=False, blocksize=BLOCK)
        dkfeat.featurize(source, features, dkfeat.DartFeatures(COMPONENTS, random_state=0), progress=False)
    generator = np.random.default_rng(0)  # a seed would take a permutation of all places
    queries = sp.random(QUERIES, N_FEATURES, 3 / N_FEATURES, "csr", "f4", generator)
    sgd = dkfeat.SGD(epochs=EPOCHS, parts=n_workers)

    with crowd(n_workers) as measured:
        measured("tasks that sleep", least, lambda client: run_nothing(client, n_tasks))
        measured("neighbours", 4 * least, lambda client: search(features, queries, client=client, progress=False))
        measured("duplicates", least, lambda client: duplicates(features, 0.8, client=client, progress=False))
        measured("training", least, lambda client: dkfeat.train(features, sgd, client=client, progress=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="few tasks: a check that it runs, not a measurement")
    parser.add_argument("--folder", type=Path, help="folder for files; the text is kept for the next run")
    parser.add_argument("--tasks", type=int, default=10_000, help="number of tiny tasks (default: 10000)")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of the tiny tasks (default: 3)")
    args = parser.parse_args()
    parts = args.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"PART is one of {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    emit("machine", cores=os.cpu_count(), load=round(os.getloadavg()[0], 1))
    if "tiny" in parts:
        with tempfile.TemporaryDirectory() as temporary:
            folder = args.folder or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            tiny(folder, 4 * FEW if args.quick else args.tasks, 1 if args.quick else args.repeats)
    if "empty" in parts:
        empty(500 if args.quick else 100_000)
    if "many" in parts:
        cut_as_many_rows()
        with tempfile.TemporaryDirectory() as temporary:
            for n_workers in (4,) if args.quick else (50, 100, 200):
                n_tasks, least = (6 * n_workers, 0.01) if args.quick else (40 * n_workers, 0.5)
                many(Path(temporary), n_workers, n_tasks, least)


if __name__ == "__main__":
    main()
