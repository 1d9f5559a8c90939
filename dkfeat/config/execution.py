"""Settings of where tasks run: scheduler and workers, cluster files, and defaults in the configuration of Dask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

from dkfeat.config.settings import Positive, Settings, errors_at, read_yaml
from dkfeat.errors import ConfigError
from dkfeat.messages import nearest

SCHEDULERS = ("threads", "synchronous", "cluster")
"""Schedulers that are named by a word; the last one is worker processes of the run."""

WHERE = ("scheduler", "scheduler_file", "cluster")
"""Settings that choose where tasks run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionConfig(Settings):
    """Settings of where tasks run, which do not change a byte of the result.

    At most one of `scheduler`, `scheduler_file` and `cluster` may be given. If none is, tasks run on the first of these
    that exists: worker processes, if `n_workers` or `memory_limit` is given; the active `distributed.Client`; the
    scheduler of Dask's configuration; threads of this process.
    """

    scheduler: str | None = None
    """Scheduler: threads, synchronous, cluster (worker processes of this run) or an address. Left out: worker
    processes if their number or memory is given, else threads of this process."""
    scheduler_file: str | None = None
    """File of a running scheduler, written by ``dask scheduler --scheduler-file``."""
    cluster: str | None = None
    """File of a cluster to start, such as conf/cluster/slurm.yaml; the options below override its values."""
    n_workers: Positive | None = None
    """Number of threads or worker processes. Left out: one for each core."""
    threads_per_worker: Positive | None = None
    """Threads in each worker process. Left out: one."""
    memory_limit: int | str | None = None
    """Memory of each worker process, as in 4GiB; at least 512MiB. Left out: an equal share of the machine's memory."""

    def __post_init__(self) -> None:
        given = [name for name in WHERE if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} are given, but a run has one scheduler; choose one")
        Settings.__post_init__(self)

    @classmethod
    def gather(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the options that are fields of this class by one, `client`.

        Examples
        --------
        >>> ExecutionConfig.gather({"resume": True, "n_workers": None})
        {'client': None, 'resume': True}
        """
        names = [item.name for item in fields(cls)]
        given = {name: options[name] for name in names if options.get(name) is not None}
        others = {name: value for name, value in options.items() if name not in names}
        return {"client": cls(**given) if given else None, **others}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultsConfig(ExecutionConfig):
    """Settings that apply unless a command line, job file or argument overrides them."""

    no_worker_seconds: Positive | None = None
    """Seconds that a run on a cluster waits without any worker that can run tasks before it ends. Left out: 600."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(Settings):
    """Settings that every kind of cluster has."""

    kind: str
    """Kind, one of `CLUSTERS`."""
    threads_per_worker: Positive | None = None
    """Threads in each worker process, at least 1."""
    memory_limit: int | str | None = None
    """Bytes for each worker process, as a number or with a unit as in "8GiB"; at least 512 MiB."""
    start_seconds: float = 300.0
    """Seconds to wait for the first worker; tasks start when it has connected, and other workers may come later."""

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if not self.start_seconds > 0:
            raise ConfigError(f"start_seconds={self.start_seconds}, but it must be greater than 0")

    @property
    def n_threads(self) -> int | None:
        """Number of threads of all workers together; None if the settings do not state it."""
        workers = getattr(self, "n_workers", None)
        return None if workers is None or self.threads_per_worker is None else workers * self.threads_per_worker

    def sized(self, **sizes: Any) -> Self:
        """Replace sizes by those of `n_workers`, `threads_per_worker`, `memory_limit` that are not None.

        Raises
        ------
        ConfigError
            If a value is out of range.
        """
        return replace(self, **{name: value for name, value in sizes.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClusterConfig(ClusterConfig):
    """Worker processes on this machine, as `n_workers` without a cluster file starts them."""

    kind: Literal["local"] = "local"
    """Kind of the cluster."""
    n_workers: Positive | None = None
    """Worker processes; left out: one for each core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmClusterConfig(ClusterConfig):
    """Workers as jobs of SLURM, by dask-jobqueue; the scheduler runs beside dkfeat.

    Keys with names of dask-jobqueue have the meaning that they have there; if left out, they are taken from
    ``jobqueue.slurm`` in Dask's configuration.
    """

    kind: Literal["slurm"] = "slurm"
    """Kind of the cluster."""
    n_workers: Positive
    """Worker processes in all, at least 1."""
    threads_per_worker: Positive
    memory_limit: int | str
    workers_per_job: Positive = 1
    """Worker processes in each SLURM job; a job requests the threads and memory of all its workers."""
    queue: str | None = None
    """Partition."""
    account: str | None = None
    """Account that is charged."""
    walltime: str | int | None = None
    """Time limit of each job, in quotes, as in "02:00:00"."""
    interface: str | None = None
    """Network interface of scheduler and workers, such as ib0."""
    local_directory: str | None = None
    """Folder on each node for a worker's own files."""
    log_directory: str | None = None
    """Folder for the output of the jobs."""
    python: str | None = None
    """Python on the nodes; left out: this one, by its path."""
    job_extra_directives: tuple[str, ...] = ()
    """More `#SBATCH` lines, such as "--exclusive"."""
    job_script_prologue: tuple[str, ...] = ()
    """Shell commands before a worker starts, such as "module load gcc"."""
    encrypt: bool = True
    """Use TLS with a certificate made for this cluster only; without TLS, anyone who can connect to the scheduler can
    run code as you."""
    shared_temp_directory: str | None = None
    """Folder that all nodes see, where workers find the certificate; left out: the one in which dkfeat runs."""
    dashboard_address: str | None = None
    """Address of the scheduler's dashboard, such as ":8787"; left out: there is none."""

    def __post_init__(self) -> None:
        # not super(): with slots, dataclass replaces the class that super() without arguments refers to
        ClusterConfig.__post_init__(self)
        if isinstance(self.walltime, int):
            raise ConfigError(
                f"walltime={self.walltime}, a number; put it in quotes, as in '02:00:00': without quotes YAML reads "
                "02:00:00 as the number 7200, which SLURM takes as minutes"
            )


CLUSTERS: dict[str, type[ClusterConfig]] = {"local": LocalClusterConfig, "slurm": SlurmClusterConfig}
"""Settings by kind of cluster."""


def read_cluster(mapping: Any) -> ClusterConfig:
    """Read the settings of a cluster from plain values.

    Raises
    ------
    ConfigError
        For an unknown kind or key, with the nearest known one, a missing key, or a value of another type or range.

    Examples
    --------
    >>> read_cluster({"kind": "local", "n_workers": 4}).n_workers
    4
    >>> read_cluster({"kind": "slrum"})
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: kind: there is no cluster of kind 'slrum'; did you mean 'slurm'?
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"expected keys and values, one of them `kind`: {', '.join(CLUSTERS)}")
    kind = mapping.get("kind")
    if kind is None:
        raise ConfigError(f"kind must be given: {', '.join(CLUSTERS)}")
    if not isinstance(kind, str) or kind not in CLUSTERS:
        raise ConfigError(f"kind: there is no cluster of kind {kind!r}; {nearest(str(kind), list(CLUSTERS), 'kinds')}")
    return CLUSTERS[kind].from_mapping(mapping)


def load_cluster(path: str | Path) -> ClusterConfig:
    """Read a cluster file.

    Raises
    ------
    ConfigError
        If the file cannot be read, or holds settings that `read_cluster` rejects. The text starts with the file's name.
    """
    with errors_at(str(path)):
        return read_cluster(read_yaml(path, "a cluster file"))
