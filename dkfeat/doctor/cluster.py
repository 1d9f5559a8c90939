"""Checks of a running cluster: its scheduler, its workers, and their versions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import dask
from distributed import Client, wait
from distributed.versions import VersionMismatchWarning

from dkfeat.doctor import Check
from dkfeat.doctor.machine import EXPECTED, digest_of_samples
from dkfeat.engine.runners.connect import connect
from dkfeat.engine.runners.defaults import read_defaults
from dkfeat.engine.runners.open import read_address
from dkfeat.errors import ClusterError, DkfeatError
from dkfeat.messages import counted, show_bytes

ANSWER_SECONDS = 10.0
"""Time that a scheduler may take to answer."""
TASK_SECONDS = 120.0
"""Time that a worker may take for a small task; it may have to compile."""
SHOWN = 3


def check_cluster(address: str | None = None, scheduler_file: str | None = None) -> Iterator[Check]:
    """Connect to a scheduler, and run a task on each of its workers.

    Parameters
    ----------
    address : str, optional
        Address of the scheduler, such as "tcp://10.0.0.1:8786".
    scheduler_file : str, optional
        File with the address; used if `address` is None. Without both, the defaults of Dask's configuration; no check
        if there are none.
    """
    try:
        if address is None and scheduler_file is None:
            defaults = read_defaults()
            scheduler_file = defaults.scheduler_file
            address = defaults.scheduler if "://" in (defaults.scheduler or "") else None
            if address is None and scheduler_file is None:
                return
        with dask.config.set({"distributed.comm.timeouts.connect": f"{ANSWER_SECONDS:g}s"}):
            address = address or read_address(str(scheduler_file))
            unwarned = warnings.catch_warnings(action="ignore", category=VersionMismatchWarning)  # see `_workers`
            with unwarned, connect(address) as client:
                yield _scheduler(client, address)
                yield from _workers(client)
    except DkfeatError as error:
        lost = "check that it runs at that address, which `dask scheduler` prints, and that this machine can reach it"
        yield Check(
            "scheduler", "fail", str(error), lost if isinstance(error, ClusterError) else "", exit_code=error.exit_code
        )


def _scheduler(client: Client, address: str) -> Check:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if not workers:
        to_do = f"start some: dask worker {address}"
        return Check("scheduler", "warn", f"{address} answers, but has no workers yet", to_do)
    threads = sum(worker["nthreads"] for worker in workers)
    memory = sum(worker["memory_limit"] or 0 for worker in workers)
    hosts = len({worker["host"] for worker in workers})
    limits = f", {show_bytes(memory)}" if memory else ", no memory limit"
    counts = f"{counted(len(workers), 'worker')} on {counted(hosts, 'host')}, {counted(threads, 'thread')}"
    return Check("scheduler", "ok", f"{address} answers: {counts}{limits}")


def _workers(client: Client) -> Iterator[Check]:
    addresses = list(client.nthreads())
    if not addresses:
        return
    with warnings.catch_warnings(record=True, action="always") as caught:
        client.get_versions(check=True, packages=["dkfeat"])
    futures = {
        address: client.submit(digest_of_samples, workers=[address], pure=False, key=f"dkfeat-doctor-{uuid4().hex}")
        for address in addresses
    }
    with client.as_current(), suppress(TimeoutError):
        wait(list(futures.values()), timeout=TASK_SECONDS)
    problems = []
    for address, future in futures.items():
        if future.status == "error":
            problems.append(f"{address}: {type(error := future.exception()).__name__}: {error}")
        elif future.status != "finished":
            future.cancel()
            problems.append(f"{address} has not run a small task within {TASK_SECONDS:g} s")
        elif future.result() != EXPECTED:
            problems.append(f"{address} gives other samples than other machines do")
    if problems:
        found = "; ".join(problems[:SHOWN]) + (f"; and {len(problems) - SHOWN:,} more" if len(problems) > SHOWN else "")
        to_do = "leave these workers out; see their logs, and whether the same dkfeat is installed there"
        yield Check("workers", "fail", found, to_do, exit_code=ClusterError.exit_code)
    elif caught:
        to_do = "install the same versions for all processes; Dask supports no others"
        yield Check("workers", "warn", str(caught[0].message), to_do)
    else:
        yield Check(
            "workers", "ok", "each ran a task: samples, and the versions that Dask compares, are the same as here"
        )
