"""Checks of this machine and its compiled loops, and of a running cluster."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import dask
import numpy as np
from distributed import Client, wait
from distributed.versions import VersionMismatchWarning
from numba.core import config
from numba.core.dispatcher import Dispatcher

import dkfeat
from dkfeat.doctor import Check
from dkfeat.engine.runners.connect import connect, read_address
from dkfeat.engine.runners.defaults import read_defaults
from dkfeat.errors import ClusterError, DkfeatError
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.messages import counted, show_bytes

EXPECTED = "4b40e6e3c6675fc0a4a1c6e98ee49a0bf6f7925a5929f5f071e697323802a6dd"
"""Result of `digest_of_samples` on every machine."""

ANSWER_SECONDS = 10.0
"""Time that a scheduler may take to answer."""
TASK_SECONDS = 120.0
"""Time that a worker may take for a small task; it may have to compile."""
SHOWN = 3


def check_machine() -> Iterator[Check]:
    """Show versions, compile the loops of GCWS and darts, and compare their results."""
    system = f"{platform.system()} {platform.machine()}"
    yield Check(
        "dkfeat", "ok", f"{dkfeat.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, {system}"
    )
    yield from _loops()


def _loops() -> Iterator[Check]:
    if config.DISABLE_JIT:  # type: ignore[attr-defined]  # numba sets it from the environment
        found = "loops run as plain Python, hundreds of times slower, since NUMBA_DISABLE_JIT is set"
        yield Check("compiled loops", "warn", found, "unset NUMBA_DISABLE_JIT")
        return
    began = time.perf_counter()
    digest = digest_of_samples()
    yield _cache(time.perf_counter() - began)
    if digest == EXPECTED:
        yield Check("same bits", "ok", "this CPU gives the samples that all machines give")
        return
    found = "this CPU gives other samples than other machines do"
    to_do = "do not combine its shards with those of other machines; report this, with the name of the CPU"
    yield Check("same bits", "fail", found, to_do, exit_code=1)


def digest_of_samples() -> str:
    """Digest of the samples of a few rows, whose bits are the same on every machine.

    Returns
    -------
    digest : str
        SHA-256, in hexadecimal, of 64 samples of GCWS and of darts of 4 rows.
    """
    rows = np.array([[0, 1.5, -2, 0, 3e-3], [1, 0, 0, 0, 0], [-1, 2**-20, 5, 7, 1e6], [0, 0, 0, 0, 0]], np.float32)
    maps = GCWSFeatures(64, random_state=7), DartFeatures(64, random_state=7)
    samples = [array for features in maps for array in features.fit(rows).sample(rows)]
    return hashlib.sha256(b"".join(array.astype("<i8").tobytes() for array in samples)).hexdigest()


def _cache(seconds: float) -> Check:
    """Check the cache of compiled loops, after `seconds` in which those of sampling were loaded or compiled."""
    name = "compiled loops"
    if os.environ.get("DKFEAT_JIT_CACHE") == "0":
        found = f"off, since DKFEAT_JIT_CACHE=0: every process compiles its loops, those of sampling in {seconds:.1f} s"
        return Check(name, "warn", found, "unset DKFEAT_JIT_CACHE")
    modules = [module for key, module in sys.modules.items() if key.startswith("dkfeat.compiled.")]
    loops = [loop for module in modules for loop in vars(module).values() if isinstance(loop, Dispatcher)]
    folders = {Path(path) for loop in loops if (path := loop.stats.cache_path)}
    if not folders:
        to_do = "set NUMBA_CACHE_DIR to a folder that can be written, on a disk that all workers of a machine share"
        return Check(name, "warn", "no folder can be written: every process compiles its loops", to_do)
    paths = ", ".join(sorted(map(str, folders)))
    return Check(name, "ok", f"those of sampling were ready in {seconds:.1f} s, cached in {paths}")


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
