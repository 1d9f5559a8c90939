"""Locks of a target: a kernel lock on a local disk, which dies with its holder, and a lock object in a store."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkfeat import canonical as strict_json
from dkfeat.errors import CommitConflictError, TargetBusyError
from dkfeat.io.storage.base import LOCK, META

if TYPE_CHECKING:
    from dkfeat.io.storage.base import Storage


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
            self._succeed(parse_holder(os.pread(self._descriptor, _MAX_BYTES, 0)), where, break_lock)
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
        tries = 0
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._name, flags, 0o666, dir_fd=self._folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(descriptor):
                    return descriptor
            except BlockingIOError:
                tries += 1
                if tries == _TRIES:
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

    def _succeed(self, former: Mapping[str, Any], where: str, break_lock: str | None) -> None:
        if not former:
            return
        if former.get("host") != socket.gethostname() and former.get("run_id") != break_lock:
            raise TargetBusyError(
                f"{where} was being written by {describe_holder(former)}, and whether that run still lives cannot be "
                "told from here; when it is gone, "
                f"call `dkfeat break-lock {where} {former.get('run_id')!r}` and run again"
            )
        logger.warning("%s: taking over from %s, which has ended", where, describe_holder(former))


def lock_state(folder: int, name: str) -> tuple[Mapping[str, Any], bool] | None:
    """Return the holder named in a lock file, and if a live process holds it; None if there is no such file.

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
        return _await_holder(descriptor), True
    else:
        return parse_holder(os.pread(descriptor, _MAX_BYTES, 0)), False
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


def parse_holder(text: bytes) -> dict[str, Any]:
    """Values of a lock, empty if it is none that dkfeat wrote."""
    with suppress(ValueError, RecursionError):
        holder = json.loads(text)
        if isinstance(holder, dict):
            return holder
    return {}


def _await_holder(descriptor: int) -> Mapping[str, Any]:
    holder: Mapping[str, Any] = {}
    for _ in range(50):  # it writes its name right after it got the lock
        if holder := parse_holder(os.pread(descriptor, _MAX_BYTES, 0)):
            break
        time.sleep(0.01)
    return holder


def _drop_in_child() -> None:
    for lock in list(_HELD):
        lock.close()


os.register_at_fork(after_in_child=_drop_in_child)  # a worker forked while we hold it must not outlive us with it


def this_process() -> dict[str, Any]:
    """Facts that tell this process from any other, as plain JSON values.

    Returns
    -------
    facts : dict
        Keys host, machine (a hash), boot, pid_namespace, pid and pid_start; empty text for unknown values.
    """
    machine = _text("/etc/machine-id")
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return {
        "host": socket.gethostname(),
        "machine": hashlib.sha256(machine.encode()).hexdigest()[:16] if machine else "",
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": namespace,
        "pid": os.getpid(),
        "pid_start": _start_of(os.getpid()),
    }


def has_ended(process: Mapping[str, Any]) -> bool:
    """Tell if a process, written down by `this_process`, is proved to have ended.

    Of another host or container, nothing can be proved. A process id that is in use again is told by its start.
    """
    here = this_process()
    if any(process.get(key) != here[key] for key in ("host", "machine")):
        return False
    if process.get("boot") != here["boot"]:
        return True
    pid = process.get("pid")
    if process.get("pid_namespace") != here["pid_namespace"] or type(pid) is not int:
        return False
    return _start_of(pid) != process.get("pid_start")


def _start_of(pid: int) -> str:
    """When a process started, in the system's own terms; empty if there is none."""
    if Path("/proc/self/stat").exists():
        fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the name before may hold anything
        return "" if len(fields) < 20 or fields[0] in "ZX" else fields[19]
    asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


logger = logging.getLogger(__name__)

CLAIM = "lock-after-"
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_ROUNDS, _LONGEST_CHAIN = 20, 50


