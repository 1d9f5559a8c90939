"""Tasks and their runner: the interface, and the runner on threads, processes or this thread."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, Protocol, TypeVar

import dask.multiprocessing
from dask.local import SynchronousExecutor
from dask.system import CPU_COUNT
from threadpoolctl import threadpool_limits

from dkfeat.errors import ClusterError

BATCHES_PER_SECOND = 200
"""Rate that sets the longer duration of batches on many workers; as items are whole, up to twice as many are done. A
scheduler can handle more."""

JOINED_SECONDS = 0.05
"""Duration to which short tasks are given to a worker of this machine together, because each hand-over stops another
thread."""

MOST_JOINED = 16
"""Maximum number of tasks that a worker of this machine gets together."""

_EXIT_SECONDS = 5.0
"""Time for the processes of a pool to end, in seconds; a signal is handled only after a compiled loop."""

Value = TypeVar("Value")


class Stopped(Exception):
    """A task stopped between two pieces because its run was stopped."""


class Task(Protocol):
    """Function that runs on workers: small, picklable, sent to each worker once."""

    def __call__(self, item: Any, /, stopped: Callable[[], bool]) -> Any:
        """Process one item and return a small value; raise `Stopped` between its parts when `stopped()` is true."""
        ...


Homes = Callable[[Mapping[str, int]], Mapping[int, str]]
"""Function that assigns items to workers: takes threads by worker address, returns addresses by position of items."""


class Runner(Protocol):
    """Runner of a task over items, such as splits; made by `open_runner`."""

    @property
    def description(self) -> str:
        """Workers, as text."""
        ...

    @property
    def memory_limit(self) -> int | None:
        """Maximum memory of a task in bytes; None if the scheduler sets no limit."""
        ...

    @property
    def n_threads(self) -> int:
        """Number of tasks that run at a time."""
        ...

    def run(
        self, task: Task, items: Sequence[Any], done: Callable[[Any, Any], None], home: Homes | None = None
    ) -> None:
        """Run `task` on every item; items are picklable, and those with a ``description`` are named by it in messages.

        `done(item, result)` is called in the calling thread for each result, in any order. The first error stops
        submission and the running tasks, and is raised here unchanged. If workers have addresses, `home` chooses the
        worker of each item as long as that worker lives.

        Raises
        ------
        ClusterError
            If workers or the scheduler were lost.
        """
        ...

    def run_everywhere(self, function: Callable[[], Any]) -> None:
        """Call a function once in every process that runs tasks; a worker that is lost meanwhile is left out."""
        ...


class Batches:
    """Items of a run, cut into batches: short items are joined, because to hand over a task has its own cost.

    Batches grow as long as they take less than `seconds`, or on many workers less than the time in which
    `BATCHES_PER_SECOND` make one for each thread. They shrink towards the end, so that no worker gets a long one last.

    Parameters
    ----------
    items : sequence
        In the order in which they start.
    seconds : float
        Duration of a batch.
    most : int
        Maximum number of items in a batch.

    Examples
    --------
    >>> batches = Batches(range(100), seconds=0.5, most=256)
    >>> batches.take(2, window=4)
    [(0,), (1,)]
    >>> batches.measured(1, seconds=0.01)
    >>> batches.take(1, window=4)
    [(2, 3)]
    """

    def __init__(self, items: Sequence[Any], seconds: float, most: int) -> None:
        self._items, self._seconds, self._most = items, seconds, most
        self._start, self._size, self._item_seconds = 0, 1, math.inf

    def measured(self, size: int, seconds: float) -> None:
        """Set the size of the next batches by the duration of one."""
        self._size, self._item_seconds = 2 * size, seconds / size

    def take(self, count: int, window: int) -> list[tuple[Any, ...]]:
        """Return the next batches, at most `count`, of which `window` are submitted at a time."""
        seconds = max(self._seconds, window / (2 * BATCHES_PER_SECOND))
        taken: list[tuple[Any, ...]] = []
        while len(taken) < count and (left := len(self._items) - self._start):
            size = min(self._size, self._most, int(seconds / max(self._item_seconds, 1e-9)), left // window)
            stop = self._start + max(size, 1)
            taken.append(tuple(self._items[self._start : stop]))
            self._start = stop
        return taken


def run_batch(task: Task, items: Sequence[Any], stopped: Callable[[], bool]) -> tuple[float, list[Any]]:
    """Run a task on a batch of items; return the duration in seconds and the result of each."""
    began = time.perf_counter()
    results = [task(item, stopped) for item in until_stopped(items, stopped)]
    return time.perf_counter() - began, results


def until_stopped(parts: Iterable[Value], stopped: Callable[[], bool]) -> Iterator[Value]:
    """Yield the parts of an item, such as the pieces of a split; raise `Stopped` before the next one if it must end."""
    for part in parts:
        if stopped():
            raise Stopped
        yield part
        del part  # before the next one is read


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

    def run(
        self,
        task: Task,
        items: Sequence[Any],
        done: Callable[[Any, Any], None],
        home: Homes | None = None,  # noqa: ARG002 - workers of one machine have no addresses
    ) -> None:
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

    def run_everywhere(self, function: Callable[[], Any]) -> None:
        """See `Runner.run_everywhere`; as a pool ends with each run, only this process is called."""
        function()


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
        return run_batch(
            _process_task, batch, lambda: False
        )  # a process sees no event of the driver, which ends it instead
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


class InOrder:
    """Function `done` for `Runner.run` that passes on results in the order of tasks, whichever ends first.

    Parameters
    ----------
    add : callable
        Called with each result, that of task 0 first.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> found = []
    >>> done = InOrder(found.append)
    >>> for number in (1, 2, 0):
    ...     done(SimpleNamespace(number=number), f"result {number}")
    >>> found
    ['result 0', 'result 1', 'result 2']
    """

    def __init__(self, add: Callable[[Any], object]) -> None:
        self._add, self._next = add, 0
        self._waiting: dict[int, Any] = {}

    def __call__(self, task: Any, result: Any) -> None:
        """Keep a task's result until the results of all earlier tasks have been passed on."""
        self._waiting[task.number] = result
        while self._next in self._waiting:
            self._add(self._waiting.pop(self._next))
            self._next += 1


class ProcessCache(Generic[Value]):
    """Values that a process loads once and all of its threads share; a lock is held while a value is made.

    The least recently used value is dropped first.

    Parameters
    ----------
    most : int
        Maximum number of values kept.

    Examples
    --------
    >>> cache = ProcessCache[str](1)
    >>> cache.get("a", lambda: "made"), cache.get("a", lambda: "made again")
    ('made', 'made')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key; if it is missing, make it while other threads wait."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
            return self._values[key]

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
