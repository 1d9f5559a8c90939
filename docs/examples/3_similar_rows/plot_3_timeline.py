"""
Tasks on a cluster
==================

Dask records which worker ran which task, and when; ``get_task_stream`` returns the
records. Each bar here is a task that computes the features of a part of the rows. Which
worker ran it makes no difference to a single byte of the result.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster, get_task_stream

import dkfeat

X = np.random.default_rng(0).random((20_000, 200), np.float32)
source = dkfeat.TableSource(X, blocksize="1 MB")
gcws = dkfeat.GCWSFeatures(n_components=512, random_state=0)

with (
    TemporaryDirectory() as folder,
    LocalCluster(
        n_workers=4, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster,
    Client(cluster) as client,
    get_task_stream(client) as tasks,
):
    dkfeat.featurize(source, Path(folder) / "features", gcws, progress=False)

runs = [
    (task["worker"], run["start"], run["stop"])
    for task in tasks.data
    for run in task["startstops"]
]
workers, begins, ends = (np.array(column) for column in zip(*runs, strict=True))
begin = begins.min()

plt.figure(figsize=(8, 3))
for number, worker in enumerate(sorted(set(workers)), 1):
    own = workers == worker
    plt.barh(
        np.full(own.sum(), number),
        ends[own] - begins[own],
        left=begins[own] - begin,
        color="C0",
        edgecolor="white",
    )
plt.yticks(
    range(1, number + 1), [f"worker {worker}" for worker in range(1, number + 1)]
)
plt.grid(axis="y", visible=False)
plt.xlabel("seconds")
busy = (ends - begins).sum() / number / (ends.max() - begin)
plt.title(f"{len(tasks.data)} tasks, {busy:.0%} of the time busy")
