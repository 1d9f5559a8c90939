"""The tiny job on an object store, as a program: ``python -m tests.faults.stores.store_job SOURCES URL``.

Credentials and endpoint come from the environment. With ``--copies`` several processes run the same job at the same
time, without a lock, and race for the commit; the exit status of each is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dkfeat.errors import DkfeatError
from dkfeat.store.commit import batch as runs
from dkfeat.store.storage.base import LOCK
from dkfeat.store.storage.object_store import ObjectStorage
from tests.store.tiny_job import TinyJob


class NoLock:
    def __init__(self, holder: Mapping[str, Any]) -> None:
        self.holder = holder

    def release(self) -> None:
        pass


class UnlockedStorage(ObjectStorage):
    """Storage on which every run holds the lock, as far as it can see."""

    own: bytes = b""

    def acquire(self, holder: Mapping[str, Any], **_: Any) -> NoLock:
        self.own = json.dumps(dict(holder)).encode()
        return NoLock(holder)

    def read(self, name: str, most: int | None = None) -> bytes:
        return self.own if name == LOCK else super().read(name, most)

    def sweep(self) -> int:  # it would delete the probes of the others
        return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", type=Path)
    parser.add_argument("url")
    parser.add_argument("--barrier", type=Path, help="begin when this file is there")
    parser.add_argument("--until", type=Path, help="hold the target until this file is there")
    parser.add_argument("--copies", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.copies:
        return race(arguments)
    if arguments.barrier:
        print("ready", flush=True)  # noqa: T201 -- read by the test that waits for it
        wait_for(arguments.barrier.exists)
    return run(ObjectStorage(arguments.url), arguments)


def run(storage: ObjectStorage, arguments: argparse.Namespace) -> int:
    job = TinyJob(arguments.sources, Path("unused"), until=arguments.until, storage=storage)
    try:
        job.run()
    except DkfeatError as fault:
        print(f"dkfeat: error: {fault}", file=sys.stderr)  # noqa: T201 -- as the command line does
        return fault.exit_code
    return 0


def race(arguments: argparse.Namespace) -> int:
    children = []
    publish = runs.Batch._publish
    for number in range(arguments.copies):
        if (child := os.fork()) == 0:

            def at_once(self: runs.Batch, *given: Any, ready: str = f"{arguments.barrier}.{number}") -> Any:
                Path(ready).touch()
                wait_for(lambda: len(list(arguments.barrier.parent.glob("race.*"))) == arguments.copies)
                return publish(self, *given)

            runs.Batch._publish = at_once  # type: ignore[method-assign]  # that is the point
            status = 1
            try:
                status = run(UnlockedStorage(arguments.url), arguments)
            finally:  # the others do not wait for a process that failed before the commit
                Path(f"{arguments.barrier}.{number}").touch()
                os._exit(status)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(*statuses)  # noqa: T201 -- read by the test
    return 0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)


if __name__ == "__main__":
    sys.exit(main())
