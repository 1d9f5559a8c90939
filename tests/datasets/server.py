"""An HTTP server on loopback that keeps files as web servers do, and fails where it is told to."""

from __future__ import annotations

import re
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Kept:
    """A file of the server, and how it is served."""

    content: bytes
    etag: str | None = '"v1"'
    modified: str | None = "Tue, 01 Jan 2019 00:00:00 GMT"
    ranges: bool = True
    says_size: bool = True
    redirect: str | None = None
    status: int | None = None
    cuts: list[int] = field(default_factory=list)
    """After how many bytes of the file each of the next connections ends."""
    gate: threading.Event | None = None
    """What an answer waits for."""
    stalled: threading.Event | None = None
    """Set when the first connection has brought half of the file and says no more until the server ends."""


class FileServer:
    def __init__(self) -> None:
        self.files: dict[str, Kept] = {}
        self.ended = threading.Event()
        self.requests: list[tuple[str, str | None]] = []
        """Path and Range of each request."""

    def __enter__(self) -> FileServer:
        handler = type("Handler", (_Handler,), {"of": self})
        self.server = _Server(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def ranges(self) -> list[str | None]:
        return [asked for _, asked in self.requests]


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Be silent of clients that leave."""


class _Handler(BaseHTTPRequestHandler):
    of: FileServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.of.requests.append((self.path, asked))
        kept = self.of.files.get(self.path.lstrip("/"))
        self.close_connection = True
        if kept is None or kept.status is not None:
            return self.send_error(404 if kept is None else kept.status)
        if kept.gate is not None:
            kept.gate.wait(60)
        if kept.redirect is not None:
            self.send_response(302)
            self.send_header("Location", kept.redirect)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        start, content = 0, kept.content
        if asked is not None and kept.ranges and self.headers.get("If-Range") in (kept.etag, kept.modified):
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(content):
                return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        for name, value in (("ETag", kept.etag), ("Last-Modified", kept.modified)):
            if value is not None:
                self.send_header(name, value)
        if kept.says_size:
            self.send_header("Content-Length", str(len(content) - start))
        self.send_header("Connection", "close")
        self.end_headers()
        end = kept.cuts.pop(0) if kept.cuts else len(content)
        if kept.stalled is not None and not kept.stalled.is_set():
            end = len(content) // 2
        self.wfile.write(content[start:end])
        self.wfile.flush()
        if kept.stalled is not None and not kept.stalled.is_set():
            kept.stalled.set()
            self.of.ended.wait(60)
        if end < len(content):
            self.connection.shutdown(socket.SHUT_RDWR)
        return None

    def log_message(self, *_: object) -> None:
        """Be silent."""
