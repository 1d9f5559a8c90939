"""Download of a file over HTTP, which resumes a partial one of the same version."""

from __future__ import annotations

import errno
import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.utils import formatdate, mktime_tz, parsedate_tz
from pathlib import Path
from typing import Any

from dkfeat.errors import SourceError, cause_of
from dkfeat.filesystems.urls import Retries
from dkfeat.messages import logger_of, without_secrets

logger = logger_of(__name__)


VARIABLE = "DKFEAT_CACHE"
SILENT_SECONDS = 20.0
"""Timeout for a response or data of the server."""
PAUSE_SECONDS = 0.2
"""Pause after a connection without data."""
CHUNK_BYTES = 256 << 10


def download(url: str, part: Path, seconds: float, report: Callable[[int, int | None], None] | None = None) -> None:
    """Download a file into `part`, after the bytes that it has of the same version, also of another process.

    The version is the time of modification that the server states; `part` gets the same. Only one download into a file
    may run at a time. It reconnects as long as connections return data.

    Parameters
    ----------
    url : str
        Address with HTTP or HTTPS; proxies are those of the environment.
    part : Path
        File to write.
    seconds : float
        Time limit for connections without data.
    report : callable, optional
        Called with the number of bytes received and, if the server sends it, the size of the file.

    Raises
    ------
    OSError
        For errors of the network or the server, with their message.
    SourceError
        If `part` cannot be written.
    """
    retries, progressed = Retries(seconds, url), time.monotonic()
    while True:
        there = bytes_received(part)
        with retries.call("fetch", lambda: _request(url, part)) as response:
            try:
                fault = _save(response, part, report)
            except OSError as failed:  # of the file: errors of the network are returned
                raise SourceError(
                    f"{part} cannot be written: {cause_of(failed)}; free disk space, or set {VARIABLE} to another "
                    "folder that is writable"
                ) from failed
        if fault is None:
            return
        if bytes_received(part) > there:
            progressed = time.monotonic()
            logger.info("%s: %s; resuming", url, fault)
        elif time.monotonic() - progressed > seconds:
            raise fault
        else:
            time.sleep(PAUSE_SECONDS)


def bytes_received(part: Path) -> int:
    """Size of a partial file; 0 if there is none."""
    return part.stat().st_size if part.exists() else 0


def _request(url: str, part: Path) -> Any:
    """Request the missing part, or the whole file if it has changed since."""
    headers = {"User-Agent": "dkfeat", "Accept-Encoding": "identity"}
    there = bytes_received(part)
    if there:
        headers |= {"Range": f"bytes={there}-", "If-Range": formatdate(part.stat().st_mtime, usegmt=True)}
    request = urllib.request.Request(url, headers=headers)
    try:
        return urllib.request.build_opener(_Redirects).open(request, timeout=SILENT_SECONDS)
    except urllib.error.HTTPError as fault:
        fault.close()
        if fault.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and there:
            part.unlink()  # it is not a part of the file on the server
            return _request(url, part)
        fault.strerror = str(fault.reason)
        raise
    except urllib.error.URLError as fault:
        raise (fault.reason if isinstance(fault.reason, OSError) else fault) from None


def _save(response: Any, part: Path, report: Callable[[int, int | None], None] | None) -> Exception | None:
    """Write the received data; return the error that interrupted it, if any."""
    is_rest = response.status == http.HTTPStatus.PARTIAL_CONTENT
    there = bytes_received(part) if is_rest else 0
    size = None if response.length is None else there + response.length
    modified = parsedate_tz(response.headers.get("Last-Modified", ""))
    free = shutil.disk_usage(part.parent).free
    if (size or 0) - there > free:
        raise OSError(errno.ENOSPC, f"needs {response.length:,} more bytes, but {free:,} are free there")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC  # the name can be guessed
    flags |= os.O_APPEND if is_rest else os.O_TRUNC
    with os.fdopen(os.open(part, flags, 0o666), "wb") as file:
        while True:
            if report is not None:
                report(there, size)
            # read1 returns the bytes received so far: a slow connection shows progress, and a kill loses little
            try:
                chunk = response.read1(CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as broken:
                return broken
            if not chunk:
                break
            file.write(chunk)
            file.flush()
            if modified is not None:
                os.utime(file.fileno(), (mktime_tz(modified),) * 2)
            there += len(chunk)
        os.fsync(file.fileno())
    if there < (size or 0):
        return ConnectionError(f"the connection ended after {there:,} of {size:,} bytes")
    return None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects only to HTTP and HTTPS, and from HTTPS only to HTTPS."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        allowed = ("https://",) if req.full_url.startswith("https://") else ("http://", "https://")
        if not newurl.startswith(allowed):
            msg = f"redirects to {without_secrets(newurl)[:200]}, which is not an {' or '.join(allowed)} URL"
            raise urllib.error.HTTPError(req.full_url, code, msg, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
