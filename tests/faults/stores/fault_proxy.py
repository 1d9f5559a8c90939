"""HTTP proxy for an object store that answers selected requests like a failing store."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

CODES = {
    403: ("AccessDenied", "Access Denied"),
    429: ("SlowDown", "Please reduce your request rate."),
    500: ("InternalError", "We encountered an internal error. Please try again."),
    503: ("SlowDown", "Please reduce your request rate."),
}


@dataclass
class Fault:
    """Fault of the next `times` requests that match."""

    action: str
    """An HTTP status; or "drop before" or "drop after" the store acted, "cut body", "delay", "expired", "overwrite"
    (a condition on a PUT is taken out), "error in 200", "half" of the body with its length and no checksum, "whole"
    object for a range, an answer to HEAD with half the length ("short"), the length 0 ("empty") or none ("unsized"),
    an "endless" body, or a "slow" one, or "silent": a header that does not end."""
    method: str = ".*"
    key: str = ".*"
    times: float = float("inf")
    seconds: float = 0.0
    seen: int = 0

    def takes(self, method: str, path: str) -> bool:
        if self.seen >= self.times or not re.fullmatch(self.method, method) or not re.search(self.key, path):
            return False
        self.seen += 1
        return True


@dataclass
class FaultProxy:
    """Proxy that forwards requests to a store at `backend`, a host and port, and records them."""

    backend: str
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str, int]] = field(default_factory=list)

    def __enter__(self) -> FaultProxy:
        self.lock = threading.Lock()
        self.writing = threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def clear(self) -> None:
        with self.lock:
            self.faults.clear()
            self.requests.clear()

    def add(self, action: str | int, **details) -> Fault:
        fault = Fault(str(action), **details)
        with self.lock:
            self.faults.append(fault)
        return fault

    def fault_for(self, method: str, path: str) -> Fault | None:
        with self.lock:
            return next((fault for fault in self.faults if fault.takes(method, path)), None)

    def count(self, method: str, key: str = ".*") -> int:
        with self.lock:
            return sum(method == got and re.search(key, path) is not None for got, path, _ in self.requests)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def log_message(self, *_: object) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client has closed the connection
            self.close_connection = True

    def _serve(self) -> None:
        body = self._body()
        path = unquote(urlsplit(self.path).path) + "?" + urlsplit(self.path).query
        fault = self.proxy.fault_for(self.command, path)
        action = fault.action if fault else ""
        if action == "drop before":
            self._record(path, 0)
            self._drop()
        elif action.isdecimal():
            self._answer_error(path, int(action), *CODES[int(action)])
        elif action == "expired":
            self._answer_error(path, 400, "ExpiredToken", "The provided token has expired.")
        elif action == "error in 200":
            self._answer_error(path, 200, *CODES[500])
        else:
            if action == "delay":
                time.sleep(fault.seconds)
            if action == "overwrite":
                del self.headers["If-None-Match"]
            if action == "whole":
                del self.headers["Range"]
            status, headers, content = self._forward(body)
            self._record(path, status)
            if action == "half":
                content = content[: len(content) // 2]
                headers = [pair for pair in headers if not re.search("content-length|checksum", pair[0], re.IGNORECASE)]
            if action == "silent":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while action == "silent":  # until the client leaves
                self.wfile.write(b"0")
                time.sleep(0.1)
            if action in ("short", "empty", "unsized"):
                length = {"short": str(int(dict(headers)["Content-Length"]) // 2), "empty": "0", "unsized": ""}[action]
                headers.append(("Content-Length", length))
            if action == "drop after":
                self._drop()
            elif action in ("endless", "slow"):
                self._send(status, [*headers, ("Content-Length", str(1 << 40))], content[:1], cut=False)
                while True:  # until the client leaves
                    self.wfile.write(bytes(1 << 20) if action == "endless" else b"0")
                    time.sleep(0.005)
            else:
                self._send(status, headers, content, cut=action == "cut body")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self._read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self._line().split(b";")[0], 16):
            parts.append(self._read(size))
            self._line()
        self.rfile.readline()
        del self.headers["Transfer-Encoding"]
        return b"".join(parts)

    def _line(self) -> bytes:
        line = self.rfile.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError
        return line

    def _read(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:  # the client died; moto would store the incomplete object, a real store does not
            raise ConnectionResetError
        return data

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.proxy.backend, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "content-length"}
        # a store evaluates conditions one request at a time; moto does not
        with self.proxy.writing if self.command in ("PUT", "DELETE", "POST") else threading.Lock():
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        connection.close()
        return answer.status, answer.getheaders(), content

    def _send(self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = {name.lower(): value for name, value in headers}.get("content-length", str(len(content)))
        if length:
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self._drop()

    def _answer_error(self, path: str, status: int, code: str, text: str) -> None:
        self._record(path, status)
        content = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{text}</Message></Error>'.encode()
        self._send(status, [("Content-Type", "application/xml")], content, cut=False)

    def _record(self, path: str, status: int) -> None:
        with self.proxy.lock:
            self.proxy.requests.append((self.command, path, status))

    def _drop(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
