"""SIGKILL at random times, and other settings for the run that goes on."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from click.testing import CliRunner

from dkfeat.cli import cli
from tests.faults.endurance.forks import emit, reported, start, write_inputs
from tests.faults.stores.bucket import KEY, SECRET, Bucket
from tests.faults.stores.fault_proxy import FaultProxy
from tests.faults.stores.store_server import store_server
from tests.invariants import assert_dataset_whole, dataset_state

PATIENCE = 300
"""Seconds after which something that does not end is said to hang."""
KILLS, PLACES = 300, ("folder", "folder", "store", "store")
"""Kills in all, and the places between which they are divided; the places are used at the same time."""
SCHEDULERS = {"synchronous": 6, "threads": 6, "cluster": 6}
"""Where runs take place, with how often; worker processes take seconds to start."""
N_WORKERS, ZONES = (1, 2, 3), ("UTC", "Pacific/Kiritimati", "America/St_Johns", "Asia/Kathmandu")
TEXT = ("in/*.svm*", "--blocksize", "250kB")
JOBS = {
    "gcws": (*TEXT, "--n-components", "1024", "--seed", "3"),
    "nystroem": (*TEXT, "--map", "nystroem", "--n-components", "32", "--seed", "5"),
    "parquet": ("in/*.parquet", "--blocksize", "100kB", "--n-components", "1024", "--label", "y"),
}
OFTEN = (8, 1, 1)
"""How often each job is run."""
FAULTS = ("500", "503", "429", "drop before", "drop after", "cut body", "delay")
OBJECTS = ("part-00000[0-4]", "part-", "landmarks", "spec", "plan-", "lock", "records-", "manifest-", "_SUCCESS", "")
STAGES = ("before the plan", "shards", "commit", "after the commit")
MOST_FAILURES = 10


class Killer:
    """Runs and kills jobs on targets of one kind: folders, or, with a proxy, buckets of a store that it makes fail."""

    def __init__(self, rng, folder, golden, proxy):
        self.rng, self.folder, self.golden, self.proxy = rng, folder, golden, proxy
        self.place = "folder" if proxy is None else "store"
        self.seconds, self.stages = {}, Counter()
        self.data_sets = self.runs = 0

    @property
    def kills(self):
        return sum(count for stage, count in self.stages.items() if stage != STAGES[-1])

    def data_set(self):
        """Kill and resume a job until it is complete."""
        self.bucket = self.proxy and Bucket(self.proxy.backend, f"b{uuid.uuid4().hex}")
        self.job = self.rng.choices(tuple(JOBS), OFTEN)[0]
        runs, self.orphans, status = [], [], None
        self.data_sets += 1
        while status != 0:
            runs.append(self.drawn(runs))
            status = self.run(runs[-1], is_first=len(runs) == 1)
        _, alive = psutil.wait_procs(self.orphans, PATIENCE)
        assert alive == [], f"workers of killed drivers go on: {alive}"
        state = self.bucket.state() if self.bucket else dataset_state(self.folder / "out")
        assert state == self.golden[self.job], "other bytes than those of an undisturbed run"
        self.assert_whole(committed=True)
        emit("data set", place=self.place, job=self.job, runs=runs)
        shutil.rmtree(self.folder / "out", ignore_errors=True)

    def assert_whole(self, **expected):
        if self.bucket:
            self.bucket.assert_whole(**expected)
        else:
            assert_dataset_whole(self.folder / "out", **expected)

    def drawn(self, before):
        """Settings of a run, other ones than those of the run before."""
        run = {"scheduler": self.rng.choices(tuple(SCHEDULERS), SCHEDULERS.values())[0]}
        for name, values in {"n_workers": N_WORKERS, "zone": ZONES}.items():
            run[name] = self.rng.choice([value for value in values if not before or value != before[-1][name]])
        return run

    def run(self, run, *, is_first):
        """Run the job and kill one of its processes at a random time; return the exit status.

        Not killed are the first run on each scheduler, whose time is the length of others, and one that finds the
        target complete.
        """
        words = ["dkfeat", "featurize", *JOBS[self.job], "--scheduler", run["scheduler"], "--no-progress", "--quiet"]
        words += ["--n-workers", run["n_workers"], "--out", self.bucket.url() if self.bucket else self.folder / "out"]
        if self.bucket:
            self.fail_now_and_then()
            options = {"key": "env:STORE_KEY", "secret": "env:STORE_SECRET", "endpoint_url": self.proxy.url}
            options["client_kwargs.region_name"] = "us-east-1"
            words += [f"--target-option={name}={value}" for name, value in options.items()]
        self.runs += 1
        out = self.folder / f"log-{self.runs}"  # workers of a killed driver may still write to that of the run before
        stage, left = self.stage()
        length = self.seconds.get(run["scheduler"], 0) * (1 + left) / 2  # a run that resumes is shorter
        forked = start(words, out, TZ=run["zone"], STORE_KEY=KEY, STORE_SECRET=SECRET)
        driver, began, killed = psutil.Process(forked.pid), time.monotonic(), None
        if length and stage != STAGES[3]:
            forked.join(self.rng.uniform(0, length))
            killed = self.strike(driver, run)
        forked.join(PATIENCE)
        status = run["status"] = forked.exitcode
        if status is None:
            forked.kill()
        elif not killed and is_first:
            self.seconds[run["scheduler"]] = time.monotonic() - began
        if killed and (killed, status) != ("driver", 0):  # else it ended before the signal came
            run["killed"] = killed
            self.stages[run["stage"]] += 1
        log = Path(f"{out}.err")
        errors = log.read_text() if log.exists() else ""  # a process may be killed before it opens its log
        expected = {"driver": {-signal.SIGKILL}, "worker": {0, 5}}.get(run.get("killed"), {0})
        assert status in expected, f"{run}: exit status {status}: {errors}"
        assert "Traceback" not in errors, f"{run}: {errors}"
        if status != 0:
            self.assert_whole(finished=False)
        return status

    def fail_now_and_then(self):
        self.proxy.clear()
        for _ in range(6):
            action, key = self.rng.choice(FAULTS), self.rng.choice(OBJECTS)
            method = "GET" if action == "cut body" else ".*"
            self.proxy.add(action, method=method, key=key, times=self.rng.choice((1, 2)), seconds=0.3)

    def strike(self, driver, run):
        """Kill the driver or one of its workers, unless the run has ended; return which, and note the stage."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = [child for child in driver.children() if "spawn_main" in " ".join(child.cmdline())]
            victim = self.rng.choice(children) if children and self.rng.random() < 0.5 else driver
            if driver.status() != psutil.STATUS_ZOMBIE:
                victim.kill()
                run["stage"] = self.stage()[0]
                self.orphans += children
                return "driver" if victim is driver else "worker"
        return None

    def stage(self):
        """Stage of a run by the names of what it has written, and the share of shards that are left to make."""
        names = self.bucket.keys() if self.bucket else [path.as_posix() for path in (self.folder / "out").rglob("*")]
        share = sum("/data/" in name for name in names) / len(self.golden[self.job][0])
        if any(name.endswith("/_SUCCESS") for name in names):
            return STAGES[3], 1 - share
        return STAGES[2 if share == 1 else any("/plan-" in name for name in names)], 1 - share


