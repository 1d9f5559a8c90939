"""Choice of the runner that executes tasks, from a client or from settings."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dask

from dkfeat.config.execution import SCHEDULERS, WHERE, ExecutionConfig
from dkfeat.engine.clusters.local import check_memory, local_cluster, share_cores
from dkfeat.engine.clusters.open import SharedCluster, as_cluster, open_cluster
from dkfeat.engine.runners.base import Runner
from dkfeat.engine.runners.defaults import read_defaults
from dkfeat.engine.runners.local import open_local
from dkfeat.errors import ConfigError
from dkfeat.messages import meant

if TYPE_CHECKING:
    from distributed import Client


*LOCAL, _ = SCHEDULERS
SYNONYMS = {
    "sync": "synchronous",
    "single-threaded": "synchronous",
    "threading": "threads",
    "processes": "cluster",
    "multiprocessing": "cluster",
}
"""Dask's names of its schedulers; its processes are those of a local cluster."""
SIZES = ("n_workers", "threads_per_worker", "memory_limit")
"""Settings of the size of a cluster to start."""


def open_runner(client: Client | ExecutionConfig | None = None) -> AbstractContextManager[Runner]:
    """Choose where tasks run, and start the runner for a ``with`` block.

    Parameters
    ----------
    client : distributed.Client, ExecutionConfig or None
        Synchronous client of a running cluster, or execution settings, whose cluster to start may be a path, a
        `ClusterConfig` or a `SharedCluster`. None is ``ExecutionConfig()``: the active client, else Dask's
        configuration, else threads of this process.

    Returns
    -------
    opening : context manager
        Yields the `Runner`. Entering raises `ClusterError` if no scheduler responds or a cluster does not start.

    Raises
    ------
    ConfigError
        For an unknown scheduler, an asynchronous client, a setting of the wrong type or out of range, or settings that
        exclude each other.
    """
    run = client if isinstance(client, ExecutionConfig) else ExecutionConfig()
    client = None if isinstance(client, ExecutionConfig) else client
    if client is None and is_open(run):
        client = _active_client()
    if client is None:
        run = fill_where(run)
    sizes = {name: getattr(run, name) for name in SIZES}
    cluster: Any = run.cluster
    n_threads = None
    opening: AbstractContextManager[Client]
    if client is not None:
        _check_client(client)
        _check_sizes(run, "a client")
        opening = nullcontext(client)
    elif isinstance(cluster, SharedCluster):
        opening, n_threads = cluster.opened(), cluster.config.n_threads
    elif cluster is not None:
        config = as_cluster(cluster, **sizes)
        opening, n_threads = open_cluster(config), config.n_threads
    elif run.scheduler_file is not None:
        _check_sizes(run, "scheduler_file", SIZES)
        opening = _connection(None, run.scheduler_file)
    elif (scheduler := _scheduler(run)) == "cluster":
        share_cores(run.n_workers, run.threads_per_worker)  # checks the sizes before anything starts
        check_memory(run.memory_limit)
        opening = local_cluster(**sizes)
    else:
        _check_sizes(run, scheduler)
        if scheduler in LOCAL:
            n_workers, _ = share_cores(1 if scheduler == "synchronous" else run.n_workers, None)
            return open_local(scheduler, n_workers)
        opening = _connection(scheduler)
    return _open_client(opening, n_threads)


def is_open(run: ExecutionConfig) -> bool:
    """Return True if no setting determines where tasks run."""
    return all(getattr(run, name) is None for name in (*WHERE, "n_workers", "memory_limit"))


def fill_where(run: ExecutionConfig) -> ExecutionConfig:
    """Fill in omitted settings from Dask's configuration.

    The configured scheduler or cluster is used only if no setting determines where tasks run. The configured number and
    size of workers apply only to workers of this machine, not to a running cluster or to one with a cluster file.

    Parameters
    ----------
    run : ExecutionConfig
        Settings; None stands for an omitted one.
    """
    defaults = read_defaults()
    if is_open(run):
        run = replace(run, **{name: getattr(defaults, name) for name in WHERE})
    names: tuple[str, ...] = ()
    if run.scheduler_file is None and run.cluster is None:
        scheduler = SYNONYMS.get(str(run.scheduler), run.scheduler)
        if scheduler in (None, "cluster"):
            names = SIZES
        elif scheduler == "threads":
            names = ("n_workers",)
    return replace(run, **{name: getattr(defaults, name) for name in names if getattr(run, name) is None})


class LazyRunner(ExitStack):
    """Runner that is opened at its first use, so that a run without tasks starts no cluster.

    Parameters
    ----------
    client
        See `open_runner`; it is checked at once. Or a runner that is open, and that stays open until its own ``with``
        block ends.
    """

    def __init__(self, client: Client | ExecutionConfig | Runner | None) -> None:
        super().__init__()
        self._runner: Any = client if hasattr(client, "description") else None
        self._opening: Any = None if self._runner is not None else open_runner(client)  # type: ignore[arg-type]

    def get(self) -> Runner:
        """Open the runner, or return the one that is open."""
        if self._runner is None:
            self._runner = self.enter_context(self._opening)
        runner: Runner = self._runner
        return runner


@contextmanager
def _connection(address: str | None, scheduler_file: str = "") -> Iterator[Client]:
    from dkfeat.engine.runners.connect import connect, read_address  # late: distributed takes 0.3 s

    with connect(read_address(scheduler_file) if address is None else address) as client:
        yield client


@contextmanager
def _open_client(opening: AbstractContextManager[Client], n_threads: int | None) -> Iterator[Runner]:
    from dkfeat.engine.runners.distributed import ClientRunner

    with opening as client:
        yield ClientRunner(client, n_threads)


def _check_client(client: object) -> None:
    from distributed import Client  # already imported by the owner of the client

    if not isinstance(client, Client):
        raise ConfigError(f"client={client!r:.100}, but it must be a distributed.Client")
    if client.asynchronous:
        raise ConfigError("the client is asynchronous; pass one made with Client(..., asynchronous=False)")


def _check_sizes(run: ExecutionConfig, where: str, names: Sequence[str] = SIZES[1:]) -> None:
    if any(getattr(run, name) is not None for name in names):
        raise ConfigError(f"{' and '.join(names)} belong to scheduler='cluster', not to {where!r}")


def _scheduler(run: ExecutionConfig) -> str:
    """Return the name or address of the scheduler for settings without a running cluster."""
    scheduler: Any = run.scheduler
    if scheduler is None and (run.n_workers is not None or run.memory_limit is not None):
        return "cluster"
    if scheduler is None:
        configured = dask.config.get("scheduler", None)
        scheduler = configured if isinstance(configured, str) else "threads"
    name = SYNONYMS.get(scheduler, scheduler) if isinstance(scheduler, str) else ""
    if name not in SCHEDULERS and "://" not in name:
        choices = ", ".join(repr(choice) for choice in SCHEDULERS)
        message = (
            f"scheduler={scheduler!r}, but it must be one of {choices} or an address such as 'tcp://10.0.0.1:8786'"
        )
        raise ConfigError(message + meant(str(scheduler), SCHEDULERS))
    return name


def _active_client() -> Client | None:
    """Return the client that Dask would use; None if, for example, ``dask.config.set(scheduler="threads")`` is set."""
    configured = dask.config.get("scheduler", None)
    is_local = isinstance(configured, str) and SYNONYMS.get(configured, configured) in SCHEDULERS
    if is_local or "distributed" not in sys.modules:  # without this import there is no client
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        return None
