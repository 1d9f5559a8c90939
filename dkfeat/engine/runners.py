"""Run one function over many splits on any Dask scheduler, a bounded number at a time."""

from __future__ import annotations

import multiprocessing
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Protocol

import dask
import dask.multiprocessing
import dask.threaded
from dask.local import get_sync
from dask.system import CPU_COUNT
from threadpoolctl import threadpool_limits

from dkfeat.engine.cluster import local_cluster, share_cores
from dkfeat.engine.clusters import SharedCluster, as_cluster, open_cluster
from dkfeat.engine.defaults import fill_where
from dkfeat.engine.performance import check_report
from dkfeat.engine.performance import performance_report as performance_reported
from dkfeat.engine.scheduler_file import read_address
from dkfeat.errors import ClusterError, ConfigError
from dkfeat.validation import check_integer
from dkfeat.wording import meant

if TYPE_CHECKING:
    from distributed import Client

    from dkfeat.blocks import Split
    from dkfeat.config import ClusterConfig

__all__ = ["Homes", "LocalRunner", "Runner", "SplitTask", "Stopped", "open_runner"]

SCHEDULERS = ("threads", "processes", "synchronous", "cluster")
GRAPH_TASKS = 1024
"""Tasks in one graph of a local scheduler; it starts the next ones only as earlier ones end."""


class Stopped(Exception):
    """A task gave up between two pieces because its run was given up."""


class SplitTask(Protocol):
    """What runs on workers: small, picklable, sent to each worker once."""

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> Any:
        """Work on one split; raise `Stopped` between pieces once `stopped()` is true. Return little."""
        ...


Homes = Callable[[Mapping[str, int]], Mapping[int, str]]
"""Given the threads of each worker by its address, the address for each split by its number."""


class Runner(Protocol):
    """Runs a task over splits; made by `open_runner`."""

    @property
    def description(self) -> str:
        """Where tasks run, for people."""
        ...

    @property
    def memory_limit(self) -> int | None:
        """Bytes that one task may use at most, where the scheduler sets a limit."""
        ...

    @property
    def n_threads(self) -> int:
        """Tasks that run at a time."""
        ...

    def run(
        self, task: SplitTask, splits: Sequence[Split], done: Callable[[Split, Any], None], home: Homes | None = None
    ) -> None:
        """Run `task` on every split.

        `done(split, result)` is called in the calling thread as results come, in any order. The first error stops
        submission, gives up what runs and is raised here as the worker raised it. Where workers have addresses, `home`
        tells which of them each split should run on while it lives.

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
    """Dask's schedulers of one machine: "synchronous", "threads" or "processes"."""

    scheduler: str
    n_workers: int
    in_flight: int
    pool: ThreadPoolExecutor | None
    stop: threading.Event
    memory_limit: None = None

    @property
    def description(self) -> str:
        """Where tasks run, for people."""
        if self.scheduler == "synchronous":
            return "this thread"
        return f"{self.n_workers} {self.scheduler.removesuffix('es' if self.n_workers == 1 else '')}"

    @property
    def n_threads(self) -> int:
        """Tasks that run at a time."""
        return self.n_workers

    def run(
        self,
        task: SplitTask,
        splits: Sequence[Split],
        done: Callable[[Split, Any], None],
        home: Homes | None = None,  # noqa: ARG002 - workers of one machine have no addresses
    ) -> None:
        """See `Runner.run`."""
        with self._opened(task) as (get, function):
            for group in _groups(splits, self.in_flight):
                _run_group(get, function, group, done)

    def run_everywhere(self, function: Callable[[], Any]) -> None:
        """See `Runner.run_everywhere`; the processes of a pool end with each run."""
        function()

    @contextmanager
    def _opened(self, task: SplitTask) -> Iterator[tuple[Callable[..., object], Callable[[Split], Any]]]:
        """Give Dask's function that runs a graph, and what its tasks call with a split."""
        if self.scheduler == "processes":
            with _process_pool(self.n_workers, task) as pool:
                get = partial(dask.multiprocessing.get, pool=pool, chunksize=1, optimize_graph=False)
                yield get, _run_in_process
        elif self.scheduler == "threads":
            yield partial(dask.threaded.get, pool=self.pool), partial(task, stopped=self.stop.is_set)
        else:
            yield get_sync, partial(task, stopped=self.stop.is_set)


def _run_group(
    get: Callable[..., object],
    function: Callable[[Split], Any],
    group: Sequence[Split],
    done: Callable[[Split, Any], None],
) -> None:
    token = secrets.token_hex(8)  # keys differ between graphs, so two runs can share a pool
    # of equal tasks, these schedulers start the one with the highest key first
    by_key = {f"dkfeat-{token}-{len(group) - place:09d}": split for place, split in enumerate(group)}

    def posttask(key: str, result: Any, *_: Any) -> None:
        done(by_key[key], result)

    try:
        # given here, callbacks are those of this graph alone; the registry that Dask has for them is the process's
        get(
            {key: (function, split) for key, split in by_key.items()},
            list(by_key),
            callbacks=[(None, None, None, posttask, None)],
        )
    except BrokenProcessPool as error:
        message = (
            "a worker process ended abruptly, perhaps killed for want of memory; shards already made "
            "are kept; run the same call again to go on, with fewer workers or a smaller blocksize"
        )
        raise ClusterError(message) from error


