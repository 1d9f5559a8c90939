import itertools
import json
import tracemalloc

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import check_estimator

from dkfeat.compiled.random import levy
from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels.rbf import exponential_semigroup, reciprocal_semigroup
from dkfeat.maps import LaplaceFeatures, from_spec
from dkfeat.projections import CirculantProjection
from tests.reference import laplace as reference

KERNELS = ["exponential", "reciprocal"]
PROJECTIONS = ["dense", "circulant", "alternating_circulant"]


def some_rows(n_samples=30, n_features=21, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.exponential(0.02, (n_samples, n_features)) * (rng.random((n_samples, n_features)) < 0.6)
    X[::7] = 0
    return X.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("n_features", "n_components", "length"), [(8, 20, 8), (17, 18, 18), (30, 7, 30), (130, 3, 256)]
)
def test_laplace__is_its_formula(kernel, n_features, n_components, length):
    X = some_rows(12, n_features)
    params = {"n_components": n_components, "kernel": kernel, "beta": 0.7, "rate": 0.2, "random_state": 2**40 + 1}
    scale = 0.7**2 if kernel == "exponential" else 1 / 0.2
    length = {"exponential": length, "reciprocal": 135 if n_features == 130 else length}
    matrices = {
        "dense": reference.dense_matrix(kernel, 2**40 + 1, n_components, n_features),
        "circulant": reference.circulant_matrix(kernel, 2**40 + 1, n_components, n_features, 1, length[kernel]),
        "alternating_circulant": reference.circulant_matrix(
            kernel, 2**40 + 1, n_components, n_features, 3, length[kernel]
        ),
    }
    for projection, matrix in matrices.items():
        Z = LaplaceFeatures(projection=projection, n_mixtures=3, **params).fit(X).transform(X)
        assert Z.dtype == np.float32
        assert Z.shape == (12, n_components)
        assert np.allclose(Z, reference.features(X, matrix, scale), atol=1e-6)
        assert np.allclose(Z[::7], 1 / np.sqrt(n_components))  # all-zero rows


@pytest.mark.parametrize("n_mixtures", [2, "log2"])
@pytest.mark.parametrize("n_features", [8, 16, 21, 33, 64])
@pytest.mark.parametrize("projection", PROJECTIONS[1:])
@pytest.mark.parametrize("kernel", KERNELS)
def test_laplace__structured_features_are_those_of_the_matrix(kernel, projection, n_features, n_mixtures):
    X = some_rows(20, n_features)
    fitted = LaplaceFeatures(
        n_features * 2 + 3, kernel=kernel, projection=projection, n_mixtures=n_mixtures, random_state=5
    ).fit(X)
    expected = reference.features(X, fitted._settings.operator.matrix(), 1.0)
    assert np.allclose(fitted.transform(X), expected, atol=1e-6)


def hard_rows(kind, n_features):
    """Rows in which a transform's rounding would show: tiny, sparse, of one value, over nine decades."""
    rng = np.random.default_rng(0)
    X = rng.random((20, n_features))
    if kind == "tiny":
        return X / n_features**2
    if kind == "sparse":
        return X * (rng.random(X.shape) < 0.01) * 0.01
    if kind == "one":
        X = np.zeros((20, n_features))
        X[:, 5] = 10.0 ** np.linspace(-6, 3, 20)
        return X
    return (rng.random(X.shape) < 0.1) * 10 ** rng.uniform(-9, -2, X.shape)


