"""Run that holds a lock: its process, as a lock names it, and whether that is alive."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkfeat.errors import TargetBusyError

_UNKNOWN = "unknown"
held: set[str] = set()
"""Run ids of the locks that this process holds or is about to take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Run named by a lock."""

    run_id: str
    """Id of the run."""
    host: str
    """Machine that it runs on."""
    pid: int | None
    """Process id of the run on that machine."""
    since: str
    """Time at which the run took the lock, as an ISO date and time."""
    alive: bool | None
    """True if the run is alive, False if it has ended, None if this cannot be determined from here."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Holder:
        """Make a `Holder` from the values of a lock, which may be invalid; long texts are truncated."""
        texts = {key: ascii(values.get(key) or _UNKNOWN)[:80].strip("'") for key in ("run_id", "host", "since")}
        pid = values.get("pid")
        return cls(**texts, pid=pid if type(pid) is int else None, alive=is_alive(values) if values else False)

    def __str__(self) -> str:
        if self.run_id == self.host == _UNKNOWN:
            return "a run that has not yet written its id"
        return f"run {self.run_id} (host {self.host}, pid {self.pid}, since {self.since})"

    def busy_error(self, where: str) -> TargetBusyError:
        """Make the error to raise when this run holds the lock of target `where`."""
        if self.alive:
            return TargetBusyError(f"{where} is being written by {self}; wait for it or choose another target")
        return TargetBusyError(
            f"{where} is, or was, being written by {self}, and it cannot be determined from here whether that run is "
            f"alive; when it has ended, call `dkfeat break-lock {where} {self.run_id!r}` and run again"
        )


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
        return process.get("run_id") in held
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
