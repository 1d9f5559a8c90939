"""The index of a data set: the same neighbours with it, extension by a batch, what is refused."""

import shutil

import dask
import numpy as np
import pytest
import scipy.sparse as sp

import dkfeat
from dkfeat.errors import ConfigError, ShardError, SpecConflictError
from dkfeat.neighbors import index, scan, search
from tests.invariants import assert_dataset_whole, dataset_state
from tests.neighbors.rows import FEATURES, assert_same, featurized, write

MODULE = "dkfeat.neighbors.scan"
N_ROWS, N_COLUMNS = 600, 40


@pytest.fixture(scope="module")
def rows():
    """Rows with near copies; two are all zeros, one the last of its shard."""
    rng = np.random.default_rng(0)
    centres = rng.lognormal(size=(60, N_COLUMNS)) * (rng.random((60, N_COLUMNS)) < 0.4)
    X = np.repeat(centres, 10, axis=0) * rng.lognormal(sigma=0.3, size=(N_ROWS, N_COLUMNS)).round(2)
    X[[7, N_ROWS - 1]] = 0
    return sp.csr_matrix(X.astype(np.float32))


def add(folder, name, rows, features, blocksize="64MiB"):
    """Add a batch of rows to a data set, and open it."""
    (folder / "rows").mkdir(exist_ok=True)
    write(rows, folder / "rows" / f"{name}.svm")
    return featurized(folder / "rows" / "*.svm", folder / "features", features, N_COLUMNS, blocksize)


@pytest.mark.parametrize("blocksize", ["6kB", "64MiB"])
@pytest.mark.parametrize(
    "features",
    [FEATURES["gcws"], FEATURES["dart"], dkfeat.DartFeatures(n_components=5, bits=1, random_state=1)],
    ids=["84 bytes", "128 bytes", "one byte"],
)
def test_search__same_with_and_without_index(features, blocksize, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.store.shards.columns._INDEX_ROWS", 32)
    monkeypatch.setattr(f"{MODULE}.PIECE_BYTES", 50 * features.n_components)  # splits shards
    data = add(tmp_path, "a", rows, features, blocksize)
    searches = [
        {"queries": rows[::7].multiply(1.1).tocsr(), "n_neighbors": 6},
        {"n_neighbors": 6},
        {"queries": rows[:9], "n_neighbors": 3, "rerank": 20, "source": rows},
    ]
    expected = [search(data, progress=False, **arguments) for arguments in searches]
    manifest = index(data, progress=False)
    assert (len(manifest.shards) > data.n_shards) == (blocksize == "64MiB")
    monkeypatch.setattr("dkfeat.neighbors.scan.numbered_codes", None)  # shards are not read
    for arguments, without in zip(searches, expected, strict=True):
        assert_same(search(data, progress=False, **arguments), without)


@pytest.fixture
def features():
    return dkfeat.DartFeatures(n_components=64, bits=8, random_state=0)


@pytest.fixture
def data(rows, features, tmp_path):
    return add(tmp_path, "a", rows[:400], features, blocksize="8kB")


def test_index__extended_by_a_batch(data, rows, features, tmp_path):
    few = search(data, rows[::5], 4, progress=False)
    before = index(data, progress=False)
    longer = add(tmp_path, "b", rows[400:], features, blocksize="8kB")
    with pytest.raises(SpecConflictError, match=r"features-index lacks \d of .* run `dkfeat index .*` again"):
        search(longer, rows[::5], 4, progress=False)
    after = index(longer, progress=False)
    assert after.shards[: len(before.shards)] == before.shards
    all_rows = search(longer, rows[::5], 4, progress=False)
    assert_same(search(data, rows[::5], 4, progress=False), few)
    assert_dataset_whole(tmp_path / "features-index", committed=True)
    shutil.rmtree(tmp_path / "features-index")
    assert_same(search(longer, rows[::5], 4, progress=False), all_rows)


def test_index__interrupted_and_repeated_gives_the_same_bytes(data, rows, tmp_path, monkeypatch):
    expected = search(data, rows[:5], 4, progress=False)
    index(data, progress=False)
    (tmp_path / "features-index").rename(tmp_path / "whole")
    job = scan._IndexJob

    class Interrupted(job):
        def columns(self, split, piece):
            if split.number == data.n_shards // 2:
                raise RuntimeError("interrupted")
            return job.columns(self, split, piece)

    with monkeypatch.context() as patched, dask.config.set(scheduler="synchronous"):
        patched.setattr(f"{MODULE}._IndexJob", Interrupted)
        with pytest.raises(RuntimeError):
            index(data, progress=False)
    assert 0 < len(list((tmp_path / "features-index" / "data").iterdir())) < data.n_shards
    assert_same(search(data, rows[:5], 4, progress=False), expected)
    index(data, progress=False)
    assert dataset_state(tmp_path / "features-index")[0] == dataset_state(tmp_path / "whole")[0]


def test_search__damaged_index(data, rows, tmp_path):
    index(data, progress=False)
    path = sorted((tmp_path / "features-index" / "data").iterdir())[1]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ShardError, match=f"{path.name}: damaged"):
        search(data, rows[:2], 2, progress=False)


def test_search__an_index_of_shards_with_another_spec(data, rows, features, tmp_path):
    index(data, progress=False)
    shutil.rmtree(tmp_path / "features")
    other = add(tmp_path, "a", rows[:400], features.set_params(random_state=5))
    with pytest.raises(SpecConflictError, match="features-index is an index of shards with another spec"):
        search(other, rows[:2], 2, progress=False)
    with pytest.raises(SpecConflictError, match="made with another spec"):
        index(other, progress=False)


def test_index__what_is_not_codes_in_a_folder(data, tmp_path):
    source = dkfeat.LibsvmSource(str(tmp_path / "rows" / "a.svm"), n_features=N_COLUMNS, zero_based=True)
    dkfeat.featurize(source, tmp_path / "sparse", data.map, layout="sparse", progress=False)
    with pytest.raises(ConfigError, match="in the layout 'sparse'"):
        index(tmp_path / "sparse", progress=False)
