"""Download of a file into a locked cache folder, resumed after a broken connection or an earlier process."""

from __future__ import annotations

import errno
import fcntl
import http.client
import json
import logging
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dkfeat.errors import SourceError, cause_of
from dkfeat.filesystems.urls import Retries, shown_url

logger = logging.getLogger(__name__)

VARIABLE = "DKFEAT_CACHE"
_LOCK = ".lock"
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
CHUNK_BYTES = 256 << 10
SILENT_SECONDS = 20.0
"""Timeout for a response or data of the server."""
PAUSE_SECONDS = 0.2
"""Pause after a connection without data."""
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


def cache_folder() -> Path:
    """Return the folder for downloads; it need not exist yet.

    Returns
    -------
    folder : Path
        ``$DKFEAT_CACHE`` if that is set, else ``dkfeat`` in ``$XDG_CACHE_HOME``, else ``~/.cache/dkfeat``. A relative
        ``$XDG_CACHE_HOME`` is ignored, as its specification requires.

    Examples
    --------
    >>> import os
    >>> os.environ["DKFEAT_CACHE"] = "/data/cache"
    >>> str(cache_folder())
    '/data/cache'
    >>> del os.environ["DKFEAT_CACHE"]
    """
    if own := os.environ.get(VARIABLE):
        return Path(own).expanduser().absolute()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "dkfeat"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder and lock it for writing in the ``with`` block, after waiting for any other writer.

    An existing folder without write permission needs no lock: a site may share data sets with all its users.

    Raises
    ------
    SourceError
        If the folder cannot be made, or its file system has no locks.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as fault:
        if fault.errno in _READ_ONLY and folder.is_dir():
            yield
            return
        raise _unusable(folder, fault) from fault
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.warning("%s: another process is fetching into this folder; waiting for it", folder)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as fault:
            raise _unusable(folder, fault) from fault
        yield
    finally:
        os.close(descriptor)  # releases the lock, as does the end of the process


def create_whole(path: Path, data: bytes) -> None:
    """Write a file atomically, replacing any file of that name."""
    temporary = path.with_name(f"{path.name}.tmp")  # no other writer: see `locked`
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _unusable(folder: Path, fault: OSError) -> SourceError:
    return SourceError(
        f"{folder} cannot be used for fetched data sets: {cause_of(fault)}; set {VARIABLE}, or `folder` "
        "for this call, to a folder on a local disk"
    )