def _groups(splits: Iterable[Split], size: int) -> Iterator[list[Split]]:
    iterator = iter(splits)
    while group := list(islice(iterator, size)):
        yield group


@contextmanager
def _open_local(scheduler: str, n_workers: int, in_flight: int) -> Iterator[Runner]:
    """Yield a runner, for threads with its pool; on the way out no task runs any more."""
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
def _process_pool(n_workers: int, task: SplitTask) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose processes hold `task`, sent once to each; an error ends them at once."""
    context = dask.multiprocessing.get_context()
    pool = ProcessPoolExecutor(n_workers, context, _start_process, (task, _blas_threads(n_workers)))
    try:
        yield pool
    except BaseException:
        _end(pool)
        raise
    pool.shutdown()


def _blas_threads(n_workers: int) -> int:
    return max(1, CPU_COUNT // n_workers)


_process_task: SplitTask | None = None
"""In a process of a pool: what it runs."""
"""In a process of a pool: what it runs."""


def _start_process(task: SplitTask, blas_threads: int) -> None:
    global _process_task
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the driver, which ends the pool
    dask.multiprocessing.initialize_worker_process()
    threadpool_limits(blas_threads)
    _process_task = task


def _run_in_process(split: Split) -> Any:
    assert _process_task is not None  # the pool's initializer ran
    try:
        return _process_task(split, _never)  # a process cannot see the driver's event: its pool is ended instead
    except Exception as error:
        if _travels(error):
            raise
        message = f"{type(error).__name__}: {error}"
    raise RuntimeError(message)


def _travels(error: Exception) -> bool:
    """Whether an error gets to the driver as it is; one that does not would break the pool in place of telling."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # whatever its own methods raise
        return False
    return True


def _never() -> bool:
    return False


def _end(pool: ProcessPoolExecutor) -> None:
    """Stop the processes of a pool at once: what they were writing is staged, never half published."""
    processes: list[multiprocessing.Process] = list((pool._processes or {}).values())  # no public way before 3.14
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def open_runner(
    client: Client | None = None,
    scheduler: str | None = None,
    *,
    scheduler_file: str | PathLike[str] | None = None,
    cluster: str | PathLike[str] | ClusterConfig | SharedCluster | None = None,
    n_workers: int | None = None,
    threads_per_worker: int | None = None,
    memory_limit: int | str | None = None,
    in_flight: int | None = None,
    performance_report: str | PathLike[str] | None = None,
) -> AbstractContextManager[Runner]:
    """Choose where tasks run; it is started for a ``with`` block.

    At most one of `client`, `scheduler`, `scheduler_file` and `cluster` is given. Without any of them, the first of
    these that applies: an embedded cluster, if `n_workers` or `memory_limit` is given; the process's active
    `distributed.Client`; the settings under ``dkfeat`` in Dask's configuration, see `DefaultsConfig`, and its
    ``scheduler`` setting; threads of this process, one a core.

    Parameters
    ----------
    client : distributed.Client or None
        Synchronous client of a running cluster.
    scheduler : str or None
        "threads", "processes" or "synchronous", Dask's schedulers of this machine; "cluster", an embedded cluster
        of worker processes; or the address of a scheduler, such as "tcp://10.0.0.1:8786".
    scheduler_file : path or None
        What ``dask scheduler --scheduler-file`` wrote.
    cluster : path, ClusterConfig, SharedCluster or None
        A cluster to start, see `dkfeat.open_cluster`.
    n_workers : int or None
        Threads, processes or worker processes, by `scheduler`; None: as many as there are cores.
    threads_per_worker, memory_limit
        Of the embedded cluster, see `dkfeat.engine.cluster.local_cluster`. Beside `cluster` these three stand in place
        of what its file says.
    in_flight : int or None
        Tasks handed to the scheduler at a time; None: twice the cluster's threads.
    performance_report : path or None
        HTML file for Dask's report of what a cluster did.

    Returns
    -------
    opening : context manager
        Gives the `Runner`. Entering raises `ClusterError` if an address does not answer or a cluster does not start.

    Raises
    ------
    ConfigError
        For an unknown scheduler, an asynchronous client, a setting of the wrong type or out of range, or settings that
        do not go together.
    """
    if in_flight is not None:
        in_flight = check_integer(in_flight, "in_flight", low=1)
    named = {"client": client, "scheduler": scheduler, "scheduler_file": scheduler_file, "cluster": cluster}
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        message = f"{' and '.join(given)} are given, but tasks run in one place; choose one"
        raise ConfigError(message)
    sizes = {"n_workers": n_workers, "threads_per_worker": threads_per_worker, "memory_limit": memory_limit}
    unsaid = not given and n_workers is None and memory_limit is None
    where = fill_where(
        {**named, **sizes, "in_flight": in_flight},
        elsewhere=client is not None or (unsaid and _active_client() is not None),
    )
    scheduler, scheduler_file, cluster = where["scheduler"], where["scheduler_file"], where["cluster"]
    n_workers, threads_per_worker = where["n_workers"], where["threads_per_worker"]
    memory_limit, in_flight = where["memory_limit"], where["in_flight"]
    sizes = {name: where[name] for name in sizes}
    if scheduler_file is not None or cluster is not None:
        client, scheduler = None, None
        if scheduler_file is not None and any(value is not None for value in sizes.values()):
            message = f"{', '.join(sizes)} belong to a cluster that is started, not to one behind a scheduler_file"
            raise ConfigError(message)
    else:
        client, scheduler = _choose(client, scheduler, embedded=n_workers is not None or memory_limit is not None)
        if scheduler != "cluster" and (threads_per_worker is not None or memory_limit is not None):
            message = (
                f"threads_per_worker and memory_limit belong to scheduler='cluster', not to {scheduler or 'a client'!r}"
            )
            raise ConfigError(message)
        if client is None and scheduler in SCHEDULERS[:3]:
            if performance_report is not None:
                message = (
                    f"a performance report is made of a cluster, not of {scheduler}; give n_workers, or a scheduler"
                )
                raise ConfigError(message)
            workers, _ = share_cores(1 if scheduler == "synchronous" else n_workers, None)
            return _open_local(scheduler, workers, in_flight or GRAPH_TASKS)
        if scheduler == "cluster":
            share_cores(n_workers, threads_per_worker)
    if performance_report is not None:
        check_report(performance_report)
    if cluster is not None:
        if isinstance(cluster, SharedCluster):
            return _open_client(cluster.opened(), in_flight, performance_report, cluster.config.n_threads)
        config = as_cluster(cluster, **sizes)
        return _open_client(open_cluster(config), in_flight, performance_report, config.n_threads)
    opening = _opening(client, scheduler, scheduler_file, sizes, profile=performance_report is not None)
    return _open_client(opening, in_flight, performance_report)


