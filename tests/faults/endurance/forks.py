"""What the parts share: sources, events, and processes that begin at once with their work.

The processes of commands are forked from one that has imported dkfeat and has one thread, so they are like new ones.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import multiprocessing
import os
import runpy
import signal
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.text_workload import write_rcv1_like
from dkfeat.cli import main as dkfeat_command
from dkfeat.store.storage import base

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "s3fs",
        "tests.faults.endurance.kills",
        "tests.faults.endurance.nights",
        "tests.faults.endurance.memory",
        "dkfeat.cli.commands.featurize",
        "dkfeat.engine.clusters.open",
        "dkfeat.engine.runners.distributed",
        "dkfeat.maps.nystroem",
    ]
)


def start(words: list[Any], out: Path, *, stops: bool = False, **variables: str) -> Any:
    """Start a command in the present folder; return its process.

    Parameters
    ----------
    words : list
        Path of a script and its arguments, or "dkfeat" and its arguments.
    out : Path
        File of its output, beside which that of its errors gets the suffix .err.
    stops : bool
        Whether it stops itself at a kill point, rather than kill itself.
    **variables : str
        Variables of its environment.
    """
    process = FORKS.Process(target=become, args=([str(word) for word in words], out, stops, Path.cwd(), variables))
    process.start()
    return process


def become(words: list[str], out: Path, stops: bool, folder: Path, variables: dict[str, str]) -> None:
    """Run a command in this process, as if it had been started for it."""
    os.setsid()
    with Path(os.devnull).open() as empty, out.open("wb") as output, Path(f"{out}.err").open("wb") as errors:
        for number, file in enumerate((empty, output, errors)):
            os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - numbers
    os.chdir(folder)
    os.environ.update(variables)
    time.tzset()
    base.kill_at = variables.get(base.KILL_VARIABLE)
    if stops:
        base.signal = types.SimpleNamespace(SIGKILL=signal.SIGSTOP)  # type: ignore[assignment]
    sys.modules["__main__"] = types.ModuleType("__main__")  # workers need not import the program
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


def write_inputs(folder):
    """Write three files of text, one of them compressed, which is one split of several pieces, and two of Parquet."""
    folder.mkdir()
    for number in range(3):
        write_rcv1_like(folder / f"{number}.svm", 1_000_000, seed=number)
    plain = folder / "2.svm"
    (folder / "2.svm.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    rng = np.random.default_rng(0)
    for number in range(2):
        columns = {f"x{place}": rng.lognormal(size=3000) for place in range(30)}
        table = pa.table({**columns, "y": rng.integers(0, 2, 3000)})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=500)
    for path in folder.iterdir():
        os.utime(path, ns=(10**18, 10**18))


def emit(event, **values):
    print(json.dumps({"event": event, **values}), flush=True)  # noqa: T201 - what the program is for


@contextlib.contextmanager
def reported(failures, part, folder):
    """Report an error of what is done under ``with``, and go on after it."""
    try:
        yield
    except Exception as error:
        failures.append(part)
        emit("failed", part=part, folder=str(folder), error=f"{type(error).__name__}: {error}"[:5000])
        traceback.print_exc()
