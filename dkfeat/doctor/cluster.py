"""Checks of a running cluster: its scheduler, its workers, and their versions."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from uuid import uuid4

import dask
from distributed import Client, wait
from distributed.versions import VersionMismatchWarning

import dkfeat
from dkfeat.doctor import Check
from dkfeat.engine.runners.connect import connect
from dkfeat.engine.runners.open import read_address
from dkfeat.errors import ClusterError, DkfeatError
from dkfeat.messages import counted, show_bytes

ANSWER_SECONDS = 10.0
"""Time that a scheduler may take to answer."""
TASK_SECONDS = 120.0
"""Time that a worker may take for a small task; it may have to compile."""
SAME_VERSION = ("dask", "distributed", "numpy", "cloudpickle")
"""Packages that should have the same version in all processes of a cluster."""
SHOWN = 3


def check_cluster(address: str | None, scheduler_file: str | None = None) -> Iterator[Check]:
    """Connect to a scheduler, and run a task on each of its workers.

    Parameters
    ----------
    address : str or None
        Address of the scheduler, such as "tcp://10.0.0.1:8786".
    scheduler_file : str, optional
        File with the address; used if `address` is None.
    """
    try:
        with dask.config.set({"distributed.comm.timeouts.connect": f"{ANSWER_SECONDS:g}s"}):
            if address is None:
                address = read_address(str(scheduler_file))
            # Dask's own warning also covers packages that no run needs
            unwarned = warnings.catch_warnings(action="ignore", category=VersionMismatchWarning)
            with unwarned, connect(address) as client:
                yield _scheduler(client, address)
                yield from _workers(client)
    except DkfeatError as error:
        lost = isinstance(error, ClusterError)
        to_do = (
            "check that it runs at that address, which `dask scheduler` prints, and that this machine can reach it"
            if lost
            else ""
        )
        yield Check("scheduler", "fail", str(error), to_do, exit_code=error.exit_code)


def facts_of_process() -> dict[str, str]:
    """Versions that must be, or should be, the same in all processes of a run."""
    from dkfeat.doctor.loops import digest_of_samples

    return {
        "dkfeat": dkfeat.__version__,
        "samples": digest_of_samples(),
        "python": platform.python_version(),
        **{name: version(name) for name in SAME_VERSION},
    }


def _scheduler(client: Client, address: str) -> Check:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    threads = sum(worker["nthreads"] for worker in workers)
    memory = sum(worker["memory_limit"] or 0 for worker in workers)
    hosts = len({worker["host"] for worker in workers})
    if not workers:
        return Check(
            "scheduler", "warn", f"{address} answers, but has no workers yet", f"start some: dask worker {address}"
        )
    limits = f", {show_bytes(memory)}" if memory else ", no memory limit"
    counts = f"{counted(len(workers), 'worker')} on {counted(hosts, 'host')}, {counted(threads, 'thread')}"
    return Check("scheduler", "ok", f"{address} answers: {counts}{limits}")


def _workers(client: Client) -> Iterator[Check]:
    addresses = list(client.nthreads())
    if not addresses:
        return
    futures = {
        address: client.submit(
            facts_of_process, workers=[address], pure=False, key=f"dkfeat-doctor-{address}-{uuid4().hex}"
        )
        for address in addresses
    }
    with client.as_current(), suppress(TimeoutError):
        wait(list(futures.values()), timeout=TASK_SECONDS)
    here = facts_of_process()
    found: dict[str, Mapping[str, str]] = {}
    problems: list[tuple[str, str]] = []
    for address, future in futures.items():
        if future.status == "finished":
            found[address] = future.result()
        elif future.status == "error":
            error = future.exception()
            to_do = f"install dkfeat {here['dkfeat']} on it" if isinstance(error, ImportError) else "see its log"
            problems.append((f"{address}: {type(error).__name__}: {error}", to_do))
        else:
            future.cancel()
            problems.append(
                (f"{address} has not run a small task within {TASK_SECONDS:g} s", "is it busy? See its log")
            )
    remedies = {"dkfeat": f"install dkfeat {here['dkfeat']} on them", "samples": "leave them out, and report this"}
    for key, to_do in remedies.items():
        others = [f"{address} {facts[key]}" for address, facts in found.items() if facts[key] != here[key]]
        if others:
            problems.append((f"other {key} than here: {_some(others)}", to_do))
    for text, to_do in problems:
        yield Check("workers", "fail", text, to_do, exit_code=ClusterError.exit_code)
    if problems:
        return
    others = [
        f"{address}: {key} {facts[key]}, here {here[key]}"
        for address, facts in found.items()
        for key in ("python", *SAME_VERSION)
        if facts[key] != here[key]
    ]
    if others:
        to_do = "install the same versions for all processes; Dask supports no others"
        yield Check("workers", "warn", _some(others), to_do)
        return
    yield Check(
        "workers",
        "ok",
        "each ran a task: samples and the versions of dkfeat, Python, Dask and NumPy are the same as here",
    )


def _some(texts: list[str]) -> str:
    return "; ".join(texts[:SHOWN]) + (f"; and {len(texts) - SHOWN:,} more" if len(texts) > SHOWN else "")
