"""Stores behind URLs: protocols, file systems, retries after transient faults, and secrets left out of messages."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import http.client
import json
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from dkfeat.errors import ConfigError
from dkfeat.messages import counted, logger_of, without_secrets

logger = logger_of(__name__)

Result = TypeVar("Result")

DEFAULT_RETRY_SECONDS = 60.0
"""Default time limit for retries after the first fault of a call, in seconds."""

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
_GRACE_SECONDS, _LEAST_RATE = 60.0, 1_000.0
"""The body of an answer has timed out if it takes longer than this and a second for each so many bytes of it."""
LAST_SECONDS = 5.0
"""Time of a request after the command is interrupted."""
_MOST_UNASKED_BYTES = 1 << 26
"""Most bytes of a body that are read if no range was asked for, such as of a listing."""
# 409: another conditional request on the same key is under way
_TRANSIENT_STATUS = {408, 409, 425, 429, 500, 502, 503, 504}
_TRANSIENT_CODES = {
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
}
# class names, because these libraries are imported only if a store needs them
_TRANSIENT_KINDS = {
    "ClientConnectionError",
    "ClientPayloadError",
    "FlexibleChecksumError",
    "FSTimeoutError",
    "HTTPClientError",
    "IncompleteReadError",
    "ResponseParserError",
    "ResponseStreamingError",
}
_PERMANENT_KINDS = {"SSLError", "ClientSSLError", "ProxyConnectionError", "FileExpired"}
_ERRNOS: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    PermissionError: errno.EACCES,
    TimeoutError: errno.EIO,
}
interrupted = threading.Event()
"""Set by a signal that ends the command: the main thread still retries what it cleans up, other threads do not."""
_listed_size: ContextVar[int | None] = ContextVar("listed_size", default=None)
_thread_state = threading.local()
_jitter = random.SystemRandom()  # leaves the program's own random state unchanged

WEB_PROTOCOLS = ("http", "https")
OWN_OPTIONS = ("retry_seconds", "exclusive_create")
"""Storage options that are dkfeat's own; all others are the fsspec file system's."""

_S3_OPTIONS: dict[str, Any] = {"retries": {"total_max_attempts": 1, "mode": "standard"}}  # only `Retries` retries
_SECRET = re.compile(r"(^|_)(key|secret|token|pass|password|passwd|credentials?|sas|string)($|_)", re.IGNORECASE)
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "FSSPEC_S3_SECRET", "FSSPEC_S3_TOKEN")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
# of `identifying`, whose results stand in records: unlike those of `without_secrets`, these patterns never change
_USER = re.compile(r"://[^/\s]*@")
_STORE = re.compile(
    r"\b(s3a?|gs|gcs|az|abfss?|adl)://(?!arn:)[^/\s]*:\S*", re.IGNORECASE
)  # the secret may contain slashes; a bucket name contains no colon
_QUERY = re.compile(r"(https?://[^?\s]*)\?\S*", re.IGNORECASE)  # as in signed URLs
_MIN_SECRET_LENGTH = 4  # shorter values, such as "s3", also occur in ordinary messages

_CACHES = ("simplecache", "filecache", "blockcache")

_filesystems: dict[str, Any] = {}
_filesystems_lock = threading.Lock()


def is_url(text: str) -> bool:
    """Return True for a URL, also a chained one, and False for a path on this machine."""
    if os.path.isabs(text):  # noqa: PTH117 -- a string test
        return False
    scheme, separator, _ = text.partition("://")
    return (bool(separator) and _SCHEME.fullmatch(scheme) is not None) or "::" in text


def local_path(text: str) -> Path | None:
    """Return the absolute path without links of a path or a ``file://`` URL; None for any other URL.

    Examples
    --------
    >>> local_path("s3://bucket/rows.svm") is None
    True
    """
    path = path_in(text)
    return None if path is None else Path(os.path.realpath(path))  # `resolve` fails at loops of links


def path_in(text: str) -> str | None:
    """Return a path, or the path in a ``file://`` URL, as it is given; None for any other URL.

    Examples
    --------
    >>> path_in("rows.svm"), path_in("file:///data/rows.svm"), path_in("s3://bucket/rows.svm")
    ('rows.svm', '/data/rows.svm', None)
    """
    if "://" not in text or not is_url(text):
        return text
    return text.partition("://")[2] if protocol_of(text) == "file" else None


def protocol_of(url: str) -> str:
    """Return the protocol of a URL; aliases such as s3a are replaced by one name.

    Examples
    --------
    >>> protocol_of("s3a://bucket/rows.svm")
    's3'
    """
    protocol = url.partition("://")[0].lower()
    return {"s3a": "s3", "gcs": "gs", "local": "file"}.get(protocol, protocol)


def identifying(url: str) -> str:
    """Return the part of a URL that identifies a file: users, passwords and queries may change while it does not.

    Examples
    --------
    >>> identifying("ftp://user:secret@host/rows.svm"), identifying("S3://key:sec/ret@bucket/rows.svm")
    ('ftp://host/rows.svm', 'S3://...')
    >>> identifying("https://user:secret@host/rows.svm?X-Amz-Signature=secret")
    'https://host/rows.svm'
    """
    return _QUERY.sub(r"\1", _USER.sub("://", _STORE.sub(r"\1://...", url)))


def holds_credentials(url: str) -> bool:
    """Return True if a URL of an object store has a user or a password before the bucket's name.

    Examples
    --------
    >>> holds_credentials("s3://key:sec/ret@bucket/rows.svm"), holds_credentials("s3://bucket/a@b.svm")
    (True, False)
    """
    bucket = url.partition("://")[2].partition("/")[0]
    kind = protocol_of(url)
    return _STORE.match(url) is not None or (kind in ("s3", "gs", "az") and "@" in bucket)


def hider(options: Mapping[str, Any]) -> Callable[[str], str]:
    """Make a function that removes the secrets in storage options and environment variables from a text."""

    def hide(text: str) -> str:
        variables = [value for name in _SECRET_VARIABLES if (value := os.environ.get(name))]
        for secret in sorted({*_secrets(options), *variables}, key=len, reverse=True):
            text = text.replace(secret, "…")
        return without_secrets(text)

    return hide


def is_secret(name: str) -> bool:
    """Return True if a storage option of this name holds a credential.

    Examples
    --------
    >>> is_secret("aws_secret_access_key"), is_secret("endpoint_url")
    (True, False)
    """
    return _SECRET.search(name) is not None


class Retries:
    """Caller of one store that retries after transient faults.

    Parameters
    ----------
    seconds : float
        Time limit for retries after the first fault of a call, in seconds; the last call may end later.
    where : str
        Name of the store, for messages.
    hide : callable, optional
        Removes secrets from a text. By default the text is unchanged.
    """

    def __init__(self, seconds: float, where: str, hide: Callable[[str], str] = str) -> None:
        self.seconds, self.where = seconds, where
        self._hide = hide

    def call(self, what: str, function: Callable[[], Result]) -> Result:
        """Call a function until it returns, its fault is permanent or the time limit is reached.

        Parameters
        ----------
        what : str
            Description of the call, for messages.
        function : callable
            Function to call. It must be safe to call again, even if it took effect and only its response was lost.

        Raises
        ------
        ConfigError
            If the file system does not know a storage option.
        OSError
            `FileNotFoundError`, `FileExistsError` or `PermissionError` if the fault is of that kind, else an error with
            `errno.EIO`. The text is the store's message without secrets.
        """
        tries, deadline = 0, None
        while True:
            tries += 1
            try:
                result = function()
            except TypeError as fault:  # options are passed on when the file system connects
                if "unexpected keyword argument" not in str(fault):
                    raise
                raise ConfigError(
                    f"{self.where}: a storage option is not known: {self._hide(str(fault))}; correct or remove it"
                ) from None
            except Exception as fault:
                now = time.monotonic()
                deadline = deadline or now + self.seconds
                wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1)) * _jitter.uniform(0.5, 1)
                transient = _is_transient(fault)
                is_useless = interrupted.is_set() and threading.current_thread() is not threading.main_thread()
                if not transient or now + wait > deadline or is_useless:
                    limit = f"; {counted(tries, 'attempt')}, retry limit {self.seconds:g} s"
                    error = self._error(fault, limit if transient else "")
                    logger.debug("%s: %s: %s", self.where, what, type(fault).__name__)
                    is_answer = isinstance(error, FileExistsError | FileNotFoundError)
                    self._log_retries(what, tries, "done" if is_answer else "failed")
                    raise error from None  # the library's own error may hold secrets, and may not be picklable
                text = f"{self._error(fault).strerror}; trying again, for at most {self.seconds:g} s"
                logger.log(logging.WARNING if tries == 3 else logging.INFO, "%s: %s: %s", self.where, what, text)
                _thread_state.count = thread_retries() + 1
                time.sleep(wait)
            else:
                self._log_retries(what, tries, "done")
                return result

    def _log_retries(self, what: str, tries: int, outcome: str) -> None:
        if tries > 1:
            logger.warning("%s: %s: %s after %d retries", self.where, what, outcome, tries - 1)

    def _error(self, fault: Exception, more: str = "") -> OSError:
        """Convert a fault to an `OSError`, of a subclass in `_ERRNOS` if possible; its message has no secrets."""
        status, code = status_of(fault), code_of(fault)
        text = next(filter(None, map(_message, _chain(fault))), type(fault).__name__)
        if status is not None:
            named = "" if code is None or code == str(status) else f" {code}"
            text = f"{status}{named}: {text}"
        if text == "'ContentLength'":  # the error of s3fs
            text = "the store does not send the size (Content-Length); use its own address, without a proxy between"
        kind = next((kind for kind in _ERRNOS if isinstance(fault, kind)), OSError)
        if kind is FileNotFoundError and status not in (None, 404, 410):  # fsspec raises it for any failed look-up
            kind = PermissionError if status in (401, 403) else OSError
        if status == 412:  # "create only if it does not exist" failed
            kind = FileExistsError
        return kind(_ERRNOS.get(kind, errno.EIO), self._hide(text)[:1000] + more)


@contextmanager
def listed_size(size: int) -> Iterator[None]:
    """Compare the answers to all requests of this thread with the size of the file that it reads."""
    token = _listed_size.set(size)
    try:
        yield
    finally:
        _listed_size.reset(token)


def thread_retries() -> int:
    """Count the retries by this thread so far, on any store."""
    return getattr(_thread_state, "count", 0)


def status_of(fault: BaseException) -> int | None:
    """HTTP status that caused a fault; None if the store gave no response."""
    for link in _chain(fault):
        found = _response(link).get("ResponseMetadata", {}).get("HTTPStatusCode")
        for status in (found, getattr(link, "status", None), getattr(link, "status_code", None)):
            if isinstance(status, int):
                return status
    return None


def code_of(fault: BaseException) -> str | None:
    """Error code of the store, such as "NoSuchBucket"; None if it gave none."""
    codes = (_response(link).get("Error", {}).get("Code") for link in _chain(fault))
    return next((str(code) for code in codes if code), None)


def _is_transient(fault: Exception) -> bool:
    """Return True if the same call may succeed later."""
    names = {kind.__name__ for link in _chain(fault) for kind in type(link).__mro__}
    if names & _PERMANENT_KINDS:
        return False
    status = status_of(fault)
    if code_of(fault) in _TRANSIENT_CODES:  # also in a response of status 200
        return True
    if status is not None and status >= 300:
        return status in _TRANSIENT_STATUS
    lost = (ConnectionError, TimeoutError, EOFError, http.client.HTTPException)
    return any(isinstance(link, lost) for link in _chain(fault)) or bool(names & _TRANSIENT_KINDS)


def _response(link: BaseException) -> dict[str, Any]:
    """Return the response in an error of botocore; empty for any other error."""
    response = getattr(link, "response", None)
    return response if isinstance(response, dict) else {}


def _message(link: BaseException) -> str:
    message = _response(link).get("Error", {}).get("Message")
    return str(message) if message else re.sub(r"\s+", " ", str(getattr(link, "strerror", None) or link)).strip()


def _chain(fault: BaseException) -> Iterator[BaseException]:
    """Iterate from a fault to its causes."""
    link: BaseException | None = fault
    for _ in range(8):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def open_retries(url: str, options: Mapping[str, Any]) -> Retries:
    """Make the `Retries` for the store of a URL, with the time limit of the option ``retry_seconds``."""
    seconds = options.get("retry_seconds", DEFAULT_RETRY_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise ConfigError(
            f"storage option retry_seconds={seconds!r:.40}, but it must be a number of seconds, 0 or more"
        )
    return Retries(float(seconds), url, hider(options))


def open_filesystem(url: str, options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it; a process makes one file system for each set of options.

    It caches no listings, and on S3 it does not retry calls, because `Retries` does. For a chained URL it is the one
    that fsspec returns, with fsspec's defaults. Nothing is read or written.

    Parameters
    ----------
    url : str
        URL with a protocol that fsspec supports.
    options : mapping, optional
        Options of fsspec; `OWN_OPTIONS` are ignored.

    Raises
    ------
    ConfigError
        If a package is missing, the options are invalid, the URL of an object store contains credentials, or a chained
        URL does not begin with a cache.
    """
    import fsspec  # late import: local paths do not need it

    given = {key: value for key, value in (options or {}).items() if key not in OWN_OPTIONS}
    hide = hider(given)
    try:
        if "::" in url:
            if protocol_of(url.partition("::")[0]) not in _CACHES:
                raise ConfigError(
                    f"{url} is not supported: files in archives, and other chained URLs, are not read; "
                    f"extract the files and name them. Supported chains begin with a cache ({', '.join(_CACHES)}), "
                    "such as simplecache::https://host/rows.svm"
                )
            return fsspec.core.url_to_fs(url, **given)
        protocol, url = protocol_of(url), url.partition("://")[0].lower() + url[url.index("://") :]
        kind = fsspec.get_filesystem_class(protocol)
        if holds_credentials(url):
            raise ConfigError(f"{url} contains credentials; pass them as storage options or in environment variables")
        path = kind._strip_protocol(url)
        url_settings = kind._get_kwargs_from_urls(url)
        if protocol == "s3":
            settings = {**fsspec.config.conf.get("s3", {}), **given}
            own = {**_S3_OPTIONS, "http_session_cls": _s3_session()}
            given["config_kwargs"] = {**own, **settings.get("config_kwargs", {})}
        if protocol in WEB_PROTOCOLS:
            given = {"get_client": _client, **given}
        return _cached_filesystem(kind, protocol, {"use_listings_cache": False, **url_settings, **given}), path
    except ConfigError:
        raise
    except (ImportError, ValueError, TypeError, KeyError) as fault:
        is_missing = isinstance(fault, ImportError) and url.startswith("s3")
        hint = "; run: pip install s3fs" if is_missing else ""
        raise ConfigError(f"{url} cannot be opened: {hide(str(fault))}{hint}") from None


