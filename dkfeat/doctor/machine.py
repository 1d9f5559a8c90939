"""What this machine offers to a run: cores, memory, disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import dask
import psutil
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT
from threadpoolctl import threadpool_info

from dkfeat.doctor.check import Check
from dkfeat.wording import show_bytes

__all__ = ["check_machine"]

LEAST_BYTES_A_CORE = 512 << 20
"""What a task of the default block size and its process need, with room to spare."""
LEAST_DISK_BYTES = 1 << 30


def check_machine() -> Iterator[Check]:
    """Look at cores, memory and disk."""
    yield _threads()
    yield _memory()
    yield _disk()


def _threads() -> Check:
    in_all = os.cpu_count() or CPU_COUNT
    limited = f" of {in_all}" if in_all > CPU_COUNT else ""
    pools = sorted({f"{pool['internal_api']} {pool['num_threads']} threads" for pool in threadpool_info()})
    found = f"{CPU_COUNT} cores{limited}; " + (", ".join(pools) or "no threads of libraries")
    if any(pool["num_threads"] > CPU_COUNT for pool in threadpool_info()):
        to_do = f"set OMP_NUM_THREADS={CPU_COUNT}: threads of libraries crowd the cores that this process may use"
        return Check(name="threads", state="warn", found=found, to_do=to_do)
    return Check(name="threads", state="ok", found=found)


def _memory() -> Check:
    free = min(psutil.virtual_memory().available, MEMORY_LIMIT)
    found = f"{show_bytes(free)} free of {show_bytes(MEMORY_LIMIT)}"
    if free < LEAST_BYTES_A_CORE * CPU_COUNT:
        workers = max(1, free // LEAST_BYTES_A_CORE)
        to_do = f"give --n-workers {workers}, or a smaller --blocksize"
        return Check(name="memory", state="warn", found=f"{found}, for {CPU_COUNT} cores", to_do=to_do)
    return Check(name="memory", state="ok", found=found)


def _disk() -> Check:
    """Look at the folder that workers may use for files of their own."""
    folder = dask.config.get("temporary-directory", None) or tempfile.gettempdir()
    to_do = "name a folder on a local disk with room: DASK_TEMPORARY_DIRECTORY=/scratch"
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as fault:
        found = f"{folder} cannot be written: {fault.strerror or fault}"
        return Check(name="temporary files", state="fail", found=found, to_do=to_do, exit_code=3)
    found = f"{show_bytes(free)} free in {folder}"
    if free < LEAST_DISK_BYTES:
        return Check(name="temporary files", state="warn", found=found, to_do=to_do)
    return Check(name="temporary files", state="ok", found=found)
