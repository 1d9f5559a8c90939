"""Nights in fast motion: days of data arrive, and the nightly job is started, twice at once, or killed."""

from __future__ import annotations

import signal
import time
from collections import Counter

import numpy as np
import psutil
import pyarrow.parquet as pq

import dkfeat
from dkfeat.store.manifest.metadata import KEPT
from tests.faults.endurance.forks import emit, reported, start
from tests.faults.processes.nights import Nights, event
from tests.invariants import assert_dataset_whole, listed_in

STOPS = ("after_plan:1", "mid_write:3", "after_publish:4", "before_manifest:1", "after_success:1", "before_unlock:1")
NIGHTS = {"calm": 75, "alone": 5, "stopped": 8, "raced": 6, "killed": 6}
"""Kinds of nights, with how often; see `one_night`."""
MOST_BYTES = 500
"""Bound of the bytes of `_dkfeat` a shard."""


class History:
    """Nights, and the days that must be committed after each."""

    def __init__(self, rng, folder):
        self.rng, self.nights = rng, Nights(folder)
        self.nights.settings["featurize"][0]["source"]["blocksize"] = "1KiB"
        self.nights.save()
        self.days, self.committed, self.shards = [], 0, 0
        self.kinds = Counter()

    def start(self, **options):
        """Start the job in a process of its own."""
        return start(self.nights.words()[1:], self.nights.folder / "log", **options)

    def end(self, forked, *statuses):
        """Wait for that process; return its exit status."""
        forked.join(300)
        assert forked.exitcode in statuses
        assert (self.nights.folder / "log.err").read_text() == ""
        if forked.exitcode >= 0:
            Nights.checked((self.nights.folder / "log").read_text(), forked.exitcode)
        return forked.exitcode

    def one_night(self, kind):
        """Let a day arrive and start the job.

        calm: in this process. alone: in another one. stopped: another firing is stopped on its way, so that that of
        this process finds the target in use; the first goes on, or is killed, after which the job is started again.
        raced: both run, and either may come first. killed: the firing is killed, and the next night goes on with it.
        """
        number, rows = 10_000 + len(self.days), self.rng.randint(400, 700)
        path = self.nights.day(number, rows)
        self.days.append((path.name, rows))
        self.kinds[kind] += 1
        if kind == "calm":
            self.nights.fire()
        elif kind == "alone":
            self.end(self.start(), 0)
        elif kind == "killed":
            self.end(self.start(DKFEAT_KILL_AT=self.rng.choice(STOPS)), -signal.SIGKILL)
        elif kind == "raced":
            first = self.start()
            first.join(self.rng.uniform(0, 0.3))
            lines = self.nights.fire(0, 4)
            assert 0 in (lines[-1]["exit_code"], self.end(first, 0, 4))
        else:
            self.stopped()

    def stopped(self):
        first = self.start(stops=True, DKFEAT_KILL_AT=self.rng.choice(STOPS))
        process = psutil.Process(first.pid)
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.005)
        skipped = event(self.nights.fire(4), "skipped")
        assert skipped["reason"] == "busy"
        assert f"pid {first.pid}" in skipped["message"]
        if self.rng.random() < 0.5:
            process.kill()
            self.end(first, -signal.SIGKILL)
            self.nights.fire()
        else:
            process.send_signal(signal.SIGCONT)
            self.end(first, 0)

    def check(self, *, all_days):
        """Check that the days committed are the first ones, each once, with all their rows, in whole shards."""
        target = self.nights.target
        heads = sorted((target / "_dkfeat").glob("manifest-*.json"))
        assert heads or not all_days
        if not heads:
            return
        newest = listed_in(target, int(heads[-1].stem[-6:]))
        found = [(source["name"], source["rows"]) for source in newest["sources"]]
        assert found == self.days[: len(found)]
        assert len(found) in range(max(self.committed, len(self.days) * all_days), len(self.days) + 1)
        for shard in newest["shards"][self.shards :]:
            assert pq.ParquetFile(target / "data" / shard["name"]).read().num_rows == shard["rows"]
        assert sum(shard["rows"] for shard in newest["shards"]) == newest["rows"] == sum(rows for _, rows in found)
        self.committed, self.shards = len(found), len(newest["shards"])

    def summary(self, count):
        """Check the data set after the last night, and give its sizes."""
        target = self.nights.target
        assert_dataset_whole(target, committed=True)
        self.nights.settings["featurize"][0]["out"] = "features/once"
        self.nights.save()
        self.nights.fire()
        (X, y), (once, labels) = (
            dkfeat.open_shards(self.nights.folder / "features" / name).to_scipy() for name in ("days", "once")
        )
        assert abs(X - once).nnz == 0
        assert np.array_equal(y, labels)
        files = [path for path in (target / "_dkfeat").rglob("*") if path.is_file()]
        heads = sum(path.name.startswith("manifest-") for path in files)
        per_shard = sum(path.stat().st_size for path in files) / self.shards
        found = {"nights": count, "kinds": self.kinds, "days": self.committed, "rows": X.shape[0]}
        found |= {"shards": self.shards, "heads": heads, "bytes_per_shard": round(per_shard)}
        emit("nights", **found)
        assert self.committed == count
        assert heads <= KEPT
        assert per_shard <= MOST_BYTES or count < 100
        return found


def nights(rng, folder, quick, failures):
    count, history = 10 if quick else 1000, History(rng, folder)
    before, kinds = "", [*NIGHTS, *rng.choices(tuple(NIGHTS), NIGHTS.values(), k=count - len(NIGHTS))]
    with reported(failures, "nights", folder):
        for night, kind in enumerate(kinds, 1):
            history.one_night(kind)  # a killed batch is finished by the next firing, which adds nothing to it
            history.check(all_days="killed" not in (kind, before))
            before = kind
            if night % 50 == 0:
                assert_dataset_whole(history.nights.target, finished=kind != "killed")
                emit("night", night=night, committed=history.committed, shards=history.shards)
        while event(history.nights.fire(), "end") and history.committed < count:
            history.check(all_days=False)
        return history.summary(count)