def _cached_filesystem(kind: Any, protocol: str, settings: dict[str, Any]) -> Any:
    text = json.dumps(settings, sort_keys=True, default=repr)
    key = f"{os.getpid()} {protocol} {hashlib.sha256(text.encode()).hexdigest()}"
    with _filesystems_lock:
        if key not in _filesystems:
            system = kind(skip_instance_cache=True, **settings)
            if protocol == "s3":
                system.retries = 1
            _filesystems[key] = system
        return _filesystems[key]


def _secrets(options: Mapping[str, Any], inside: bool = False) -> Iterator[str]:
    for name, value in options.items():
        secret = inside or is_secret(str(name))
        if isinstance(value, Mapping):
            yield from _secrets(value, secret)
        elif isinstance(value, str) and secret and len(value) >= _MIN_SECRET_LENGTH:
            yield value


async def _client(**options: Any) -> Any:
    """Make a session of aiohttp for fsspec, as its option ``get_client`` does."""
    import aiohttp  # late import: only HTTP sources need it

    timeout = aiohttp.ClientTimeout(total=300, sock_connect=30, sock_read=_GRACE_SECONDS)
    session = aiohttp.ClientSession(**{"timeout": timeout, **options})
    session.trace_configs.append(_trace())
    return session


def _s3_session() -> Any:
    """Make the class of HTTP sessions for aiobotocore, as its option ``http_session_cls``."""
    from aiobotocore.httpsession import AIOHTTPSession  # late import: only S3 needs it

    class Session(AIOHTTPSession):
        async def _get_session(self, proxy_url: Any) -> Any:
            session = await super()._get_session(proxy_url)
            if not session.trace_configs:
                session.trace_configs.append(_trace())
            return session

        async def send(self, request: Any) -> Any:
            sending = asyncio.ensure_future(super().send(request))
            try:
                while not (await asyncio.wait({sending}, timeout=LAST_SECONDS))[0]:
                    if interrupted.is_set():
                        raise ConnectionError(errno.EINTR, "the command was interrupted")
                return sending.result()
            finally:
                sending.cancel()

    return Session


