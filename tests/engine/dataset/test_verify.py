"""Checks of shards, the same in parallel as in one thread, and of sources by the bytes that shards were made from."""

from __future__ import annotations

import gzip
import io
import json
import os

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.errors import ConfigError, ShardError, SourceNotFoundError, SpecConflictError
from dkfeat.store.storage.base import SPEC
from tests.engine.helpers import BLOCK, featurized
from tests.faults.input.test_hostile_records import sealed_spec
from tests.invariants import verified

ROWS = "".join(f"{1 + i % 2} {1 + i % 3}:{1 + i % 7} {5 + i % 5}:0.5\n" for i in range(400))


@pytest.fixture
def job(tmp_path):
    """Two plain files in several splits and a compressed one, featurized."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.svm", "b.svm"):
        (folder / name).write_text(ROWS)
    (folder / "c.svm.gz").write_bytes(gzip.compress(ROWS.encode(), mtime=0))
    source = dkfeat.LibsvmSource(str(folder / "*"), blocksize=BLOCK)
    featurized(source, tmp_path / "features", scheduler="threads")
    return folder, source, tmp_path / "features"


def parquet_bytes():
    file = io.BytesIO()
    pq.write_table(pa.table({"label": [0, 1], "x": [1.0, 2.0]}), file)
    return file.getvalue()


def rewrite(path, text):
    """Replace a file's bytes, but not its modification time."""
    before = path.stat().st_mtime_ns
    path.write_bytes(text)
    os.utime(path, ns=(before, before))


def test_verify_inputs__unchanged(job):
    _, source, target = job
    report = dkfeat.verify_inputs(target, source)
    assert (report.problems, report.touched, report.new) == ((), (), ())
    assert report.n_sources == 3
    assert report.n_pieces == dkfeat.open_shards(target).n_shards > 4


@pytest.mark.slow
@pytest.mark.cluster
def test_verify_inputs__options_left_open_are_the_data_sets_on_a_cluster_too(job, cluster_client):
    folder, source, target = job
    report = dkfeat.verify_inputs(target, source)
    assert dkfeat.verify_inputs(target, str(folder / "*"), client=cluster_client) == report


def test_verify_inputs__a_folder_at_a_url_is_read_in_the_format_of_the_data_set(tmp_path):
    fsspec.filesystem("memory").pipe("/verified/a.parquet", parquet_bytes())
    featurized(dkfeat.ParquetSource("memory://verified/"), tmp_path / "features")
    report = dkfeat.verify_inputs(tmp_path / "features", "memory://verified/")
    assert (report.problems, report.n_pieces) == ((), 1)


def test_verify_inputs__one_byte_behind_equal_size_and_time(job):
    folder, source, target = job
    text = bytearray((folder / "b.svm").read_bytes())
    text[-3] = ord("7")
    rewrite(folder / "b.svm", bytes(text))
    assert featurized(source, target).number == 1  # names, sizes and times are equal
    report = dkfeat.verify_inputs(target, source)
    (problem,) = report.problems
    last = [entry for entry in dkfeat.open_shards(target).manifest.shards if entry.source == "b.svm"][-1]
    assert problem.startswith("source b.svm, ")
    assert last.name in problem


@pytest.mark.fault("V-05")
def test_verify_inputs__missing_changed_touched_and_new(job):
    folder, source, target = job
    (folder / "a.svm").unlink()
    os.utime(folder / "b.svm", ns=(1, 1))
    (folder / "c.svm.gz").write_bytes(gzip.compress(ROWS[: len(ROWS) // 2].encode(), compresslevel=1, mtime=0))
    (folder / "d.svm").write_text(ROWS)
    report = dkfeat.verify_inputs(target, source)
    assert report.problems[0] == "source 'a.svm' is missing"
    assert report.problems[1].startswith("source 'c.svm.gz': ")
    assert report.problems[2].startswith("source c.svm.gz, 0 to ")
    assert report.touched == ("b.svm",)
    assert report.new == ("d.svm",)
    with pytest.raises(SpecConflictError):
        featurized(source, target)


def test_verify_inputs__what_no_longer_reads_is_a_problem_not_an_error(job):
    folder, source, target = job
    rewrite(folder / "a.svm", b"\xff" * len(ROWS))
    rewrite(folder / "c.svm.gz", (folder / "c.svm.gz").read_bytes()[:-9] + b"\0" * 9)
    problems = dkfeat.verify_inputs(target, source).problems
    assert any("a.svm:1:1" in problem for problem in problems)
    assert any("c.svm.gz" in problem and "corrupt" in problem for problem in problems)


def test_verify_inputs__of_two_batches(job):
    folder, source, target = job
    (folder / "d.svm").write_text(ROWS)
    featurized(source, target)
    assert dkfeat.verify_inputs(target, source).n_sources == 4
    rewrite(folder / "d.svm", ROWS[::-1].encode())
    assert all("d.svm" in problem for problem in dkfeat.verify_inputs(target, source).problems)


def test_verify_inputs__mistakes_are_told(job, tmp_path):
    folder, _, target = job
    with pytest.raises(SourceNotFoundError):
        dkfeat.verify_inputs(target, str(tmp_path / "none-*"))
    with pytest.raises(ShardError, match="there is no such folder"):
        dkfeat.verify_inputs(tmp_path / "none", str(folder / "*"))
    with pytest.raises(SpecConflictError, match="n_features"):
        dkfeat.verify_inputs(target, dkfeat.LibsvmSource(str(folder / "*"), n_features=3))
    with pytest.raises(ConfigError):
        dkfeat.verify_inputs(target, 3)
    spec = json.loads((target / SPEC).read_bytes())
    del spec["input"]["zero_based"]
    sealed_spec(target / SPEC, json.dumps(spec))
    with pytest.raises(ShardError, match=f"{SPEC}: input does not state zero_based"):
        dkfeat.verify_inputs(target, str(folder / "*"))


@pytest.fixture
def target(tiny_folder, tmp_path):
    featurized(dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=1_000), tmp_path / "features")
    return tmp_path / "features"


@pytest.mark.fault("S-05")
def test_verify__in_parallel_reports_the_same_in_order(target):
    seen = []
    data, here = dkfeat.open_shards(target), ExecutionConfig(scheduler="threads", n_workers=2)
    assert data.n_shards > 10
    assert {entry.description for entry in data.manifest.shards} == {
        f"shard {entry.name}" for entry in data.manifest.shards
    }
    assert data.verify(client=here, progress=seen.append) == verified(target)
    assert (seen[-1].tasks, seen[-1].rows) == (data.n_shards, data.n_rows)
    for entry in data.manifest.shards[1:9:3]:
        path = target / "data" / entry.name
        path.write_bytes(path.read_bytes()[:-1])
    (target / "data" / "part-000099-0000-0123456789ab.parquet").write_bytes(b"stray")
    report = data.verify(client=here)
    assert report == verified(target)
    assert len(report.problems) == 4
