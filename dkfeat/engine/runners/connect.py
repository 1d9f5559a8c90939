"""Connection to the scheduler of a cluster."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import dask
from dask.utils import parse_timedelta
from distributed import Client
from distributed.comm.addressing import parse_address, parse_host_port
from distributed.comm.core import connect as open_comm
from distributed.comm.registry import get_backend
from distributed.security import Security

from dkfeat.errors import ClusterError, ConfigError

_PORTLESS = {"inproc"}


def check_address(address: str) -> None:
    """Check the address of a scheduler, because with an invalid address Dask leaves an incomplete client behind.

    Raises
    ------
    ConfigError
        If it has no protocol that Dask knows, or no port.

    Examples
    --------
    >>> check_address("tcp://10.0.0.1:8786")
    >>> check_address("tcp://login-node")
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: 'tcp://login-node' is no address of a scheduler: missing port ... 'tcp://10.0.0.1:8786'
    """
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
    _check_answer(address)
    try:
        client = Client(address, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}: {error}; start one or choose another scheduler"
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


def _check_answer(address: str) -> None:
    """Exchange the first messages with a scheduler, for which the constructor of `Client` waits without limit."""
    if parse_address(address)[0] in _PORTLESS or dask.config.get("distributed.client.security-loader", None):
        return
    seconds = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))

    async def exchange() -> None:
        comm = await open_comm(address, **Security().get_connection_args("client"))
        comm.abort()

    try:
        with ThreadPoolExecutor(1) as executor:  # this thread may run an event loop, as in a notebook
            executor.submit(asyncio.run, asyncio.wait_for(exchange(), seconds)).result()
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}: {str(error) or f'no answer within {seconds:g} s'}; start one or "
            "choose another scheduler"
        ) from error
    except (MemoryError, ValueError, struct.error) as error:  # bytes of another protocol, read as lengths and values
        raise ClusterError(
            f"the server at {address} is no Dask scheduler; give the scheduler's own port, not that of its dashboard"
        ) from error
