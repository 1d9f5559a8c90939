"""SLURM cluster with a check for rejected jobs and its own certificates; imported only to start such a cluster."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask_jobqueue.slurm import SLURMCluster, SLURMJob
from distributed.deploy.spec import ProcessInterface
from distributed.security import Security

from dkfeat.errors import ClusterError

if TYPE_CHECKING:
    from dkfeat.config.execution import SlurmClusterConfig


logger = logging.getLogger(__name__)


class SlurmJob(SLURMJob):
    """SLURM job that records a rejection instead of raising it, so that its cluster can be stopped in order."""

    rejection: str | None = None
    """Message of SLURM if it rejected the job, else None."""

    async def start(self) -> None:
        """Submit the job."""
        try:
            await super().start()
        except (OSError, RuntimeError, ValueError) as error:  # no command, a rejection, output without a job number
            self.rejection = " ".join(str(error).split())
            logger.warning("SLURM rejected the job for worker %s: %s", self.name, self.rejection)
            await ProcessInterface.start(self)

    async def close(self) -> None:
        """Cancel the job."""
        await super().close()
        await ProcessInterface.close(self)


class SlurmCluster(SLURMCluster):
    """SLURM cluster that detects when no worker can start."""

    job_cls = SlurmJob

    def check(self) -> None:
        """Raise `ClusterError` if SLURM rejected every job."""
        jobs = list(self.workers.values())
        rejections = [job.rejection for job in jobs if job.rejection is not None]
        if rejections and len(rejections) == len(jobs):
            raise ClusterError(
                f"SLURM rejected all jobs for {len(jobs)} workers, the first with this message: {rejections[0]}"
            )


def start_slurm(keywords: Mapping[str, Any], config: SlurmClusterConfig, stack: ExitStack) -> SlurmCluster:
    """Start the scheduler in this process and submit the jobs; closing the stack removes their certificates."""
    if not config.encrypt:
        return SlurmCluster(**keywords)
    folder = Path(config.shared_temp_directory or ".").expanduser().absolute()
    security = stack.enter_context(certificates(folder))
    return SlurmCluster(**keywords, security=security, protocol="tls://")


@contextmanager
def certificates(folder: Path) -> Iterator[Security]:
    """Make a certificate for one cluster, in a folder that only this user can read.

    dask-jobqueue can make certificates too, but their files remain until its objects are garbage-collected.
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
