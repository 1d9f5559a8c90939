"""An object store on loopback in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), sep=":", flush=True)
input()
"""
"""Program of the store; it chooses a free port and ends with its standard input, at the latest with the tests."""


@contextmanager
def store_server(log: Path) -> Iterator[str]:
    """Host and port of a moto server, which keeps objects in memory and writes its errors to `log`."""
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "server", "AWS_SECRET_ACCESS_KEY": "server"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        log.open("w") as errors,
        subprocess.Popen([sys.executable, "-c", SERVER], stderr=errors, env=environment, **pipes) as server,
    ):
        try:
            address = server.stdout.readline().strip()
            assert address, log.read_text()
            yield address
        finally:
            server.kill()
