"""Checks of this machine: versions, threads, memory, disk, and compiled loops with the bits that all machines give."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import psutil
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT
from numba.core import config
from numba.core.dispatcher import Dispatcher
from threadpoolctl import threadpool_info

import dkfeat
from dkfeat.doctor import Check
from dkfeat.errors import cause_of
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.messages import show_bytes

EXPECTED = "4b40e6e3c6675fc0a4a1c6e98ee49a0bf6f7925a5929f5f071e697323802a6dd"
"""Result of `digest_of_samples` on every machine."""
LEAST_BYTES_A_CORE = 512 << 20
"""Memory that a task of the default block size and its process need, with a margin."""
LEAST_DISK_BYTES = 1 << 30


def check_machine() -> Iterator[Check]:
    """Check cores, memory and disk, compile the loops of GCWS and darts, and compare their results."""
    system = f"{platform.system()} {platform.machine()}"
    yield Check(
        "dkfeat", "ok", f"{dkfeat.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, {system}"
    )
    yield _threads()
    yield _memory()
    yield _disk()
    yield from _loops()


def _threads() -> Check:
    in_all = os.cpu_count() or CPU_COUNT
    limited = f" of {in_all}" if in_all > CPU_COUNT else ""
    pools = sorted({f"{pool['internal_api']} {pool['num_threads']} threads" for pool in threadpool_info()})
    found = f"{CPU_COUNT} cores{limited}; " + (", ".join(pools) or "no threads of libraries")
    if any(pool["num_threads"] > CPU_COUNT for pool in threadpool_info()):
        to_do = f"set OMP_NUM_THREADS={CPU_COUNT}: libraries start more threads than this process has cores"
        return Check("threads", "warn", found, to_do)
    return Check("threads", "ok", found)


def _memory() -> Check:
    free = min(psutil.virtual_memory().available, MEMORY_LIMIT)
    found = f"{show_bytes(free)} free of {show_bytes(MEMORY_LIMIT)}"
    if free < LEAST_BYTES_A_CORE * CPU_COUNT:
        workers = max(1, free // LEAST_BYTES_A_CORE)
        to_do = f"give --n-workers {workers}, or a smaller --blocksize"
        return Check("memory", "warn", f"{found}, for {CPU_COUNT} cores", to_do)
    return Check("memory", "ok", found)


def _disk() -> Check:
    """Check the folder for temporary files of workers."""
    folder = dask.config.get("temporary-directory", None) or tempfile.gettempdir()
    to_do = "name a folder on a local disk with free space: DASK_TEMPORARY_DIRECTORY=/scratch"
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as fault:
        found = f"{folder} cannot be written: {cause_of(fault)}"
        return Check("temporary files", "fail", found, to_do, exit_code=3)
    found = f"{show_bytes(free)} free in {folder}"
    if free < LEAST_DISK_BYTES:
        return Check("temporary files", "warn", found, to_do)
    return Check("temporary files", "ok", found)


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
