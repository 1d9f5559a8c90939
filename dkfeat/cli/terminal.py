"""Standard error of commands: without secrets, in lines of the terminal's width, with a sign of life from the start."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from textwrap import fill
from threading import Event, Thread
from typing import Any, TextIO

from dkfeat.messages import without_secrets

_ERASE = "\r\x1b[2K"
_PATIENCE_SECONDS = 0.2
"""Time without output after which a command shows that it works."""


def wrapped(text: str, stream: TextIO) -> str:
    """Break the lines of a text that are longer than a terminal is wide, between words; elsewhere they stay whole.

    The last cell of a table's row is broken in its column. Indented lines, such as those of a traceback or a command to
    copy, and JSON stay whole too.
    """
    if not stream.isatty() or "\x1b" in text or "\r" in text or text.startswith("{"):
        return text
    width = 80
    with suppress(OSError, ValueError):  # no file descriptor
        width = os.get_terminal_size(stream.fileno()).columns or width
    options: Any = {"break_long_words": False, "break_on_hyphens": False}
    return "\n".join(
        line
        if len(line) <= width or line[:1].isspace()
        else fill(line, width, subsequent_indent=" " * max(2, line.rfind("  ", 0, width * 3 // 4) + 2), **options)
        for line in text.split("\n")
    )


@contextmanager
def guarded_stderr(show: Callable[[str], str] = str) -> Iterator[None]:
    """Wrap standard error in terminals, leave secrets of URLs out, and let a full disk end nothing.

    `show` changes each text before.
    """
    stream, write, flush = sys.stderr, sys.stderr.write, sys.stderr.flush

    def write_guarded(text: str) -> int:
        with suppress(OSError):
            return write(wrapped(show(without_secrets(text)), stream))
        return len(text)

    def try_to_flush() -> None:
        with suppress(OSError):
            flush()

    stream.write, stream.flush = write_guarded, try_to_flush  # type: ignore[method-assign]
    try:
        yield
    finally:
        stream.write, stream.flush = write, flush  # type: ignore[method-assign]


@contextmanager
def sign_of_life(name: str) -> Iterator[None]:
    """Show in a terminal that a command works, until its first output, which may be a bar of its own."""
    stderr, began, ended = sys.stderr, time.monotonic(), Event()
    writes = {stream: stream.write for stream in (stderr, sys.stdout)}  # also a pipe, which a pager may show
    if not stderr.isatty():
        yield
        return

    def work() -> None:
        while not ended.wait(_PATIENCE_SECONDS):
            jit: Any = sys.modules.get("dkfeat.compiled.jit")  # not loaded here, because it takes time
            is_compiling = hasattr(jit, "COMPILATIONS") and jit.COMPILATIONS.running
            doing = "compiling, once per machine" if is_compiling else "working"
            writes[stderr](f"{_ERASE}{name}: {doing} … {int(time.monotonic() - began)} s")
            stderr.flush()

    def write_first(stream: TextIO, text: str) -> int:
        if not ended.is_set():
            ended.set()
            thread.join()
            writes[stderr](_ERASE if time.monotonic() > began + _PATIENCE_SECONDS else "")
            stderr.flush()
        return writes[stream](text)

    thread = Thread(target=work, daemon=True)
    for stream in writes:
        stream.write = partial(write_first, stream)  # type: ignore[method-assign]
    thread.start()
    try:
        yield
    finally:
        write_first(stderr, "")
        for stream, write in writes.items():
            stream.write = write  # type: ignore[method-assign]
