"""Memory of a client, a scheduler and workers that live for many runs."""

from __future__ import annotations

import gc
import os
import shutil

import numpy as np
import psutil
from distributed import Client
from distributed.deploy.subprocess import SubprocessCluster

import dkfeat
from tests.faults.endurance.forks import emit, reported, write_inputs

SETTLED = 50
"""Runs after which memory must be flat."""
MOST_GROWTH, MOST_OF_SCHEDULER = 5.0, 10.0
"""Bounds of the growth in MB in 100 runs; the scheduler's was measured, 5 to 6, and is only partly explained."""
SHORT_LOGS = {
    "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "100",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__LOG_LENGTH": "100",
    "DASK_DISTRIBUTED__DIAGNOSTICS__COMPUTATIONS__MAX_HISTORY": "10",
}
"""Bounds of what the scheduler remembers; those of distributed are reached only after hundreds of runs."""


def memory(rng, folder, quick, failures):  # noqa: ARG001 - as the other parts
    """Make and read data sets with one client, and measure the memory of each process after each of them."""
    runs, settled = (8, 0) if quick else (200, SETTLED)
    os.environ.update(SHORT_LOGS)  # for the processes of the cluster
    write_inputs(folder / "in")
    with (
        SubprocessCluster(n_workers=2, worker_kwargs={"nthreads": 1}, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2)
        pids = {"driver": os.getpid(), "scheduler": client.run_on_scheduler(os.getpid)}
        pids |= {f"worker {number}": pid for number, pid in enumerate(client.run(os.getpid).values(), 1)}
        sizes = {name: [] for name in pids}
        for run in range(1, runs + 1):
            use(folder, run, client)
            for collect in (client.run, client.run_on_scheduler, lambda call: call()):
                collect(gc.collect)
            for name, pid in pids.items():
                sizes[name].append(psutil.Process(pid).memory_info().rss / 1e6)
            if run % 10 == 0:
                emit("run", run=run, **{name: round(size[-1], 1) for name, size in sizes.items()})
    growth = {
        name: round(100 * float(np.polyfit(range(runs - settled), size[settled:], 1)[0]), 2)
        for name, size in sizes.items()
    }
    emit("memory", runs=runs, growth_MB_per_100_runs=growth)
    with reported(failures, "memory", folder):
        bounds = {name: MOST_OF_SCHEDULER if name == "scheduler" else MOST_GROWTH for name in growth}
        assert quick or all(growth[name] <= bound for name, bound in bounds.items()), (growth, bounds)
    return {"growth_MB_per_100_runs": growth}


def use(folder, run, client):
    """Make a data set and read it."""
    target = folder / f"out-{run}"
    source = dkfeat.LibsvmSource(str(folder / "in" / "*.svm*"), blocksize="200kB")
    made = dkfeat.featurize(source, target, dkfeat.GCWSFeatures(128, random_state=run), client=client, progress=False)
    data = dkfeat.open_shards(target)
    X, _ = data.to_scipy()
    assert X.shape[0] == made.rows
    lazy, _ = data.to_dask()
    assert (lazy.compute(scheduler=client) != X).nnz == 0
    shutil.rmtree(target)
