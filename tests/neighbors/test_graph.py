"""The approximate graph of all rows: its similarities, recall, determinism, and rows with few neighbours."""

import tempfile

import dask
import numpy as np
import pytest
from distributed import Client
from sklearn.datasets import dump_svmlight_file

import dkfeat
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.neighbors import Neighbors, graph, neighbor_search, search
from tests.invariants import dataset_state
from tests.neighbors.rows import FEATURES, assert_same, featurized, write

N_ROWS, N_COLUMNS = 1200, 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shards of rows in clusters, with copies, and rows without nonzeros; the same rows in one shard."""
    folder, rng = tmp_path_factory.mktemp("graph"), np.random.default_rng(0)
    X = rng.lognormal(size=(60, N_COLUMNS))[rng.integers(60, size=N_ROWS)]
    X = (X * rng.lognormal(sigma=0.4, size=X.shape)).round(2)
    X[100:160], X[[3, 700, 701]] = X[99], 0
    dump_svmlight_file(X, np.zeros(N_ROWS), str(folder / "rows.svm"), zero_based=False)
    for name, blocksize in (("features", "64kB"), ("one", "64MiB")):
        source = dkfeat.LibsvmSource(folder / "rows.svm", n_features=N_COLUMNS, blocksize=blocksize, zero_based=False)
        dkfeat.featurize(source, folder / name, dkfeat.GCWSFeatures(128, i_bits=6, random_state=0), progress=False)
    assert dkfeat.open_shards(folder / "features").n_shards > 3
    return folder


@pytest.fixture
def small_tasks(monkeypatch):
    monkeypatch.setattr(graph, "_PART_ROWS", 170)
    monkeypatch.setattr(graph, "_ROWS", 50)


def test_graph__has_most_of_the_nearest_rows_with_their_similarities(folder):
    found = search(folder / "features", None, 10, method="graph", progress=False)
    exact = search(folder / "features", None, 10, progress=False)
    data = dkfeat.open_shards(folder / "features")
    every = search(data, None, N_ROWS - 1, progress=False)
    of_pair = np.zeros((N_ROWS, N_ROWS))
    np.put_along_axis(of_pair, every.rows, every.similarities, axis=1)
    np.testing.assert_array_equal(found.similarities, np.take_along_axis(of_pair, found.rows, axis=1))
    assert all(len({*rows, own}) == 11 for own, rows in enumerate(found.rows.tolist()))
    order = np.lexsort((found.rows, -found.similarities), axis=1)
    assert (order == np.arange(10)).all()
    as_near = found.similarities >= exact.similarities[:, -1:]
    assert as_near.mean() > 0.97
    sample = np.arange(graph.SAMPLE) * N_ROWS // graph.SAMPLE
    assert found.recall == as_near[sample].mean()
    assert exact.recall is None
    np.testing.assert_array_equal(found.rows[[3, 700]], exact.rows[[3, 700]])  # without nonzeros


def test_graph__with_all_rows_in_each_list_is_exact(folder):
    n = N_ROWS - 1
    found = search(folder / "features", None, n, method="graph", progress=False)
    assert_same(found, search(folder / "features", None, n, progress=False))
    assert found.recall == 1


@pytest.mark.usefixtures("small_tasks")
def test_graph__is_the_same_on_any_workers_and_shards_and_after_an_interruption(folder, tmp_path, monkeypatch):
    seen = []

    def stop(state):
        if state.stage.startswith("search by graph") and state.tasks > 3:
            raise KeyboardInterrupt

    whole = search(folder / "features", None, 4, method="graph", target=tmp_path / "whole", progress=False)
    with dask.config.set(scheduler="synchronous"):
        assert_same(search(folder / "one", None, 4, method="graph", progress=False), whole)
    with Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as client:
        again = {"method": "graph", "target": tmp_path / "again", "client": client}
        with pytest.raises(KeyboardInterrupt):
            search(folder / "features", None, 4, **again, progress=stop)
        search(folder / "features", None, 4, **again, progress=seen.append)
    end = seen[-1]
    assert (end.tasks, end.total_tasks, end.rows) == (n_files := len(whole.arrays.manifest.shards), n_files, N_ROWS)
    assert end.source_bytes == end.total_bytes
    assert dataset_state(tmp_path / "again") == dataset_state(tmp_path / "whole")
    assert Neighbors.open(tmp_path / "again").recall == whole.recall
    files = sorted((tmp_path / "again" / "data").iterdir())
    for path in files[:2]:
        path.write_bytes(b"damaged")
    made = []
    monkeypatch.setattr(neighbor_search, "make_graph", lambda *given: made.append(1) or graph.make_graph(*given))
    search(folder / "features", None, 4, method="graph", target=tmp_path / "again", progress=False)
    assert dataset_state(tmp_path / "again") == dataset_state(tmp_path / "whole")
    assert made == [1]
    in_memory = search(folder / "features", None, 4, method="graph", progress=False)
    assert Neighbors.open(tmp_path / "whole").recall == whole.recall == in_memory.recall > 0.9
    with pytest.raises(SpecConflictError, match="method"):
        search(folder / "features", None, 4, target=tmp_path / "whole", progress=False)


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.cluster
def test_graph__of_worker_processes__has_its_files_beside_the_target(folder, tmp_path, cluster_client, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "seen by this process alone"))
    for name, client in (("threads", None), ("processes", cluster_client)):
        given = {"method": "graph", "target": tmp_path / "new" / name, "client": client, "progress": False}
        search(folder / "features", None, 4, **given)
    assert dataset_state(tmp_path / "new" / "processes") == dataset_state(tmp_path / "new" / "threads")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["processes", "threads"]


@pytest.mark.parametrize(("n_rows", "n_different"), [(2, 2), (33, 20), (300, 1), (40, 0)])
def test_graph__of_few_rows_or_equal_ones_or_rows_without_nonzeros(n_rows, n_different, tmp_path):
    X = np.zeros((n_rows, 9))
    if n_different:
        X = np.random.default_rng(0).lognormal(size=(n_different, 9))[np.arange(n_rows) % n_different]
    data = featurized(write(X, tmp_path / "rows.svm"), tmp_path / "features", FEATURES["bits"], n_features=9)
    n = min(10, n_rows - 1)
    exact, found = (search(data, None, n, method=method, progress=False) for method in ("exact", "graph"))
    assert_same(found, exact, ("similarities",) if n_different == 1 else ("rows", "similarities"))
    assert found.recall == 1
    assert all(len({*rows, own}) == n + 1 for own, rows in enumerate(found.rows.tolist()))


def test_graph__rows_are_compared_exactly(folder):
    given = {"rerank": 40, "source": folder / "rows.svm", "progress": False}
    found = search(folder / "features", None, 5, method="graph", **given)
    exact = search(folder / "features", None, 5, **given)
    assert np.mean(found.similarities >= exact.similarities[:, -1:]) > 0.97
    assert not found.errors.any()


def test_graph__is_for_all_rows(folder, capsys, monkeypatch):
    with pytest.raises(ConfigError, match="method='graph' finds the neighbours of all rows"):
        search(folder / "features", np.ones((1, N_COLUMNS)), method="graph", progress=False)
    with pytest.raises(ConfigError, match="method='tree'"):
        search(folder / "features", method="tree", progress=False)
    monkeypatch.setattr("dkfeat.neighbors.neighbor_search._MANY", N_ROWS - 1)
    search(folder / "features", n_neighbors=1)
    assert "method='graph' (--method graph) takes about 0:00, and finds about 95 %" in capsys.readouterr().err
