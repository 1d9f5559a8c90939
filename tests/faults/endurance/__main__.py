"""Endurance: killed runs, a thousand nights and a long-lived client. About an hour on two cores.

    python -m tests.faults.endurance [kills|nights|memory] [--quick] [--seed N] [--folder DIR]

`kills` sends SIGKILL to the driver or a worker process of runs, half of them on local folders, half on an object store
that fails now and then. Each kill comes at a random time of the length of a run, before, while or after shards are
made, and the run is continued with another scheduler, number of workers and time zone, until it is complete. Drivers
are forked from a process that has imported dkfeat, so that their time is their work; worker processes begin from
nothing. Kills after the commit are told, but do not count.

`nights` lets days of data arrive and starts the nightly job on them, at times twice at once, at times with a kill. Most
nights run in this process, one in four has a firing in a process of its own.

`memory` makes and reads data sets with one client of one cluster, and measures how the memory of all processes grows.

Each event is a line of JSON. The exit status is 1 if something that must hold did not; the folder then stays. The seed
repeats the choices; times, and so what they hit, are those of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import dkfeat
from tests.faults.endurance.forks import emit, reported
from tests.faults.endurance.kills import kills
from tests.faults.endurance.memory import memory
from tests.faults.endurance.nights import nights

PARTS = {"kills": kills, "nights": nights, "memory": memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="?", choices=PARTS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="a few of each: a check that it runs")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--folder", help="folder for the data; a temporary one by default")
    args = parser.parse_args()
    emit("begin", seed=args.seed, dkfeat=dkfeat.__version__)
    began, failures, found = time.monotonic(), [], {}
    root = Path(tempfile.mkdtemp(prefix="endurance-", dir=args.folder))
    for part in (args.part,) if args.part else PARTS:
        folder = root / part
        folder.mkdir()
        with contextlib.chdir(folder), reported(failures, part, folder):
            found[part] = PARTS[part](random.Random(f"{args.seed} {part}"), folder, args.quick, failures)
    emit(
        "summary",
        seed=args.seed,
        failures=Counter(failures),
        minutes=round((time.monotonic() - began) / 60, 1),
        **found,
    )
    if not failures:
        shutil.rmtree(root)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
