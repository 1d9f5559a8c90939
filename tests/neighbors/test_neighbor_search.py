import numpy as np
import pytest
import scipy.sparse as sp

import dkfeat
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.kernels import gmm
from dkfeat.neighbors import GMMNeighbors, search
from tests.neighbors.rows import FEATURES, assert_same, featurized, running, write

N_ROWS = 500


@pytest.fixture(scope="module")
def rows():
    """Rows in groups of near copies and equal rows, one of them all zeros."""
    rng = np.random.default_rng(0)
    centres = rng.lognormal(size=(50, 60)) * (rng.random((50, 60)) < 0.3)
    X = np.repeat(centres, 10, axis=0) * rng.lognormal(sigma=0.3, size=(N_ROWS, 60)).round(2)
    X[3], X[250] = X[400], 0
    return sp.csr_matrix(X.astype(np.float32))


@pytest.fixture(scope="module")
def text(rows, tmp_path_factory):
    return write(rows, tmp_path_factory.mktemp("rows") / "rows.svm")


@pytest.fixture(scope="module", params=["dart", "gcws"])
def data(request, text, tmp_path_factory):
    return featurized(text, tmp_path_factory.mktemp("shards") / "shards", FEATURES[request.param], blocksize="7kB")


def best_estimates(features, queries, rows, n, *, own=False):
    estimates = features.estimate_kernel(queries, rows)
    if own:
        np.fill_diagonal(estimates, -np.inf)
    order = np.argsort(-estimates, axis=1, kind="stable")[:, :n]
    return np.take_along_axis(estimates, order, axis=1), order


def test_search__most_equal_codes_of_all_shards(data, rows):
    assert data.n_shards > 5
    queries = rows[::9].multiply(1.2).tocsr()
    found = search(data, queries, 7, progress=False)
    estimates, order = best_estimates(data.map, data.map.encode(queries), data.codes(), 7)
    assert np.array_equal(found.rows, order)
    np.testing.assert_allclose(found.similarities, estimates, rtol=1e-14)
    np.testing.assert_array_equal(found.errors, data.map.expected_error_at(np.clip(found.similarities, 0, 1)))


def test_search__shards_against_themselves(data):
    found = search(data, n_neighbors=4, progress=False)
    estimates, order = best_estimates(data.map, data.codes(), data.codes(), 4, own=True)
    assert np.array_equal(found.rows, order)
    np.testing.assert_allclose(found.similarities, estimates, rtol=1e-14)


def test_search__rerank_gives_the_exact_kernel(data, rows):
    found = search(data, n_neighbors=5, rerank=N_ROWS - 1, source=rows, progress=False)
    exact = gmm(rows)
    np.fill_diagonal(exact, -1)
    order = np.argsort(-exact, axis=1, kind="stable")[:, :5]
    assert np.array_equal(found.rows, order)
    assert np.array_equal(found.similarities, np.take_along_axis(exact, order, axis=1))
    assert not found.errors.any()


@pytest.mark.parametrize("own", [False, True])
def test_search__rerank_reads_the_rows_of_the_source(own, data, rows, text, monkeypatch):
    monkeypatch.setattr("dkfeat.neighbors.scan.QUERIES", 170)
    queries = None if own else rows[:200]
    in_memory = search(data, queries, 4, rerank=25, source=rows, progress=False)
    again = search(data, queries, 4, rerank=25, source=text, progress=False)
    assert_same(again, in_memory)


def test_search__rerank_refuses_a_changed_source(data, text, tmp_path):
    changed = tmp_path / "rows.svm"
    content = text.read_bytes()
    at = content.rindex(b" ")  # between the last two values
    changed.write_bytes(content[: at - 1] + (b"1" if content[at - 1 : at] != b"1" else b"2") + content[at:])
    with pytest.raises(SpecConflictError, match="not the rows from which shard"):
        search(data, n_neighbors=2, rerank=N_ROWS - 1, source=changed, progress=False)
    with pytest.raises(SpecConflictError, match=r"has no file 'rows\.svm'"):
        search(data, n_neighbors=2, rerank=9, source=changed.rename(tmp_path / "other.svm"), progress=False)


