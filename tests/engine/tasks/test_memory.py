"""Memory of a task: below its projection, and constant when the data grow."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import dkfeat
from tests import programs

BLOCK = 4 << 20

CHILD = """
import sys, threading, time, psutil, dkfeat
from dkfeat.config import ExecutionConfig
small, source, target, block = sys.argv[1:]
settings = dict(n_features=47_236, zero_based=False, label_dtype="int64", blocksize=int(block))
gcws = dkfeat.GCWSFeatures(512, random_state=0)
options = dict(client=ExecutionConfig(scheduler="synchronous"), progress=False)
dkfeat.featurize(dkfeat.LibsvmSource(small, **settings), target + "-warm", gcws, **options)
process = psutil.Process()
idle = peak = process.memory_info().rss
running = True
def watch():
    global peak
    while running:
        peak = max(peak, process.memory_info().rss)
        time.sleep(0.002)
watcher = threading.Thread(target=watch)
watcher.start()
dkfeat.featurize(dkfeat.LibsvmSource(source, **settings), target, gcws, **options)
running = False
watcher.join()
print(peak - idle)
"""


def write_rows(path, n_bytes):
    """Write sparse rows similar to news text: 75 of 47,236 columns, Zipf-distributed."""
    rng = np.random.default_rng(0)
    chance = np.cumsum(1 / np.arange(1, 47_237))
    with path.open("w") as file:
        while file.tell() < n_bytes:
            columns = np.unique(np.searchsorted(chance / chance[-1], rng.random((500, 110))), axis=1)
            for row in columns:
                chosen = np.unique(row)[:75] + 1
                file.write(
                    "1 " + " ".join(f"{c}:{v:.6f}" for c, v in zip(chosen, rng.random(len(chosen)), strict=True)) + "\n"
                )
    return path


def peak_bytes(folder, source):
    small = write_rows(folder / "small.svm", 1 << 20)
    command = [sys.executable, "-c", CHILD, str(small), str(source), str(folder / source.stem), str(BLOCK)]
    ended = programs.run(command)
    assert ended.status == 0, ended.err
    return int(ended.out)


@pytest.mark.slow
def test_task_memory__flat_when_the_data_grow(tmp_path):
    little, much = (write_rows(tmp_path / f"{n}.svm", n * BLOCK) for n in (2, 20))
    peaks = [peak_bytes(tmp_path, source) for source in (little, much)]
    resolved = dkfeat.LibsvmSource(str(much), n_features=47_236, zero_based=False, label_dtype="int64", blocksize=BLOCK)
    assert max(peaks) <= min(6 * BLOCK, dkfeat.plan(resolved, map=dkfeat.GCWSFeatures(512)).projected_bytes)
    assert peaks[1] <= 1.2 * peaks[0] + (1 << 20)
