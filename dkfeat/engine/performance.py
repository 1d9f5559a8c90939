"""Dask's performance report of a run."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dkfeat
from dkfeat.errors import ConfigError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["check_report", "performance_report"]

logger = logging.getLogger(__name__)


def check_report(path: str | PathLike[str]) -> Path:
    """Path of a report that can be made and written.

    Raises
    ------
    ConfigError
        Its folder is not there, it is a folder itself, or bokeh is not installed.
    """
    if not isinstance(path, str | PathLike):
        message = f"performance_report={path!r:.100}, but it must be the path of an HTML file"
        raise ConfigError(message)
    file = Path(fspath(path))
    if file.is_dir() or not file.parent.is_dir():
        problem = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
        message = f"performance_report={str(file)!r}, but {problem}; name an HTML file to write"
        raise ConfigError(message)
    if find_spec("bokeh") is None:
        message = "a performance report needs bokeh, here and where the scheduler runs; pip install 'dkfeat[dashboard]'"
        raise ConfigError(message)
    return file


@contextmanager
def performance_report(client: Client, path: str | PathLike[str]) -> Iterator[None]:
    """Write Dask's report of what a cluster does in the ``with`` block, one HTML file that needs no network.

    Where the report cannot be made, a warning is logged: it is no reason for a run to fail.
    """
    file = check_report(path)
    start = time.time()
    last_count = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.monitor.count)
    client.get_task_stream(start=0, stop=0)  # from now on the scheduler remembers what ran where
    try:
        yield
    finally:
        _write(client, file, start, last_count)


def _write(client: Client, file: Path, start: float, last_count: int) -> None:
    if client.status != "running":  # then something else is told already
        return
    staged = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        scheduler: Any = client.scheduler
        text = client.sync(
            scheduler.performance_report,
            start=start,
            last_count=last_count,
            code=f"dkfeat {dkfeat.__version__}",
            mode="inline",
        )
        staged.write_text(text, encoding="utf-8")
        staged.replace(file)
    except Exception as error:  # the scheduler may lack bokeh, be lost, or the disk be full
        staged.unlink(missing_ok=True)
        logger.warning("the performance report %s could not be made: %s: %s", file, type(error).__name__, error)
