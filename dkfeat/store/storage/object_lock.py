"""Lock of a data set in an object store: an object that names its holder, and claims on the lock of a dead run."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dkfeat import canonical as strict_json
from dkfeat.errors import CommitConflictError, TargetBusyError
from dkfeat.store.storage.base import LOCK, META, Holder, Storage, parse_holder

logger = logging.getLogger(__name__)

CLAIM = "lock-after-"
"""Beginning of the names of claims on the lock of a dead run."""
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_ROUNDS, _LONGEST_CHAIN = 20, 50


class ObjectLock:
    """A lock object that names its holder, held from construction to `release`.

    Parameters
    ----------
    store : Storage
        Storage whose `create` is exclusive.
    holder : mapping
        Plain JSON values that identify this run: run_id, host, pid, since.
    break_lock : str, optional
        Run id of a holder on another host whose lock may be broken.

    Raises
    ------
    TargetBusyError
        If another run holds the lock, or may still hold it.
    """

    def __init__(self, store: Storage, holder: Mapping[str, Any], *, break_lock: str | None = None) -> None:
        self._store = store
        self.holder: Mapping[str, Any] = {**holder, **this_process()}
        self._text = strict_json.dumps(self.holder)
        self._claims: list[str] = []
        try:
            self._take(break_lock)
        finally:
            with suppress(OSError):  # the next holder removes them
                for claim in self._claims:
                    store.remove(claim)
        self._open = True

    def rename(self, run_id: str) -> None:
        """Hold the lock under another run id from now on; there is no time at which nobody holds it."""
        self.holder = {**self.holder, "run_id": run_id}
        self._store.replace(LOCK, strict_json.dumps(self.holder))

    def release(self) -> None:
        """Remove the object, if it still names this run; a second call does nothing."""
        if not self._open:
            return
        self._open = False
        try:
            if (_read(self._store, LOCK) or {}).get("run_id") == self.holder["run_id"]:
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
            last = _last_claimant(self._store, first)
            self._check_ended(last, break_lock)
            claim = _claim_name(last)
            with suppress(FileExistsError):  # another run created the claim first: read the lock again
                self._store.create(claim, self._text)
                self._claims.append(claim)
                if _read(self._store, LOCK) == first:
                    logger.warning("%s: taking over from %s", self._store.url, _holder(last))
                    self._store.remove(LOCK)
        raise CommitConflictError(
            f"{self._store.url}: other runs keep taking the lock; wait for them or choose another target"
        )

    def _check_ended(self, values: Mapping[str, Any], break_lock: str | None) -> None:
        where = self._store.url
        if not _has_run_id(values):
            raise TargetBusyError(f"{where}/{LOCK} was not written by dkfeat; remove it if no run is writing here")
        holder = _holder(values)
        if holder.alive or (holder.alive is None and values["run_id"] != break_lock):
            raise holder.busy_error(where)


def lock_holder(store: Storage) -> Holder | None:
    """Return the run that holds the lock object, or held it and died; None if there is no such object."""
    first = _read(store, LOCK)
    return None if first is None else _holder(_last_claimant(store, first))


def _holder(values: Mapping[str, Any]) -> Holder:
    return Holder.of(values, is_alive(values))


def _last_claimant(store: Storage, holder: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(_LONGEST_CHAIN):
        if not _has_run_id(holder):
            return holder
        after = _read(store, _claim_name(holder))
        if after is None:
            return holder
        holder = after
    return holder


def _has_run_id(holder: Mapping[str, Any]) -> bool:
    """Return True if the values have a run id that may be part of a file name."""
    return isinstance(run_id := holder.get("run_id"), str) and _RUN_ID.fullmatch(run_id) is not None


def _claim_name(holder: Mapping[str, Any]) -> str:
    return f"{META}/{CLAIM}{holder['run_id']}.json"


def _read(store: Storage, name: str) -> Mapping[str, Any] | None:
    """Read the values of a lock object; empty if dkfeat did not write it, None if there is no such object."""
    try:
        return parse_holder(store.read(name))
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
    """Return True if a process, recorded by `this_process`, is alive; None if this cannot be determined from here.

    Nothing can be determined about a process on another host or in another container. A reused process id is
    recognised by the start time of the process.
    """
    here = this_process()
    if any(process.get(key) != here[key] for key in ("host", "machine")):
        return None
    if process.get("boot") != here["boot"]:
        return False
    if process.get("pid_namespace") != here["pid_namespace"]:
        return None
    pid = process.get("pid")
    return type(pid) is not int or _start_of(pid) == process.get("pid_start")


def _start_of(pid: int) -> str:
    """Return the start time of a process in the units of the system; empty if there is no such process."""
    if Path("/proc/self/stat").exists():
        fields = (
            _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        )  # the process name before it may contain any character
        return "" if len(fields) < 20 or fields[0] in "ZX" else fields[19]
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