def _trace() -> Any:
    import aiohttp

    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(_check_answer)
    trace.freeze()
    return trace


async def _check_answer(_session: Any, _context: Any, request: Any) -> None:
    """Check the headers of an answer, of which no more is read than was asked for.

    Inside of `listed_size`, an answer with another range, or of a file of another size, cannot be read: fsspec would
    take its bytes for those asked for, or end the file too early.
    """
    size, answer, most = _listed_size.get(), request.response, _MOST_UNASKED_BYTES
    asked, found, expected = request.headers.get("Range", "").removeprefix("bytes="), "", ""
    is_encoded = "Content-Encoding" in answer.headers
    if asked and answer.status == 206:
        first, last = map(int, asked.split("-"))
        most = last + 1 - first
        found, expected = answer.headers.get("Content-Range", "no Content-Range"), f"bytes {asked}/{size}"
        expected = expected if size is not None and found != f"bytes {asked}/*" else found
    elif request.method == "GET" and answer.status == 200 and size is not None and not is_encoded:
        most = size
        found, expected = answer.headers.get("Content-Length", str(size)), str(size)
    error = ""
    if found != expected:
        error = f"the server sent {found} in place of {expected}; if the file has changed since it was listed, run "
        error += "again, else download it and name the copy"
    answer.content = _Body(answer.content, most, error)


class _Body:
    """Stream of the body of an answer, which fails after `most` bytes, if it comes too slowly, or with an `error`."""

    def __init__(self, stream: Any, most: int, error: str) -> None:
        self._stream, self._most, self._error = stream, most, error
        self._n_read, self._start = 0, time.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def read(self, n: int = -1) -> bytes:
        """Read what has arrived, at most `n` bytes; all bytes if `n` is negative."""
        parts = []
        if self._error:
            raise OSError(errno.EIO, self._error)
        while part := await (self._stream.readany() if n < 0 else self._stream.read(n)):
            parts.append(part)
            self._n_read += len(part)
            if self._n_read > self._most:
                raise OSError(errno.EIO, f"the server sent more than the {self._most:,} bytes that were expected")
            seconds = LAST_SECONDS if interrupted.is_set() else _GRACE_SECONDS + self._n_read / _LEAST_RATE
            if time.monotonic() - self._start > seconds:
                raise ConnectionError(errno.EIO, f"the server sent {self._n_read:,} bytes in {seconds:.0f} s")
            if n >= 0:
                break
        return b"".join(parts)
