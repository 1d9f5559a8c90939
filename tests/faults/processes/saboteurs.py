"""Plugins that make worker processes fail or stall, by changing one step of their tasks.

Workers import this module; a restarted worker gets the plugin again from the scheduler.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from distributed import Worker, WorkerPlugin

from dkfeat import GCWSFeatures
from dkfeat.engine.tasks import job
from dkfeat.learn.sgd.descent import Descent
from dkfeat.learn.sgd.parallel import RoundTask
from dkfeat.store.storage import local
from dkfeat.store.storage.local import LocalStorage


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1)  # another thread may receive the signal first, and this one continues until then


@dataclass
class Sabotage(WorkerPlugin):
    """Do `act`, recorded in `log`, before a shard of `split` is published in process `pid`; None: of any, in any.

    With `at` "create" or "link", do it before the storage creates the shard, or links it after the check of the lock.
    """

    act: str
    split: int | None = None
    pid: int | None = None
    amount: float = 0.0
    log: str | None = None
    at: str = "publish"
    name: str = "sabotage"

    def setup(self, worker: Worker) -> None:  # noqa: ARG002 - signature of distributed
        publish, create, link = job.publish_piece, LocalStorage.create, local._link_or_rename

        def publish_later(given, split, *more):
            self._act_in(split.number)
            return publish(given, split, *more)

        def create_later(storage, name, *more, **check):
            self._act_in(int(name.split("-")[1]))
            return create(storage, name, *more, **check)

        def link_later(temporary, base, *more):
            self._act_in(int(base.split("-")[1]))
            return link(temporary, base, *more)

        if self.at == "publish":
            job.publish_piece = publish_later
        elif self.at == "create":
            LocalStorage.create = create_later
        else:
            local._link_or_rename = link_later

    def _act_in(self, split: int) -> None:
        if self.split in (None, split) and self.pid in (None, os.getpid()):
            if self.log is not None:
                with Path(self.log).open("a") as file:
                    file.write("x")
            getattr(self, f"_{self.act}")()

    def _die(self) -> None:
        os._exit(9)

    def _stop(self) -> None:
        _stop()

    def _sleep(self) -> None:
        time.sleep(self.amount)

    def _allocate(self) -> None:
        held = np.ones(int(self.amount) // 8)
        time.sleep(60)  # the nanny checks the memory ten times a second
        del held


@dataclass
class KillInEpochs(WorkerPlugin):
    """In each of `epochs`, kill the first worker in the middle of a part; `folder` gets a file for each kill."""

    epochs: tuple[int, ...]
    folder: str
    name: str = "kill in epochs"

    def setup(self, worker: Worker) -> None:  # noqa: ARG002 - signature of distributed
        run, run_batch = RoundTask.__call__, Descent.run_batch
        epoch = -1

        def noted(task, *arguments):
            nonlocal epoch
            epoch = task.epoch
            return run(task, *arguments)

        def killing(descent, *rows):
            run_batch(descent, *rows)
            if epoch in self.epochs:
                with suppress(FileExistsError):
                    (Path(self.folder) / str(epoch)).touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)

        RoundTask.__call__, Descent.run_batch = noted, killing


@dataclass
class Miscompute(WorkerPlugin):
    """Change one bit of all codes in process `pid`, as a compiled loop or a processor that is wrong would."""

    pid: int
    name: str = "miscompute"

    def setup(self, worker: Worker) -> None:  # noqa: ARG002 - signature of distributed
        encode = GCWSFeatures._encode_rows

        def wrong(features, X):
            found = encode(features, X)
            return found._replace(codes=found.codes ^ 1)

        if os.getpid() == self.pid:
            GCWSFeatures._encode_rows = wrong
