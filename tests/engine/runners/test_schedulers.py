"""Equal bytes for all schedulers, and for any order and number of repetitions of the tasks."""

from __future__ import annotations

import numpy as np
import pytest

import dkfeat
from dkfeat.engine.runners.local import LocalRunner
from tests.engine.helpers import BLOCK, featurized, gcws
from tests.invariants import dataset_state as state


@pytest.fixture(scope="module")
def source(tiny_folder):
    return dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=BLOCK)


@pytest.fixture(scope="module")
def golden(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden") / "features"
    featurized(source, folder, scheduler="synchronous")
    return state(folder)


def test_golden__covers_the_source(golden, tiny_rows):
    shards, (manifest,) = golden
    assert len(shards) == manifest["records_file"]["shards"] > 10
    assert manifest["rows"] == tiny_rows[0].shape[0]
    assert manifest["nnz"] == tiny_rows[0].nnz
    assert manifest["n_empty_rows"] == 4
    assert manifest["labels"] == [-1, 1]


@pytest.mark.fault("D-01")
@pytest.mark.parametrize(
    "options",
    [
        {"scheduler": "threads", "n_workers": 1},
        {"scheduler": "threads", "n_workers": 4},
        pytest.param(
            {"scheduler": "processes", "n_workers": 1, "threads_per_worker": 2},
            marks=[pytest.mark.cluster, pytest.mark.slow],
        ),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_featurize__equal_bytes_on(options, source, golden, tmp_path):
    featurized(source, tmp_path / "features", **options)
    assert state(tmp_path / "features") == golden


@pytest.mark.quick
@pytest.mark.fault("D-01")
@pytest.mark.cluster
def test_featurize__equal_bytes_on_a_client(source, golden, tmp_path, cluster_client):
    featurized(source, tmp_path / "features", client=cluster_client)
    assert state(tmp_path / "features") == golden


@pytest.mark.fault("D-03")
def test_featurize__equal_bytes_in_any_order_and_when_done_thrice(source, golden, tmp_path, monkeypatch, rng):
    run = LocalRunner.run

    def thrice(self, task, splits, done):
        run(self, task, list(rng.permutation(np.array(splits, dtype=object))), lambda *_: None)
        run(self, task, splits[::-1], lambda *_: None)
        run(self, task, list(rng.permutation(np.array(splits, dtype=object))), done)

    monkeypatch.setattr(LocalRunner, "run", thrice)
    featurized(source, tmp_path / "features", scheduler="threads", n_workers=3)
    assert state(tmp_path / "features") == golden


@pytest.mark.fault("D-04")
@pytest.mark.parametrize("blocksize", [2000, 1 << 20, pytest.param(400, marks=pytest.mark.slow)])
def test_featurize__equal_rows_for_any_blocksize(blocksize, tiny_folder, tiny_rows, tmp_path):
    X, y = tiny_rows
    source = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=blocksize)
    featurized(source, tmp_path / "features", scheduler="threads")
    data = dkfeat.open_shards(tmp_path / "features")
    expected = gcws().fit(X).encode(X)
    np.testing.assert_array_equal(data.codes().codes, expected.codes)
    np.testing.assert_array_equal(data.codes().empty, expected.empty)
    np.testing.assert_array_equal(data.labels(), y)
    sizes = [(tiny_folder / name).stat().st_size for name in ("a.svm", "b.svm")]
    assert data.n_shards == sum(-(-size // blocksize) for size in sizes)
