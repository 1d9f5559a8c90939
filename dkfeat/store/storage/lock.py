"""Lock of a data set: a file that names its holder; the exclusive creation of the file decides who holds it.

The lock only saves work. A run looks before it publishes anything whether the file still names it, and only one run can
create the next manifest.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dkfeat import canonical as strict_json
from dkfeat.errors import CommitConflictError, TargetBusyError
from dkfeat.store.storage.base import LOCK, META, TMP, Holder, Storage, parse_holder

logger = logging.getLogger(__name__)

_held: set[str] = set()
"""Run ids of the locks that this process holds or is about to take."""
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_ROUNDS = 20
_LONGEST = 1 << 16
"""Number of bytes that are read of a lock, which may be any file."""
_OVERLAP_SECONDS = 0.1
"""Time that a run waits after it replaced the lock of a dead run, which another run may do at the same moment."""


class StorageLock:
    """A lock file that names its holder, held from construction to `release`.

    The lock of a run on this machine that has ended is taken over at once; its age is never used. If two runs do so at
    the same moment, the file names the last one, and the other one ends.

    Parameters
    ----------
    store : Storage
        Storage whose `create` is exclusive.
    holder : mapping
        Plain JSON values that identify this run: run_id, host, pid, since.
    break_lock : str, optional
        Run id of a holder on another host whose lock may be broken.
    made : iterable of Path
        Folders that were created for the lock file, parents first; `release` removes them if they are empty.

    Raises
    ------
    TargetBusyError
        If another run holds the lock, or may still hold it.
    """

    def __init__(
        self,
        store: Storage,
        holder: Mapping[str, Any],
        *,
        break_lock: str | None = None,
        made: Iterable[Path] = (),
    ) -> None:
        self._store, self._made = store, tuple(made)
        self.holder: Mapping[str, Any] = {**holder, **this_process()}
        _held.add(self.holder["run_id"])
        try:
            self._take(break_lock)
        except Exception:
            _held.discard(self.holder["run_id"])
            self._remove_folders()
            raise
        except BaseException:  # interrupted, perhaps after the file was created
            self.release()
            raise

    def rename(self, run_id: str) -> None:
        """Hold the lock under another run id from now on; there is no time at which nobody holds it."""
        _held.add(run_id)
        _held.discard(self.holder["run_id"])
        self.holder = {**self.holder, "run_id": run_id}
        self._store.replace(LOCK, strict_json.dumps(self.holder), durable=False)

    def release(self) -> None:
        """Remove the file, if it still names this run; a second call does nothing."""
        if self.holder["run_id"] not in _held or self.holder["pid"] != os.getpid():  # a fork does not hold it
            return
        try:
            if (_read(self._store) or {}).get("run_id") == self.holder["run_id"]:
                self._store.remove(LOCK, durable=False)
            self._remove_folders()
        except OSError as fault:
            logger.warning(
                "%s/%s could not be removed: %s; the next run on this host takes it over", self._store.url, LOCK, fault
            )
        finally:
            _held.discard(self.holder["run_id"])

    def _remove_folders(self) -> None:
        with suppress(OSError):
            if self._made and {*self._store.list(META, sizes=False)} <= {Path(TMP).name}:
                for folder in reversed(self._made):
                    folder.rmdir()

    def _take(self, break_lock: str | None) -> None:
        text = strict_json.dumps(self.holder)
        for _ in range(_ROUNDS):
            try:
                self._store.create(LOCK, text, durable=False)
                return
            except (FileExistsError, FileNotFoundError) as fault:  # not found: a holder's sweep took the temporary file
                former = _read(self._store)
                if former is None and isinstance(fault, FileNotFoundError):
                    raise
            if former is None:
                continue  # released meanwhile
            self._check_ended(former, break_lock)
            if _read(self._store) != former:
                continue  # taken over meanwhile
            logger.warning("%s: taking over from %s, which has ended", self._store.url, _holder(former))
            self._store.remove(LOCK, durable=False)
            with suppress(FileExistsError):
                self._store.create(LOCK, text, durable=False)
                time.sleep(_OVERLAP_SECONDS)
                if _read(self._store) == self.holder:
                    return
        raise CommitConflictError(
            f"{self._store.url}: other runs keep taking the lock; wait for them or choose another target"
        )

    def _check_ended(self, values: Mapping[str, Any], break_lock: str | None) -> None:
        where, run_id = self._store.url, values.get("run_id")
        if not (isinstance(run_id, str) and _RUN_ID.fullmatch(run_id)):
            if self._store.is_remote:
                raise TargetBusyError(f"{where}/{LOCK} was not written by dkfeat; remove it if no run is writing here")
            return  # on a disk, what a crash of the machine left
        holder = _holder(values)
        if holder.alive or (holder.alive is None and run_id != break_lock):
            raise holder.busy_error(where)


def lock_holder(store: Storage) -> Holder | None:
    """Return the run that holds the lock, or held it and died; None if there is no lock file."""
    values = _read(store)
    return None if values is None else _holder(values)


def _holder(values: Mapping[str, Any]) -> Holder:
    return Holder.of(values, is_alive(values) if values else False)


def _read(store: Storage) -> Mapping[str, Any] | None:
    """Read the values of a lock file; empty if dkfeat did not write it, None if there is no such file."""
    try:
        return parse_holder(store.read_part(LOCK, 0, _LONGEST))
    except FileNotFoundError:
        return None


def this_process() -> dict[str, Any]:
    """Return plain JSON values that identify this process among those of all hosts.

    Returns
    -------
    identity : dict
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


def is_alive(process: Mapping[str, Any]) -> bool | None:
    """Return True if a lock's process, recorded by `this_process`, is alive; None if it cannot be told from here.

    Nothing can be determined about a process on another host or in another container. A reused process id is
    recognised by the start time of the process. Of this process, locks that it released, if in vain, are ended.
    """
    here = this_process()
    if process.get("host") == here["host"] and "machine" not in process:  # a local disk's lock of version 0.2
        pid = process.get("pid")
        return False if type(pid) is int and _start_of(pid) == "" else None
    if any(process.get(key) != here[key] for key in ("host", "machine")):
        return None
    if process.get("boot") != here["boot"]:
        return False
    if process.get("pid_namespace") != here["pid_namespace"]:
        return None
    pid = process.get("pid")
    if pid == here["pid"] and process.get("pid_start") == here["pid_start"]:
        return process.get("run_id") in _held
    if type(pid) is not int:
        return True
    start = _start_of(pid)
    return None if start is None else start == process.get("pid_start")


def _start_of(pid: int) -> str | None:
    """Return the start time of a process in the units of the system; empty if there is no such process.

    None if the process belongs to another user, and the system hides it.
    """
    if Path("/proc/self/stat").exists():
        text = _text(f"/proc/{pid}/stat")
        if not text:
            try:
                os.kill(pid, 0)  # sends no signal
            except PermissionError:
                return None
            except (OSError, OverflowError):
                return ""
        fields = text.rpartition(")")[2].split()  # the process name before it may contain any character
        return "" if len(fields) < 20 or fields[0] in "ZX" else fields[19]
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
