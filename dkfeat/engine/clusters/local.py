"""Local cluster of worker processes on this machine, without access from the network."""

from __future__ import annotations

import logging
import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import dask
from dask.system import CPU_COUNT
from dask.utils import parse_bytes

from dkfeat.errors import ClusterError, ConfigError
from dkfeat.messages import counted, logger_of, read_number, show_bytes
from dkfeat.validation import check_integer

if TYPE_CHECKING:
    from distributed import Client, LocalCluster


logger = logger_of(__name__)

SETTINGS: dict[str, Any] = {
    # no queue on workers: if one dies, only the tasks that ran there count as suspicious
    "distributed.scheduler.worker-saturation": 1.0,
    # tasks return only small records, so there is nothing worth spilling, and a pause frees no memory
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.admin.tick.limit": "1h",  # compiled loops block the event loop; do not warn about it
    "distributed.worker.profile.enabled": False,
}

CLOSED_DASHBOARD = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""Options of a scheduler without a dashboard; its web server shows nothing and listens on the loopback interface."""

LEAST_MEMORY = 512 << 20
"""Smallest memory limit of a worker with which every command completes (`python benchmarks/sizing.py minimum`)."""

TERMINATE = 0.95
"""Share of the memory limit at which the nanny terminates a worker."""

START_SECONDS = 300
"""Time for a worker process to start; one that hangs meanwhile ends the command."""

# preloaded by each worker: Ctrl-C reaches all processes of a terminal, but only the driver may act on it
_IGNORE_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


def share_cores(n_workers: int | None, threads_per_worker: int | None) -> tuple[int, int]:
    """Choose worker processes and threads per process so that together they use each core once.

    Parameters
    ----------
    n_workers, threads_per_worker : int or None
        Requested numbers; None: derived from the number of cores. More threads than cores are allowed.

    Returns
    -------
    n_workers, threads_per_worker : int
        Numbers to use; one thread per process unless requested otherwise.

    Raises
    ------
    ConfigError
        If either is not an integer of at least 1.

    Examples
    --------
    >>> share_cores(2, 3)
    (2, 3)
    """
    for name, value in (("n_workers", n_workers), ("threads_per_worker", threads_per_worker)):
        if value is not None:
            check_integer(value, name, low=1)
    threads = threads_per_worker or 1
    return n_workers or max(1, CPU_COUNT // threads), threads


@contextmanager
def local_cluster(
    n_workers: int | None = None, threads_per_worker: int | None = None, memory_limit: int | str | None = None
) -> Iterator[Client]:
    """Start worker processes on this machine and stop them at the end of the ``with`` block.

    Scheduler and workers listen only on the loopback interface; there is no dashboard. BLAS and OpenMP run one thread
    for each thread of a worker. A worker that dies is restarted by its nanny. Ctrl-C reaches all processes of a
    terminal, but only this process acts on it: it stops the workers.

    Parameters
    ----------
    n_workers, threads_per_worker : int or None
        See `share_cores`.
    memory_limit : int, str or None
        Memory limit of each worker, in bytes or as text with a unit; None: an equal share of the machine's memory. A
        worker that exceeds 95 % of it is stopped, and its task runs on another worker.

    Yields
    ------
    client : distributed.Client
        Client of the cluster; it is not made the process's default client.

    Raises
    ------
    ClusterError
        If the processes do not start.

    Notes
    -----
    Workers are spawned, so a script that calls this needs the usual ``if __name__ == "__main__":`` guard.
    """
    from distributed import Client, LocalCluster  # late import: it takes 0.3 s, which runs on threads do not need

    n_workers, threads = share_cores(n_workers, threads_per_worker)
    limit = "auto" if memory_limit is None else as_bytes(memory_limit)
    variables = {f"{library}_NUM_THREADS": 1 for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "BLIS")}
    settings = {
        **SETTINGS,
        # glibc returns large arrays to the system, but not batches of rows: new pages for each take a third of the time
        # of a training
        "distributed.nanny.pre-spawn-environ": {
            "MALLOC_TRIM_THRESHOLD_": 16 << 20,
            "MALLOC_MMAP_THRESHOLD_": 1 << 20,
            **variables,
        },
    }
    with dask.config.set(settings):
        try:
            cluster = LocalCluster(
                n_workers=n_workers,
                threads_per_worker=threads,
                memory_limit=limit,
                host="127.0.0.1",
                scheduler_kwargs=CLOSED_DASHBOARD,
                silence_logs=logging.CRITICAL,
                preload=[_IGNORE_INTERRUPTS],
                death_timeout=START_SECONDS,
            )
        except (RuntimeError, AssertionError) as error:  # the latter if one has not started in this time
            raise ClusterError(
                f"{counted(n_workers, 'worker process')} did not start ({error}); a script that starts them needs its "
                "calls under `if __name__ == '__main__':`, because each worker imports the script"
            ) from error
        with _closing_local(cluster), Client(cluster, set_as_default=False) as client:
            yield client


@contextmanager
def _closing_local(cluster: LocalCluster) -> Iterator[None]:
    from distributed import Status

    try:
        yield
    finally:
        processes = [nanny.process for nanny in cluster.workers.values()]
        try:
            cluster.close()
        # if a worker has just died, nannies fail assertions of distributed itself, which are not errors of the run
        except Exception:
            logger.debug("closing the cluster failed; its processes are killed", exc_info=True)
            for pid in (process.pid for process in processes if process is not None and process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if cluster.scheduler is not None:
                with suppress(Exception):
                    cluster.sync(cluster.scheduler.close)
            cluster.status = Status.closed  # the failed close() has not set it


def check_memory(limit: int | str | None) -> None:
    """Check a worker's memory limit, if there is one; errors are those of `as_bytes`."""
    if limit is not None:
        as_bytes(limit)


def as_bytes(text: int | str) -> int:
    """Convert a worker's memory limit to bytes.

    Raises
    ------
    ConfigError
        If `text` is not a size of at least `LEAST_MEMORY`.

    Examples
    --------
    >>> as_bytes("4GiB")
    4294967296
    """
    try:
        value = int(read_number(text, parse_bytes) if isinstance(text, str) else parse_bytes(int(text)))
    except (ValueError, TypeError, AttributeError, OverflowError):  # neither a number nor text, or infinite
        value = 0
    check_least(value, repr(text))
    return value


def more_memory(n_bytes: int) -> str:
    """Show by how much the memory limit of a worker must be higher, so that its tasks may use more bytes."""
    return show_bytes(math.ceil(n_bytes / TERMINATE))


def check_least(limit: int, shown: str) -> None:
    """Raise `ConfigError` if a worker's memory limit in bytes is below `LEAST_MEMORY`."""
    if limit < LEAST_MEMORY:
        raise ConfigError(
            f"memory_limit={shown:.100}, but a worker's limit is a size of at least {LEAST_MEMORY >> 20} MiB, such as "
            "'4GiB', because modules and compiled loops take most of that; if memory is short, start fewer workers"
        )