class _ResponseError(OSError):
    """Error for a response of the server that does not contain the file."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """Version of the file to which a partial file belongs."""

    url: str
    etag: str | None = None
    """Strong ETag, which changes with the bytes."""
    modified: str | None = None
    """Header Last-Modified, as text."""
    size: int | None = None
    """Size in bytes."""

    @property
    def condition(self) -> str | None:
        """Value of If-Range in a request for the rest; None if only the whole file can be requested."""
        return self.etag or self.modified


class Download:
    """Download of a file into `part`.

    If it is interrupted, a later `Download` with the same `part` resumes it, also in another process.

    A partial file is resumed only if the rest is of the same version, by a strong ETag or the modification time. Only
    one download into a file may run at a time.

    Parameters
    ----------
    url : str
        Address with HTTP or HTTPS; proxies are those of the environment.
    part : Path
        File to write. Its version is in a file of this name with ``.json`` appended.
    report : callable, optional
        Called with the number of bytes received and, if the server sends it, the size of the file.
    """

    def __init__(self, url: str, part: Path, report: Callable[[int, int | None], None] | None = None) -> None:
        self._url, self._part, self._report = url, part, report
        self.has_response = False
        """True if the server has sent any response."""
        self._version_path = part.with_name(f"{part.name}.json")

    @property
    def bytes_received(self) -> int:
        """Size of the partial file."""
        with suppress(FileNotFoundError):
            return self._part.stat().st_size
        return 0

    def run(self, retries: Retries) -> dict[str, Any]:
        """Download the whole file.

        It reconnects as long as connections return data; connections without data are limited by `retries`.

        Returns
        -------
        version : dict
            Headers of the response: url, etag, modified, size; None for missing ones.

        Raises
        ------
        OSError
            For errors of the network or the server, with their message.
        SourceError
            If `part` cannot be written.
        """
        progressed = time.monotonic()
        while (version := self._version()) is None or self.bytes_received != version.size:
            there = self.bytes_received
            with retries.call("fetch", self._request) as response, self._writing():
                fault = self._save(response)
            if fault is None:
                break
            if self.bytes_received > there:
                progressed = time.monotonic()
                logger.info("%s: %s; resuming", shown_url(self._url), fault)
            elif time.monotonic() - progressed > retries.seconds:
                raise fault
            else:
                time.sleep(PAUSE_SECONDS)
        return asdict(self._version() or _Version(url=self._url))

    def forget(self) -> None:
        """Remove the partial file."""
        self._part.unlink(missing_ok=True)
        self._version_path.unlink(missing_ok=True)

    def _request(self) -> Any:
        """Request the missing part, or the whole file if the partial one cannot be used."""
        headers = {"User-Agent": "dkfeat", "Accept-Encoding": "identity"}
        version, there = self._version(), self.bytes_received
        if version is not None and version.condition is not None and there:
            headers |= {"Range": f"bytes={there}-", "If-Range": version.condition}
        request = urllib.request.Request(self._url, headers=headers)
        try:
            response = urllib.request.build_opener(_Redirects).open(request, timeout=SILENT_SECONDS)
        except urllib.error.HTTPError as fault:
            self.has_response = True
            fault.close()
            if fault.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not there:
                raise _ResponseError(fault.code, str(fault.reason)) from None
            self.forget()  # the file on the server is shorter now
            return self._request()
        except urllib.error.URLError as fault:
            raise (fault.reason if isinstance(fault.reason, OSError) else fault) from None
        self.has_response = True
        return response

    def _save(self, response: Any) -> Exception | None:
        """Write the received data; return the error that interrupted it, if any."""
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            version, there = self._version(), self.bytes_received
            if version is None or not _continues(response, there, version):
                self.forget()
                return ConnectionError("the file on the server has changed since its download began")
        else:  # the whole file: it has changed, or the server does not support ranges
            self.forget()
            version, there = _version_of(self._url, response), 0
            create_whole(self._version_path, json.dumps(asdict(version)).encode())
        self._check_free_space((version.size or 0) - there)
        fault: Exception | None = None
        with self._part.open("ab") as file:
            while True:
                if self._report is not None:
                    self._report(there, version.size)
                # read1 returns the bytes received so far: a slow connection shows progress, and a kill loses little
                try:
                    chunk = response.read1(CHUNK_BYTES)
                except (OSError, http.client.HTTPException) as broken:
                    fault = broken
                    break
                if not chunk:
                    break
                file.write(chunk)
                there += len(chunk)
            file.flush()
            os.fsync(file.fileno())
        if fault is None and version.size is not None and there < version.size:
            fault = ConnectionError(f"the connection ended after {there:,} of {version.size:,} bytes")
        return fault

    def _version(self) -> _Version | None:
        try:
            found = json.loads(self._version_path.read_bytes())
            version = _Version(**found)
        except (OSError, ValueError, TypeError):  # missing, truncated or changed
            return None
        return version if version.url == self._url else None

    def _check_free_space(self, left: int) -> None:
        free = shutil.disk_usage(self._part.parent).free
        if left > free:
            raise SourceError(
                f"{self._part} needs {left:,} more bytes, but {free:,} are free there; free disk space, or set "
                f"{VARIABLE} to another folder"
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except SourceError:
            raise
        except OSError as fault:  # of the file: `_save` handles errors of the network
            raise SourceError(
                f"{self._part} cannot be written: {cause_of(fault)}; free disk space, or set {VARIABLE} to "
                "another folder that is writable"
            ) from fault


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects only to HTTP and HTTPS, and from HTTPS only to HTTPS."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        allowed = ("https://",) if req.full_url.startswith("https://") else ("http://", "https://")
        if not newurl.startswith(allowed):
            fp.close()
            raise _ResponseError(
                code, f"redirects to {shown_url(newurl)[:200]}, which is not an {' or '.join(allowed)} URL"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _version_of(url: str, response: Any) -> _Version:
    etag, length = response.headers.get("ETag"), response.headers.get("Content-Length")
    return _Version(
        url=url,
        etag=etag if etag and not etag.startswith("W/") else None,
        modified=response.headers.get("Last-Modified"),
        size=int(length) if length and length.isdecimal() else None,
    )


def _continues(response: Any, there: int, version: _Version) -> bool:
    """Return True if a partial response begins at the end of the partial file, and has the same version."""
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    etag = response.headers.get("ETag")
    return (
        found is not None
        and int(found[1]) == there
        and int(found[2]) == (version.size or int(found[2]))
        and (etag is None or version.etag in (None, etag))
    )