def lane(killer, count, failures):
    """Kill until `count` kills came before the commit; the files of a failed job are put aside."""
    while killer.kills < count and len(failures) < MOST_FAILURES:
        with reported(failures, "kills", killer.folder):
            killer.data_set()
        if (killer.folder / "out").exists():
            (killer.folder / "out").rename(killer.folder / f"failed-{killer.data_sets}")


def kills(rng, folder, quick, failures):
    write_inputs(folder / "in")
    golden = {}
    for job, words in JOBS.items():
        ended = CliRunner().invoke(cli, ["featurize", *words, "--out", f"golden-{job}", "--quiet"])
        assert ended.exit_code == 0, ended.output
        golden[job] = dataset_state(folder / f"golden-{job}")
    places = PLACES[:: 2 if quick else 1]
    with store_server(folder / "store.log") as address, contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        killers = []
        for number, place in enumerate(places):
            proxy = stack.enter_context(FaultProxy(address)) if place == "store" else None
            part = folder / f"{place}-{number}"
            part.mkdir()
            killers.append(Killer(random.Random(rng.random()), part, golden, proxy))
        list(pool.map(lambda killer: lane(killer, 1 if quick else KILLS // len(places), failures), killers))
    stages = {
        place: sum((killer.stages for killer in killers if killer.place == place), Counter()) for place in set(places)
    }
    found = {"kills": sum(killer.kills for killer in killers), "data_sets": sum(killer.data_sets for killer in killers)}
    emit("kills", stages=stages, **found)
    return {"stages": stages, **found}
