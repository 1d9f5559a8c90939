"""Searches for duplicates whose driver is killed end with the bytes of an undisturbed search."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask
import numpy as np
import pytest

import dkfeat
from dkfeat.neighbors import duplicates
from tests.faults import kills

ROOT = Path(dkfeat.__file__).parent.parent
PROGRAM = """
import sys
from dkfeat.config import ExecutionConfig
from dkfeat.neighbors import duplicates

if __name__ == "__main__":
    shards, out, scheduler, n_workers = sys.argv[1:]
    where = ExecutionConfig(scheduler=scheduler, n_workers=int(n_workers))
    duplicates(shards, target=out, client=where, progress=False)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    X = np.repeat(rng.lognormal(size=(400, 30)), 10, axis=0)
    X *= np.exp(np.tile([0, 0.02, 0.1, 0.4], 1000)[:, None] * rng.standard_normal(X.shape))
    lines = (" ".join(f"{i}:{value:.6g}" for i, value in enumerate(row)) for row in X[rng.permutation(len(X))])
    (folder / "rows.svm").write_text("".join(f"1 {line}\n" for line in lines))
    (folder / "program.py").write_text(PROGRAM)
    source = dkfeat.LibsvmSource(str(folder / "rows.svm"), n_features=30, zero_based=True, blocksize="100kB")
    dkfeat.featurize(source, folder / "shards", dkfeat.DartFeatures(128, random_state=1), progress=False)
    duplicates(folder / "shards", target=folder / "whole", progress=False)
    return folder


def state(out):
    """Bytes of the record and of the tables, which are committed; manifests name their runs."""
    assert sorted(path.name for path in out.iterdir()) == ["duplicates.json", "groups", "pairs"]
    assert len(list(out.glob("*/_SUCCESS"))) == 2
    return {path.relative_to(out): path.read_bytes() for path in [out / "duplicates.json", *out.glob("*/data/*")]}


def start(folder, out, scheduler="threads", n_workers=2, **environment):
    command = [sys.executable, str(folder / "program.py"), str(folder / "shards"), str(out), scheduler, str(n_workers)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **environment})


@pytest.mark.fault("P-01")
@pytest.mark.parametrize(
    "kill_at",
    ["before_tmp:2", "mid_write:6", "after_publish:8", "after_tmp:31", "before_manifest:2", "after_success:2"],
)
def test_driver_killed_at_a_point__the_next_search_ends_with_equal_bytes(kill_at, folder, tmp_path):
    with start(folder, tmp_path / "out", DKFEAT_KILL_AT=kill_at) as driver:
        assert driver.wait(timeout=240) == -signal.SIGKILL
    with dask.config.set(scheduler="synchronous"):
        duplicates(folder / "shards", target=tmp_path / "out", progress=False)
    assert state(tmp_path / "out") == state(folder / "whole")
    kills.SURVIVED[kill_at.partition(":")[0]] += 1


@pytest.mark.fault("P-01")
def test_driver_killed_at_random__other_schedulers_and_workers_end_with_equal_bytes(folder, tmp_path):
    rng, out = random.Random(0), tmp_path / "out"
    places = [("threads", 2), ("processes", 2), ("synchronous", 1), ("threads", 5)]
    with start(folder, tmp_path / "timed") as driver:
        begin = time.monotonic()
        assert driver.wait(timeout=240) == 0
    seconds, n_killed = time.monotonic() - begin, 0
    for place in places:
        with start(folder, out, *place) as driver:
            time.sleep(rng.uniform(0.3, 1.0) * seconds)
            n_killed += driver.poll() is None
            driver.kill()
            driver.wait(timeout=60)
    with start(folder, out, "processes", 2) as driver:
        assert driver.wait(timeout=240) == 0
    assert state(out) == state(folder / "whole")
    kills.SURVIVED[kills.RANDOM] += n_killed
