"""A web server for tests: files in memory, byte ranges, and only the headers that a test asks for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest


@dataclass
class WebServer:
    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    """Content by path, without query."""
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
    requests: list[str] = field(default_factory=list)
    """Path and query of each request."""

    def url(self, path: str, query: str = "", user: str = "") -> str:
        return f"http://{user}{'@' * bool(user)}127.0.0.1:{self.port}{path}{'?' * bool(query)}{query}"


@contextmanager
def web_server(files: dict[str, bytes], **headers: str | None) -> Iterator[WebServer]:
    """Serve `files`; an underscore in the name of a header is a hyphen."""
    pytest.importorskip("aiohttp", reason="fsspec reads http:// URLs through aiohttp")
    web = WebServer(files=files, headers={name.replace("_", "-"): value for name, value in headers.items()})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            web.requests.append(self.path)
            content = web.files.get(urlsplit(self.path).path)
            if web.faults or content is None:
                self.send_error(web.faults.pop() if web.faults else web.missing)
                return
            first, last, status = 0, len(content) - 1, 200
            if asked := self.headers.get("Range"):
                low, _, high = asked.removeprefix("bytes=").partition("-")
                first, last, status = int(low), min(int(high or last), last), 206
                first, last = min(first + web.shift, last), min(last + web.shift, len(content) - 1)
            self.send_response(status)
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            for name, value in {
                "Content-Length": str(last + 1 - first - web.hidden_bytes * (self.command == "HEAD")),
                "Accept-Ranges": "bytes",
                **web.headers,
            }.items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content[first : last + 1])

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        web.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield web
        finally:
            server.shutdown()
