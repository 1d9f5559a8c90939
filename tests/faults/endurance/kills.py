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
from tests.faults.endurance.events import emit, reported
from tests.faults.endurance.forks import Forks
from tests.faults.endurance.inputs import write_inputs
from tests.faults.stores.bucket import KEY, SECRET, Bucket
from tests.faults.stores.fault_proxy import FaultProxy
from tests.faults.stores.store_server import store_server
from tests.invariants import assert_dataset_whole, dataset_state

PATIENCE = 300
"""Seconds after which something that does not end is said to hang."""

KILLS, PLACES = 300, ("folder", "folder", "store", "store")
"""Kills in all, and the places between which they are divided; the places are used at the same time."""
SCHEDULERS = {"synchronous": 6, "threads": 6, "processes": 3, "cluster": 3}
"""Where runs take place, with how often; worker processes take seconds to start."""
N_WORKERS, HASH_SEEDS = (1, 2, 3), ("0", "1", "4294967295")
ZONES = ("UTC", "Pacific/Kiritimati", "America/St_Johns", "Asia/Kathmandu")
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


class Folder:
    """A target on the local disk, asked like a `Bucket`."""

    options = ()

    def __init__(self, folder):
        self.path = folder / "out"

    def url(self):
        return str(self.path)

    def keys(self):
        return [path.as_posix() for path in self.path.rglob("*")]

    def state(self):
        return dataset_state(self.path)

    def assert_whole(self, **expected):
        assert_dataset_whole(self.path, **expected)

    def fail_now_and_then(self, rng):
        pass


class FailingBucket(Bucket):
    """A target in an object store, asked past the proxy that makes the store fail."""

    def __init__(self, proxy):
        super().__init__(proxy.backend, f"b{uuid.uuid4().hex}")
        self.proxy = proxy
        options = {"key": "env:STORE_KEY", "secret": "env:STORE_SECRET", "endpoint_url": proxy.url}
        options["client_kwargs.region_name"] = "us-east-1"
        self.options = [f"--target-option={name}={value}" for name, value in options.items()]

    def fail_now_and_then(self, rng):
        self.proxy.clear()
        for _ in range(6):
            action, key = rng.choice(FAULTS), rng.choice(OBJECTS)
            method = "GET" if action == "cut body" else ".*"
            self.proxy.add(action, method=method, key=key, times=rng.choice((1, 2)), seconds=0.3)


