"""Checks of installed versions, of cores, memory and disk, and of settings."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version

import dask
import psutil
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT
from packaging.requirements import Requirement
from threadpoolctl import threadpool_info

import dkfeat
from dkfeat.config.execution import DefaultsConfig
from dkfeat.doctor import Check
from dkfeat.engine.clusters.open import as_cluster
from dkfeat.engine.resolve.defaults import origins, read_defaults
from dkfeat.errors import ConfigError, cause_of
from dkfeat.messages import show_bytes

DISTRIBUTION = "dkfeat"
FOR_DEVELOPERS = {"test", "lint", "bench", "docs"}
"""Extras that no run needs."""
NOTED = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow", "dask", "distributed", "fsspec")
"""Packages whose versions are shown, because results or reports of faults may depend on them."""


def check_installation() -> Iterator[Check]:
    """Check Python, the packages that every run needs, and the extras."""
    system = f"{platform.system()} {platform.machine()}"
    yield Check("dkfeat", "ok", f"{dkfeat.__version__}, Python {platform.python_version()}, {system}")
    try:
        wanted = [Requirement(text) for text in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        yield Check(
            "packages",
            "warn",
            "dkfeat is not installed, only found on Python's path: its requirements are not known",
            "in a clone of its repository: pip install .",
        )
        return
    yield _packages([need for need in wanted if need.marker is None or need.marker.evaluate({"extra": ""})])
    yield _extras(wanted)


def _packages(wanted: list[Requirement]) -> Check:
    problems = {f"'{need}'": problem for need in wanted if (problem := _problem(need))}
    if problems:
        to_do = f"{sys.executable} -m pip install --upgrade {' '.join(problems)}"
        return Check("packages", "fail", "; ".join(problems.values()), to_do, exit_code=2)
    return Check("packages", "ok", ", ".join(f"{name} {version(name)}" for name in NOTED))


def _extras(wanted: list[Requirement]) -> Check:
    optional = [(need, need.marker) for need in wanted if need.marker and not need.marker.evaluate({"extra": ""})]
    problems: dict[str, list[str]] = {
        extra: [_problem(need) for need, marker in optional if marker.evaluate({"extra": extra})]
        for extra in metadata(DISTRIBUTION).get_all("Provides-Extra") or ()
        if extra not in FOR_DEVELOPERS
    }
    here = [extra for extra, found in problems.items() if not any(found)]
    missing = [extra for extra in problems if extra not in here]
    old = [
        f"{problem} (extra {extra})"
        for extra in missing
        for problem in problems[extra]
        if problem and "not installed" not in problem
    ]
    found = f"installed: {', '.join(here) or 'none'}"
    if missing:
        found += f"; not installed: {', '.join(missing)}"
    if old:
        return Check("extras", "warn", "; ".join(old), "upgrade them, or do not use these extras")
    return Check("extras", "ok", found, "if you need them: pip install 'dkfeat[NAME]'" if missing else "")


def _problem(need: Requirement) -> str:
    """Describe what is wrong with a required package; empty if nothing is."""
    try:
        found = version(need.name)
    except PackageNotFoundError:
        return f"{need.name} is not installed"
    return "" if need.specifier.contains(found, prereleases=True) else f"{need.name} {found} is not {need.specifier}"


LEAST_BYTES_A_CORE = 512 << 20
"""Memory that a task of the default block size and its process need, with a margin."""
LEAST_DISK_BYTES = 1 << 30


def check_machine() -> Iterator[Check]:
    """Check cores, memory and disk."""
    yield _threads()
    yield _memory()
    yield _disk()


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


NAME = "settings"


def check_settings() -> Iterator[Check]:
    """Check the keys under ``dkfeat`` of Dask's configuration, and the cluster file that they name."""
    try:
        defaults = read_defaults()
        if defaults.cluster is not None:
            as_cluster(defaults.cluster)
    except ConfigError as error:
        to_do = "correct it there; `dkfeat config show` lists the files that are read"
        yield Check(NAME, "fail", str(error), to_do, exit_code=error.exit_code)
        return
    found = origins()
    listed = [
        f"{key} {value}" + (f" by {found[key]}" if key in found else "")
        for name, value in defaults.to_mapping().items()
        if value is not None and (key := name.replace("_", "-"))
    ]
    yield Check(NAME, "ok", "; ".join(listed) or "no defaults are set")


def default_scheduler() -> tuple[str | None, str | None]:
    """Return the default scheduler's address and file; None for each that is not set."""
    try:
        defaults = read_defaults()
    except ConfigError:  # `check_settings` reports it
        defaults = DefaultsConfig()
    address = defaults.scheduler
    return (address if address and "://" in address else None), defaults.scheduler_file
