import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.kernel_approximation import RBFSampler

from dkfeat.errors import ConfigError, InputError
from dkfeat.maps import FourierFeatures, from_spec
from dkfeat.maps.fourier import _phases

PROJECTIONS = ["dense", "circulant", "alternating_circulant", "fastfood", "orthogonal"]


def some_rows(n_samples=30, n_features=21, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features)) * (rng.random((n_samples, n_features)) < 0.6)
    X[::7] = 0
    return X.astype(np.float32).astype(np.float64)


def expected_features(features, X):
    """The formulas in float64, with W written out."""
    matrix = features._settings.operator.matrix()
    k = len(matrix)
    if features.kernel == "rbf_cosine":
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        X = np.divide(X, norms, out=np.zeros_like(X), where=norms > 0)
        angles = np.sqrt(features.gamma) * X @ matrix.T
    else:
        angles = np.sqrt(2 * features.gamma) * X @ matrix.T
    cosines = np.cos(angles + 2 * np.pi * _phases(features.seed_, k).astype(np.float64))
    if features.normalize:
        return cosines / np.linalg.norm(cosines, axis=1, keepdims=True)
    return np.sqrt(2 / k) * cosines


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kernel", ["rbf_cosine", "rbf"])
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("n_components", [1, 50, 128])
def test_fourier__is_its_formula(projection, kernel, normalize, n_components):
    X = some_rows()
    features = FourierFeatures(
        n_components, gamma=0.7, kernel=kernel, normalize=normalize, projection=projection, random_state=2
    ).fit(X)
    Z = features.transform(X)
    assert Z.dtype == np.float32
    assert Z.shape == (30, n_components)
    assert np.allclose(Z, expected_features(features, X), atol=2e-5)
    if normalize:
        assert np.allclose(np.linalg.norm(Z, axis=1), 1, atol=1e-6)


def test_fourier__is_scikit_learns_sampler_with_the_same_draws():
    X = some_rows()
    features = FourierFeatures(64, gamma=0.3, kernel="rbf", normalize=False, random_state=4).fit(X)
    sampler = RBFSampler(gamma=0.3, n_components=64, random_state=0).fit(X)
    sampler.random_weights_ = np.sqrt(2 * 0.3) * features._settings.operator.matrix().T
    sampler.random_offset_ = 2 * np.pi * _phases(4, 64).astype(np.float64)
    assert np.allclose(features.transform(X), sampler.transform(X), atol=1e-5)


@pytest.mark.parametrize("kernel", ["rbf_cosine", "rbf"])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_fourier__features_do_not_depend_on_blocks_or_container(projection, kernel):
    X = some_rows(41, 100)
    features = FourierFeatures(70, projection=projection, kernel=kernel, random_state=1).fit(X)
    whole = features.transform(X)
    for kind in (np.asarray, np.asfortranarray, sp.csr_matrix, np.float32):
        for cuts in ((0, 41), (0, 1, 17, 41), range(42)):
            parts = [features.transform(kind(X[a:b])) for a, b in itertools.pairwise(cuts)]
            assert np.array_equal(np.vstack(parts), whole)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_fourier__spec_reads_back(projection):
    X = some_rows()
    features = FourierFeatures(20, projection=projection, n_mixtures=3, random_state=1).fit(X)
    assert np.array_equal(from_spec(features.to_spec()).transform(X), features.transform(X))


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_fourier__directions_have_no_scale(kind, scale):
    X = some_rows()
    features = FourierFeatures(40, random_state=1).fit(X)
    wanted = features.transform(X)
    assert np.allclose(features.transform(kind(X * scale)), wanted, atol=1e-5)
    mixed = X * np.where(np.arange(30) % 3, 1, scale)[:, None]
    assert np.allclose(features.transform(kind(mixed)), wanted, atol=1e-5)
    assert np.array_equal(features.transform(sp.csr_matrix(mixed)), features.transform(mixed))


def test_fourier__scikit_learns_gamma_is_half_of_ours_on_unit_rows():
    X = some_rows()[1:7]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    ours = FourierFeatures(32, gamma=0.8, random_state=3).fit_transform(X)
    theirs = FourierFeatures(32, gamma=0.4, kernel="rbf", random_state=3).fit_transform(X)
    assert np.allclose(ours, theirs, atol=1e-5)


def test_fourier__the_number_of_columns_is_unbounded():
    X = sp.csr_matrix((np.ones(3), ([0, 0, 1], [5, 2**39, 2**39])), shape=(2, 2**40))
    Z = FourierFeatures(64, random_state=0).fit_width(2**40).transform(X)
    narrow = sp.csr_matrix((np.ones(3), ([0, 0, 1], [5, 2**39, 2**39])), shape=(2, 2**39 + 1))
    assert np.array_equal(FourierFeatures(64, random_state=0).fit_width(2**39 + 1).transform(narrow), Z)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"gamma": 0}, "gamma=0, but it must be a finite number above 0"),
        ({"gamma": -1.0}, "gamma=-1.0"),
        ({"gamma": np.nan}, "gamma=nan"),
        ({"n_components": 0}, "n_components=0"),
        ({"kernel": "laplace"}, "kernel='laplace', but it must be one of 'rbf_cosine', 'rbf'"),
        ({"projection": "sparse"}, "projection='sparse', but it must be one of 'dense'"),
        ({"normalize": "l2"}, "normalize='l2', but it must be True"),
        ({"n_mixtures": 0}, "n_mixtures=0"),
        ({"n_mixtures": "log"}, "n_mixtures='log', but it must be 'log2' or"),
        ({"random_state": -3}, "random_state=-3"),
    ],
)
def test_fourier__refuses_settings_out_of_range(params, text):
    with pytest.raises(ConfigError, match=text):
        FourierFeatures(**params).fit(some_rows())


@pytest.mark.parametrize("projection", PROJECTIONS[1:])
def test_fourier__structured_projections_refuse_rows_too_wide(projection):
    with pytest.raises(ConfigError, match=r"n_features=16,777,217, .* choose projection='dense'"):
        FourierFeatures(projection=projection).fit_width(2**24 + 1)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("value", [np.nan, np.inf, 2e25, -1e300])
def test_fourier__rbf_names_a_value_that_it_cannot_take(kind, value):
    X = some_rows()
    X[13, 4] = value
    with pytest.raises(InputError, match="row 13, column 4 ") as caught:
        FourierFeatures(kernel="rbf", random_state=0).fit_width(21).transform(kind(X))
    assert (caught.value.row, caught.value.column) == (13, 4)


@pytest.mark.parametrize(
    ("n_features", "n_mixtures", "expected"), [(64, "log2", 6), (65, "log2", 7), (1, "log2", 2), (64, 5, 5)]
)
def test_fourier__mixtures(n_features, n_mixtures, expected):
    features = FourierFeatures(projection="alternating_circulant", n_mixtures=n_mixtures).fit_width(n_features)
    assert features._settings.operator.n_mixtures == expected
