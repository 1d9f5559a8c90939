"""The command and the job scripts as processes of their own, as people and schedulers start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import dkfeat
from benchmarks.machine import AVX2_LOOPS

ROOT = Path(dkfeat.__file__).parent.parent
COMMAND = "from dkfeat.cli import main; main()"
STOPPING = """
import runpy, signal, sys, types
from dkfeat.store.storage import base
base.signal = types.SimpleNamespace(SIGKILL=signal.SIGSTOP)
"""
AVX2 = AVX2_LOOPS
SCRIPT = "sys.argv[:1] = []; runpy.run_path(sys.argv[0], run_name='__main__')"


class Ended(NamedTuple):
    """What became of a process."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def command(*arguments: Any) -> list[str]:
    """Words that start the ``dkfeat`` command."""
    return [sys.executable, "-c", COMMAND, *map(str, arguments)]


def job(name: str, *arguments: Any) -> list[str]:
    """Words that start a script of jobs/."""
    return [sys.executable, str(ROOT / "jobs" / f"{name}.py"), *map(str, arguments)]


def module(name: str, *arguments: Any) -> list[str]:
    """Words that run a module of the tests as a program."""
    return [sys.executable, "-m", name, *map(str, arguments)]


def start(words: list[str], *, cwd: Path | None = None, quiet: bool = False, **variables: str) -> subprocess.Popen[str]:
    """Start a process, with variables added to the environment; the output of a quiet one is dropped."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    output = subprocess.DEVNULL if quiet else subprocess.PIPE
    return subprocess.Popen(
        words, cwd=cwd, env=environment, stdout=output, stderr=output, text=True, start_new_session=True
    )


def start_until(at: str, words: list[str], **options: Any) -> subprocess.Popen[str]:
    """Start a process that stops itself by SIGSTOP at a crash point, and wait for that."""
    program, first, *others = words
    code = [STOPPING + others.pop(0)] if first == "-c" else [STOPPING + SCRIPT, first]
    process = start([program, "-c", *code, *others], DKFEAT_KILL_AT=at, **options)
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, process)
    return process


def end(process: subprocess.Popen[str]) -> Ended:
    """Wait for a process; one that hangs is killed."""
    try:
        out, err = process.communicate(timeout=240)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return Ended(process.returncode, out, err)


def wait_until(found: Callable[[], Any], *processes: subprocess.Popen[str]) -> None:
    """Wait for something that processes bring about, which may not end before."""
    while not found():
        for process in processes:
            assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def wait_until_stopped(process: subprocess.Popen[str]) -> None:
    """Wait for a process that sends itself SIGSTOP."""
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, process)


def wait_for_first(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Wait until one of several processes has ended."""
    while all(process.poll() is None for process in processes):
        time.sleep(0.01)


def run(words: list[str], *, cwd: Path | None = None, **variables: str) -> Ended:
    """Start a process and wait for it."""
    return end(start(words, cwd=cwd, **variables))


def run_killed(at: str, words: list[str], **options: Any) -> None:
    """Run a process that kills itself at a crash point."""
    ended = run(words, DKFEAT_KILL_AT=at, **options)
    assert ended.status == -signal.SIGKILL, ended.err
