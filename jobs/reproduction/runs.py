"""Runs of experiments, with the files in ``OUT/NAME/``: the result, and pictures with their numbers."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .experiment import Context, Experiment, Mode, Results
from .pages.figures import DARK, LIGHT, draw
from .parts import Parts, Workers, write_whole

__all__ = ["kept_results", "run_experiment"]

RESULT = "result.json"
_PACKAGES = ("dkfeat", "numpy", "scipy", "scikit-learn", "numba")


def run_experiment(
    experiment: Experiment,
    *,
    data: Path,
    out: Path,
    mode: Mode,
    seed: int,
    workers: Workers,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Run an experiment, or the remaining parts of an interrupted run, and write its results.

    Parameters
    ----------
    experiment : Experiment
    data : Path
        Folder of data sets; sets that it lacks are not measured.
    out : Path
        Folder of all results; made if missing.
    mode : {"quick", "full"}
    seed : int
    workers : Workers
    tell : callable
        Function that receives a short text after each step.

    Returns
    -------
    result : dict
        Content of ``result.json``.
    """
    parts = Parts(out / "parts" / experiment.name, workers)
    results = experiment.run(Context(data=data, mode=mode, seed=seed, parts=parts, tell=tell))
    folder = out / experiment.name
    for picture in results.pictures:
        tell(f"drawing {picture.name}")
        for style in (LIGHT, DARK):
            write_whole(folder / f"{picture.name}-{style.name}.png", draw(picture, style))
        numbers = {"title": picture.title, "mode": mode, "seed": seed, **picture.data}
        write_whole(folder / f"{picture.name}.json", json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    result = _described(experiment, results, mode=mode, seed=seed, seconds=parts.seconds, processes=workers.number)
    write_whole(folder / RESULT, json.dumps(result, indent=1, allow_nan=False) + "\n")
    _clear(folder, [picture.name for picture in results.pictures])
    return result


def kept_results(out: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the results in a folder, in the order of `names`; missing ones are left out."""
    files = [out / name / RESULT for name in names]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]


def _described(
    experiment: Experiment, results: Results, *, mode: Mode, seed: int, seconds: float, processes: int
) -> dict[str, Any]:
    return {
        "name": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "split_note": experiment.split_note,
        "differences": list(experiment.differences),
        "mode": mode,
        "seed": seed,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": _machine(),
        "versions": {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        "processor_seconds": round(seconds, 1),
        "processes": processes,
        "tables": [asdict(table) for table in results.tables],
        "pictures": [_picture_entry(asdict(picture)) for picture in results.pictures],
        "verdicts": [asdict(verdict) for verdict in results.verdicts],
    }


def _picture_entry(picture: Mapping[str, Any]) -> dict[str, Any]:
    return {key: picture[key] for key in ("name", "title", "alt", "width", "height")}


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{_processor()}, {cores} cores, {memory:.0f} GiB, {platform.system()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _clear(folder: Path, pictures: Sequence[str]) -> None:
    """Remove pictures that an earlier run drew and this one did not."""
    kept = {RESULT, *(f"{name}{end}" for name in pictures for end in (".json", "-light.png", "-dark.png"))}
    for file in folder.iterdir():
        if file.name not in kept and file.suffix in (".json", ".png"):
            file.unlink()