def test_search__agrees_with_the_estimator(data, rows):
    found = search(data, rows[:40], 5, rerank=60, source=rows, progress=False)
    estimator = GMMNeighbors(5, features=data.map, n_candidates=60).fit(rows)
    distances, neighbors = estimator.kneighbors(rows[:40])
    assert np.array_equal(found.rows, neighbors)
    assert np.array_equal(1 - found.similarities, distances)
    assert (found.to_graph() != estimator.kneighbors_graph(rows[:40], mode="distance")).nnz == 0


@pytest.mark.parametrize("where", ["synchronous", pytest.param("distributed", marks=pytest.mark.slow)])
def test_search__same_result_wherever_tasks_run_and_however_rows_are_cut(where, data, text, tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.neighbors.scan.QUERIES", 190)  # three batches of queries
    monkeypatch.setattr("dkfeat.neighbors.scan._ROWS", 64)
    other = featurized(text, tmp_path / "shards", data.map, blocksize="30kB")
    expected = search(data, n_neighbors=6, progress=False)
    with running(where) as client:
        found = search(other, n_neighbors=6, client=client, progress=False)
    assert other.n_shards != data.n_shards
    assert_same(found, expected)


@pytest.mark.parametrize(
    "as_input", [sp.csr_matrix.toarray, sp.coo_matrix, sp.bsr_matrix, lambda X: X.toarray().tolist()]
)
def test_search__queries_and_rows_in_any_container(as_input, data, rows):
    expected = search(data, rows[:20], 3, rerank=30, source=rows, progress=False)
    found = search(data, as_input(rows[:20]), 3, rerank=30, source=sp.coo_matrix(rows), progress=False)
    assert_same(found, expected)


def test_search__names_the_cell_of_a_query_of_any_batch(data, rows, monkeypatch):
    monkeypatch.setattr("dkfeat.neighbors.scan.QUERIES", 64)
    queries = rows[:200].toarray()
    queries[130, 7] = np.nan
    with pytest.raises(InputError, match=r"queries holds NaN at row 130, column 7"):
        search(data, queries, 2, progress=False)


def test_search__queries_without_rows_without_values_and_no_rows(data):
    found = search(data, np.empty((0, 60)), 2, progress=False)
    assert found.rows.shape == found.similarities.shape == found.errors.shape == (0, 2)
    found = search(data, np.zeros((1, 60)), 2, progress=False)
    assert (found.rows.tolist(), found.similarities.tolist()) == ([[0, 1]], [[0, 0]])
    for queries in (3, np.zeros(60), np.zeros((2, 9))):
        with pytest.raises(InputError, match=r"queries has shape|9 features"):
            search(data, queries, 2, progress=False)


def test_search__bad_arguments(data, rows):
    for arguments, message in [
        ({"n_neighbors": 0}, "n_neighbors=0"),
        ({"n_neighbors": N_ROWS}, "there are 499 other rows"),
        ({"n_neighbors": N_ROWS + 1, "queries": rows}, "there are 500 rows"),
        ({"rerank": 9}, "rerank=9"),
        ({"rerank": 20}, "needs the source of the shards; pass source"),
        ({"rerank": 20, "source": rows[:7]}, "500 rows of 60 columns"),
        ({"rerank": 20, "source": rows[::-1]}, "codes of rows 0 to"),
        ({"rerank": 20, "source": sp.vstack([rows[:-9], rows[-9:][::-1]])}, "to 499 differ"),
        ({"source": rows}, "rerank=100 needs the source of the shards"),
        ({"queries": data, "rerank": 20, "source": rows}, "these queries are shards"),
    ]:
        with pytest.raises(ConfigError, match=message):
            search(data, progress=False, **arguments)


def test_search__other_maps(data, text, tmp_path):
    featurized(text, tmp_path / "fourier", dkfeat.FourierFeatures(16, random_state=0))
    source = dkfeat.LibsvmSource(text, n_features=60, zero_based=True)
    dkfeat.featurize(source, tmp_path / "sparse", data.map, layout="sparse", progress=False)
    for name, layout in (("fourier", "dense"), ("sparse", "sparse")):
        with pytest.raises(ConfigError, match=f"in the layout '{layout}', but near rows are found by equal codes"):
            search(tmp_path / name, progress=False)
    other = featurized(text, tmp_path / "other", FEATURES[{"gcws": "dart", "dart": "gcws"}[data.map.name]])
    with pytest.raises(SpecConflictError, match="another map"):
        search(data, other, progress=False)
