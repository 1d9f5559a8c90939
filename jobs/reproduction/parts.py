"""Parts of an experiment, written as JSON as soon as they are computed, and the processes that compute them."""

from __future__ import annotations

import hashlib
import importlib
import json
import multiprocessing
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dkfeat.errors import ConfigError
from dkfeat.store.manifest.model_folder import LocalFolder

__all__ = ["Parts", "Workers", "check_data", "write_whole"]

_KEY = re.compile(r"[\w.-]+", re.ASCII)
FORMAT = 2
"""Number to increase when parts of earlier versions of these scripts must not be read."""


class Workers(AbstractContextManager["Workers"]):
    """Pool of processes, started by the first task; none if `number` is 1."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._pool: ProcessPoolExecutor | None = None

    def pool(self) -> ProcessPoolExecutor:
        """Return the pool of processes, each with one thread for linear algebra."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.number, mp_context=context, initializer=_init_worker)
        return self._pool

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is None:
            return
        self._pool.shutdown(wait=False, cancel_futures=True)
        if kind is not None:  # after an error the results of running tasks are not needed
            for child in multiprocessing.active_children():
                child.kill()


class Parts:
    """Values of one experiment by key and settings, each a file in a folder."""

    def __init__(self, folder: Path, workers: Workers) -> None:
        self.folder = folder
        self.workers = workers
        self.seconds = 0.0
        """Processor time of the parts requested so far, computed in this run or in earlier ones."""

    def cached(self, key: str, compute: Callable[[], Any], settings: Mapping[str, Any]) -> Any:
        """See `Context.cached`."""
        file = self._file(key, settings)
        found = _load(file)
        if found is None:
            found = _write(file, settings, *_timed(compute, (), {}))
        return self._value(found)

    def cached_all(
        self,
        compute: Callable[..., Any],
        tasks: Mapping[str, Mapping[str, Any]],
        others: Sequence[Any],
        tell: Callable[[str], None],
    ) -> dict[str, Any]:
        """See `Context.cached_all`."""
        files = {key: self._file(key, task) for key, task in tasks.items()}
        found = {key: _load(file) for key, file in files.items()}
        missing = [key for key in tasks if found[key] is None]

        def keep(key: str, value: Any, seconds: float) -> None:
            found[key] = _write(files[key], tasks[key], value, seconds)
            done = sum(each is not None for each in found.values())
            tell(f"{key} ({done} of {len(tasks)}, {seconds:.1f} s)")

        if self.workers.number == 1:
            for key in missing:
                keep(key, *_timed(compute, others, tasks[key]))
        elif missing:
            pool = self.workers.pool()
            running = {pool.submit(_timed, compute, others, tasks[key]): key for key in missing}
            for done in as_completed(running):
                keep(running[done], *done.result())
        return {key: self._value(each) for key, each in found.items()}

    def _file(self, key: str, settings: Mapping[str, Any]) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"the key {key!r} of a part is the name of a file: take letters, digits, '-', '_' and '.'")
        text = _plain({"format": FORMAT, **settings})
        return self.folder / f"{key}-{hashlib.sha256(text.encode()).hexdigest()[:10]}.json"

    def _value(self, found: Mapping[str, Any] | None) -> Any:
        assert found is not None
        self.seconds += found["seconds"]
        return found["value"]


def check_data(data: Path, folder: Path) -> None:
    """Check that the data sets are those of the parts in a folder, and keep checksums of new ones beside them.

    Raises
    ------
    ConfigError
        If a file of a set has changed since parts were computed.
    """
    record = folder / "data.json"
    kept: dict[str, str] = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    found = {
        str(file.relative_to(data)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(data.glob("*/*.svm.xz"))
    }
    changed = [name for name, checksum in found.items() if kept.get(name, checksum) != checksum]
    if changed:
        raise ConfigError(
            f"{data / changed[0]} is not the file from which parts in {folder} were computed; give another --out"
        )
    write_whole(record, json.dumps({**kept, **found}, indent=1) + "\n")


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file atomically: completely, or not at all."""
    LocalFolder(str(file.parent)).replace(file.name, content if isinstance(content, bytes) else content.encode())


def _init_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends this one
    importlib.import_module("scipy.linalg")  # has threads of its own, and only loaded libraries are limited
    threadpool_limits(1)


def _timed(compute: Callable[..., Any], others: Sequence[Any], task: Mapping[str, Any]) -> tuple[Any, float]:
    began = time.process_time()
    value = compute(*others, **task)
    return value, time.process_time() - began


def _load(file: Path) -> dict[str, Any] | None:
    """Read a part; None if it is missing or damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and {"value", "seconds"} <= found.keys() else None


def _write(file: Path, settings: Mapping[str, Any], value: Any, seconds: float) -> dict[str, Any]:
    text = _plain({"settings": settings, "seconds": round(seconds, 3), "value": value})
    write_whole(file, text + "\n")
    kept: dict[str, Any] = json.loads(text)
    return kept


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False, default=_of_numpy)


def _of_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a value of {type(value).__name__} is not JSON: give numbers, strings, lists and dicts")
