"""The versions that are installed, and whether they are those that dkfeat asks for."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

import dkfeat
from dkfeat.doctor.check import Check

__all__ = ["check_installation"]

DISTRIBUTION = "dkfeat"
FOR_DEVELOPERS = {"test", "lint", "bench", "docs"}
"""Extras that no run needs."""
NOTED = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow", "dask", "distributed", "fsspec")
"""Packages whose version is told: results may depend on them, or reports of faults."""


def check_installation() -> Iterator[Check]:
    """Look at Python, at the packages that every run needs, and at the extras."""
    system = f"{platform.system()} {platform.machine()}"
    yield Check(name="dkfeat", state="ok", found=f"{dkfeat.__version__}, Python {platform.python_version()}, {system}")
    try:
        wanted = [Requirement(text) for text in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        yield Check(
            name="packages",
            state="warn",
            found="dkfeat is not installed, only found on Python's path: what it needs is not known",
            to_do="in a clone of its repository: pip install .",
        )
        return
    yield _packages([need for need in wanted if need.marker is None or need.marker.evaluate({"extra": ""})])
    yield _extras(wanted)


def _packages(wanted: list[Requirement]) -> Check:
    problems = [text for need in wanted if (text := _problem(need))]
    if problems:
        to_do = f"{sys.executable} -m pip install --upgrade " + " ".join(
            f"'{need}'" for need in wanted if _problem(need)
        )
        return Check(name="packages", state="fail", found="; ".join(problems), to_do=to_do, exit_code=2)
    told = ", ".join(f"{name} {version(name)}" for name in NOTED)
    return Check(name="packages", state="ok", found=told)


def _extras(wanted: list[Requirement]) -> Check:
    extras: dict[str, list[str]] = {}
    old = []
    for need in wanted:
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            continue
        for extra in _names_of_extras(wanted):
            if need.marker.evaluate({"extra": extra}):
                problem = _problem(need)
                extras.setdefault(extra, []).extend([problem] if problem else [])
                if problem and "not installed" not in problem:
                    old.append(f"{problem} (extra {extra})")
    here = [extra for extra, problems in extras.items() if not problems]
    missing = [extra for extra, problems in extras.items() if problems]
    found = f"installed: {', '.join(here) or 'none'}"
    if missing:
        found += f"; not installed: {', '.join(missing)}"
    if old:
        return Check(
            name="extras", state="warn", found="; ".join(old), to_do="upgrade them, or do without what they do"
        )
    to_do = "as you need them: pip install 'dkfeat[NAME]'" if missing else ""
    return Check(name="extras", state="ok", found=found, to_do=to_do)


def _names_of_extras(wanted: list[Requirement]) -> list[str]:
    found = dict.fromkeys(
        name for need in wanted for name in re.findall(r"extra == [\"']([^\"']+)[\"']", str(need.marker or ""))
    )
    return [name for name in found if name not in FOR_DEVELOPERS]


def _problem(need: Requirement) -> str:
    """Say what is wrong with a package that is asked for; empty if nothing is."""
    try:
        found = version(need.name)
    except PackageNotFoundError:
        return f"{need.name} is not installed"
    return "" if need.specifier.contains(found, prereleases=True) else f"{need.name} {found} is not {need.specifier}"
