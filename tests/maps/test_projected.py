"""Maps of one component for each row of a projection, whichever projection it is."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import check_estimator

from dkfeat import FourierFeatures, LaplaceFeatures
from dkfeat.errors import ConfigError

KERNELS = {FourierFeatures: ("rbf_cosine", "rbf"), LaplaceFeatures: ("exponential", "reciprocal")}
PROJECTIONS = {
    FourierFeatures: ("dense", "circulant", "alternating_circulant", "fastfood", "orthogonal"),
    LaplaceFeatures: ("dense", "circulant", "alternating_circulant"),
}
of_both = pytest.mark.parametrize("cls", KERNELS)
of_each_projection = pytest.mark.parametrize(
    ("cls", "projection"), [(cls, name) for cls, names in PROJECTIONS.items() for name in names]
)
of_each_kernel_and_projection = pytest.mark.parametrize(
    ("cls", "kernel", "projection"),
    [(cls, kernel, name) for cls, names in PROJECTIONS.items() for kernel in KERNELS[cls] for name in names],
)


def some_rows(n_samples=30, n_features=21, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_features)) * (rng.random((n_samples, n_features)) < 0.6)
    X[::7] = 0
    return X.astype(np.float32).astype(np.float64)


def non_negative_rows(n_samples=30, n_features=21, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.exponential(0.02, (n_samples, n_features)) * (rng.random((n_samples, n_features)) < 0.6)
    X[::7] = 0
    return X.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("n_features", [100, 200])  # by scipy's transforms and by ours
@of_each_kernel_and_projection
def test_features__do_not_depend_on_blocks_or_container(cls, kernel, projection, n_features):
    X = non_negative_rows(41, n_features)
    fitted = cls(270, kernel=kernel, projection=projection, random_state=1).fit(X)
    whole = fitted.transform(X)
    for kind in (np.asarray, np.asfortranarray, sp.csr_matrix, np.float32):
        for cuts in ((0, 41), (0, 1, 17, 41), range(42)):
            parts = [fitted.transform(kind(X[a:b])) for a, b in itertools.pairwise(cuts)]
            assert np.array_equal(np.vstack(parts), whole)


@of_each_kernel_and_projection
def test_map__obeys_all_of_scikit_learns_checks(cls, kernel, projection):
    check_estimator(cls(8, kernel=kernel, projection=projection), on_skip=None)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("gamma", 0, "gamma=0, but it must be a finite number above 0"),
        ("gamma", -1.0, "gamma=-1.0"),
        ("gamma", np.nan, "gamma=nan"),
        ("beta", 0, "beta=0, but it must be a finite number above 0"),
        ("beta", np.nan, "beta=nan"),
        ("rate", -1.0, "rate=-1.0, but it must be a finite number above 0"),
        ("rate", np.inf, "rate=inf"),
        ("n_components", 0, "n_components=0"),
        ("kernel", "laplace", "kernel='laplace', but it must be one of '"),
        ("projection", "sparse", "projection='sparse', but it must be one of 'dense', 'circulant', 'altern"),
        ("normalize", "l2", "normalize='l2', but it must be True"),
        ("n_mixtures", 0, "n_mixtures=0"),
        ("n_mixtures", "log", "n_mixtures='log', but it must be 'log2' or"),
        ("random_state", -3, "random_state=-3"),
    ],
)
@of_both
def test_map__refuses_settings_out_of_range(cls, name, value, text):
    if name in cls().get_params():
        with pytest.raises(ConfigError, match=text):
            cls(**{name: value}).fit(non_negative_rows())


@of_each_projection
def test_map__structured_projections_refuse_rows_too_wide(cls, projection):
    features = cls(projection=projection)
    if projection == "dense":
        assert features.fit_width(2**24 + 1).n_features_in_ == 2**24 + 1
    else:
        with pytest.raises(ConfigError, match=r"n_features=16,777,217, .* choose projection='dense'"):
            features.fit_width(2**24 + 1)


@of_both
@pytest.mark.parametrize(
    ("n_features", "n_mixtures", "expected"), [(64, "log2", 6), (65, "log2", 7), (1, "log2", 2), (64, 2, 2), (64, 5, 5)]
)
def test_map__number_of_mixtures(cls, n_features, n_mixtures, expected):
    fitted = cls(projection="alternating_circulant", n_mixtures=n_mixtures).fit_width(n_features)
    assert fitted._settings.operator.n_mixtures == expected
    assert cls(projection="circulant").fit_width(64)._settings.operator.n_mixtures == 1
