"""Cost of many tasks: tiny ones on threads and worker processes, empty ones, and sleeping ones on many workers.

    python benchmarks/workers.py [tiny|empty|many] [--quick] [--folder DIR] [--tasks 10000] [--repeats 3]

"tiny" runs the command on blocks of 2 kB, each of which is scanned and made a shard of, and subtracts what the command
takes for a few of them. Processor time is that of all processes; other load of the machine can double it, therefore the
least of the repeats is printed. "many" has the driver and the scheduler in one process and all workers in another; its
tasks sleep as long as usual tasks compute.
"""

import argparse
import asyncio
import logging
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import dask
import psutil
from distributed import Client, LocalCluster, Worker
from marks import Report
from text_workload import write_rcv1_like

from dkfeat.blocks import SourceFile, Split
from dkfeat.config import ExecutionConfig
from dkfeat.engine.runners.open import open_runner

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


@dataclass(frozen=True)
class Sleep:
    """Task that waits between once and twice `least` seconds, different for each split."""

    least: float

    def __call__(self, split, stopped):  # noqa: ARG002 - the signature of a task
        seconds = self.least * (1 + split.number * 0.618 % 1)
        if seconds:
            time.sleep(seconds)
        return seconds


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
            runner.run(Sleep(0), splits[:100], lambda *_: None)
            begin = peak = driver.memory_info().rss
            began, count = time.perf_counter(), 0

            def done(split, result):  # noqa: ARG001
                nonlocal peak, count
                count += 1
                if count % 100 == 0:
                    peak = max(peak, driver.memory_info().rss)

            runner.run(Sleep(0), splits, done)
            seconds = time.perf_counter() - began
            emit(
                f"empty tasks, {runner.description}",
                tasks=count,
                tasks_per_second=round(count / seconds),
                growth_MB=round((peak - begin) / 1e6, 1),
            )


async def _host(address, n_workers):
    workers = [Worker(address, nthreads=1, memory_limit=0, dashboard=False) for _ in range(n_workers)]
    await asyncio.gather(*workers)
    await asyncio.gather(*(worker.finished() for worker in workers))


def host(address, n_workers):
    """Run all workers in this process, until the scheduler closes them."""
    logging.getLogger("distributed").setLevel(logging.ERROR)
    dask.config.set(QUIET)
    asyncio.run(_host(address, n_workers))


def many(n_workers, n_tasks, least):
    """Measure how long workers wait for tasks, and what the driver and the scheduler take."""
    driver = psutil.Process()
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        workers = multiprocessing.get_context("spawn").Process(target=host, args=(cluster.scheduler_address, n_workers))
        workers.start()
        client.wait_for_workers(n_workers)
        with open_runner(client) as runner:
            runner.run(Sleep(0), splits_of(2 * n_workers), lambda *_: None)
            hosted = psutil.Process(workers.pid)
            cpu, main, hosted_cpu = driver.cpu_times(), time.thread_time(), hosted.cpu_times()
            slept, began = [], time.perf_counter()
            runner.run(Sleep(least), splits_of(n_tasks), lambda _, seconds: slept.append(seconds))
            elapsed, main = time.perf_counter() - began, time.thread_time() - main
            cpu, hosted_cpu = (
                sum(after[:2]) - sum(before[:2])
                for before, after in ((cpu, driver.cpu_times()), (hosted_cpu, hosted.cpu_times()))
            )
        client.retire_workers(close_workers=True)
        workers.join(30)
        workers.kill()
    per_task = 1000 / n_tasks
    emit(
        "many workers",
        workers=n_workers,
        tasks=n_tasks,
        least_seconds=least,
        tasks_per_second=round(n_tasks / elapsed),
        busy=round(sum(slept) / (n_workers * elapsed), 3),
        driver_and_scheduler_ms=round(per_task * cpu, 2),
        of_which_main_thread_ms=round(per_task * main, 2),
        workers_ms=round(per_task * hosted_cpu, 2),
        load=round(os.getloadavg()[0], 1),
    )


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
        for n_workers in (4,) if args.quick else (50, 100, 200):
            many(n_workers, 6 * n_workers if args.quick else 40 * n_workers, 0.05 if args.quick else 0.5)


if __name__ == "__main__":
    main()
