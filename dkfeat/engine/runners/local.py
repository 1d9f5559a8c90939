"""Runner on this machine: on threads, or the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from dask.base import compute
from dask.local import SynchronousExecutor
from dask.system import CPU_COUNT
from threadpoolctl import threadpool_limits

from dkfeat.engine.runners.base import Batches, Runner, Task, Tree, run_batch
from dkfeat.messages import counted

JOINED_SECONDS = 0.05
"""Duration to which short tasks are given to a thread together, because each hand-over stops another thread."""

MOST_JOINED = 16
"""Maximum number of tasks that a thread gets together."""


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Runner on this machine: "synchronous" or "threads"."""

    scheduler: str
    n_threads: int
    """Number of tasks that run at a time."""
    pool: Executor
    """Threads, or this thread."""
    stop: threading.Event
    memory_limit: None = None

    @property
    def description(self) -> str:
        """Workers, as text."""
        return "this thread" if self.scheduler == "synchronous" else counted(self.n_threads, "thread")

    def run(self, task: Task, items: Sequence[Any], done: Callable[[Any, Any], None]) -> None:
        """See `Runner.run`."""
        is_alone = self.scheduler == "synchronous"
        batches = Batches(items, JOINED_SECONDS, 1 if is_alone else MOST_JOINED)
        window = 1 if is_alone else 2 * self.n_threads
        pending: dict[Future[tuple[float, list[Any]]], tuple[Any, ...]] = {}
        try:
            while True:
                for batch in batches.take(window - len(pending), window):
                    pending[self.pool.submit(run_batch, task, batch, self.stop.is_set)] = batch
                if not pending:
                    return
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    batch, (seconds, results) = pending.pop(future), future.result()
                    batches.measured(len(batch), seconds)
                    for item, result in zip(batch, results, strict=True):
                        done(item, result)
        finally:
            for future in pending:
                future.cancel()

    def hold(self, values: Sequence[Any]) -> Sequence[Any]:
        """See `Runner.hold`."""
        return cast("Sequence[Any]", compute(*values, scheduler=self.scheduler))

    def fold(
        self, task: Callable[..., Any], shared: Any, items: Sequence[Any], join: Callable[[Any, Any], Any]
    ) -> Iterator[Any]:
        """See `Runner.fold`."""
        tree = Tree(len(items))

        def done(item: Any, result: Any) -> None:
            tree.fold(item.number, result, join)

        self.run(lambda item, stopped: task(item, stopped, shared), items, done)
        yield from tree.root


@contextmanager
def open_local(scheduler: str, n_workers: int) -> Iterator[Runner]:
    """Yield a runner, for threads with a pool; after the ``with`` block no task runs."""
    stop = threading.Event()
    if scheduler == "synchronous":
        yield LocalRunner(scheduler, n_workers, SynchronousExecutor(), stop)
        return
    threads = ThreadPoolExecutor(n_workers, thread_name_prefix="dkfeat")
    with threadpool_limits(max(1, CPU_COUNT // n_workers)):
        try:
            yield LocalRunner(scheduler, n_workers, threads, stop)
        finally:
            stop.set()
            threads.shutdown(cancel_futures=True)
