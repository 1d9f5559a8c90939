"""Bias and variance of Fourier features against the theorems of the paper.

Over seeds s, e_s = <Z(x), Z(y)> estimates kappa. With R seeds its mean has the standard error std / sqrt(R), and its
variance m2 has the standard error sqrt((m4 - m2^2) / R). Bounds at |z| < 5 fail a correct program with chance 6e-7
each; all seeds are fixed.
"""

import numpy as np
import pytest

from dkfeat.maps import FourierFeatures
from tests.conftest import first_quick
from tests.reference.law import assert_variance, estimates, pairs_of_cosines

GAMMA = 1.5


def some_pairs(n_features, seed=0):
    """Unit rows of cosines from -0.6 to 0.97, pairs in the order x0, y0, x1, y1, ... ."""
    return pairs_of_cosines(np.random.default_rng(seed), (-0.6, 0.1, 0.5, 0.8, 0.97), n_features)


def kernel_of(X):
    return np.exp(-GAMMA * (1 - (X[::2] * X[1::2]).sum(axis=1)))


@pytest.mark.parametrize("kernel", ["rbf_cosine", "rbf"])
@pytest.mark.parametrize("projection", first_quick(["dense", "alternating_circulant", "circulant", "fastfood"], 2))
def test_rff__is_unbiased(projection, kernel):
    X = some_pairs(12)
    lengths = np.linspace(0.2, 1.5, len(X))[:, None] if kernel == "rbf" else 7.0
    distances = ((X[::2] * lengths[::2] - X[1::2] * lengths[1::2]) ** 2).sum(axis=1) if kernel == "rbf" else None
    expected = np.exp(-GAMMA * distances) if kernel == "rbf" else kernel_of(X)
    features = FourierFeatures(24, gamma=GAMMA, kernel=kernel, normalize=False, projection=projection)
    found = estimates(features, X * lengths, 1500)
    z = (found.mean(axis=0) - expected) / (found.std(axis=0) / np.sqrt(len(found)))
    assert np.abs(z).max() < 5


@pytest.mark.parametrize(("n_components", "n_seeds"), [(64, 3000), pytest.param(1024, 1500, marks=pytest.mark.slow)])
def test_rff__has_the_variance_of_theorem_2(n_components, n_seeds):
    # V = 1/2 + (1 - exp(-2 gamma (1 - rho)))^2 / 2 a component: 1/2 is the phases' part
    X = some_pairs(12)
    found = estimates(FourierFeatures(n_components, gamma=GAMMA, normalize=False), X, n_seeds)
    V = 0.5 + 0.5 * (1 - kernel_of(X) ** 2) ** 2
    assert_variance(found, V / n_components)


@pytest.mark.parametrize(("n_components", "n_seeds"), [(64, 3000), pytest.param(1024, 1500, marks=pytest.mark.slow)])
def test_nrff__has_the_variance_of_theorem_3(n_components, n_seeds):
    # V_n = V - kappa^2 (3 - kappa^4) / 4 with kappa = exp(-gamma (1 - rho)), up to a term of O(1 / k^2)
    X = some_pairs(12)
    found = estimates(FourierFeatures(n_components, gamma=GAMMA), X, n_seeds)
    kappa = kernel_of(X)
    V = 0.5 + 0.5 * (1 - kappa**2) ** 2
    V_n = V - kappa**2 * (3 - kappa**4) / 4
    assert_variance(found, V_n / n_components, slack=2 / n_components**2)
    assert (found.var(axis=0) < V / n_components)[-2:].all()
    # its bias is of O(1 / k)
    error = found.std(axis=0) / np.sqrt(n_seeds)
    assert (np.abs(found.mean(axis=0) - kappa) < 5 * error + 2 / n_components).all()


@pytest.mark.slow
@pytest.mark.parametrize("projection", ["circulant", "alternating_circulant", "fastfood", "orthogonal"])
def test_structured__error_is_of_the_order_of_the_dense_one(projection):
    # one block of 64 rows: 63 covariances of O(1 / 64) with each other row add a part of the variance (measured: up to
    # 1.36), where rows that fully agree would multiply it by 64
    X = some_pairs(64)
    found = estimates(FourierFeatures(64, gamma=GAMMA, normalize=False, projection=projection), X, 1000)
    V = 0.5 + 0.5 * (1 - kernel_of(X) ** 2) ** 2
    assert (((found - kernel_of(X)) ** 2).mean(axis=0) < 1.7 * V / 64).all()


@pytest.mark.slow
def test_orthogonal__bias_is_small_and_falls_with_the_columns():
    biases = []
    for n_features in (16, 64, 256):
        X = some_pairs(n_features)
        features = FourierFeatures(n_features, gamma=GAMMA, normalize=False, projection="orthogonal")
        found = estimates(features, X, 4000).mean(axis=1)  # over the pairs
        biases.append((found.mean() - kernel_of(X).mean(), found.std() / np.sqrt(len(found))))
    (first, first_error), (second, second_error), (third, third_error) = biases
    assert -0.05 < first < -5 * first_error  # there is one at 16 columns
    assert abs(second) < abs(first) / 2 + 5 * second_error
    assert abs(third) < abs(first) / 8 + 5 * third_error
