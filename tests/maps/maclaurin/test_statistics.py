"""Mean and variance of random Maclaurin features against exact kernels and the theory.

Components of one map are independent, so that D of them are D draws of one estimate e = D z(x) z(y): their mean has the
standard error std / sqrt(D), and their variance m2 has sqrt((m4 - m2^2) / D). Bounds at |z| < 5 fail a correct
program with chance 6e-7 each; all seeds are fixed.
"""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from dkfeat import kernels
from dkfeat.maps import MaclaurinFeatures
from dkfeat.theory.maclaurin import component_bound, component_variance, degree_probabilities

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
    rng = np.random.default_rng(4)
    rows = []
    for rho in (-0.7, 0.0, 0.6, 0.95, 1.0):
        basis = np.linalg.qr(rng.standard_normal((n_features, 2)))[0].T
        rows += [basis[0], rho * basis[0] + np.sqrt(1 - rho**2) * basis[1]]
    return np.array(rows).astype(np.float32).astype(np.float64) * length


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
    centred = found - found.mean(axis=0)
    second, fourth = (centred**2).mean(axis=0), (centred**4).mean(axis=0)
    slack = 5 * np.sqrt((fourth - second**2) / D) + 1e-4 * wanted
    assert (np.abs(second - wanted) <= slack).all(), second / wanted


@pytest.mark.parametrize(("n_components", "n_seeds"), [(64, 1000), pytest.param(1024, 400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("measure", ["kernel", "proper"])
def test_maclaurin__variance_over_seeds_is_that_of_a_component_over_their_number(measure, n_components, n_seeds):
    X = some_pairs(0.9)
    features, found = MaclaurinFeatures(n_components=n_components, measure=measure), []
    for seed in range(n_seeds):
        Z = features.set_params(random_state=seed).fit_width(6).transform(X).astype(np.float64)
        found.append((Z[::2] * Z[1::2]).sum(axis=1))
    found = np.array(found)
    weights = degree_probabilities([1.0, 3, 3, 1], 2.0, measure)
    wanted = np.array(
        [component_variance([1.0, 3, 3, 1], weights, *pair) for pair in zip(X[::2], X[1::2], strict=True)]
    )
    error = found.std(axis=0) / np.sqrt(n_seeds)
    assert (np.abs(found.mean(axis=0) - paired(KERNELS["polynomial"][1], X)) < 5 * error).all()
    centred = found - found.mean(axis=0)
    second, fourth = (centred**2).mean(axis=0), (centred**4).mean(axis=0)
    slack = 5 * np.sqrt((fourth - second**2) / n_seeds)
    assert (np.abs(second - wanted / n_components) < slack).all()


def test_maclaurin__the_kernels_own_measure_has_the_lower_variance():
    X = some_pairs(1.0)
    for name in ("homogeneous", "polynomial", "vovk_real"):
        own, other = (components(X, measure=m, **KERNELS[name][0])[0].var(axis=0) for m in ("kernel", "proper"))
        assert (own < other).all()


def test_maclaurin__the_kernels_own_measure_wants_a_radius_near_the_rows_length():
    # as the documentation says: rows much shorter than R are better off with the other measure, or with another R
    X = some_pairs(0.3)
    wide, other, near = (
        components(X, kernel="exponential", **params)[0].var(axis=0)
        for params in ({"radius": 2.0}, {"measure": "proper"}, {"radius": 0.35})
    )
    assert (near < other).all()
    assert (other < wide / 10).all()


@pytest.mark.parametrize(("measure", "p"), MEASURES)
@pytest.mark.parametrize("kernel", ["polynomial", "vovk_infinite", "exponential"])
def test_maclaurin__no_component_exceeds_the_bound(kernel, measure, p):
    params, _, coefficients, _ = KERNELS[kernel]
    radius = 0.5
    # rows of l1 norm 0.5; one coordinate that holds it all reaches the largest value of each degree
    X = np.random.default_rng(0).laplace(size=(20, 6))
    X *= radius / np.abs(X).sum(axis=1, keepdims=True)
    X[:2] = 0
    X[0, 0], X[1, 0] = radius, -radius
    found, _ = components(X, 2**14, measure=measure, p=p, **params | {"radius": radius})

    def f(t):
        return sum(a * t**n for n, a in enumerate(coefficients))

    bound = component_bound(f, radius, p, measure)
    assert np.abs(found).max() <= bound * (1 + 1e-5)
    assert np.abs(found[:, 0]).max() == np.abs(found).max() > (0.99 if measure == "kernel" else 0.1) * bound


@pytest.mark.slow
@pytest.mark.parametrize("params", [{}, {"measure": "proper"}, {"h01": True}, {"kernel": "exponential"}], ids=str)
def test_maclaurin__error_falls_as_the_root_of_the_components(params):
    # 16 times the components have a sixteenth of the squared error; the root mean square over 200 seeds of 5 pairs has
    # a standard error below 6 %: five of them on both sides
    X = some_pairs(0.9)
    exact = KERNELS["exponential" if params.get("kernel") else "polynomial"][1]
    errors = []
    for n_components in (64, 1024):
        features, squares = MaclaurinFeatures(n_components=n_components, gamma=0.8, **params), []
        for seed in range(200):
            Z = features.set_params(random_state=seed).fit_width(6).transform(X).astype(np.float64)
            squares.append(((Z[::2] * Z[1::2]).sum(axis=1) - paired(exact, X)) ** 2)
        errors.append(np.sqrt(np.mean(squares)))
    assert 4 / 1.4 < errors[0] / errors[1] < 4 * 1.4


@pytest.mark.parametrize(("normalize", "order"), [("l1", 1), ("l2", 2)])
def test_maclaurin__scales_normalised_rows_into_the_domain(normalize, order):
    X = some_pairs(1.0) * np.geomspace(1e-20, 1e20, 10)[:, None]
    params = {"kernel": "vovk_infinite", "normalize": normalize, "scale": 0.6}
    found, _ = components(X, **params)
    rows = 0.6 * X / np.linalg.norm(X, ord=order, axis=1, keepdims=True)
    error = found.std(axis=0) / np.sqrt(D) + 1e-5
    assert (np.abs(found.mean(axis=0) - paired(kernels.vovk_infinite, rows)) < 5 * error).all()


def test_maclaurin__estimates_for_columns_far_out():
    # 20 columns of 2^62: nothing of the width is ever made
    rng = np.random.default_rng(5)
    columns = np.sort(rng.choice(2**40, 20, replace=False)) * 2**21
    held = rng.standard_normal((4, 20)) * 0.3
    X = sp.csr_matrix((held.ravel(), np.tile(columns, 4), np.arange(5) * 20), shape=(4, 2**62))
    features = MaclaurinFeatures(n_components=D, random_state=0).fit_width(2**62)
    Z = features.transform(X).astype(np.float64)
    for i in range(4):
        products = Z[i] * Z * D
        error = products.std(axis=1) / np.sqrt(D)
        assert (np.abs(products.mean(axis=1) - (1 + held @ held[i]) ** 3) < 5 * error + 1e-5).all()
