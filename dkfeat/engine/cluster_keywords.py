"""What the libraries that start clusters are told, from the settings of a cluster."""

from __future__ import annotations

from typing import Any

from dkfeat.config.cluster import KubernetesClusterConfig, SlurmClusterConfig, SSHClusterConfig
from dkfeat.engine.cluster import as_bytes

__all__ = ["kubernetes_keywords", "slurm_keywords", "ssh_keywords"]

CLOSED_DASHBOARD = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
"""Of a scheduler without a dashboard; its web server, which tells nothing then, listens to this machine alone."""


def slurm_keywords(config: SlurmClusterConfig) -> dict[str, Any]:
    """Keywords of `dask_jobqueue.SLURMCluster` but for certificates; what is left out stays with Dask's configuration.

    Examples
    --------
    >>> asked = SlurmClusterConfig(n_workers=8, workers_per_job=4, threads_per_worker=2, memory_limit="4GiB")
    >>> found = slurm_keywords(asked)
    >>> found["cores"], found["processes"], found["memory"]
    (8, 4, '17179869184 B')
    """
    names = ("queue", "account", "walltime", "interface", "local_directory", "log_directory", "python")
    given = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    lists = ("job_extra_directives", "job_script_prologue")
    given |= {name: list(getattr(config, name)) for name in lists if getattr(config, name)}
    return {
        "job_name": "dkfeat",
        "silence_logs": "critical",  # as of the embedded cluster: what matters comes as an error of a task
        "n_workers": config.n_workers,
        "cores": config.threads_per_worker * config.workers_per_job,
        "processes": config.workers_per_job,
        "memory": f"{as_bytes(config.memory_limit) * config.workers_per_job} B",
        "scheduler_options": _dashboard(config.dashboard_address),
        **given,
    }


def kubernetes_keywords(config: KubernetesClusterConfig) -> dict[str, Any]:
    """Keywords of `dask_kubernetes.operator.KubeCluster`."""
    memory = as_bytes(config.memory_limit)
    threads = config.threads_per_worker
    share = {"cpu": str(threads), "memory": str(memory)}
    optional = {"namespace": config.namespace, "name": config.name, "env": config.env}
    return {
        "image": config.image,
        "n_workers": config.n_workers,
        "resources": {"requests": share, "limits": share},
        "worker_command": ["dask", "worker", "--nthreads", str(threads), "--memory-limit", str(memory)],
        "resource_timeout": config.resource_seconds,
        "quiet": True,
        **{name: value for name, value in optional.items() if value is not None},
    }


def ssh_keywords(config: SSHClusterConfig) -> dict[str, Any]:
    """Keywords of `distributed.SSHCluster`; the first host is the scheduler's."""
    worker: dict[str, Any] = {"n_workers": config.workers_per_host, "protocol": config.protocol}
    if config.threads_per_worker is not None:
        worker["nthreads"] = config.threads_per_worker
    if config.memory_limit is not None:
        worker["memory_limit"] = as_bytes(config.memory_limit)
    if config.local_directory is not None:
        worker["local_directory"] = config.local_directory
    return {
        "hosts": [config.scheduler_host or config.hosts[0], *config.hosts],
        "connect_options": dict(config.connect_options or {}),
        "worker_options": worker,
        "scheduler_options": {"protocol": config.protocol, "port": 0, **_dashboard(config.dashboard_address)},
        "remote_python": config.remote_python,
        "silence_logs": "critical",
    }


def _dashboard(address: str | None) -> dict[str, Any]:
    return dict(CLOSED_DASHBOARD) if address is None else {"dashboard_address": address}
