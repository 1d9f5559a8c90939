"""A web server on loopback for tests: files in memory, byte ranges, and the headers and faults that a test asks for."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest


@dataclass
class Kept:
    """A file of the server, and how it is served."""

    content: bytes
    redirect: str | None = None
    status: int | None = None
    cuts: list[int] = field(default_factory=list)
    """After how many bytes of the file each of the next connections ends."""


@dataclass
class WebServer:
    files: dict[str, Any] = field(default_factory=dict)
    """A file, or its content, by path."""
    headers: dict[str, str | None] = field(default_factory=dict)
    """Headers of each response beside those of length and range; None: leave this header out."""
    missing: int = 404
    """Status of the answers for other paths."""
    faults: list[int] = field(default_factory=list)
    """Statuses of the next answers, whatever they are asked for."""
    hidden_bytes: int = 0
    """Bytes by which the length in answers to HEAD is too small."""
    shift: int = 0
    """Bytes by which ranges begin too late."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and query, and range, of each request."""

    def __enter__(self) -> WebServer:
        self.server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"of": self}))
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def url(self, path: str, query: str = "", user: str = "") -> str:
        return f"http://{user}{'@' * bool(user)}{self.address[7:]}{path}{'?' * bool(query)}{query}"


def web_server(files: dict[str, bytes], **headers: str | None) -> WebServer:
    """A server for sources; an underscore in the name of a header is a hyphen."""
    pytest.importorskip("aiohttp", reason="fsspec reads http:// URLs through aiohttp")
    return WebServer(files, {name.replace("_", "-"): value for name, value in headers.items()})


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Be silent of clients that leave."""


class _Handler(BaseHTTPRequestHandler):
    of: WebServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        web, asked = self.of, self.headers.get("Range")
        web.requests.append((self.path, asked))
        self.close_connection = True
        kept = web.files.get(urlsplit(self.path).path)
        kept = Kept(kept) if isinstance(kept, bytes) else kept
        if web.faults or kept is None or kept.status is not None:
            return self.send_error(web.faults.pop() if web.faults else web.missing if kept is None else kept.status)
        if kept.redirect is not None:
            return self._answer(302, {"Location": kept.redirect, "Content-Length": "0"})
        content, status, first, last = kept.content, 200, 0, len(kept.content) - 1
        if asked is not None:
            low, _, high = asked.removeprefix("bytes=").partition("-")
            if int(low) > last:
                return self.send_error(416)
            status, first, last = 206, min(int(low) + web.shift, last), min(int(high or last) + web.shift, last)
        hidden = web.hidden_bytes * (self.command == "HEAD")
        place = {"Content-Range": f"bytes {first}-{last}/{len(content)}" if status == 206 else None}
        length = {"Content-Length": str(last + 1 - first - hidden), "Accept-Ranges": "bytes"}
        self._answer(status, length | place | web.headers)
        if self.command == "GET":
            self._send(kept, content[first : last + 1], first)
        return None

    do_HEAD = do_GET

    def _answer(self, status: int, headers: dict[str, str | None]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Connection": "close"}.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()

    def _send(self, kept: Kept, content: bytes, first: int) -> None:
        end = kept.cuts.pop(0) - first if kept.cuts else len(content)
        self.wfile.write(content[: max(end, 0)])
        self.wfile.flush()
        if end < len(content):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Be silent."""
