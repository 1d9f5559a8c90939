"""Workers as SLURM jobs, by dask-jobqueue, with jobs that SLURM refuses told instead of lost."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dask_jobqueue.slurm import SLURMCluster, SLURMJob
from distributed.deploy.spec import ProcessInterface
from distributed.security import Security

from dkfeat.config.cluster import SlurmClusterConfig
from dkfeat.engine.cluster_keywords import slurm_keywords
from dkfeat.errors import ClusterError

__all__ = ["SlurmCluster", "start_slurm"]

logger = logging.getLogger(__name__)


class SlurmJob(SLURMJob):
    """A job that is there although SLURM refused it, so that its cluster can be stopped in order."""

    refusal: str | None = None
    """What SLURM said."""

    async def start(self) -> None:
        """Submit the job."""
        try:
            await super().start()
        except (OSError, RuntimeError, ValueError) as error:  # no command, a refusal, an answer without a number
            self.refusal = " ".join(str(error).split())
            logger.warning("SLURM took no job for worker %s: %s", self.name, self.refusal)
            await ProcessInterface.start(self)

    async def close(self) -> None:
        """Cancel the job."""
        await super().close()
        await ProcessInterface.close(self)


class SlurmCluster(SLURMCluster):
    """A SLURM cluster that knows when no worker can come."""

    job_cls = SlurmJob

    def check(self) -> None:
        """Raise `ClusterError` if SLURM refused every job."""
        jobs = list(self.workers.values())
        refusals = [job.refusal for job in jobs if job.refusal is not None]
        if refusals and len(refusals) == len(jobs):
            message = f"SLURM took none of the jobs for {len(jobs)} workers; of the first it said: {refusals[0]}"
            raise ClusterError(message)


def start_slurm(config: SlurmClusterConfig, stack: ExitStack) -> Any:
    """Start the scheduler here and submit the jobs; the stack keeps what they need until the cluster is stopped."""
    if not config.encrypt:
        return SlurmCluster(**slurm_keywords(config))
    folder = Path(config.shared_temp_directory or ".").expanduser().absolute()
    security = stack.enter_context(certificates(folder))
    return SlurmCluster(**slurm_keywords(config), security=security, protocol="tls://")


@contextmanager
def certificates(folder: Path) -> Iterator[Security]:
    """Make a certificate for one cluster and keep it in a folder that this user alone can read.

    dask-jobqueue can do the same, but leaves the files in place until its objects are collected.
    """
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
