"""One writer at a time on a local disk: a kernel lock that dies with its holder."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dkfeat.errors import TargetBusyError
from dkfeat.io import strict_json

__all__ = ["FileLock", "busy", "describe_holder", "lock_state"]

logger = logging.getLogger(__name__)

_HELD: set[FileLock] = set()
_MAX_BYTES = 1 << 16
_TRIES = 4  # `lock_state` holds a shared lock for an instant, which must not look like a writer


class FileLock:
    """A lock file that names its holder, with ``flock`` held on it from construction to `release`.

    The kernel frees the lock when its holder dies, so a dead run is taken over at once and never by age. A file
    left by another host is believed: the lock of a shared disk may not reach that host.

    Parameters
    ----------
    folder : int
        Open descriptor of the folder.
    name : str
        Name of the lock file in it.
    holder : mapping
        Plain JSON values that name this run; "run_id" and "host" are among them.
    where : str
        The target, for messages.
    break_lock : str, optional
        Run id of a holder on another host that may be dispossessed.

    Raises
    ------
    TargetBusyError
        When somebody else holds it.
    """

    def __init__(
        self, folder: int, name: str, holder: Mapping[str, Any], *, where: str, break_lock: str | None = None
    ) -> None:
        self._folder = os.dup(folder)
        self._name = name
        try:
            self._descriptor = self._take(where)
        except BaseException:
            os.close(self._folder)
            raise
        self._open = True
        try:
            self._succeed(_read_holder(self._descriptor), where, break_lock)
            text = strict_json.dumps(dict(holder))
            os.pwrite(self._descriptor, text, 0)
            os.ftruncate(self._descriptor, len(text))
            os.fsync(self._descriptor)
            os.fsync(self._folder)
        except BaseException:
            self.close()
            raise
        _HELD.add(self)

    def release(self) -> None:
        """Remove the file, then free the lock; a second call does nothing, and a file that stays does no harm."""
        if not self._open:
            return
        try:
            os.unlink(self._name, dir_fd=self._folder)
            os.fsync(self._folder)
        except FileNotFoundError:
            pass
        except OSError as fault:
            logger.warning("%s could not be removed: %s; the next run will take it over", self._name, fault)
        finally:
            self.close()

    def close(self) -> None:
        """Drop the descriptors; the lock is free when no process has them any more."""
        if self._open:
            self._open = False
            _HELD.discard(self)
            os.close(self._descriptor)
            os.close(self._folder)

    def _take(self, where: str) -> int:
        refusals = 0
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._name, flags, 0o666, dir_fd=self._folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(descriptor):
                    return descriptor
            except BlockingIOError:
                refusals += 1
                if refusals == _TRIES:
                    holder = _await_holder(descriptor)
                    os.close(descriptor)
                    raise busy(where, holder) from None
                time.sleep(0.01)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # or its holder released it, and removed the file, between our two calls

    def _is_current(self, descriptor: int) -> bool:
        try:
            there = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def _succeed(self, former: Mapping[str, Any] | None, where: str, break_lock: str | None) -> None:
        if former is None:
            return
        if former.get("host") != socket.gethostname() and former.get("run_id") != break_lock:
            message = (
                f"{where} was being written by {describe_holder(former)}, and whether that run still lives cannot be "
                f"told from here; when it is gone, pass break_lock={former.get('run_id')!r}"
            )
            raise TargetBusyError(message)
        logger.warning("%s: taking over from %s, which has ended", where, describe_holder(former))


def lock_state(folder: int, name: str) -> tuple[Mapping[str, Any], bool] | None:
    """Who is named in a lock file, and whether a live process holds it; None if there is no such file.

    Parameters
    ----------
    folder : int
        Open descriptor of the folder.
    name : str
        Name of the lock file in it.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _await_holder(descriptor) or {}, True
    else:
        return _read_holder(descriptor) or {}, False
    finally:
        os.close(descriptor)


def busy(where: str, holder: Mapping[str, Any] | None) -> TargetBusyError:
    """Error that says who writes to `where`."""
    return TargetBusyError(
        f"{where} is being written by {describe_holder(holder)}; wait for it or choose another target"
    )


def describe_holder(holder: Mapping[str, Any] | None) -> str:
    """Run id, host, process and start of a run, for messages.

    Examples
    --------
    >>> describe_holder({"run_id": "7f3a", "host": "node1", "pid": 12, "since": "2026-01-31T12:00:00+00:00"})
    'run 7f3a (host node1, pid 12, since 2026-01-31T12:00:00+00:00)'
    """
    if not holder:
        return "a run that has not yet written its name"
    run, host, pid, since = (ascii(holder.get(key))[:80].strip("'") for key in ("run_id", "host", "pid", "since"))
    return f"run {run} (host {host}, pid {pid}, since {since})"


def _read_holder(descriptor: int) -> Mapping[str, Any] | None:
    text = os.pread(descriptor, _MAX_BYTES, 0)
    with suppress(ValueError, RecursionError):
        holder = json.loads(text)
        if isinstance(holder, dict):
            return holder
    return None


def _await_holder(descriptor: int) -> Mapping[str, Any] | None:
    for _ in range(50):  # it writes its name right after it got the lock
        holder = _read_holder(descriptor)
        if holder is not None:
            return holder
        time.sleep(0.01)
    return None


def _drop_in_child() -> None:
    for lock in list(_HELD):
        lock.close()


os.register_at_fork(after_in_child=_drop_in_child)  # a worker forked while we hold it must not outlive us with it
