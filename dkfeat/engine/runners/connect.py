"""Connection to the scheduler of a cluster: its address and its answer."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dask
from dask.utils import parse_timedelta
from distributed import Client
from distributed.comm.addressing import parse_address, parse_host_port
from distributed.comm.core import connect as open_comm
from distributed.comm.registry import get_backend
from distributed.security import Security

from dkfeat.config.settings import read_text
from dkfeat.errors import ClusterError, ConfigError
from dkfeat.messages import logger_of

logger = logger_of(__name__)

POLL_SECONDS = 0.1
QUIET_SECONDS = 2.0
"""Seconds after which a wait for a scheduler file is reported."""

_PORTLESS = {"inproc"}


def check_address(address: str) -> None:
    """Check the address of a scheduler, because with an invalid address Dask leaves an incomplete client behind.

    Raises
    ------
    ConfigError
        If it has no protocol that Dask knows, or no port, or holds a user or password, which Dask does not use.

    Examples
    --------
    >>> check_address("tcp://10.0.0.1:8786")
    >>> check_address("tcp://login-node")
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: 'tcp://login-node' is no address of a scheduler: missing port ... 'tcp://10.0.0.1:8786'
    """
    if "@" in address:
        raise ConfigError(
            "the address of a scheduler holds a user or a password, which Dask does not use; give one such as "
            "'tcp://10.0.0.1:8786', and TLS certificates in Dask's configuration"
        )
    try:
        if "://" not in address:
            raise ValueError("it has no protocol")
        protocol, host = parse_address(address, strict=True)
        get_backend(protocol)
        if protocol not in _PORTLESS:
            parse_host_port(host)
    except ValueError as error:
        raise ConfigError(
            f"{address!r} is no address of a scheduler: {error}; give one such as 'tcp://10.0.0.1:8786'"
        ) from error


def check_security(address: str) -> None:
    """Check that an address agrees with Dask's TLS settings.

    Otherwise Dask raises errors of many kinds that name no setting, and leaves an incomplete client.

    Parameters
    ----------
    address : str
        Address of a scheduler, such as "tls://10.0.0.1:8786".

    Raises
    ------
    ConfigError
        If certificates are missing or cannot be read, or Dask requires encryption and the address is not encrypted.
    """
    if dask.config.get("distributed.client.security-loader", None):  # this function makes the settings of each client
        return
    try:
        settings = Security().get_connection_args("client")
    except (OSError, ValueError) as error:  # a file is missing, or is no certificate or key
        raise ConfigError(
            "the certificates that Dask is set to use, distributed.comm.tls.ca-file and "
            f"distributed.comm.tls.client.cert and .key, cannot be loaded: {error}"
        ) from error
    is_tls = address.startswith("tls://")
    if is_tls and settings.get("ssl_context") is None:
        raise ConfigError(
            f"{address} needs certificates: set distributed.comm.tls.ca-file and distributed.comm.tls.client.cert and "
            ".key in Dask's configuration"
        )
    if not is_tls and settings.get("require_encryption"):
        raise ConfigError(f"Dask is set to require encryption, but {address} is not encrypted; give a tls:// address")


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """Connect to a scheduler for the ``with`` block.

    Raises
    ------
    ClusterError
        If it does not respond within Dask's connection timeout, or is not a scheduler.
    ConfigError
        If the address is invalid, or contradicts Dask's TLS settings.
    """
    check_address(address)
    check_security(address)
    seconds = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    try:
        _check_answer(address, seconds)
        client = Client(address, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}: {str(error) or f'no answer within {seconds:g} s'}; start one or "
            "choose another scheduler"
        ) from error
    log = logging.getLogger("distributed.client")
    log.addFilter(_is_no_cancellation)
    try:
        with client:
            yield client
    finally:
        log.removeFilter(_is_no_cancellation)


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Return False for the record with a traceback that Dask logs if a client is closed while it reconnects."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def _check_answer(address: str, seconds: float) -> None:
    """Exchange the first messages with a scheduler, for which the constructor of `Client` waits without limit."""
    if parse_address(address)[0] in _PORTLESS or dask.config.get("distributed.client.security-loader", None):
        return

    async def exchange() -> None:
        comm = await open_comm(address, **Security().get_connection_args("client"))
        comm.abort()

    try:
        with ThreadPoolExecutor(1) as executor:  # this thread may run an event loop, as in a notebook
            executor.submit(asyncio.run, asyncio.wait_for(exchange(), seconds)).result()
    except (MemoryError, ValueError, struct.error) as error:  # bytes of another protocol, read as lengths and values
        raise ClusterError(
            f"the server at {address} is no Dask scheduler; give the scheduler's own port, not that of its dashboard"
        ) from error


def read_address(path: str | Path) -> str:
    """Read the address of a scheduler that was started with ``dask scheduler --scheduler-file``.

    A missing or empty file is waited for, up to Dask's connection timeout, because scripts often start a scheduler in
    the background just before; a warning reports the wait.

    Raises
    ------
    ClusterError
        If the file does not appear.
    ConfigError
        If it cannot be read, or is not a scheduler file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "scheduler.json"
    >>> _ = file.write_text('{"type": "Scheduler", "address": "tcp://10.0.0.1:8786"}')
    >>> read_address(file)
    'tcp://10.0.0.1:8786'
    """
    seconds = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect", "30s"), default="s")
    begin, reported = time.monotonic(), False
    while (address := _address_in(path)) == "":
        waited = time.monotonic() - begin
        if not reported and waited > QUIET_SECONDS:
            reported = True
            logger.warning("waiting for up to %g s for a scheduler to write %s", seconds, path)
        if waited > seconds:
            raise ClusterError(
                f"no scheduler wrote {path} within {seconds:g} s; start one by "
                f"`dask scheduler --scheduler-file {path}`, on a file system that this machine sees"
            )
        time.sleep(POLL_SECONDS)
    if address is None:  # the file may be incomplete
        time.sleep(10 * POLL_SECONDS)
        address = _address_in(path)
    if not address:
        raise ConfigError(
            f"{path} is no scheduler file, as `dask scheduler --scheduler-file` writes them: it holds no address"
        )
    return address


def _address_in(path: str | Path) -> str | None:
    """Read the address in a scheduler file; "" if the file is missing or empty, None if it holds no address."""
    try:
        text = read_text(path, "a scheduler file")
    except ConfigError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return ""
        raise
    if not text:
        return ""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    address = content.get("address") if isinstance(content, dict) else None
    return address if isinstance(address, str) and "://" in address else None
