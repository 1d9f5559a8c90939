"""Mean and variance of random Maclaurin features against exact kernels and the theory.

Components of one map are independent, so that D of them are D draws of one estimate e = D z(x) z(y): their mean has the
standard error std / sqrt(D), and their variance m2 has sqrt((m4 - m2^2) / D). Bounds at |z| < 5 fail a correct
program with chance 6e-7 each; all seeds are fixed.
"""

import math

import numpy as np
import pytest
from reproduction.theory.maclaurin import component_variance, degree_probabilities

from dkfeat import kernels
from dkfeat.maps import MaclaurinFeatures
from tests.reference.law import assert_variance, pairs_of_cosines

D = 2**16
COEFFICIENTS = [0.5, 0.0, 2.0, 0.25]
EXPONENTIAL = [0.8**n / math.factorial(n) for n in range(40)]
VOVK = [math.gamma(n + 1.5) / math.gamma(1.5) / math.factorial(n) for n in range(100)]

# parameters, exact kernel, coefficients, length of the rows
KERNELS = {
    "homogeneous": ({"degree": 2, "coef0": 0.0}, lambda X, Y: kernels.polynomial(X, Y, 2, 0.0), [0, 0, 1.0], 1.2),
    "polynomial": ({}, lambda X, Y: kernels.polynomial(X, Y, 3, 1.0), [1.0, 3, 3, 1], 1.0),
    "vovk_real": ({"kernel": "vovk_real", "degree": 4}, lambda X, Y: kernels.vovk_real(X, Y, 4), [1.0] * 4, 0.9),
    "vovk_infinite": (
        {"kernel": "vovk_infinite", "alpha": 1.5, "radius": 0.5},
        lambda X, Y: kernels.vovk_infinite(X, Y, 1.5),
        VOVK,
        0.45,
    ),
    "exponential": (
        {"kernel": "exponential", "gamma": 0.8},
        lambda X, Y: kernels.exponential_dot_product(X, Y, 0.8),
        EXPONENTIAL,
        0.9,
    ),
    "maclaurin": (
        {"kernel": "maclaurin", "coefficients": COEFFICIENTS},
        lambda X, Y: kernels.maclaurin(X, Y, COEFFICIENTS),
        COEFFICIENTS,
        1.0,
    ),
}
MEASURES = [("kernel", 2.0), ("proper", 2.0), ("proper", 1.5), ("proper", 3.0)]


def some_pairs(length, n_features=6):
    """Pairs of rows of cosines from -0.7 to 1, in the order x0, y0, x1, y1, ... ."""
    rows = pairs_of_cosines(np.random.default_rng(4), (-0.7, 0.0, 0.6, 0.95, 1.0), n_features)
    return rows.astype(np.float32).astype(np.float64) * length


def components(X, n_components=D, **params):
    """D estimates of each pair, of shape (D, n_pairs), and what the exact columns add to them."""
    features = MaclaurinFeatures(n_components=n_components, random_state=11, **params).fit_width(X.shape[1])
    Z = features.transform(X).astype(np.float64)
    products = (Z[::2] * Z[1::2]).T
    n_exact = len(products) - n_components
    return products[n_exact:] * n_components, products[:n_exact].sum(axis=0)


def paired(kernel, X):
    return kernel(X[::2], X[1::2]).diagonal()


@pytest.mark.parametrize("h01", [False, True])
@pytest.mark.parametrize(("measure", "p"), MEASURES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_maclaurin__is_unbiased_with_the_variance_of_the_theory(kernel, measure, p, h01):
    params, exact, coefficients, length = KERNELS[kernel]
    X = some_pairs(length)
    found, added = components(X, measure=measure, p=p, h01=h01, **params)
    drawn = np.array(coefficients, dtype=float)
    if h01:
        drawn[:2] = 0
    error = found.std(axis=0) / np.sqrt(D) + 1e-5  # the truncation and float32
    assert (np.abs(found.mean(axis=0) + added - paired(exact, X)) < 5 * error).all()
    weights = degree_probabilities(drawn, p, measure, params.get("radius", 1.0))
    if h01 and measure == "proper":
        weights = np.append([0.0, 0.0], weights[:-2])
    wanted = np.array([component_variance(drawn, weights, x, y) for x, y in zip(X[::2], X[1::2], strict=True)])
    assert_variance(found, wanted, slack=1e-4 * wanted)


@pytest.mark.parametrize(("normalize", "order"), [("l1", 1), ("l2", 2)])
def test_maclaurin__scales_normalised_rows_into_the_domain(normalize, order):
    X = some_pairs(1.0) * np.geomspace(1e-20, 1e20, 10)[:, None]
    params = {"kernel": "vovk_infinite", "normalize": normalize, "scale": 0.6}
    found, _ = components(X, **params)
    rows = 0.6 * X / np.linalg.norm(X, ord=order, axis=1, keepdims=True)
    error = found.std(axis=0) / np.sqrt(D) + 1e-5
    assert (np.abs(found.mean(axis=0) - paired(kernels.vovk_infinite, rows)) < 5 * error).all()
