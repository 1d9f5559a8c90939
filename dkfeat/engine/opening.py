"""Where tasks run: settled from arguments, the active client and Dask's configuration, and started when entered."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import dask

from dkfeat.engine.cluster import local_cluster, share_cores
from dkfeat.engine.clusters import SharedCluster, as_cluster, open_cluster
from dkfeat.engine.defaults import fill_where
from dkfeat.engine.performance import check_report
from dkfeat.engine.performance import performance_report as performance_reported
from dkfeat.engine.runners import GRAPH_TASKS, Runner, open_local
from dkfeat.engine.scheduler_file import read_address
from dkfeat.errors import ConfigError
from dkfeat.validation import check_integer
from dkfeat.wording import meant

if TYPE_CHECKING:
    from distributed import Client

    from dkfeat.config import ClusterConfig

__all__ = ["open_runner"]

LOCAL = ("threads", "processes", "synchronous")
SCHEDULERS = (*LOCAL, "cluster")


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
    sizes: dict[str, Any] = {
        "n_workers": n_workers,
        "threads_per_worker": threads_per_worker,
        "memory_limit": memory_limit,
    }
    where = _settled(named, sizes, in_flight)
    in_flight, sizes = where["in_flight"], {name: where[name] for name in sizes}
    if where["cluster"] is None and where["scheduler_file"] is None and where["client"] is None:
        if where["scheduler"] in LOCAL:
            return _this_machine(where["scheduler"], sizes["n_workers"], in_flight, performance_report)
        if where["scheduler"] == "cluster":
            share_cores(sizes["n_workers"], sizes["threads_per_worker"])
    if performance_report is not None:
        check_report(performance_report)
    shared = where["cluster"]
    if isinstance(shared, SharedCluster):
        return _open_client(shared.opened(), in_flight, performance_report, shared.config.n_threads)
    if shared is not None:
        config = as_cluster(shared, **sizes)
        return _open_client(open_cluster(config), in_flight, performance_report, config.n_threads)
    return _open_client(_opening(where, sizes, profile=performance_report is not None), in_flight, performance_report)


def _settled(named: Mapping[str, Any], sizes: Mapping[str, Any], in_flight: int | None) -> dict[str, Any]:
    """Fill in defaults, and leave exactly one place; refuse settings that do not go together."""
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        message = f"{' and '.join(given)} are given, but tasks run in one place; choose one"
        raise ConfigError(message)
    unsaid = not given and sizes["n_workers"] is None and sizes["memory_limit"] is None
    where = fill_where(
        {**named, **sizes, "in_flight": in_flight},
        elsewhere=named["client"] is not None or (unsaid and _active_client() is not None),
    )
    if where["cluster"] is not None:
        return where
    if where["scheduler_file"] is not None:
        if any(where[name] is not None for name in sizes):
            message = f"{', '.join(sizes)} belong to a cluster that is started, not to one behind a scheduler_file"
            raise ConfigError(message)
        return where
    embedded = where["n_workers"] is not None or where["memory_limit"] is not None
    client, scheduler = _choose(where["client"], where["scheduler"], embedded=embedded)
    if scheduler != "cluster" and (where["threads_per_worker"] is not None or where["memory_limit"] is not None):
        message = (
            f"threads_per_worker and memory_limit belong to scheduler='cluster', not to {scheduler or 'a client'!r}"
        )
        raise ConfigError(message)
    return {**where, "client": client, "scheduler": scheduler}


def _this_machine(
    scheduler: str, n_workers: int | None, in_flight: int | None, report: str | PathLike[str] | None
) -> AbstractContextManager[Runner]:
    if report is not None:
        message = f"a performance report is made of a cluster, not of {scheduler}; give n_workers, or a scheduler"
        raise ConfigError(message)
    workers, _ = share_cores(1 if scheduler == "synchronous" else n_workers, None)
    return open_local(scheduler, workers, in_flight or GRAPH_TASKS)


def _opening(where: Mapping[str, Any], sizes: Mapping[str, Any], *, profile: bool) -> AbstractContextManager[Client]:
    """Choose what gives a client, once it is entered."""
    if where["client"] is not None:
        return nullcontext(where["client"])
    if where["scheduler"] == "cluster":
        return local_cluster(**sizes, profile=profile)
    return _connection(where["scheduler"], where["scheduler_file"])


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