def _opening(
    client: Client | None,
    scheduler: str | None,
    scheduler_file: str | PathLike[str] | None,
    sizes: Mapping[str, Any],
    *,
    profile: bool,
) -> AbstractContextManager[Client]:
    """Choose what gives a client, once it is entered."""
    if client is not None:
        return nullcontext(client)
    if scheduler == "cluster":
        return local_cluster(**sizes, profile=profile)
    return _connection(scheduler, scheduler_file)


@contextmanager
def _connection(scheduler: str | None, scheduler_file: str | PathLike[str] | None) -> Iterator[Client]:
    from dkfeat.engine.distributed_runner import connect  # needs distributed, 0.3 s to import

    with connect(scheduler if scheduler is not None else read_address(fspath(scheduler_file or ""))) as client:
        yield client


@contextmanager
def _open_client(
    opening: AbstractContextManager[Client],
    in_flight: int | None,
    report: str | PathLike[str] | None,
    asked_threads: int | None = None,
) -> Iterator[Runner]:
    from dkfeat.engine.distributed_runner import ClientRunner

    with opening as client, nullcontext() if report is None else performance_reported(client, report):
        yield ClientRunner(client, in_flight, asked_threads)


def _choose(client: Client | None, scheduler: str | None, *, embedded: bool) -> tuple[Client | None, str | None]:
    if client is None and scheduler is None and not embedded:
        client = _active_client()
    if client is not None:
        if embedded:
            message = "n_workers and memory_limit belong to an embedded cluster, not to a client"
            raise ConfigError(message)
        from distributed import Client  # whoever has a client has imported it

        if not isinstance(client, Client):
            message = f"client={client!r:.100}, but it must be a distributed.Client"
            raise ConfigError(message)
        if client.asynchronous:
            message = "the client is asynchronous; pass one made with Client(..., asynchronous=False)"
            raise ConfigError(message)
        return client, None
    if scheduler is None and not embedded:
        configured = dask.config.get("scheduler", None)
        scheduler = configured if isinstance(configured, str) else None
    if scheduler is None:
        return None, "cluster" if embedded else "threads"
    names = {"sync": "synchronous", "single-threaded": "synchronous", "threading": "threads"}
    names |= {"multiprocessing": "processes"}
    name = names.get(scheduler, scheduler) if isinstance(scheduler, str) else ""
    if name not in SCHEDULERS and "://" not in name:
        known = ", ".join(repr(choice) for choice in SCHEDULERS)
        message = f"scheduler={scheduler!r}, but it must be one of {known} or an address such as 'tcp://10.0.0.1:8786'"
        raise ConfigError(message + meant(str(scheduler), SCHEDULERS))
    return None, name


def _active_client() -> Client | None:
    if "distributed" not in sys.modules:  # nobody can have made a client
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        return None
