"""The address that a scheduler left in a file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import dask
from dask.utils import parse_timedelta

from dkfeat.errors import ClusterError, ConfigError

__all__ = ["read_address"]

POLL_SECONDS = 0.1


def read_address(path: str | Path) -> str:
    """Read the address of a scheduler that was started with ``dask scheduler --scheduler-file``.

    Where the file is not there yet it is waited for, as long as Dask waits for a connection: scripts start a scheduler
    in the background and go on.

    Raises
    ------
    ClusterError
        The file does not appear.
    ConfigError
        It is no scheduler file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "scheduler.json"
    >>> _ = file.write_text('{"type": "Scheduler", "address": "tcp://10.0.0.1:8786"}')
    >>> read_address(file)
    'tcp://10.0.0.1:8786'
    """
    seconds = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect", "30s"), default="s")
    end = time.monotonic() + seconds
    while not (text := _text(path)):
        if time.monotonic() > end:
            message = (
                f"no scheduler wrote {path} within {seconds:g} s; start one by "
                f"`dask scheduler --scheduler-file {path}`, on a file system that this machine sees"
            )
            raise ClusterError(message)
        time.sleep(POLL_SECONDS)
    if not _holds_address(text):  # perhaps half written
        time.sleep(10 * POLL_SECONDS)
        text = _text(path)
    if not _holds_address(text):
        message = f"{path} is no scheduler file, as `dask scheduler --scheduler-file` writes them: it holds no address"
        raise ConfigError(message)
    return str(json.loads(text)["address"])


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        message = f"the scheduler file {path} cannot be read: {error}"
        raise ConfigError(message) from error


def _holds_address(text: str) -> bool:
    try:
        content = json.loads(text)
    except ValueError:
        return False
    address = content.get("address") if isinstance(content, dict) else None
    return isinstance(address, str) and "://" in address