class Killer:
    """Runs and kills jobs on targets of one kind."""

    def __init__(self, rng, folder, golden, proxy=None):
        self.rng, self.folder, self.golden, self.proxy = rng, folder, golden, proxy
        self.place = "folder" if proxy is None else "store"
        self.forks = {seed: Forks(seed) for seed in HASH_SEEDS}
        self.seconds = {}
        self.stages, self.victims, self.statuses = Counter(), Counter(), Counter()
        self.data_sets = self.runs = 0

    @property
    def kills(self):
        return sum(count for stage, count in self.stages.items() if stage != STAGES[-1])

    def data_set(self):
        """Kill and resume a job until it is complete."""
        target = Folder(self.folder) if self.proxy is None else FailingBucket(self.proxy)
        job = self.rng.choices(tuple(JOBS), OFTEN)[0]
        began, runs, orphans, status = time.monotonic(), [], [], None
        self.data_sets += 1
        while status != 0:
            run = self.drawn(runs)
            status = self.run(target, job, run, orphans, before=runs)
            runs.append(run)
        _, alive = psutil.wait_procs(orphans, PATIENCE)
        assert alive == [], f"workers of killed drivers go on: {alive}"
        assert target.state() == self.golden[job], "other bytes than those of an undisturbed run"
        target.assert_whole(committed=True)
        emit("data set", place=self.place, job=job, runs=runs, seconds=round(time.monotonic() - began, 1))
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        for key in target.keys() if self.proxy else ():
            target.delete(key)

    def keep(self):
        """Put the files of a failed job aside."""
        if (self.folder / "out").exists():
            (self.folder / "out").rename(self.folder / f"failed-{self.data_sets}")

    def drawn(self, before):
        """Settings of a run, other ones than those of the run before."""
        run = {"scheduler": self.rng.choices(tuple(SCHEDULERS), SCHEDULERS.values())[0]}
        for name, values in {"n_workers": N_WORKERS, "hash_seed": HASH_SEEDS, "zone": ZONES}.items():
            run[name] = self.rng.choice([value for value in values if not before or value != before[-1][name]])
        return run

    def run(self, target, job, run, orphans, *, before):
        """Run a job and kill one of its processes at a random time; return the exit status.

        Not killed are the first run on each scheduler, whose time is the length of others, and one that finds the
        target complete.
        """
        words = ["dkfeat", "featurize", *JOBS[job], "--out", target.url(), *target.options, "--no-progress"]
        words += ["--scheduler", run["scheduler"], "--n-workers", run["n_workers"], "--quiet"]
        variables = {"TZ": run["zone"], "PYTHONHASHSEED": run["hash_seed"], "STORE_KEY": KEY, "STORE_SECRET": SECRET}
        forks = self.forks[run["hash_seed"]]
        self.runs += 1
        out = self.folder / f"log-{self.runs}"  # workers of a killed driver may still write to that of the run before
        left = 1 - share_of(target.keys(), len(self.golden[job][0]))
        length = self.seconds.get(run["scheduler"], 0) * (1 + left) / 2  # a run that resumes is shorter
        target.fail_now_and_then(self.rng)
        driver = psutil.Process(forks.start(words, out, **variables))
        began = time.monotonic()
        if length and stage_of(target.keys(), left) != STAGES[3]:
            run["after"] = round(self.rng.uniform(0, length), 2)
            psutil.wait_procs([driver], run["after"])
            self.strike(driver, target, job, run, orphans)
        _, alive = psutil.wait_procs([driver], PATIENCE)
        for process in alive:
            process.kill()
        status = run["status"] = forks.wait()
        assert alive == [], f"{run}: hangs"
        if status == 0 and run.get("victim") == "driver":  # it ended before the signal came
            del run["victim"]
        if "victim" in run:
            self.stages[run["stage"]] += 1
            self.victims[run["victim"]] += 1
            if run["victim"] == "worker":
                self.statuses[status] += 1
        elif not before:
            self.seconds[run["scheduler"]] = time.monotonic() - began
        errors = Path(f"{out}.err").read_text()
        expected = {"driver": {-signal.SIGKILL}, "worker": {0, 5}}.get(run.get("victim"), {0})
        assert status in expected, f"{run}: exit status {status}: {errors}"
        assert "Traceback" not in errors, f"{run}: {errors}"
        if status != 0:
            target.assert_whole(finished=False)
        return status

    def strike(self, driver, target, job, run, orphans):
        """Kill the driver or one of its workers, unless the run has ended, and note the stage that it was in."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = [child for child in driver.children() if "spawn_main" in " ".join(child.cmdline())]
            victim = self.rng.choice(children) if children and self.rng.random() < 0.5 else driver
            if driver.status() != psutil.STATUS_ZOMBIE:
                victim.kill()
                names = target.keys()
                run["stage"] = stage_of(names, share_of(names, len(self.golden[job][0])))
                run["victim"] = "driver" if victim is driver else "worker"
                orphans += children

    def close(self):
        for forks in self.forks.values():
            forks.close()


def share_of(names, n_shards):
    """Share of the shards that are there."""
    return sum("/data/" in name for name in names) / n_shards


def stage_of(names, share):
    """Stage of a run by the names of what it has written, and the share of shards."""
    if any(name.endswith("/_SUCCESS") for name in names):
        return STAGES[3]
    return STAGES[2 if share == 1 else any("/plan-" in name for name in names)]


def lane(killer, count, failures):
    """Kill until `count` kills came before the commit."""
    try:
        while killer.kills < count and len(failures) < MOST_FAILURES:
            with reported(failures, "kills", killer.folder):
                killer.data_set()
            killer.keep()
    finally:
        killer.close()


def kills(rng, folder, quick, failures):
    write_inputs(folder / "in")
    golden = {}
    for job, words in JOBS.items():
        ended = CliRunner().invoke(cli, ["featurize", *words, "--out", f"golden-{job}", "--quiet"])
        assert ended.exit_code == 0, ended.output
        golden[job] = dataset_state(folder / f"golden-{job}")
        emit("undisturbed", job=job, shards=len(golden[job][0]))
    places = PLACES[:: 2 if quick else 1]
    with store_server(folder / "store.log") as address, contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        killers = []
        for number, place in enumerate(places):
            proxy = stack.enter_context(FaultProxy(address)) if place == "store" else None
            part = folder / f"{place}-{number}"
            part.mkdir()
            killers.append(Killer(random.Random(rng.random()), part, golden, proxy))
        list(pool.map(lambda killer: lane(killer, 1 if quick else KILLS // len(places), failures), killers))
    stages, victims, statuses = (
        {
            place: sum((getattr(killer, name) for killer in killers if killer.place == place), Counter())
            for place in dict.fromkeys(places)
        }
        for name in ("stages", "victims", "statuses")
    )
    found = {"kills": sum(killer.kills for killer in killers), "data_sets": sum(killer.data_sets for killer in killers)}
    found |= {"stages": stages, "victims": victims, "statuses_after_worker": statuses}
    found["lengths"] = {name: round(seconds, 1) for name, seconds in killers[0].seconds.items()}
    emit("kills", **found)
    return found
