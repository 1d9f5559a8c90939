"""URLs of stores: protocols, opening of file systems, and secrets left out of messages."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dkfeat.errors import ConfigError
from dkfeat.io.storage.retries import DEFAULT_RETRY_SECONDS, Retries

OWN_OPTIONS = ("retry_seconds", "exclusive_create")
"""Storage options that are dkfeat's own; all others are the fsspec file system's."""

_S3_OPTIONS: dict[str, Any] = {"retries": {"total_max_attempts": 1, "mode": "standard"}}  # the repeating is ours
_SECRET = re.compile(r"(^|_)(key|secret|token|pass|password|passwd|credentials?|sas|string)($|_)", re.IGNORECASE)
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "FSSPEC_S3_SECRET", "FSSPEC_S3_TOKEN")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_USER = re.compile(r"://[^/@\s]*@")
_STORE = re.compile(
    r"\b(s3a?|gs|gcs|az|abfss?|adl)://(?!arn:)[^/\s]*:\S*"
)  # a secret may hold slashes, a bucket no colon
_QUERY = re.compile(r"(https?://[^?\s]*\?)\S+")  # as in signed URLs
_FEWEST_SECRET = 4  # shorter values are words such as "s3" that texts need

_systems: dict[str, Any] = {}
_opening = threading.Lock()


def is_url(text: str) -> bool:
    """Tell URLs, chained ones too, from paths of this machine."""
    if os.path.isabs(text):  # noqa: PTH117 -- a string test
        return False
    scheme, separator, _ = text.partition("://")
    return (bool(separator) and _SCHEME.fullmatch(scheme) is not None) or "::" in text


def protocol_of(url: str) -> str:
    """Protocol of a URL, one name for those that mean the same.

    Examples
    --------
    >>> protocol_of("s3a://bucket/rows.svm")
    's3'
    """
    protocol = url.partition("://")[0].lower()
    return {"s3a": "s3", "gcs": "gs", "local": "file"}.get(protocol, protocol)


def shown_url(text: str) -> str:
    """Leave out what may be secret in a text with URLs: names, passwords and signatures.

    Examples
    --------
    >>> shown_url("ftp://user:secret@host/rows.svm"), shown_url("s3://key:sec/ret@bucket/rows.svm")
    ('ftp://host/rows.svm', 's3://...')
    """
    return _QUERY.sub(r"\1...", _USER.sub("://", _STORE.sub(r"\1://...", text)))


def holds_credentials(url: str) -> bool:
    """Tell if a URL of an object store has a user or a password where the bucket's name belongs.

    Examples
    --------
    >>> holds_credentials("s3://key:sec/ret@bucket/rows.svm"), holds_credentials("s3://bucket/a@b.svm")
    (True, False)
    """
    bucket = url.partition("://")[2].partition("/")[0]
    kind = protocol_of(url)
    return _STORE.match(url) is not None or (kind in ("s3", "gs", "az") and "@" in bucket)


def printable(text: str) -> str:
    r"""Make a name fit for messages: control characters escaped, what may be secret in a URL left out.

    Examples
    --------
    >>> print(printable("red \x1b[31m"), printable("ftp://user:secret@host/rows.svm"))
    red \x1b[31m ftp://host/rows.svm
    """
    text = shown_url(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def hider(options: Mapping[str, Any]) -> Callable[[str], str]:
    """Make a function that leaves the secrets among storage options, and those of the environment, out of a text."""

    def hide(text: str) -> str:
        variables = [value for name in _SECRET_VARIABLES if (value := os.environ.get(name))]
        for secret in sorted({*_secrets(options), *variables}, key=len, reverse=True):
            text = text.replace(secret, "…")
        return shown_url(text)

    return hide


def is_secret(name: str) -> bool:
    """Tell if a storage option of this name holds a credential.

    Examples
    --------
    >>> is_secret("aws_secret_access_key"), is_secret("endpoint_url")
    (True, False)
    """
    return _SECRET.search(name) is not None


def open_retries(url: str, options: Mapping[str, Any]) -> Retries:
    """Retries for calls on the store of a URL, as the option ``retry_seconds`` bounds them."""
    seconds = options.get("retry_seconds", DEFAULT_RETRY_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise ConfigError(
            f"storage option retry_seconds={seconds!r:.40}, but it must be a number of seconds, 0 or more"
        )
    return Retries(float(seconds), shown_url(url), hider(options))


def open_filesystem(url: str, options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """File system of a URL, one for each set of options in a process, and the path in it.

    It caches no listings, and on S3 it does not repeat calls: `Retries` does. Nothing is read or written.

    Parameters
    ----------
    url : str
        Its protocol is one that fsspec knows.
    options : mapping, optional
        For fsspec; `OWN_OPTIONS` are left out.

    Raises
    ------
    ConfigError
        If the package for it is missing, the options do not fit, or the URL of an object store holds credentials.
    """
    import fsspec  # late: local paths do without it

    given = {key: value for key, value in (options or {}).items() if key not in OWN_OPTIONS}
    hide = hider(given)
    try:
        if "::" in url:
            return fsspec.core.url_to_fs(url, **given)
        protocol = protocol_of(url)
        kind = fsspec.get_filesystem_class(protocol)
        if holds_credentials(url):
            raise ConfigError(
                f"{shown_url(url)} is given with credentials in it; pass them as storage options or by the environment"
            )
        path = kind._strip_protocol(url)
        of_url = kind._get_kwargs_from_urls(url)
        if protocol == "s3":
            known = {**fsspec.config.conf.get("s3", {}), **given}
            given["config_kwargs"] = {**_S3_OPTIONS, **known.get("config_kwargs", {})}
        settings = {"use_listings_cache": False, **of_url, **given}
        return _opened(kind, protocol, settings), path
    except ConfigError:
        raise
    except ImportError as fault:
        hint = "; it comes with `pip install 'dkfeat[s3]'`" if url.startswith(("s3", "s3a")) else ""
        raise ConfigError(f"{shown_url(url)} cannot be opened: {hide(str(fault))}{hint}") from None
    except (ValueError, TypeError, KeyError) as fault:
        raise ConfigError(f"{shown_url(url)} cannot be opened: {hide(str(fault))}") from None


def _opened(kind: Any, protocol: str, settings: dict[str, Any]) -> Any:
    text = json.dumps(settings, sort_keys=True, default=repr)
    key = f"{os.getpid()} {protocol} {hashlib.sha256(text.encode()).hexdigest()}"
    with _opening:
        if key not in _systems:
            system = kind(skip_instance_cache=True, **settings)
            if protocol == "s3":
                system.retries = 1
            _systems[key] = system
        return _systems[key]


def _secrets(options: Mapping[str, Any], inside: bool = False) -> Iterator[str]:
    for name, value in options.items():
        secret = inside or is_secret(str(name))
        if isinstance(value, Mapping):
            yield from _secrets(value, secret)
        elif isinstance(value, str) and secret and len(value) >= _FEWEST_SECRET:
            yield value
