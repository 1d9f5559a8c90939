"""Clusters that are started from a cluster file: local or SLURM."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask

from dkfeat.config import execution
from dkfeat.engine.clusters.local import CLOSED_DASHBOARD, SETTINGS, as_bytes, check_memory, local_cluster
from dkfeat.errors import ClusterError, ConfigError
from dkfeat.messages import counted, logger_of

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security


logger = logger_of(__name__)


def slurm_keywords(config: execution.SlurmClusterConfig) -> dict[str, Any]:
    """Make keywords of `dask_jobqueue.SLURMCluster`, without those for certificates.

    For missing keywords, dask-jobqueue uses Dask's configuration.

    Examples
    --------
    >>> config = execution.SlurmClusterConfig(n_workers=8, workers_per_job=4, threads_per_worker=2, memory_limit="4GiB")
    >>> keywords = slurm_keywords(config)
    >>> keywords["cores"], keywords["processes"], keywords["memory"], keywords["job_mem"]
    (8, 4, '17179869184 B', '18023M')
    """
    memory, address = as_bytes(config.memory_limit) * config.workers_per_job, config.dashboard_address
    names = {"queue", "account", "walltime", "interface", "local_directory", "log_directory", "python"}
    names |= {"job_extra_directives", "job_script_prologue"}
    given = {name: value for name, value in config.to_mapping().items() if name in names and value not in (None, [])}
    if dask.config.get("jobqueue.slurm.job-mem", None) is None:
        # more than the workers may use, so that Dask restarts one before SLURM ends the job
        given["job_mem"] = f"{-(-memory * 11 // (10 << 20))}M"
    return {
        "job_name": "dkfeat",
        "silence_logs": "critical",  # as for the local cluster: errors are reported by tasks, not by Dask's logs
        "n_workers": config.n_workers,
        "cores": config.threads_per_worker * config.workers_per_job,
        "processes": config.workers_per_job,
        "memory": f"{memory} B",
        "scheduler_options": dict(CLOSED_DASHBOARD) if address is None else {"dashboard_address": address},
        **given,
    }


QUIET_SECONDS = 10.0
"""Seconds after which a wait for the first worker is reported."""
POLL_SECONDS = 1.0
"""Seconds between checks that a worker can still start."""

NEEDED = ("dask_jobqueue", "cryptography")
"""Modules that a cluster of SLURM needs besides Dask."""


def open_cluster(
    cluster: str | PathLike[str] | execution.ClusterConfig,
    *,
    n_workers: int | None = None,
    threads_per_worker: int | None = None,
    memory_limit: int | str | None = None,
) -> AbstractContextManager[Client]:
    """Start the cluster of a cluster file for several steps; it is stopped at the end of the ``with`` block.

    Functions with the argument `client` run on it. With the setting `cluster`, each of them starts its own cluster
    instead.

    Parameters
    ----------
    cluster : path, LocalClusterConfig or SlurmClusterConfig
        Cluster file, such as those of ``conf/cluster``, or the settings that it has.
    n_workers, threads_per_worker, memory_limit
        Sizes that replace those of the file.

    Returns
    -------
    opening : context manager
        Yields a `distributed.Client`, which is not set as the process's default client. The first worker has started
        by then; others may start later. Entering raises `ClusterError` if the cluster does not start, or no worker
        starts within its `start_seconds`.

    Raises
    ------
    dkfeat.errors.ConfigError
        If the file cannot be read or has unknown settings, or the library for this kind of cluster is not installed;
        the message names the extra that installs it.

    Examples
    --------
    >>> from dkfeat.config import LocalClusterConfig
    >>> if __name__ == "__main__":  # needed by every script that starts processes
    ...     with open_cluster(LocalClusterConfig(n_workers=1)) as client:
    ...         print(len(client.nthreads()))
    """
    config = as_cluster(cluster, n_workers=n_workers, threads_per_worker=threads_per_worker, memory_limit=memory_limit)
    return _open(config)


def as_cluster(cluster: str | PathLike[str] | execution.ClusterConfig, **sizes: Any) -> execution.ClusterConfig:
    """Read the settings of a cluster, replace sizes that are not None, and check that its libraries are installed."""
    if isinstance(cluster, execution.ClusterConfig):
        config = cluster
    elif isinstance(cluster, str | PathLike):
        config = execution.load_cluster(fspath(cluster))
    else:
        raise ConfigError(f"cluster={cluster!r:.100}, but it must be the path of a cluster file or a ClusterConfig")
    config = config.sized(**sizes)
    check_memory(config.memory_limit)
    missing = [name.replace("_", "-") for name in NEEDED if find_spec(name) is None]
    if missing and config.kind == "slurm":
        raise ConfigError(f"a cluster of kind 'slurm' needs {', '.join(missing)}; run: pip install {' '.join(missing)}")
    return config


class SharedCluster(ExitStack):
    """A cluster for all runs of a ``with`` block, started when the first of them needs it.

    Parameters
    ----------
    cluster, n_workers, threads_per_worker, memory_limit
        See `open_cluster`.
    """

    def __init__(self, cluster: str | PathLike[str] | execution.ClusterConfig, **sizes: Any) -> None:
        super().__init__()
        self.config = as_cluster(cluster, **sizes)
        self._client: Client | None = None

    @contextmanager
    def opened(self) -> Iterator[Client]:
        """Yield a client, which stays open after the ``with`` block; a new cluster replaces a lost one."""
        if self._client is None or self._client.status != "running":
            self.close()
            self._client = self.enter_context(_open(self.config))
        yield self._client


@contextmanager
def _open(config: execution.ClusterConfig) -> Iterator[Client]:
    if isinstance(config, execution.LocalClusterConfig):
        with local_cluster(config.n_workers, config.threads_per_worker, config.memory_limit) as client:
            yield client
        return
    from distributed import Client

    assert isinstance(config, execution.SlurmClusterConfig)
    with dask.config.set(SETTINGS), ExitStack() as stack:
        # a signal while jobs are submitted or a client connects would leave the jobs or the client running
        with _signals_deferred():
            cluster = stack.enter_context(_closing(_start(config, stack)))
        with _signals_deferred():
            client = stack.enter_context(Client(cluster, set_as_default=False))
        _wait(client, config, cluster)
        yield client


def _start(config: execution.SlurmClusterConfig, stack: ExitStack) -> Any:
    try:
        return start_slurm(config, stack)
    except Exception as error:  # errors of SLURM's commands have no class in common
        text = " ".join(str(error).split()) or type(error).__name__
        raise ClusterError(f"the cluster of kind 'slurm' did not start: {text}") from error


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Defer SIGINT and SIGTERM to the end of the ``with`` block, which restores their handlers.

    Restoring the handlers also undoes an import of dask-jobqueue 0.9, which sets a handler that ends the process
    silently, with status 0.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, lambda number, _frame: received.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


@contextmanager
def _closing(cluster: Any) -> Iterator[Any]:
    try:
        yield cluster
    finally:
        try:
            cluster.close()
        # these errors have no class in common either; as the work is done, they are only logged, and replace no other
        except Exception as error:
            logger.warning("closing the cluster failed; check for workers that are still running: %r", error)


def _wait(client: Client, config: execution.ClusterConfig, cluster: Any) -> None:
    """Wait for the first worker while one can still start; log a warning if this takes long."""
    begin = time.monotonic()
    reported = False
    while (waited := time.monotonic() - begin) < config.start_seconds:
        with suppress(TimeoutError):
            client.wait_for_workers(1, timeout=min(POLL_SECONDS, config.start_seconds - waited))
            return
        _check_jobs(cluster)
        if not reported and waited > QUIET_SECONDS:
            reported = True
            logger.warning("no worker yet; waiting for the first one for up to %g s", config.start_seconds)
    raise ClusterError(
        f"no worker of the cluster of kind {config.kind!r} started within {config.start_seconds:g} s; check its queue "
        "and the output of its workers, or raise start_seconds"
    )


def start_slurm(config: execution.SlurmClusterConfig, stack: ExitStack) -> Any:
    """Start the scheduler in this process and submit the jobs; closing the stack removes their certificates."""
    # importing dask-jobqueue sets signal handlers; the end of this block restores ours
    with _signals_deferred():
        from dask_jobqueue.slurm import SLURMCluster, SLURMJob
        from distributed.deploy.spec import ProcessInterface

    class RecordedJob(SLURMJob):
        """SLURM job that records a rejection instead of raising it, so that its cluster can be stopped in order."""

        rejection: str | None = None

        async def start(self) -> None:
            try:
                await super().start()
            except (OSError, RuntimeError, ValueError) as error:  # no command, a rejection, output without a job number
                self.rejection = " ".join(str(error).split())
                logger.warning("SLURM rejected the job for worker %s: %s", self.name, self.rejection)
                await ProcessInterface.start(self)

        async def close(self) -> None:
            await super().close()
            await ProcessInterface.close(self)

    keywords = {"job_cls": RecordedJob, **slurm_keywords(config)}
    if not config.encrypt:
        return SLURMCluster(**keywords)
    folder = Path(config.shared_temp_directory or ".").expanduser().absolute()
    return SLURMCluster(**keywords, security=stack.enter_context(certificates(folder)), protocol="tls://")


def _check_jobs(cluster: Any) -> None:
    """Raise `ClusterError` if SLURM rejected every job."""
    rejections = [job.rejection for job in cluster.workers.values()]
    if rejections and None not in rejections:
        raise ClusterError(
            f"SLURM rejected all jobs for {counted(len(rejections), 'worker')}, the first with this message: "
            f"{rejections[0]}"
        )


@contextmanager
def certificates(folder: Path) -> Iterator[Security]:
    """Make a certificate for one cluster, in a folder that only this user can read.

    dask-jobqueue can make certificates too, but their files remain until its objects are garbage-collected.
    """
    from distributed.security import Security

    made = Security.temporary().get_tls_config_for_role("worker")
    with tempfile.TemporaryDirectory(prefix=".dkfeat-tls-", dir=folder) as name:
        paths = {}
        for part in ("ca_file", "cert", "key"):
            path = Path(name) / f"{part}.pem"
            path.write_text(made[part], encoding="ascii")
            paths[part] = str(path)
        roles = {
            f"tls_{role}_{part}": paths[part] for role in ("scheduler", "worker", "client") for part in ("cert", "key")
        }
        yield Security(tls_ca_file=paths["ca_file"], require_encryption=True, **roles)
