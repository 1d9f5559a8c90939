"""Which process this is, and whether another one that was written down has ended."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["has_ended", "this_process"]


def this_process() -> dict[str, Any]:
    """Facts that tell this process from any other, as plain JSON values.

    Returns
    -------
    facts : dict
        host, machine (a hash), boot, pid_namespace, pid and pid_start; empty text for what the system does not tell.
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
    """Whether a process, written down by `this_process`, is proved to have ended.

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