class ObjectLock:
    """A lock object that names its holder, held from construction to `release`.

    Parameters
    ----------
    store : Storage
        Whose `create` is exclusive.
    holder : mapping
        Plain JSON values that name this run: run_id, host, pid, since.
    break_lock : str, optional
        Run id of a holder on another host that may be dispossessed.

    Raises
    ------
    TargetBusyError
        When somebody else holds it, or may hold it still.
    """

    def __init__(self, store: Storage, holder: Mapping[str, Any], *, break_lock: str | None = None) -> None:
        self._store = store
        self._holder = {**holder, **this_process()}
        self._text = strict_json.dumps(self._holder)
        self._claims: list[str] = []
        try:
            self._take(break_lock)
        finally:
            with suppress(OSError):  # the next holder sweeps them away
                for claim in self._claims:
                    store.remove(claim)
        self._open = True

    def release(self) -> None:
        """Remove the object, if it still names this run; a second call does nothing."""
        if not self._open:
            return
        self._open = False
        try:
            if (_read(self._store, LOCK) or {}).get("run_id") == self._holder["run_id"]:
                self._store.remove(LOCK)
        except OSError as fault:
            logger.warning(
                "%s/%s could not be removed: %s; the next run on this host takes it over", self._store.url, LOCK, fault
            )

    def _take(self, break_lock: str | None) -> None:
        for _ in range(_ROUNDS):
            with suppress(FileExistsError):
                self._store.create(LOCK, self._text)
                return
            first = _read(self._store, LOCK)
            if first is None:
                continue  # released meanwhile
            last = _end_of_chain(self._store, first)
            self._check_gone(last, break_lock)
            claim = _claim_on(last)
            with suppress(FileExistsError):  # another taker was faster: see who
                self._store.create(claim, self._text)
                self._claims.append(claim)
                if _read(self._store, LOCK) == first:
                    logger.warning("%s: taking over from %s", self._store.url, describe_holder(last))
                    self._store.remove(LOCK)
        raise CommitConflictError(
            f"{self._store.url}: other runs keep taking the lock; wait for them or choose another target"
        )

    def _check_gone(self, last: Mapping[str, Any], break_lock: str | None) -> None:
        where = self._store.url
        if not _is_ours(last):
            raise TargetBusyError(f"{where}/{LOCK} is not one that dkfeat wrote; remove it if no run is writing here")
        if last["run_id"] == break_lock or has_ended(last):
            return
        if _is_here(last, self._holder):
            raise busy(where, last)
        raise TargetBusyError(
            f"{where} is, or was, being written by {describe_holder(last)}, and whether that run still lives cannot be "
            f"told from here; when it is gone, call `dkfeat break-lock {where} {last['run_id']!r}` and run again"
        )


def lock_holder(store: Storage) -> tuple[Mapping[str, Any], bool | None] | None:
    """Return the holder named by the lock object and if it runs, None where that cannot be told; None if it is free."""
    first = _read(store, LOCK)
    if first is None:
        return None
    last = _end_of_chain(store, first)
    if has_ended(last):
        return last, False
    return last, True if _is_here(last, this_process()) else None


def _is_here(process: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Tell if two processes run on the same boot of the same machine, in the same container."""
    return all(process.get(key) == here[key] for key in ("host", "machine", "boot", "pid_namespace"))


def _end_of_chain(store: Storage, holder: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(_LONGEST_CHAIN):
        if not _is_ours(holder):
            return holder
        after = _read(store, _claim_on(holder))
        if after is None:
            return holder
        holder = after
    return holder


def _is_ours(holder: Mapping[str, Any]) -> bool:
    """Tell if a run id is named that may become part of a name."""
    return isinstance(run_id := holder.get("run_id"), str) and _RUN_ID.fullmatch(run_id) is not None


def _claim_on(holder: Mapping[str, Any]) -> str:
    return f"{META}/{CLAIM}{holder['run_id']}.json"


def _read(store: Storage, name: str) -> Mapping[str, Any] | None:
    """Values of a lock object, empty if it is none that dkfeat wrote; None if there is no such object."""
    try:
        return parse_holder(store.read(name))
    except FileNotFoundError:
        return None
