"""Data sets kept from each format number still read, verify, and are what is written today.

To keep one of a new format: ``python -m tests.store.tiny_job SOURCES tests/data/formats/v<n>`` on the sources of `job`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dkfeat.store.shards import reader
from dkfeat.store.storage import open_storage
from tests.store.tiny_job import TinyJob, features, pieces, write_sources

KEPT = Path(__file__).parents[2] / "data" / "formats"


@pytest.fixture
def job(tmp_path):
    return TinyJob(write_sources(tmp_path / "in", files=2, lines=10), tmp_path / "out")


def rows(target):
    it = reader.open_reader(open_storage(target))
    data = [it.read(entry) for entry in it.manifest.shards]
    return np.concatenate([part.X.codes for part in data]), np.concatenate([part.y for part in data])


@pytest.mark.fault("V-07")
@pytest.mark.parametrize("version", [1, 2])
def test_kept_data_set__reads_and_verifies(job, version):
    kept = KEPT / f"v{version}"
    assert reader.verify(open_storage(kept)).problems == []
    lines = [line for split in job.splits() for _, _, text in pieces(split) for line in text.splitlines()]
    encoded, labels = features(lines, job.seed)
    codes, y = rows(kept)
    assert np.array_equal(codes, encoded.codes)
    assert np.array_equal(y, labels)


@pytest.mark.fault("V-07", "D-11")
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_kept_data_set__has_the_names_and_rows_of_today(job, version):
    job.run()
    kept, made = (reader.read_manifest(open_storage(target)) for target in (KEPT / version, job.target))
    assert [entry.name for entry in kept.shards] == [entry.name for entry in made.shards]
    assert kept.spec_fp == made.spec_fp
    assert kept.schema == made.schema
    for left, right in zip(rows(KEPT / version), rows(job.target), strict=True):
        assert np.array_equal(left, right)


@pytest.mark.fault("V-07")
def test_kept_data_set__has_the_bytes_of_today_for_equal_versions(job):
    job.run()
    kept, made = (reader.read_manifest(open_storage(target)) for target in (KEPT / "v1", job.target))
    if kept.run["versions"] != made.run["versions"]:
        pytest.skip("written by other versions of dkfeat, numpy or pyarrow")
    assert [entry.sha256 for entry in kept.shards] == [entry.sha256 for entry in made.shards]
