"""What maps say of their kernels: exact values, and errors that simulation confirms."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from dkfeat import (
    DartFeatures,
    FourierFeatures,
    GCWSFeatures,
    LaplaceFeatures,
    MaclaurinFeatures,
    MinHashFeatures,
    NystroemFeatures,
    kernels,
)
from dkfeat.errors import ConfigError, InputError
from tests.maps.small import FEATURE_MAPS, rows_for, small_map

RFF = {"normalize": False}
K = 32
MAPS = {
    "gcws": (GCWSFeatures(K, t_bits=2), lambda X: kernels.gmm(X)),
    "gcws-2-bits": (GCWSFeatures(K, i_bits=2, t_bits=2, p=0.5), lambda X: kernels.gmm(X, p=0.5)),
    "gcws-prepared": (
        GCWSFeatures(K, t_bits=2, center=0.5, normalize="l1"),
        lambda X: kernels.gmm((X - 0.5) / np.abs(X - 0.5).sum(axis=1, keepdims=True)),
    ),
    "dart": (DartFeatures(K), lambda X: kernels.gmm(X)),
    "dart-2-bits": (DartFeatures(K, bits=2, p=0.5), lambda X: kernels.gmm(X, p=0.5)),
    "minhash": (MinHashFeatures(K), lambda X: kernels.gmm(X)),
    "minhash-2-bits": (MinHashFeatures(50, bits=2), lambda X: kernels.gmm(X)),
    "nrff": (FourierFeatures(4 * K, gamma=0.5), lambda X: kernels.rbf_cosine(X, gamma=0.5)),
    "rff": (FourierFeatures(K, gamma=3.0, **RFF), lambda X: kernels.rbf_cosine(X, gamma=3.0)),
    "rff-rbf": (FourierFeatures(K, gamma=0.02, kernel="rbf", **RFF), lambda X: kernels.rbf(X, gamma=0.02)),
    "laplace": (LaplaceFeatures(K, beta=0.02), lambda X: kernels.exponential_semigroup(X, beta=0.02)),
    "laplace-reciprocal": (
        LaplaceFeatures(K, kernel="reciprocal", rate=60.0),
        lambda X: kernels.reciprocal_semigroup(X, rate=60.0),
    ),
    "maclaurin": (
        MaclaurinFeatures(K, degree=2, normalize="l2"),
        lambda X: kernels.polynomial(X / np.linalg.norm(X, axis=1, keepdims=True), degree=2),
    ),
    "maclaurin-h01": (
        MaclaurinFeatures(K, kernel="exponential", h01=True, measure="proper", scale=0.05, radius=2.0),
        lambda X: kernels.exponential_dot_product(0.05 * X),
    ),
    "maclaurin-inner": (
        MaclaurinFeatures(K, degree=2, coef0=0.5, inner=FourierFeatures(gamma=0.5, **RFF)),
        lambda X: (kernels.rbf_cosine(X, gamma=0.5) + 0.5) ** 2,
    ),
    "maclaurin-signs": (
        MaclaurinFeatures(K, degree=2, inner=GCWSFeatures(), scale=0.8),
        lambda X: (0.64 * kernels.gmm(X) + 1) ** 2,
    ),
}


def rows_alike(n_rows=4, n_columns=80):
    """Positive rows, neighbours of which are more alike than others."""
    rng = np.random.default_rng(0)
    first, other = rng.lognormal(size=(2, n_columns))
    return np.array([first * (1 - share) + other * share for share in np.linspace(0, 1, n_rows)])


@pytest.mark.parametrize(("features", "kernel"), MAPS.values(), ids=MAPS)
def test_exact_kernel__is_that_of_the_prepared_rows(features, kernel):
    X = rows_for(type(features), rows_alike())
    fitted = features.set_params(random_state=0).fit(X)
    np.testing.assert_allclose(fitted.exact_kernel(X), kernel(X), rtol=1e-9)
    np.testing.assert_allclose(fitted.exact_kernel(sp.csr_matrix(X), X[:2]), kernel(X)[:, :2], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("gcws", marks=pytest.mark.quick), *sorted(MAPS.keys() - {"gcws"})])
def test_expected_error__is_that_of_simulations(name):
    # 16 maps of 6 pairs: a correct program fails this about once in 20,000 choices of seeds, were the means normal
    features, X, seeds = MAPS[name][0], rows_for(type(MAPS[name][0]), rows_alike()), 300
    pairs = np.triu_indices(len(X), k=1)
    found = np.empty((seeds, len(pairs[0])))
    for seed in range(seeds):
        drawn = features.set_params(random_state=seed).fit(X)
        found[seed] = drawn.estimate_kernel(drawn.encode(X))[pairs]
    squares = (found - drawn.exact_kernel(X)[pairs]) ** 2
    expected = drawn.expected_error(X)[pairs] ** 2
    z = (squares.mean(axis=0) - expected) / (squares.std(axis=0) / math.sqrt(seeds))
    assert np.abs(z).max() < 5
    assert expected.min() > 0


@pytest.mark.parametrize("name", ["gcws", "dart", "nrff", "rff", "rff-rbf", "laplace"])
def test_expected_error_at__is_that_of_pairs_of_the_value(name):
    X = rows_alike()
    features = MAPS[name][0].set_params(random_state=0).fit(X)
    errors = features.expected_error(X)
    np.testing.assert_allclose(features.expected_error_at(features.exact_kernel(X)), errors, atol=1e-7)


@pytest.mark.parametrize("name", ["laplace-reciprocal", "maclaurin", "maclaurin-signs", "minhash"])
def test_expected_error_at__bounds_pairs_of_the_value(name):
    features = MAPS[name][0]
    X = rows_for(type(features), rows_alike())
    features.set_params(random_state=0).fit(X)
    exact, errors = features.exact_kernel(X), features.expected_error(X)
    inside = exact <= features.kernel_range[1]
    assert (features.expected_error_at(exact[inside]) >= errors[inside] - 1e-9).all()


def test_expected_error__is_none_where_theory_has_none():
    X = rows_alike()
    nystroem = NystroemFeatures(3, random_state=0)
    assert nystroem.expected_error_at(0.5) is None
    assert nystroem.fit(X).expected_error(X) is None
    circular = LaplaceFeatures(K, projection="circulant", random_state=0).fit(X)
    assert circular.expected_error(X) is None
    assert np.isclose(circular.expected_error_at(0.5), LaplaceFeatures(K).expected_error_at(0.5))


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_kernel_pairs__hold_what_the_features_say(name):
    X = rows_for(FEATURE_MAPS[name], rows_alike(8) / 200)
    features = small_map(name, n_components=K).fit(X)
    pairs = features.kernel_pairs(X, n_rows=5, random_state=3)
    assert len(pairs) == 10
    assert (pairs.left < pairs.right).all()
    np.testing.assert_array_equal(pairs.exact, features.exact_kernel(X)[pairs.left, pairs.right])
    np.testing.assert_array_equal(
        pairs.estimates, features.estimate_kernel(features.encode(X))[pairs.left, pairs.right]
    )
    assert (pairs.deviations is None) == (features.expected_error(X) is None)
    assert (pairs.expected_error is None) == (pairs.share_within is None) == (pairs.deviations is None)
    assert pairs.error == pytest.approx(np.sqrt(np.mean((pairs.estimates - pairs.exact) ** 2)))
    assert str(pairs).startswith(f"{pairs.kernel}: 10 pairs of rows, root mean squared error ")
    assert len(features.kernel_pairs(sp.csr_matrix(X))) == 28


def test_kernel_pairs__asks_for_fitted_maps_and_two_rows():
    X = rows_alike()
    with pytest.raises(NotFittedError):
        GCWSFeatures().kernel_pairs(X)
    fitted = GCWSFeatures(random_state=0).fit(X)
    with pytest.raises(InputError, match="a pair needs two"):
        fitted.kernel_pairs(X[:1])
    with pytest.raises(ConfigError, match="n_rows=1"):
        fitted.kernel_pairs(X, n_rows=1)
    with pytest.raises(InputError, match=r"shapes \(4, 3\)"):
        FourierFeatures(8, random_state=0).fit(X).estimate_kernel(np.ones((4, 3)), np.ones((4, 2)))


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_kernel_pairs__take_data_frames_without_a_warning(name):
    X = rows_for(FEATURE_MAPS[name], rows_alike() / 200)
    frame = pd.DataFrame(X, columns=[f"c{column}" for column in range(X.shape[1])])
    features = small_map(name, n_components=K).fit(frame)
    with pytest.warns(UserWarning, match="feature names"):  # scikit-learn's own, of a frame's map and a plain array
        plain = features.kernel_pairs(X)
    np.testing.assert_array_equal(features.kernel_pairs(frame).estimates, plain.estimates)
    assert features.exact_kernel(frame).shape == (4, 4)


@pytest.mark.parametrize(("features", "value"), [(GCWSFeatures(8), -0.1), (MaclaurinFeatures(8), 9.0)])
def test_expected_error_at__refuses_what_is_no_value_of_the_kernel(features, value):
    with pytest.raises(InputError, match=f"similarity={value}"):
        features.expected_error_at([0.5 if value < 0 else 1.5, value])


def test_unfitted_maps__answer_without_touching_their_generator():
    rng = np.random.default_rng(0)
    features = GCWSFeatures(64, random_state=rng)
    before = rng.bit_generator.state
    assert features.expected_error_at(0.5) > 0
    assert features.kernel_range == (0.0, 1.0)
    assert rng.bit_generator.state == before
    assert not hasattr(features, "seed_")
    with pytest.raises(ConfigError, match="n_components=0"):
        GCWSFeatures(0).expected_error_at(0.5)