@pytest.mark.parametrize("kind", ["tiny", "sparse", "one", "spread"])
@pytest.mark.parametrize("projection", ["circulant", "alternating_circulant"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_laplace__large_weights_do_not_swamp_small_ones(kernel, projection, kind):
    # among 1,024 x 3 Lévy weights, two to three decades lie between the largest and all but 1 % of them
    X = hard_rows(kind, 1024).astype(np.float32)
    fitted = LaplaceFeatures(1024, kernel=kernel, projection=projection, random_state=1).fit(X)
    expected = reference.features(X, fitted._settings.operator.matrix(), 1.0)
    errors = np.abs(fitted.transform(X) - expected).max(axis=1) * np.sqrt(1024)
    if kernel == "exponential":
        assert errors.max() < 2e-7
    else:
        assert (errors < 1e-6 * (1 + np.linalg.norm(X, axis=1))).all()


def enormous_weights(coordinates, n_components, stream, seed):
    """Weights of which some are near the largest that are ever drawn."""
    weights = levy(coordinates, n_components, stream, seed).copy()
    weights[:, ::5] *= np.float32(1e20)
    return weights


@pytest.mark.parametrize("n_mixtures", [1, 2])
def test_laplace__weights_beyond_any_transform_are_added_one_by_one(n_mixtures):
    X = np.zeros((3, 20), np.float32)
    X[1, 3], X[2, [0, 19]] = 1e-3, [1e-25, 2.0]
    W = CirculantProjection(
        n_features=20,
        n_components=47,
        seed=1,
        n_mixtures=n_mixtures,
        flips=False,
        draw=enormous_weights,
        double=True,
        heavy=2.0**30,
    )
    assert (W.matrix() > 1e18).any()
    for rows in (X, sp.csr_matrix(X)):
        assert np.allclose(W.project(rows), X.astype(np.float64) @ W.matrix().T, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n_features", [100, 200])  # by scipy's transforms and by ours
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_laplace__features_do_not_depend_on_blocks_or_container(kernel, projection, n_features):
    X = some_rows(41, n_features)
    fitted = LaplaceFeatures(270, kernel=kernel, projection=projection, random_state=1).fit(X)
    whole = fitted.transform(X)
    for kind in (np.asarray, np.asfortranarray, sp.csr_matrix, np.float32):
        for cuts in ((0, 41), (0, 1, 17, 41), range(42)):
            parts = [fitted.transform(kind(X[a:b])) for a, b in itertools.pairwise(cuts)]
            assert np.array_equal(np.vstack(parts), whole)


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_laplace__obeys_all_of_scikit_learns_checks(kernel, projection):
    check_estimator(LaplaceFeatures(8, kernel=kernel, projection=projection), on_skip=None)


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_laplace__spec_reads_back(kernel, projection):
    X = some_rows()
    fitted = LaplaceFeatures(
        20, kernel=kernel, beta=0.3, rate=7, projection=projection, n_mixtures=3, random_state=1
    ).fit(X)
    again = from_spec(json.loads(json.dumps(fitted.to_spec())))
    assert again.fingerprint() == fitted.fingerprint()
    assert np.array_equal(again.transform(X), fitted.transform(X))


KNOWN = {
    ("exponential", "dense"): [
        [0.06778448, 0.4483554, 0.4512241, 0.0831773],
        [0.4649931, 0.4591965, 0.3091163, 0.2093019],
    ],
    ("exponential", "circulant"): [
        [0.4178928, 0.3699416, 0.3978311, 0.1933653],
        [0.4363448, 0.4583133, 0.4651349, 0.3479379],
    ],
    ("exponential", "alternating_circulant"): [
        [0.1933653, 0.2007626, 0.4043826, 0.0],
        [0.3479379, 0.483476, 0.3130353, 0.2698508],
    ],
    ("reciprocal", "dense"): [
        [0.1617594, 0.1944041, 0.0945686, 0.2857364],
        [0.3968231, 0.4030336, 0.2639529, 0.3978543],
    ],
    ("reciprocal", "circulant"): [
        [0.2926974, 0.3635598, 0.3040514, 0.3773798],
        [0.4457656, 0.3989617, 0.4002231, 0.4581477],
    ],
    ("reciprocal", "alternating_circulant"): [
        [0.3773798, 0.4124608, 0.1837739, 0.4474593],
        [0.4581477, 0.3084749, 0.4784366, 0.4587708],
    ],
}


def test_laplace__known_answers():
    # frozen: another version of the streams is another version of the map
    X = np.array([[0.1, 0.0, 0.5], [0.0, 0.25, 0.0]])
    for (kernel, projection), expected in KNOWN.items():
        fitted = LaplaceFeatures(4, kernel=kernel, projection=projection, n_mixtures=2, random_state=7)
        assert np.allclose(fitted.fit_transform(X), expected, rtol=1e-5, atol=1e-7)


def test_laplace__the_number_of_columns_is_unbounded():
    X = sp.csr_matrix((np.full(3, 0.1), ([0, 0, 1], [5, 2**39, 2**39])), shape=(2, 2**40))
    Z = LaplaceFeatures(64, random_state=0).fit_width(2**40).transform(X)
    narrow = sp.csr_matrix((np.full(3, 0.1), ([0, 0, 1], [5, 2**39, 2**39])), shape=(2, 2**39 + 1))
    assert np.array_equal(LaplaceFeatures(64, random_state=0).fit_width(2**39 + 1).transform(narrow), Z)


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_laplace__values_of_any_size_give_no_nan(kernel, projection):
    X = np.zeros((6, 40))
    X[1, 3], X[2, 3], X[3, 3] = 1e-320, 1e-40, 1e-6
    X[4, [3, 7]], X[5] = [1e300, 1e-300], 1e38
    fitted = LaplaceFeatures(100, kernel=kernel, projection=projection, random_state=3).fit(X)
    for rows in (X, sp.csr_matrix(X)):
        Z = fitted.transform(rows) * 10
        assert np.allclose(Z[:3], 1, atol=1e-6)
        assert ((Z >= 0) & (Z <= 1)).all()
        assert (Z[4:] == 0).all()


@pytest.mark.parametrize(("kernel", "name"), [("exponential", "beta"), ("reciprocal", "rate")])
@pytest.mark.parametrize("value", [5e-324, 1e-200, 1e200, 1.7e308])
def test_laplace__parameters_of_any_size_give_the_kernel(kernel, name, value):
    X = np.array([[0.0, 1.0], [0.0, 0.0]])
    Z = LaplaceFeatures(64, kernel=kernel, random_state=0, **{name: value}).fit_transform(X)
    exact = {"exponential": exponential_semigroup, "reciprocal": reciprocal_semigroup}[kernel](X, **{name: value})
    assert np.allclose(Z @ Z.T, exact, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_laplace__beta_and_rate_are_units(kernel):
    X = some_rows()
    one = LaplaceFeatures(64, kernel=kernel, beta=1.0, rate=1.0, random_state=3).fit_transform(X)
    other = LaplaceFeatures(64, kernel=kernel, beta=0.5, rate=4.0, random_state=3).fit_transform(X * 4)
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"beta": 0}, "beta=0, but it must be a finite number above 0"),
        ({"beta": np.nan}, "beta=nan"),
        ({"rate": -1.0}, "rate=-1.0, but it must be a finite number above 0"),
        ({"rate": np.inf}, "rate=inf"),
        ({"n_components": 0}, "n_components=0"),
        ({"kernel": "rbf"}, "kernel='rbf', but it must be one of 'exponential', 'reciprocal'"),
        ({"projection": "fastfood"}, "projection='fastfood', but it must be one of 'dense', 'circulant', 'altern"),
        ({"n_mixtures": 0}, "n_mixtures=0"),
        ({"n_mixtures": "log"}, "n_mixtures='log', but it must be 'log2' or"),
        ({"random_state": -3}, "random_state=-3"),
    ],
)
def test_laplace__refuses_settings_out_of_range(params, text):
    with pytest.raises(ConfigError, match=text):
        LaplaceFeatures(**params).fit(some_rows())


