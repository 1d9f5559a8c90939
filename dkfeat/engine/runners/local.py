"""Runner on Dask's schedulers of this machine: threads, processes, synchronous."""

from __future__ import annotations

import math
import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import Any, Protocol

import dask
import dask.multiprocessing
import dask.threaded
from dask.local import get_sync
from dask.system import CPU_COUNT
from threadpoolctl import threadpool_limits

from dkfeat.errors import ClusterError

GRAPH_TASKS = 1024
"""Number of tasks in a graph of a local scheduler, which starts the next tasks only when earlier ones end."""

JOINED_SECONDS = 0.05
"""Duration to which short tasks are given to a worker together, because each hand-over stops another thread."""

MOST_JOINED = 16
"""Maximum number of tasks that a worker gets together."""


_EXIT_SECONDS = 5.0
"""Time for the processes of a pool to end, in seconds; a signal is handled only after a compiled loop."""


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


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Runner on a scheduler of Dask for one machine: "synchronous", "threads" or "processes"."""

    scheduler: str
    n_workers: int
    in_flight: int
    pool: ThreadPoolExecutor | None
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
        with self._opened(task) as (get, function):
            seconds = math.inf  # of a task; the first graph measures it
            for group in _groups(items, self.in_flight):
                joined = max(1, min(MOST_JOINED, len(group) // self.n_workers, int(JOINED_SECONDS / seconds)))
                began = time.perf_counter()
                _run_group(get, function, group, done, joined)
                seconds = (time.perf_counter() - began) * self.n_workers / len(group)

    def run_everywhere(self, function: Callable[[], Any]) -> None:
        """See `Runner.run_everywhere`; as a pool ends with each run, only this process is called."""
        function()

    @contextmanager
    def _opened(self, task: Task) -> Iterator[tuple[Callable[..., object], Callable[[Any], Any]]]:
        """Yield Dask's function that runs a graph, and the function that its tasks call with an item."""
        if self.scheduler == "processes":
            with _process_pool(self.n_workers, task) as pool:
                get = partial(dask.multiprocessing.get, pool=pool, optimize_graph=False)
                yield get, _run_in_process
        elif self.scheduler == "threads":
            yield partial(dask.threaded.get, pool=self.pool), partial(task, stopped=self.stop.is_set)
        else:
            yield get_sync, partial(task, stopped=self.stop.is_set)


def _run_group(
    get: Callable[..., object],
    function: Callable[[Any], Any],
    group: Sequence[Any],
    done: Callable[[Any, Any], None],
    joined: int,
) -> None:
    """Run a graph of tasks, of which a worker gets `joined` at a time."""
    token = secrets.token_hex(8)  # keys differ between graphs, so two runs can share a pool
    # of equal tasks, these schedulers start the one with the highest key first
    by_key = {f"dkfeat-{token}-{len(group) - i:09d}": item for i, item in enumerate(group)}

    def posttask(key: str, result: Any, *_: Any) -> None:
        done(by_key[key], result)

    try:
        # callbacks given here apply only to this graph; Dask's registry of callbacks applies to the process
        get(
            {key: (partial(function, item),) for key, item in by_key.items()},  # as an argument, a tuple may be a task
            list(by_key),
            chunksize=joined,
            callbacks=[(None, None, None, posttask, None)],
        )
    except BrokenProcessPool as error:
        raise ClusterError(
            "a worker process ended abruptly, perhaps because memory ran out; shards already made "
            "are kept; to continue, run the same call again with fewer workers"
        ) from error


def _groups(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


@contextmanager
def open_local(scheduler: str, n_workers: int, in_flight: int) -> Iterator[Runner]:
    """Yield a runner, for threads with a pool; after the ``with`` block no task runs."""
    stop = threading.Event()
    if scheduler != "threads":
        yield LocalRunner(scheduler, n_workers, in_flight, None, stop)
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


def _exit_by_exception(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal's handler
    """End this process by an exception, so that a shard being written removes its temporary file."""
    signal.signal(number, signal.SIG_IGN)  # a second signal would interrupt the clean-up
    raise SystemExit(128 + number)


def _run_in_process(item: Any) -> Any:
    assert _process_task is not None  # the pool's initializer ran
    try:
        return _process_task(item, _never)  # a process cannot see the driver's event: its pool is ended instead
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


def _never() -> bool:
    return False


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
