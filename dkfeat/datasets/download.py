"""One file over HTTP, gone on with where a broken connection or an earlier process left it."""

from __future__ import annotations

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

from dkfeat.datasets.cache import VARIABLE, create_whole
from dkfeat.errors import SourceError
from dkfeat.io.remote import shown_url
from dkfeat.io.retries import Retries

__all__ = ["Download"]

logger = logging.getLogger(__name__)

CHUNK_BYTES = 256 << 10
SILENT_SECONDS = 20.0
"""How long the other side may say nothing."""
PAUSE_SECONDS = 0.2
"""Between two connections of which the first brought nothing."""
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class _Answer(OSError):
    """The server answered, but not with the file."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """Which bytes a partial file is the beginning of."""

    url: str
    etag: str | None = None
    """A strong one: the same bytes as long as it is the same."""
    modified: str | None = None
    """When it was changed, as the server writes that."""
    size: int | None = None
    """Its bytes."""

    @property
    def condition(self) -> str | None:
        """What a request for the rest asks to be still the same; None: only the whole can be asked for."""
        return self.etag or self.modified


class Download:
    """Brings a file into `part`; the same again, in another process too, goes on with what is there.

    What is there is gone on with only if the server says that the rest is of the same version, by a strong ETag or the
    time of change. One writer at a time.

    Parameters
    ----------
    url : str
        By HTTP or HTTPS; proxies are those of the environment.
    part : Path
        The file to write. Beside it, ``.json`` appended to its name, stands which version it is of.
    report : callable, optional
        Gets the bytes that are there and, where the server tells it, how many there will be.
    """

    def __init__(self, url: str, part: Path, report: Callable[[int, int | None], None] | None = None) -> None:
        self._url, self._part, self._report = url, part, report
        self.has_answer = False
        """Whether the server said anything at all."""
        self._note = part.with_name(f"{part.name}.json")

    @property
    def bytes_there(self) -> int:
        """Bytes that were brought so far, by this and by earlier processes."""
        with suppress(FileNotFoundError):
            return self._part.stat().st_size
        return 0

    def run(self, retries: Retries) -> dict[str, Any]:
        """Bring the whole file.

        Connections are made anew as long as they bring something, and for as long as `retries` says where they do not.

        Returns
        -------
        version : dict
            What the server said of it: url, etag, modified, size; None for what it did not say.

        Raises
        ------
        OSError
            With what the network or the server said.
        SourceError
            If `part` cannot be written.
        """
        progressed = time.monotonic()
        while (version := self._version()) is None or self.bytes_there != version.size:
            there = self.bytes_there
            with retries.call("fetch", self._ask) as response, self._writing():
                fault = self._keep(response)
            if fault is None:
                break
            if self.bytes_there > there:
                progressed = time.monotonic()
                logger.info("%s: %s; going on", shown_url(self._url), fault)
            elif time.monotonic() - progressed > retries.seconds:
                raise fault
            else:
                time.sleep(PAUSE_SECONDS)
        return asdict(self._version() or _Version(url=self._url))

    def forget(self) -> None:
        """Remove what is there of the file."""
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def _ask(self) -> Any:
        """Ask for what is missing, or for all of it where what is there is of no use."""
        headers = {"User-Agent": "dkfeat", "Accept-Encoding": "identity"}
        version, there = self._version(), self.bytes_there
        if version is not None and version.condition is not None and there:
            headers |= {"Range": f"bytes={there}-", "If-Range": version.condition}
        request = urllib.request.Request(self._url, headers=headers)
        try:
            response = urllib.request.build_opener(_Redirects).open(request, timeout=SILENT_SECONDS)
        except urllib.error.HTTPError as fault:
            self.has_answer = True
            fault.close()
            if fault.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not there:
                raise _Answer(fault.code, str(fault.reason)) from None
            self.forget()  # it is shorter now
            return self._ask()
        except urllib.error.URLError as fault:
            raise (fault.reason if isinstance(fault.reason, OSError) else fault) from None
        self.has_answer = True
        return response

    def _keep(self, response: Any) -> Exception | None:
        """Write what comes; returns why there is not all of it yet."""
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            version, there = self._version(), self.bytes_there
            if version is None or not _goes_on(response, there, version):
                self.forget()
                return ConnectionError("the file has changed since it was begun")
        else:  # all of it: the file has changed, or the server does not give parts
            self.forget()
            version, there = _version_of(self._url, response), 0
            create_whole(self._note, json.dumps(asdict(version)).encode())
        self._check_room((version.size or 0) - there)
        fault: Exception | None = None
        with self._part.open("ab") as file:
            while True:
                if self._report is not None:
                    self._report(there, version.size)
                try:  # what has come already: a slow line shows progress, and a kill loses little
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
            found = json.loads(self._note.read_bytes())
            version = _Version(**found)
        except (OSError, ValueError, TypeError):  # there is none, or it was cut or changed
            return None
        return version if version.url == self._url else None

    def _check_room(self, left: int) -> None:
        free = shutil.disk_usage(self._part.parent).free
        if left > free:
            message = (
                f"{self._part} needs {left:,} more bytes, but {free:,} are free there; make room, or name another "
                f"folder by the variable {VARIABLE}"
            )
            raise SourceError(message)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except SourceError:
            raise
        except OSError as fault:  # those of the network are dealt with inside
            message = (
                f"{self._part} cannot be written: {fault.strerror or fault}; make room, or name another folder that "
                f"can be written by the variable {VARIABLE}"
            )
            raise SourceError(message) from fault


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows HTTP and HTTPS alone, and from HTTPS no step back."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        allowed = ("https://",) if req.full_url.startswith("https://") else ("http://", "https://")
        if not newurl.startswith(allowed):
            fp.close()
            raise _Answer(code, f"leads to {shown_url(newurl)[:200]}, which is no {' or '.join(allowed)} address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _version_of(url: str, response: Any) -> _Version:
    etag, length = response.headers.get("ETag"), response.headers.get("Content-Length")
    return _Version(
        url=url,
        etag=etag if etag and not etag.startswith("W/") else None,
        modified=response.headers.get("Last-Modified"),
        size=int(length) if length and length.isdecimal() else None,
    )


def _goes_on(response: Any, there: int, version: _Version) -> bool:
    """Whether a partial answer begins where we stopped, and is of the same version."""
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    etag = response.headers.get("ETag")
    return (
        found is not None
        and int(found[1]) == there
        and int(found[2]) == (version.size or int(found[2]))
        and (etag is None or version.etag in (None, etag))
    )
