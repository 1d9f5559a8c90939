"""Searches for duplicates whose driver is killed end with the bytes of an undisturbed search."""

import re

import numpy as np
import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.neighbors import duplicates
from tests import programs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    X = np.repeat(rng.lognormal(size=(400, 30)), 10, axis=0)
    X *= np.exp(np.tile([0, 0.02, 0.1, 0.4], 1000)[:, None] * rng.standard_normal(X.shape))
    lines = (" ".join(f"{i}:{value:.6g}" for i, value in enumerate(row)) for row in X[rng.permutation(len(X))])
    (folder / "rows.svm").write_text("".join(f"1 {line}\n" for line in lines))
    source = dkfeat.LibsvmSource(str(folder / "rows.svm"), n_features=30, zero_based=True, blocksize="100kB")
    dkfeat.featurize(source, folder / "shards", dkfeat.DartFeatures(128, random_state=1), progress=False)
    duplicates(folder / "shards", target=folder / "whole", progress=False)
    return folder


def state(out):
    """Bytes of the record and of the tables, which are committed; manifests name their runs."""
    assert sorted(path.name for path in out.iterdir()) == ["duplicates.json", "groups", "pairs"]
    assert len(list(out.glob("*/_SUCCESS"))) == 2
    return {path.relative_to(out): path.read_bytes() for path in [out / "duplicates.json", *out.glob("*/data/*")]}


KILLS = [("mid_write:6", "synchronous"), ("after_tmp:31", "threads"), ("after_success:2", "cluster")]


@pytest.mark.fault("P-01")
@pytest.mark.parametrize(("kill_at", "scheduler"), KILLS)
def test_driver_killed__a_search_on_another_scheduler_ends_with_equal_bytes(kill_at, scheduler, folder, tmp_path):
    out = tmp_path / "out"
    words = programs.command("duplicates", folder / "shards", "--out", out, "--scheduler", "threads")
    programs.run_killed(kill_at, words)
    where = ExecutionConfig(scheduler=scheduler, n_workers=None if scheduler == "synchronous" else 2)
    duplicates(folder / "shards", target=out, client=where, progress=False)
    assert state(out) == state(folder / "whole")


@pytest.mark.fault("S-02")
def test_full_disk__names_the_file_and_the_same_search_ends_with_equal_bytes(folder, tmp_path):
    words = programs.command("duplicates", folder / "shards", "--out", tmp_path / "out")
    ended = programs.run(["bash", "-c", 'ulimit -f 400 && exec "$@"', "bash", *words])  # the codes have 500 KiB
    assert ended.status == 3
    assert re.search(r"out/work/\w+/data/codes cannot be written: File too large", ended.err)
    duplicates(folder / "shards", target=tmp_path / "out", progress=False)
    assert state(tmp_path / "out") == state(folder / "whole")
