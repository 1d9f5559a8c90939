"""SSH server on loopback that runs commands as sshd does, without authentication."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import asyncssh


@contextmanager
def ssh_server() -> Iterator[int]:
    """Yield the port of a server; the end of the ``with`` block stops the server and its commands."""
    running: set[asyncio.subprocess.Process] = set()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def handle(process: asyncssh.SSHServerProcess) -> None:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_shell(
            process.command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        )
        running.add(child)
        await process.redirect(stdout=child.stdout, stderr=child.stderr)
        ended = asyncio.create_task(child.wait())
        await asyncio.wait({ended, asyncio.create_task(process.channel.wait_closed())}, return_when="FIRST_COMPLETED")
        _kill(child)
        process.exit(await ended)
        running.discard(child)

    async def start() -> asyncssh.SSHAcceptor:
        key = asyncssh.generate_private_key("ssh-ed25519")
        return await asyncssh.create_server(
            _NoAuthentication, "127.0.0.1", 0, server_host_keys=[key], process_factory=handle, encoding=None
        )

    async def stop(server: asyncssh.SSHAcceptor) -> None:
        server.close()
        for child in list(running):
            _kill(child)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=5)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield server.get_port()
    finally:
        asyncio.run_coroutine_threadsafe(stop(server), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


class _NoAuthentication(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:  # noqa: ARG002 - signature of asyncssh
        return False


def _kill(child: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
