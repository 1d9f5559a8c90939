"""Processes that have imported dkfeat and fork a process for each command, which begins at once with its work.

``python -m tests.faults.endurance.forks`` reads a command as a line of JSON, prints the id of the process that runs it,
and its status when it has ended. `Forks` starts such a process. It has one thread, so its forks are like new processes.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
import types
from pathlib import Path
from typing import Any

from dkfeat.cli import main as dkfeat_command
from dkfeat.store.storage import base
from tests.programs import ROOT

IMPORTED = (
    "distributed",
    "s3fs",
    "dkfeat.cli.commands.featurize",
    "dkfeat.engine.featurize",
    "dkfeat.engine.clusters",
    "dkfeat.engine.runners.distributed",
    "dkfeat.engine.tasks.job",
    "dkfeat.sources.parquet.source",
    "dkfeat.maps.nystroem",
)


class Forks:
    """Starts commands one after another, all with one hash seed.

    Parameters
    ----------
    hash_seed : str
        PYTHONHASHSEED of all of them.
    """

    def __init__(self, hash_seed: str) -> None:
        variables = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.endurance.forks"],
            cwd=ROOT,
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = False

    def start(self, words: list[Any], out: Path, *, stops: bool = False, **variables: str) -> int:
        """Start a command in the present folder; return the id of its process.

        Parameters
        ----------
        words : list
            Path of a script and its arguments, or "dkfeat" and its arguments.
        out : Path
            File of its output, beside which that of its errors gets the suffix .err.
        stops : bool
            Whether it stops itself at a crash point, rather than kill itself.
        **variables : str
            Variables of its environment.
        """
        if not self.ready:
            self.ready = self.process.stdout.readline() == "ready\n"
        request = [[str(word) for word in words], str(out), stops, str(Path.cwd()), variables]
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def wait(self) -> int:
        """Wait for the end of the command; return its exit status, or minus the signal that killed it."""
        return int(self.process.stdout.readline())

    def close(self) -> None:
        """End the process, after its last command."""
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def serve() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    assert threading.active_count() == 1
    tell("ready")
    for line in sys.stdin:
        request = json.loads(line)
        if (child := os.fork()) == 0:
            become(*request)
        tell(child)
        tell(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def become(words: list[str], out: str, stops: bool, folder: str, variables: dict[str, str]) -> None:
    """Run a command in this process, as if it had been started for it."""
    os.setsid()
    with open(os.devnull) as empty, open(out, "wb") as output, open(f"{out}.err", "wb") as errors:  # noqa: PTH123
        for number, file in enumerate((empty, output, errors)):
            os.dup2(file.fileno(), number)
    os.chdir(folder)
    os.environ.update(variables)
    time.tzset()
    base.kill_at = variables.get(base.KILL_VARIABLE)
    if stops:
        base.signal = types.SimpleNamespace(SIGKILL=signal.SIGSTOP)  # type: ignore[assignment]
    sys.argv[:] = words
    try:
        dkfeat_command() if words[0] == "dkfeat" else runpy.run_path(words[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # to take down a large program takes as long as a small run


def tell(value: int | str) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()
