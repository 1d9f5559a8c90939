"""Check of the storage operations of a run in a folder or URL: exclusive create, list, read, delete and lock."""

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

from dkfeat.doctor import Check
from dkfeat.errors import CommitConflictError, CommitError, DkfeatError, cause_of
from dkfeat.filesystems.urls import hider, shown_url
from dkfeat.messages import show_bytes
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import DATA, META, Storage
from dkfeat.store.storage.local import LocalStorage

NAME = "store"
RETRY_SECONDS = 5.0
"""Default time in seconds for which requests are retried."""
PROBE = "dkfeat-doctor-"
"""Prefix of the name of the temporary folder."""


def check_store(url: str, options: Mapping[str, Any] | None = None) -> Iterator[Check]:
    """Test the operations of a run in a storage, on temporary files.

    Parameters
    ----------
    url : str
        Folder or URL for shards; it need not exist.
    options : mapping, optional
        Storage options of a URL.
    """
    subfolder = f"{PROBE}{uuid4().hex}"
    hide_secrets = hider(options or {})

    def hide(text: str) -> str:
        return hide_secrets(text.replace(f"/{subfolder}", ""))  # messages name the user's folder, not the temporary one

    try:
        with _scratch(url, subfolder, options) as scratch:
            yield _operations(scratch, where=shown_url(url), is_exclusive=(options or {}).get("exclusive_create", True))
    except DkfeatError as error:
        yield _failed(hide(str(error)), error.exit_code)
    except OSError as fault:
        yield _failed(f"{hide(url)}: {hide(cause_of(fault))}")


@contextmanager
def _scratch(url: str, subfolder: str, options: Mapping[str, Any] | None) -> Iterator[Storage]:
    """Make a temporary folder in the storage to check, and delete it with its content."""
    target = open_storage(url, options)
    target.check_writable()
    if not isinstance(target, LocalStorage):
        scratch: Storage = open_storage(
            f"{target.url}/{subfolder}", {"retry_seconds": RETRY_SECONDS, **(options or {})}
        )
        try:
            yield scratch
        finally:
            with suppress(OSError):
                for part in (META, DATA):
                    for name in scratch.list(part):
                        scratch.remove(f"{part}/{name}")
        return
    folder = Path(target.url)
    while not folder.exists():
        folder = folder.parent
    scratch = open_storage(folder / subfolder)
    try:
        scratch.prepare()
        yield scratch
    finally:
        shutil.rmtree(scratch.url, ignore_errors=True)


def _operations(scratch: Storage, *, where: str, is_exclusive: bool) -> Check:
    began = time.perf_counter()
    scratch.probe()  # creates a file twice; the second call must fail
    name, data = f"{META}/{PROBE}{uuid4().hex}", uuid4().bytes
    scratch.create(name, data)
    is_kept = scratch.read(name) == data and name.rpartition("/")[2] in scratch.list(META)
    lock = scratch.acquire(_holder())
    try:
        scratch.acquire(_holder()).release()
        is_locked = False
    except CommitConflictError:
        is_locked = True
    finally:
        lock.release()
    scratch.remove(name)
    if not is_kept or scratch.size(name) is not None:
        return _failed(f"{where}: a file that was created, read, listed and deleted was not as it should be")
    if not is_locked:
        return _failed(f"{where}: two runs can hold the lock at a time")
    seconds = time.perf_counter() - began
    if not is_exclusive:
        found = f"{where}: create, read, list and delete work; exclusive create was not tried"
        to_do = "make sure that only one run at a time writes there, or remove exclusive_create=false"
        return Check(NAME, "warn", found, to_do)
    free = scratch.free_bytes()
    room = "" if free is None else f"; {show_bytes(free)} free"
    found = f"{where}: exclusive create, lock, read, list and delete work, in {seconds:.2f} s{room}"
    return Check(NAME, "ok", found)


def _holder() -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"run_id": uuid4().hex, "host": socket.gethostname(), "pid": os.getpid(), "since": now}


def _failed(found: str, exit_code: int = CommitError.exit_code) -> Check:
    to_do = (
        "a run must be able to create, read, list and delete files there; choose another folder or URL, or correct the "
        "permissions"
    )
    return Check(NAME, "fail", found, to_do, exit_code=exit_code)
