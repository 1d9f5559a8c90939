"""Whether this process can talk to a scheduler at all, told before a connection is tried."""

from __future__ import annotations

import dask
from distributed.comm.addressing import parse_address, parse_host_port
from distributed.comm.registry import get_backend
from distributed.security import Security

from dkfeat.errors import ConfigError

__all__ = ["check_address", "check_security"]

_PORTLESS = {"inproc"}


def check_address(address: str) -> None:
    """Refuse what is no address of a scheduler; Dask would leave a client behind that is half made.

    Raises
    ------
    ConfigError
        It has no protocol that Dask knows, or no port.

    Examples
    --------
    >>> check_address("tcp://10.0.0.1:8786")
    >>> check_address("tcp://login-node")
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: 'tcp://login-node' is no address of a scheduler: missing port ... 'tcp://10.0.0.1:8786'
    """
    try:
        if "://" not in address:
            reason = "it has no protocol"
            raise ValueError(reason)
        protocol, place = parse_address(address, strict=True)
        get_backend(protocol)
        if protocol not in _PORTLESS:
            parse_host_port(place)
    except ValueError as error:
        message = f"{address!r} is no address of a scheduler: {error}; give one such as 'tcp://10.0.0.1:8786'"
        raise ConfigError(message) from error


def check_security(address: str) -> None:
    """Refuse an address that Dask's TLS settings do not go with.

    Without this, Dask would raise errors of many kinds, leave a client behind that is half made, and name no setting.

    Parameters
    ----------
    address : str
        Of a scheduler, such as "tls://10.0.0.1:8786".

    Raises
    ------
    ConfigError
        Certificates are missing or cannot be read, or the address is not encrypted where Dask is set to insist on it.
    """
    if dask.config.get("distributed.client.security-loader", None):  # it decides, whenever a client is made
        return
    try:
        settings = Security().get_connection_args("client")
    except (OSError, ValueError) as error:  # a file is missing, or is no certificate or key
        message = (
            "the certificates that Dask is set to use, distributed.comm.tls.ca-file and "
            f"distributed.comm.tls.client.cert and .key, cannot be loaded: {error}"
        )
        raise ConfigError(message) from error
    is_tls = address.startswith("tls://")
    if is_tls and settings.get("ssl_context") is None:
        message = (
            f"{address} needs certificates: set distributed.comm.tls.ca-file and distributed.comm.tls.client.cert and "
            ".key in Dask's configuration"
        )
        raise ConfigError(message)
    if not is_tls and settings.get("require_encryption"):
        message = f"Dask is set to require encryption, but {address} is not encrypted; give a tls:// address"
        raise ConfigError(message)
