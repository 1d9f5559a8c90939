"""Lock of a data set on a local disk: a file that names its holder, with a lock of the kernel on it."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from dkfeat import canonical as strict_json
from dkfeat.store.storage.base import LOCK, Holder, parse_holder

logger = logging.getLogger(__name__)

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags of `os.open` for files that others may have planted: a link is an error, and a pipe does not block."""
_NAME = Path(LOCK).name
_MAX_BYTES = 1 << 16
_TRIES = 4  # more than one, because `lock_holder` holds a shared lock for a short time
_held_locks: set[FileLock] = set()


class FileLock:
    """A lock file that names its holder, with ``flock`` held on it from construction to `release`.

    The kernel frees the lock when its holder dies, so the lock of a dead run is taken over at once; its age is never
    used. A lock file of another host counts as held, because locks of a shared disk may not be visible on all hosts.

    Parameters
    ----------
    folder : int
        Open descriptor of the folder.
    holder : mapping
        Plain JSON values that identify this run, including "run_id" and "host".
    where : str
        Target, for messages.
    break_lock : str, optional
        Run id of a holder on another host whose lock may be broken.
    made : sequence of Path
        Folders that were created for the lock file, parents first; `release` removes them if they are empty.

    Raises
    ------
    TargetBusyError
        If another run holds the lock.
    """

    def __init__(
        self,
        folder: int,
        holder: Mapping[str, Any],
        *,
        where: str,
        break_lock: str | None = None,
        made: Sequence[Path] = (),
    ) -> None:
        self._made = made
        self.holder = holder
        self._folder = os.dup(folder)
        self._descriptors = [self._folder]
        try:
            lock = self._take(where)
            self._descriptors.append(lock)
            if values := _values(lock):
                former = _holder(values, is_held=False)
                if former.alive is None and values.get("run_id") != break_lock:
                    raise former.busy_error(where)
                logger.warning("%s: taking over from %s, which has ended", where, former)
            self._write(holder)
        except BaseException:
            self.close()
            raise
        _held_locks.add(self)

    def rename(self, run_id: str) -> None:
        """Hold the lock under another run id from now on."""
        self._write({**self.holder, "run_id": run_id})

    def _write(self, holder: Mapping[str, Any]) -> None:
        self.holder = dict(holder)
        lock, text = self._descriptors[-1], strict_json.dumps(self.holder)
        os.pwrite(lock, text, 0)
        os.ftruncate(lock, len(text))
        os.fsync(lock)
        os.fsync(self._folder)

    def release(self) -> None:
        """Remove the file, then free the lock; a second call does nothing, and a remaining file has no effect."""
        if not self._descriptors:
            return
        try:
            if self._is_current(self._descriptors[-1]):  # otherwise it is the lock of a run that took over
                os.unlink(_NAME, dir_fd=self._folder)
                os.fsync(self._folder)
                with suppress(OSError):  # not empty
                    for folder in reversed(self._made):
                        folder.rmdir()
        except OSError as fault:
            logger.warning("%s could not be removed: %s; the next run will take it over", _NAME, fault)
        finally:
            self.close()

    def close(self) -> None:
        """Close the descriptors; the lock is free when all processes have closed them."""
        _held_locks.discard(self)
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _take(self, where: str) -> int:
        tries = 0
        while True:
            with ExitStack() as stack:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(_NAME, flags, 0o666, dir_fd=self._folder)
                stack.callback(os.close, descriptor)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    tries += 1
                    if tries == _TRIES:
                        raise _holder(_await_values(descriptor), is_held=True).busy_error(where) from None
                    time.sleep(0.01)
                    continue
                if self._is_current(descriptor):
                    stack.pop_all()
                    return descriptor
                # otherwise the former holder removed the file between the calls of open and flock

    def _is_current(self, descriptor: int) -> bool:
        with suppress(FileNotFoundError):
            found = os.stat(_NAME, dir_fd=self._folder, follow_symlinks=False)
            return os.path.samestat(found, os.fstat(descriptor))
        return False


def lock_holder(folder: int) -> Holder:
    """Return the run that the lock file in a folder names; `FileNotFoundError` if there is no such file."""
    descriptor = os.open(_NAME, READ_FLAGS, dir_fd=folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return _holder(_values(descriptor), is_held=False)
    except BlockingIOError:
        return _holder(_await_values(descriptor), is_held=True)
    finally:
        os.close(descriptor)


def _holder(values: Mapping[str, Any], *, is_held: bool) -> Holder:
    """Read the holder of a lock file; if the lock is free, a run on another host may still be alive."""
    return Holder.of(values, True if is_held else False if values.get("host") == socket.gethostname() else None)


def _values(descriptor: int) -> dict[str, Any]:
    return parse_holder(os.pread(descriptor, _MAX_BYTES, 0))


def _await_values(descriptor: int) -> dict[str, Any]:
    for _ in range(50):  # a run writes its name right after it got the lock
        if values := _values(descriptor):
            return values
        time.sleep(0.01)
    return {}


def _close_locks_in_child() -> None:
    for lock in list(_held_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_locks_in_child)  # else a forked child keeps the lock after this process ends
