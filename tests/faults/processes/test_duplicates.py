"""Searches for duplicates, and copies without them, whose driver is killed end with the bytes of undisturbed ones."""

import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.neighbors import drop_duplicates, duplicates
from tests import programs
from tests.faults.kills import POINTS
from tests.invariants import assert_dataset_whole

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
    """Bytes of the record, the tables and what new rows are joined to; manifests name their runs."""
    assert sorted(path.name for path in out.iterdir()) == ["duplicates.json", "groups", "index", "pairs"]
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


@pytest.fixture(scope="module")
def night(folder, tmp_path_factory):
    """A data set that has grown, with its duplicates from before, and from after an undisturbed search."""
    place = tmp_path_factory.mktemp("night")
    lines = (folder / "rows.svm").read_text().splitlines(keepends=True)
    for name, some in (("a.svm", lines[:3000]), ("b.svm", lines[3000:])):
        (place / name).write_text("".join(some))
        source = dkfeat.LibsvmSource(str(place / "*.svm"), n_features=30, zero_based=True, blocksize="300kB")
        dkfeat.featurize(source, place / "shards", dkfeat.DartFeatures(128, random_state=1), progress=False)
        if name == "a.svm":
            duplicates(place / "shards", target=place / "before", progress=False)
    shutil.copytree(place / "before", place / "whole")
    duplicates(place / "shards", target=place / "whole", progress=False)
    return place


@pytest.mark.fault("P-01")
@pytest.mark.parametrize("kill_at", ["mid_write:2", "after_tmp:12", "before_manifest:1", "after_success:2"])
def test_driver_killed__a_search_of_new_rows_ends_with_equal_bytes(kill_at, night, tmp_path):
    shutil.copytree(night / "before", tmp_path / "out")
    words = programs.command("duplicates", night / "shards", "--out", tmp_path / "out", "--scheduler", "threads")
    programs.run_killed(kill_at, words)
    duplicates(night / "shards", target=tmp_path / "out", progress=False)
    assert state(tmp_path / "out") == state(night / "whole")


@pytest.mark.fault("S-02")
def test_full_disk__names_the_file_and_the_same_search_ends_with_equal_bytes(folder, tmp_path):
    words = programs.command("duplicates", folder / "shards", "--out", tmp_path / "out")
    ended = programs.run(["bash", "-c", 'ulimit -f 400 && exec "$@"', "bash", *words])  # the codes have 500 KiB
    assert ended.status == 3
    assert re.search(r"out/index/data/codes cannot be written: File too large", ended.err)
    duplicates(folder / "shards", target=tmp_path / "out", progress=False)
    assert state(tmp_path / "out") == state(folder / "whole")


@pytest.fixture(scope="module", params=["rows.svm", "rows.parquet"])
def copied(request, folder):
    """A source, its duplicates, and the folder with an undisturbed copy, of some ten shards in each target."""
    place = folder / request.param.partition(".")[2]
    place.mkdir()
    source = folder / request.param
    if request.param == "rows.parquet":
        rows = dkfeat.open_shards(folder / "shards").to_scipy()[0]
        table = pa.table(
            {"x": [row.indices.astype(float).tolist() for row in rows], "text": list(map(str, range(4000)))}
        )
        pq.write_table(table, source, row_group_size=400)
        options = {"features": "x", "label": None, "n_features": 128, "blocksize": "500kB"}
        dkfeat.featurize(
            dkfeat.ParquetSource(str(source), **options), place / "shards", dkfeat.DartFeatures(128), progress=False
        )
    found = duplicates(folder / "shards" if source.suffix == ".svm" else place / "shards", progress=False)
    out = {"target": place / "clean", "dropped": place / "dropped"}
    duplicates(found.shards, target=place / "duplicates", progress=False)
    drop_duplicates(str(source), place / "duplicates", **out, progress=False)
    return source, place


def files_of(place):
    """Bytes of all rows and lines."""
    paths = [path for name in ("clean", "dropped") for path in (place / name).rglob("part-*")]
    return {path.relative_to(place): path.read_bytes() for path in paths if path.parent.name != "set-aside"}


@pytest.mark.fault("P-01")
@pytest.mark.parametrize(
    "kill_at", [*(f"{point}:2" for point in POINTS if point != "after_plan"), "after_plan:1", "mid_write:19"]
)
def test_driver_killed__the_copy_of_a_source_ends_with_equal_bytes(kill_at, copied, tmp_path):
    source, place = copied
    targets = {"target": tmp_path / "clean", "dropped": tmp_path / "dropped"}
    words = [source, place / "duplicates", "--out", targets["target"], "--dropped", targets["dropped"]]
    programs.run_killed(kill_at, programs.command("drop-duplicates", *words, "--scheduler", "threads"))
    for text in sorted(targets["dropped"].glob("part-*"))[:1]:
        text.unlink()
    drop_duplicates(str(source), place / "duplicates", **targets, progress=False)
    assert files_of(tmp_path) == files_of(place)
    for target in targets.values():
        assert_dataset_whole(target, committed=True)
