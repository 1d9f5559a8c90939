"""A place for data sets: whether files can be created there, exclusively, listed, read and deleted."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from dkfeat.doctor.check import Check
from dkfeat.errors import CommitConflictError, CommitError, DkfeatError
from dkfeat.io.local import LocalStorage
from dkfeat.io.remote import hider, shown_url
from dkfeat.io.storage import DATA, META, Storage, open_storage
from dkfeat.wording import show_bytes

__all__ = ["check_store"]

NAME = "store"
RETRY_SECONDS = 5.0
"""How long requests are tried again, unless the options say otherwise."""
PROBE = "dkfeat-doctor-"
"""How the name of the place begins that is made below the one to look at, and deleted."""


def check_store(url: str, options: Mapping[str, Any] | None = None) -> Iterator[Check]:
    """Do at a place what a run does there, on files of its own, and delete them.

    Parameters
    ----------
    url : str
        Folder or URL that shards are to be written below; it need not exist.
    options : mapping, optional
        Storage options, of a URL.
    """
    own = f"{PROBE}{uuid4().hex}"
    secretless = hider(options or {})

    def hide(text: str) -> str:
        return secretless(text.replace(f"/{own}", ""))  # nobody has to know of it

    try:
        with _place(url, own, options) as place:
            yield _operations(place, where=shown_url(url), is_exclusive=(options or {}).get("exclusive_create", True))
    except DkfeatError as error:
        yield _failed(hide(str(error)), error.exit_code)
    except OSError as fault:
        yield _failed(f"{hide(url)}: {hide(str(fault.strerror or fault))}")


@contextmanager
def _place(url: str, own: str, options: Mapping[str, Any] | None) -> Iterator[Storage]:
    """Make a place of our own below the one to look at; it goes with all that is in it."""
    target = open_storage(url, options)
    target.check_writable()
    if not isinstance(target, LocalStorage):
        place: Storage = open_storage(f"{target.url}/{own}", {"retry_seconds": RETRY_SECONDS, **(options or {})})
        try:
            yield place
        finally:
            with suppress(OSError):
                for part in (META, DATA):
                    for name in place.list(part):
                        place.remove(f"{part}/{name}")
        return
    folder = Path(target.url)
    while not folder.exists():
        folder = folder.parent
    place = open_storage(folder / own)
    try:
        place.prepare()
        yield place
    finally:
        shutil.rmtree(place.url, ignore_errors=True)


def _operations(place: Storage, *, where: str, is_exclusive: bool) -> Check:
    began = time.perf_counter()
    place.probe()  # creates a file, and again, which has to fail
    name, data = f"{META}/{PROBE}{uuid4().hex}", uuid4().bytes
    place.create(name, data)
    if place.read(name) != data:
        return _failed(f"{where}: a file reads back with other bytes than were written")
    if name.rpartition("/")[2] not in place.list(META):
        return _failed(f"{where}: a file that was just created is not listed")
    if not _is_locked(place):
        return _failed(f"{where}: two runs can hold the lock at a time")
    place.remove(name)
    if place.size(name) is not None:
        return _failed(f"{where}: a file that was deleted is still there")
    seconds = time.perf_counter() - began
    if not is_exclusive:
        found = f"{where}: create, read, list and delete work; exclusive create was not tried"
        to_do = "see yourself to it that one run at a time writes there, or leave exclusive_create=false out"
        return Check(name=NAME, state="warn", found=found, to_do=to_do)
    free = place.free_bytes()
    room = "" if free is None else f"; {show_bytes(free)} free"
    found = f"{where}: exclusive create, lock, read, list and delete work, in {seconds:.2f} s{room}"
    return Check(name=NAME, state="ok", found=found)


def _is_locked(place: Storage) -> bool:
    """Whether a lock that is held keeps another run out."""
    lock = place.acquire(_holder())
    try:
        place.acquire(_holder()).release()
    except CommitConflictError:
        return True
    finally:
        lock.release()
    return False


def _holder() -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"run_id": uuid4().hex, "host": socket.gethostname(), "pid": os.getpid(), "since": now}


def _failed(found: str, exit_code: int = CommitError.exit_code) -> Check:
    to_do = "a run needs a place where it may create, read, list and delete; choose another, or mend this one"
    return Check(name=NAME, state="fail", found=found, to_do=to_do, exit_code=exit_code)
