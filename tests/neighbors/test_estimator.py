import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import DBSCAN
from sklearn.neighbors import KNeighborsTransformer, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dkfeat import DartFeatures, FourierFeatures, GCWSFeatures
from dkfeat.errors import ConfigError
from dkfeat.kernels import gmm
from dkfeat.neighbors import GMMNeighbors


@parametrize_with_checks([GMMNeighbors()])
def test_scikit_learn__accepts_it(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    """Rows in groups of near copies, signed and sparse, one of them all zeros."""
    rng = np.random.default_rng(0)
    centres = rng.lognormal(size=(30, 40)) * rng.choice([-1, 1], (30, 40)) * (rng.random((30, 40)) < 0.5)
    X = np.repeat(centres, 10, axis=0) * rng.lognormal(sigma=0.2, size=(300, 40))
    X[17] = 0
    return sp.csr_matrix(X)


def exact_neighbors(queries, rows, n, *, own=None):
    distances = 1 - gmm(queries, rows)
    if own is not None:
        distances[own, own] = np.inf
    order = np.argsort(distances, axis=1, kind="stable")[:, :n]
    return np.take_along_axis(distances, order, axis=1), order


@pytest.mark.parametrize("as_input", [sp.csr_matrix, sp.csr_matrix.toarray])
def test_kneighbors__all_candidates_give_the_exact_neighbours(rows, as_input):
    found = GMMNeighbors(n_candidates=300).fit(as_input(rows))
    queries = rows[::7].multiply(1.1).tocsr()
    distances, neighbors = found.kneighbors(as_input(queries), 12)
    expected_distances, expected = exact_neighbors(queries, rows, 12)
    assert np.array_equal(neighbors, expected)
    assert np.array_equal(distances, expected_distances)
    assert np.array_equal(found.kneighbors(as_input(queries), 12, return_distance=False), neighbors)


def test_kneighbors__rows_of_fit_are_not_their_own_neighbours(rows):
    distances, neighbors = GMMNeighbors(n_neighbors=4, n_candidates=299).fit(rows).kneighbors()
    expected_distances, expected = exact_neighbors(rows, rows, 4, own=np.arange(300))
    assert np.array_equal(neighbors, expected)
    assert np.array_equal(distances, expected_distances)


@pytest.mark.parametrize("features", [None, DartFeatures(n_components=400, bits=6, random_state=1)])
def test_kneighbors__a_third_of_the_rows_as_candidates_finds_nearly_all(rows, features):
    found = GMMNeighbors(n_neighbors=5, features=features).fit(rows)
    neighbors = found.kneighbors(return_distance=False)
    exact = exact_neighbors(rows, rows, 5, own=np.arange(300))[1]
    recall = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(neighbors, exact, strict=True)])
    assert recall > 0.98  # with fixed seeds: 0.99 or more


def test_kneighbors__estimates_from_codes_are_near_the_kernel(rows):
    features = GCWSFeatures(n_components=4096, t_bits=1, random_state=0)
    distances, neighbors = GMMNeighbors(features=features, n_candidates=0).fit(rows).kneighbors(rows[:40], 5)
    exact = 1 - np.take_along_axis(gmm(rows[:40], rows), neighbors, axis=1)
    # five standard errors of 0.5 / sqrt(4096), and the bias of levels of one bit
    assert np.abs(distances - exact).max() < 5 * 0.008 + 0.01


def test_kneighbors__power_centre_and_norm_are_those_of_the_map(rows):
    features = DartFeatures(n_components=256, p=0.5, center=0.1, normalize="l1", random_state=0)
    dense = rows.toarray()
    distances, neighbors = GMMNeighbors(features=features, n_candidates=300).fit(dense).kneighbors(dense[:9], 3)
    exact = features.fit(dense).exact_kernel(dense[:9], dense)
    order = np.argsort(-exact, axis=1, kind="stable")[:, :3]
    assert np.array_equal(neighbors, order)
    assert np.array_equal(distances, np.clip(1 - np.take_along_axis(exact, order, axis=1), 0, 1))


def test_kneighbors__an_all_zero_query_has_distance_1_to_the_lowest_rows(rows):
    distances, neighbors = GMMNeighbors(n_neighbors=3).fit(rows).kneighbors(sp.csr_matrix((1, 40)))
    assert distances.tolist() == [[1, 1, 1]]
    assert neighbors.tolist() == [[0, 1, 2]]


def test_graphs__have_the_form_of_scikit_learns(rows):
    dense = rows.toarray()
    ours, theirs = GMMNeighbors(n_neighbors=4).fit(rows), NearestNeighbors(n_neighbors=4).fit(dense)
    for mode in ("connectivity", "distance"):
        for queries in (None, rows[:20]):
            graph = ours.kneighbors_graph(queries, mode=mode)
            other = theirs.kneighbors_graph(None if queries is None else queries.toarray(), mode=mode)
            assert (graph.shape, graph.nnz, graph.format) == (other.shape, other.nnz, other.format)
            assert np.array_equal(graph.indptr, other.indptr)
    transformed = ours.transform(rows)
    assert transformed.nnz == KNeighborsTransformer(n_neighbors=4).fit_transform(dense).nnz == 300 * 5
    filled = [row for row in range(300) if row != 17]
    assert transformed[filled].indices.reshape(-1, 5)[:, 0].tolist() == filled  # each row first, at distance 0
    assert len(ours.get_feature_names_out()) == 300


@pytest.mark.filterwarnings("ignore:Precomputed sparse input")  # scikit-learn 1.6 sets the diagonal and does not sort
def test_pipeline__dbscan_finds_the_groups(rows):
    steps = GMMNeighbors(n_neighbors=9), DBSCAN(eps=0.5, min_samples=4, metric="precomputed")
    labels = make_pipeline(*steps).fit_predict(rows)
    assert labels[17] == -1
    groups = [set(labels[first : first + 10]) - {-1} for first in range(0, 300, 10)]
    assert all(len(group) == 1 for group in groups)
    assert len(set.union(*groups)) == 30


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors=0"),
        ({"n_candidates": -1}, "n_candidates=-1"),
        ({"mode": "edges"}, "mode='edges'"),
        ({"features": FourierFeatures()}, "pass GCWSFeatures, DartFeatures or MinHashFeatures"),
    ],
)
def test_fit__bad_parameters(rows, params, message):
    with pytest.raises(ConfigError, match=message):
        GMMNeighbors(**params).fit(rows)


def test_kneighbors__more_neighbours_than_rows(rows):
    with pytest.raises(ConfigError, match="there are 2 other rows"):
        GMMNeighbors(n_neighbors=3).fit(rows[:3]).kneighbors()
    with pytest.raises(ConfigError, match="n_neighbors=3, but there are 2 other rows"):
        GMMNeighbors(n_neighbors=3, mode="distance").fit(rows[:3]).transform(rows[:3])
