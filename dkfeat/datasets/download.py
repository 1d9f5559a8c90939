"""Download of a file over HTTP, which resumes a partial one of the same version."""

from __future__ import annotations

import errno
import http.client
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dkfeat.errors import SourceError, cause_of
from dkfeat.filesystems.urls import Retries
from dkfeat.messages import logger_of, without_secrets
from dkfeat.store.manifest.model_folder import LocalFolder

logger = logger_of(__name__)


VARIABLE = "DKFEAT_CACHE"
SILENT_SECONDS = 20.0
"""Timeout for a response or data of the server."""
PAUSE_SECONDS = 0.2
"""Pause after a connection without data."""
CHUNK_BYTES = 256 << 10


class Download:
    """Download of a file into `part`, which a later one with the same `part` resumes, also in another process.

    A partial file is resumed only if the rest is of the same version, by a strong ETag or the modification time. Only
    one download into a file may run at a time.

    Parameters
    ----------
    url : str
        Address with HTTP or HTTPS; proxies are those of the environment.
    part : Path
        File to write. Its version is in a file of this name with ``.json`` appended: url, etag, modified and size, None
        for those that the server does not state.
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
        return self._part.stat().st_size if self._part.exists() else 0

    def run(self, retries: Retries) -> dict[str, Any]:
        """Download the whole file and return its version.

        It reconnects as long as connections return data; connections without data are limited by `retries`.

        Raises
        ------
        OSError
            For errors of the network or the server, with their message.
        SourceError
            If `part` cannot be written.
        """
        progressed = time.monotonic()
        while not (version := self._version()) or self.bytes_received != version["size"]:
            there = self.bytes_received
            with retries.call("fetch", self._request) as response:
                try:
                    fault = self._save(response)
                except OSError as failed:  # of the file: errors of the network are returned
                    raise SourceError(
                        f"{self._part} cannot be written: {cause_of(failed)}; free disk space, or set {VARIABLE} to "
                        "another folder that is writable"
                    ) from failed
            if fault is None:
                break
            if self.bytes_received > there:
                progressed = time.monotonic()
                logger.info("%s: %s; resuming", self._url, fault)
            elif time.monotonic() - progressed > retries.seconds:
                raise fault
            else:
                time.sleep(PAUSE_SECONDS)
        return self._version()

    def forget(self) -> None:
        """Remove the partial file."""
        self._part.unlink(missing_ok=True)
        self._version_path.unlink(missing_ok=True)

    def _request(self) -> Any:
        """Request the missing part, or the whole file if the partial one cannot be used."""
        headers = {"User-Agent": "dkfeat", "Accept-Encoding": "identity"}
        version, there = self._version(), self.bytes_received
        if there and (condition := version.get("etag") or version.get("modified")):
            headers |= {"Range": f"bytes={there}-", "If-Range": condition}
        request = urllib.request.Request(self._url, headers=headers)
        try:
            response = urllib.request.build_opener(_Redirects).open(request, timeout=SILENT_SECONDS)
        except urllib.error.HTTPError as fault:
            self.has_response = True
            fault.close()
            if fault.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and there:
                self.forget()  # the file on the server is shorter now
                return self._request()
            fault.strerror = str(fault.reason)
            raise
        except urllib.error.URLError as fault:
            raise (fault.reason if isinstance(fault.reason, OSError) else fault) from None
        self.has_response = True
        return response

    def _save(self, response: Any) -> Exception | None:
        """Write the received data; return the error that interrupted it, if any."""
        there, version = self.bytes_received, self._version()
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            self.forget()  # the whole file: it has changed, or the server does not support ranges
            there, version = 0, _version_of(self._url, response)
            LocalFolder(str(self._part.parent)).replace(self._version_path.name, json.dumps(version).encode())
        elif not version or not _continues(response, there, version):
            self.forget()
            return ConnectionError("the file on the server has changed since its download began")
        size, free = version["size"], shutil.disk_usage(self._part.parent).free
        if (size or 0) - there > free:
            raise OSError(errno.ENOSPC, f"needs {size - there:,} more bytes, but {free:,} are free there")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC  # the name can be guessed
        with os.fdopen(os.open(self._part, flags, 0o666), "ab") as file:
            while True:
                if self._report is not None:
                    self._report(there, size)
                # read1 returns the bytes received so far: a slow connection shows progress, and a kill loses little
                try:
                    chunk = response.read1(CHUNK_BYTES)
                except (OSError, http.client.HTTPException) as broken:
                    return broken
                if not chunk:
                    break
                file.write(chunk)
                there += len(chunk)
            file.flush()
            os.fsync(file.fileno())
        if there < (size or 0):
            return ConnectionError(f"the connection ended after {there:,} of {size:,} bytes")
        return None

    def _version(self) -> dict[str, Any]:
        """Return the version of the partial file; empty if it is unknown, or that of another address."""
        try:
            version = json.loads(self._version_path.read_bytes())
        except (OSError, ValueError):  # missing or truncated
            return {}
        return version if isinstance(version, dict) and version.get("url") == self._url else {}


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects only to HTTP and HTTPS, and from HTTPS only to HTTPS."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        allowed = ("https://",) if req.full_url.startswith("https://") else ("http://", "https://")
        if not newurl.startswith(allowed):
            msg = f"redirects to {without_secrets(newurl)[:200]}, which is not an {' or '.join(allowed)} URL"
            raise urllib.error.HTTPError(req.full_url, code, msg, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _version_of(url: str, response: Any) -> dict[str, Any]:
    etag, length = response.headers.get("ETag", ""), response.headers.get("Content-Length", "")
    return {
        "url": url,
        "etag": None if etag.startswith("W/") else etag or None,  # only a strong one changes with the bytes
        "modified": response.headers.get("Last-Modified"),
        "size": int(length) if length.isdecimal() else None,
    }


def _continues(response: Any, there: int, version: dict[str, Any]) -> bool:
    """Return True if a partial response begins at the end of the partial file, and has the same version."""
    place, _, size = response.headers.get("Content-Range", "").partition("/")
    etag = response.headers.get("ETag")
    return (
        place.startswith(f"bytes {there}-")
        and size == str(version.get("size") or size)
        and (etag is None or version.get("etag") in (None, etag))
    )
