"""Runner on this machine: on threads, processes or the calling thread."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import dask.multiprocessing
from dask.local import SynchronousExecutor
from dask.system import CPU_COUNT
from threadpoolctl import threadpool_limits

from dkfeat.engine.runners.base import Batches, Runner, Task, run_batch
from dkfeat.errors import ClusterError

JOINED_SECONDS = 0.05
"""Duration to which short tasks are given to a worker of this machine together, because each hand-over stops another
thread."""

MOST_JOINED = 16
"""Maximum number of tasks that a worker of this machine gets together."""

_EXIT_SECONDS = 5.0
"""Time for the processes of a pool to end, in seconds; a signal is handled only after a compiled loop."""


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Runner on this machine: "synchronous", "threads" or "processes"."""

    scheduler: str
    n_workers: int
    in_flight: int | None
    threads: Executor
    """Threads, or this thread; processes, which hold the task of a run, are started for each run."""
    stop: threading.Event
    memory_limit: None = None

    @property
    def description(self) -> str:
        """Workers, as text."""
        if self.scheduler == "synchronous":
            return "this thread"
        return f"{self.n_workers} {self.scheduler.removesuffix('es' if self.n_workers == 1 else '')}"

    @property
    def n_threads(self) -> int:
        """Number of tasks that run at a time."""
        return self.n_workers

    def run(self, task: Task, items: Sequence[Any], done: Callable[[Any, Any], None]) -> None:
        """See `Runner.run`."""
        is_alone, has_processes = self.scheduler == "synchronous", self.scheduler == "processes"
        batches = Batches(items, JOINED_SECONDS, 1 if is_alone else MOST_JOINED)
        window = 1 if is_alone else self.in_flight or 2 * self.n_workers
        pending: dict[Future[tuple[float, list[Any]]], tuple[Any, ...]] = {}
        with _process_pool(self.n_workers, task) if has_processes else nullcontext(self.threads) as pool:
            try:
                while True:
                    for batch in batches.take(window - len(pending), window):
                        if has_processes:
                            future = pool.submit(_run_in_process, batch)
                        else:
                            future = pool.submit(run_batch, task, batch, self.stop.is_set)
                        pending[future] = batch
                    if not pending:
                        return
                    for future in wait(pending, return_when=FIRST_COMPLETED).done:
                        batch, (seconds, results) = pending.pop(future), future.result()
                        batches.measured(len(batch), seconds)
                        for item, result in zip(batch, results, strict=True):
                            done(item, result)
            except BrokenProcessPool as error:
                raise ClusterError(
                    "a worker process ended abruptly, perhaps because memory ran out; shards already made "
                    "are kept; to continue, run the same call again with fewer workers"
                ) from error
            finally:
                for future in pending:
                    future.cancel()


@contextmanager
def open_local(scheduler: str, n_workers: int, in_flight: int | None) -> Iterator[Runner]:
    """Yield a runner, for threads with a pool; after the ``with`` block no task runs."""
    stop = threading.Event()
    if scheduler != "threads":
        yield LocalRunner(scheduler, n_workers, in_flight, SynchronousExecutor(), stop)
        return
    threads = ThreadPoolExecutor(n_workers, thread_name_prefix="dkfeat")
    with threadpool_limits(_blas_threads(n_workers)):
        try:
            yield LocalRunner(scheduler, n_workers, in_flight, threads, stop)
        finally:
            stop.set()
            threads.shutdown(cancel_futures=True)


@contextmanager
def _process_pool(n_workers: int, task: Task) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose processes hold `task`, sent once to each; an error in the ``with`` block stops them."""
    context = dask.multiprocessing.get_context()
    pool = ProcessPoolExecutor(n_workers, context, _start_process, (task, _blas_threads(n_workers)))
    try:
        yield pool
    except BaseException:
        _terminate(pool)
        raise
    pool.shutdown()


def _blas_threads(n_workers: int) -> int:
    return max(1, CPU_COUNT // n_workers)


_process_task: Task | None = None
"""Task of this process, if it belongs to a pool."""


def _start_process(task: Task, blas_threads: int) -> None:
    global _process_task
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the driver, which ends the pool
    dask.multiprocessing.initialize_worker_process()
    threadpool_limits(blas_threads)
    _process_task = task
    threading.Thread(target=_end_with_driver, daemon=True).start()
    signal.signal(signal.SIGTERM, _exit_by_exception)  # last: the pool would show its exception here as an error


def _end_with_driver() -> None:
    """End this process when the driver was killed: a pool's processes would wait for tasks forever."""
    driver = multiprocessing.parent_process()
    assert driver is not None  # this is a process of a pool
    driver.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_EXIT_SECONDS)  # Python drops an exception that is raised in a callback, as of an import
    os._exit(128 + signal.SIGTERM)


def _exit_by_exception(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal's handler
    """End this process by an exception, so that a shard being written removes its temporary file."""
    signal.signal(number, signal.SIG_IGN)  # a second signal would interrupt the clean-up
    raise SystemExit(128 + number)


def _run_in_process(batch: Sequence[Any]) -> tuple[float, list[Any]]:
    assert _process_task is not None  # the pool's initializer ran
    try:
        # a process sees no event of the driver, which ends it instead
        return run_batch(_process_task, batch, lambda: False)
    except SystemExit as ended:
        os._exit(ended.code if isinstance(ended.code, int) else 1)  # the pool would take it for the task's result
    except Exception as error:
        if _is_picklable(error):
            raise
        message = f"{type(error).__name__}: {error}"
    raise RuntimeError(message)


def _is_picklable(error: Exception) -> bool:
    """Return True if an error can be sent to the driver; any other error would break the pool."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # methods of the error itself may raise anything
        return False
    return True


def _terminate(pool: ProcessPoolExecutor) -> None:
    """Stop the processes of a pool: each removes its unfinished files, and is killed if that takes long."""
    processes: list[multiprocessing.Process] = list((pool._processes or {}).values())  # no public way before 3.14
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    end = time.monotonic() + _EXIT_SECONDS  # for all together, so that a stopped run ends within seconds
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
        process.kill()
        process.join()
