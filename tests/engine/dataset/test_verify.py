"""Parallel verification reports what verification in one thread does."""

from __future__ import annotations

import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.store.shards import reader
from dkfeat.store.storage import open_storage
from tests.engine.helpers import featurized


@pytest.fixture
def target(tiny_folder, tmp_path):
    featurized(dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=1_000), tmp_path / "features")
    return tmp_path / "features"


@pytest.mark.fault("S-05")
@pytest.mark.parametrize("scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_verify__in_parallel_reports_the_same_in_order(target, scheduler):
    seen = []
    data, here = dkfeat.open_shards(target), ExecutionConfig(scheduler=scheduler, n_workers=2)
    assert data.n_shards > 10
    assert data.verify(client=here, progress=seen.append) == reader.verify(open_storage(target))
    assert (seen[-1].tasks, seen[-1].rows) == (data.n_shards, data.n_rows)
    for entry in data.manifest.shards[1:9:3]:
        path = target / "data" / entry.name
        path.write_bytes(path.read_bytes()[:-1])
    (target / "data" / "part-000099-0000-0123456789ab.parquet").write_bytes(b"stray")
    report = data.verify(client=here)
    assert report == reader.verify(open_storage(target))
    assert len(report.problems) == 4
