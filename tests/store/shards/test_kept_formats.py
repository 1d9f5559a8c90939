"""Data sets of each version in every layout: they read, verify and hold the features that are computed today.

    python -m tests.store.shards.test_kept_formats 0.1

keeps those of a release, beside the rows that they were made of, in tests/data/formats/. One of a new format number:
``python -m tests.store.tiny_job SOURCES tests/data/formats/v<n>`` on the sources of `job`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.store.shards.reader import open_reader, read_manifest
from dkfeat.store.storage import open_storage
from tests.invariants import verified
from tests.store.tiny_job import TinyJob, write_sources

FORMATS = Path(__file__).parents[2] / "data" / "formats"
KEPT = sorted(path.parent for path in FORMATS.glob("*/rows.svm"))
MAPS = {
    "codes": (dkfeat.GCWSFeatures(n_components=8, random_state=1), None),
    "sparse": (dkfeat.GCWSFeatures(n_components=8, i_bits=6, random_state=1), "sparse"),
    "dense": (dkfeat.FourierFeatures(n_components=4, random_state=1), None),
}


@pytest.fixture(params=[f"{folder.name}/{layout}" for folder in KEPT for layout in MAPS])
def kept(request):
    return FORMATS / request.param


@pytest.mark.fault("V-07")
def test_kept__reads_verifies_and_holds_the_features_of_today(kept):
    data = dkfeat.open_shards(kept)
    assert (verified(kept).problems, data.n_shards) == ([], 2)
    source = dkfeat.LibsvmSource(str(kept.parent / "rows.svm"), n_features=9, zero_based=False, label_dtype="int64")
    pieces = [piece.block for split in source.splits() for piece in source.read(split)]
    X, y = sparse.vstack([block.X for block in pieces]), np.concatenate([block.y for block in pieces])
    features, labels = data.to_scipy()
    expected = data.map.transform(X)
    np.testing.assert_array_equal(labels, y)
    if sparse.issparse(features):
        assert (features != expected).nnz == 0
    else:
        np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-6)
    assert data.spec["output"]["layout"] == kept.name


@pytest.mark.fault("V-07")
def test_kept__a_new_batch_follows(kept, tmp_path):
    target = shutil.copytree(kept, tmp_path / "features")
    for folder in ("tmp", "set-aside"):
        (target / "_dkfeat" / folder).mkdir(exist_ok=True)
    before = {path.name: path.read_bytes() for path in (target / "data").iterdir()}
    manifest = dkfeat.open_shards(target).manifest
    (tmp_path / "in").mkdir()
    rows = Path(shutil.copy(kept.parent / "rows.svm", tmp_path / "in" / "rows.svm"))
    mtime_ns = manifest.sources[0].mtime_ns
    os.utime(rows, ns=(mtime_ns, mtime_ns))
    (tmp_path / "in" / "zmore.svm").write_text("1 1:1 9:2\n")
    second = dkfeat.featurize(
        str(tmp_path / "in" / "*.svm"), target, progress=False, client=ExecutionConfig(scheduler="synchronous")
    )
    assert (second.number, second.rows) == (2, manifest.rows + 1)
    assert before.items() <= {path.name: path.read_bytes() for path in (target / "data").iterdir()}.items()
    assert verified(target).problems == []


@pytest.fixture
def job(tmp_path):
    return TinyJob(write_sources(tmp_path / "in", files=2, lines=10), tmp_path / "out")


def rows(target):
    it = open_reader(open_storage(target))
    data = [it.read(entry) for entry in it.manifest.shards]
    return np.concatenate([part.X.codes for part in data]), np.concatenate([part.y for part in data])


@pytest.mark.fault("V-07", "D-11")
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_kept_data_set__has_the_names_and_rows_of_today(job, version):
    job.run()
    kept, made = (read_manifest(open_storage(target)) for target in (FORMATS / version, job.target))
    assert [entry.name for entry in kept.shards] == [entry.name for entry in made.shards]
    assert kept.spec_fp == made.spec_fp
    assert verified(FORMATS / version).problems == []
    assert kept.schema == made.schema
    for left, right in zip(rows(FORMATS / version), rows(job.target), strict=True):
        assert np.array_equal(left, right)


def main(version: str) -> None:
    folder = FORMATS / version
    folder.mkdir()
    rng = np.random.default_rng(0)
    values = rng.integers(1, 9, (30, 10))
    lines = [" ".join(f"{c}:{values[row, c]}" for c in range(1 + row % 3, 10, 2)) for row in range(30)]
    text = "".join(f"{1 - 2 * (row % 2)} {line}\n" for row, line in enumerate([*lines, ""]))
    (folder / "rows.svm").write_text(text)
    for layout, (map_, asked) in MAPS.items():
        source = dkfeat.LibsvmSource(str(folder / "*.svm"), blocksize=300)
        dkfeat.featurize(
            source, folder / layout, map_, layout=asked, progress=False, client=ExecutionConfig(scheduler="synchronous")
        )
        for place in ("tmp", "set-aside"):
            (folder / layout / "_dkfeat" / place).rmdir()


if __name__ == "__main__":
    main(sys.argv[1])
