"""Lock of a target, and its checks before a run."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from dkfeat.errors import CommitError
from dkfeat.store.storage.base import DATA, SPEC, SUCCESS, Lock, Storage, faults_as


def now() -> str:
    """Return the current time, for locks, logs and manifests."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def hold(storage: Storage, break_lock: str | None = None) -> Lock:
    """Lock a target under a new run id.

    Raises
    ------
    TargetBusyError
        If another run holds the target; the message names it.
    CommitError
        If the storage fails.
    """
    holder = {"run_id": secrets.token_hex(16), "host": socket.gethostname(), "pid": os.getpid(), "since": now()}
    with faults_as(CommitError, f"{storage.url}: cannot lock it"):
        return storage.acquire(holder, break_lock=break_lock)


@contextmanager
def locked(storage: Storage, break_lock: str | None = None) -> Iterator[Lock]:
    """Hold the lock of a target in a ``with`` statement; errors as from `hold`."""
    lock = hold(storage, break_lock)
    try:
        yield lock
    finally:
        lock.release()


def check_target(storage: Storage) -> None:
    """Raise an error, before any work, if a run cannot use a target; nothing is changed.

    Raises
    ------
    TargetBusyError
        If a live run holds the target; the message names it. Only `hold` excludes other runs.
    CommitError
        If the target is not a data set and holds files under the names of one, or cannot be read.
    """
    holder = None
    with suppress(OSError):  # reported below
        holder = storage.holder()
    if holder is not None and holder.alive:
        raise holder.busy_error(storage.url)
    with faults_as(CommitError, f"{storage.url}: cannot make a data set here"):
        if storage.size(SPEC) is None:
            check_unused(storage)


def check_unused(storage: Storage) -> None:
    """Raise `CommitError` if a target without a spec has files in ``data/`` or a ``_SUCCESS``."""
    foreign: list[str] = []
    with suppress(FileNotFoundError):
        foreign = [f"{DATA}/{name}" for name in storage.list(DATA)]
    if storage.size(SUCCESS) is not None:
        foreign.append(SUCCESS)
    if foreign:
        raise CommitError(f"{storage.url} holds files that dkfeat did not write: {foreign[:3]}; choose another target")