@pytest.mark.parametrize("projection", PROJECTIONS[1:])
def test_laplace__circulant_projections_refuse_rows_too_wide(projection):
    with pytest.raises(ConfigError, match=r"n_features=16,777,217, .* choose projection='dense'"):
        LaplaceFeatures(projection=projection).fit_width(2**24 + 1)


@pytest.mark.parametrize("kind", [np.asarray, np.float32, sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_laplace__names_a_negative_value(projection, kind):
    X = some_rows()
    X[13, 4], X[20, 1] = -0.5, -3
    features = LaplaceFeatures(8, projection=projection, random_state=0)
    for call in (features.fit, features.fit_width(21).transform):
        with pytest.raises(InputError, match=r"^Negative values in data: X holds -0\.5 at row 13, column 4 ") as caught:
            call(kind(X))
        assert (caught.value.row, caught.value.column) == (13, 4)


def test_laplace__a_negative_sum_of_duplicates_counts_not_its_parts():
    X = sp.csr_matrix(([4.0, -1.0, -5.0, 5.0], [2, 2, 3, 3], [0, 4]), shape=(1, 5))
    clean = np.array([[0, 0, 3.0, 0, 0]])
    fitted = LaplaceFeatures(8, beta=0.1, random_state=0).fit(X)
    assert np.array_equal(fitted.transform(X), fitted.transform(clean))


def test_laplace__dask_arrays_are_checked_when_transformed():
    X = some_rows()
    X[13, 4] = -1
    blocks = da.from_array(X, chunks=(10, 21))
    features = LaplaceFeatures(8, random_state=0).fit(blocks).transform(blocks)
    with pytest.raises(InputError, match=r"^Negative values in data: X holds -1 at row 3, column 4"):
        features.compute(scheduler="synchronous")


@pytest.mark.parametrize(
    ("n_features", "n_mixtures", "expected"), [(64, "log2", 6), (65, "log2", 7), (1, "log2", 2), (64, 2, 2), (64, 5, 5)]
)
def test_laplace__mixtures(n_features, n_mixtures, expected):
    fitted = LaplaceFeatures(projection="alternating_circulant", n_mixtures=n_mixtures).fit_width(n_features)
    assert fitted._settings.operator.n_mixtures == expected
    assert LaplaceFeatures(projection="circulant").fit_width(64)._settings.operator.n_mixtures == 1


def peak_bytes(run):
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("n_mixtures", [2, 12])
@pytest.mark.parametrize("kernel", KERNELS)
def test_laplace__memory_is_in_proportion_to_mixtures_and_components(kernel, n_mixtures):
    d, n_components = 4096, 2**16
    X = some_rows(1, d)
    params = {"kernel": kernel, "projection": "alternating_circulant", "n_mixtures": n_mixtures}
    LaplaceFeatures(d, random_state=0, **params).fit_transform(X)  # compiles and imports
    fitted = LaplaceFeatures(n_components, random_state=0, **params).fit(X)
    # weights, spectra and masks take up to 20 bytes for each mixture and component, and drawing them about as much
    # again; W would take 4 d = 16,384 bytes a component
    assert peak_bytes(lambda: fitted.transform(X)) < (48 * n_mixtures + 100) * n_components
