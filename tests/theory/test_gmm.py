"""Limits and variances of the GMM similarity against simulated elliptical rows."""

import numpy as np
import pytest
from reproduction.theory import gmm

MORE = [(0.95, 1.0), (0.5, 1.0), (0.8, 0.4), (-0.9, 3.0)]
CASES = [(0.3, 2.5), (-0.6, 1.0), *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)]


def simulated_rows(rho, sigma, df, n, repeats, seed):
    """Pairs of rows of n coordinates, t-distributed, one radius a coordinate."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, repeats, n))
    radius = 1.0 if np.isinf(df) else np.sqrt(df / rng.chisquare(df, (repeats, n)))
    return sigma * a * radius, (rho * a + np.sqrt(1 - rho**2) * b) * radius


def similarities(x, y):
    """GMM of each pair of rows, by its definition."""
    parts = [(np.maximum(sign * x, 0), np.maximum(sign * y, 0)) for sign in (1, -1)]
    low = sum(np.minimum(u, v).sum(axis=1) for u, v in parts)
    return low / sum(np.maximum(u, v).sum(axis=1) for u, v in parts)


@pytest.mark.parametrize(("rho", "sigma"), CASES)
def test_f_1__is_the_simulated_mean(rho, sigma):
    g = similarities(*simulated_rows(rho, sigma, 3, 1, 400_000, 1))
    assert abs(g.mean() - gmm.f_1(rho, sigma)) < 4.5 * g.std() / np.sqrt(len(g))  # 7e-6


@pytest.mark.parametrize(("rho", "sigma"), CASES)
@pytest.mark.parametrize("df", [3, np.inf])
def test_f_infinity__is_the_simulated_limit(rho, sigma, df):
    # the bias at length n is of order 1/n, far below the spread of one long row
    g = similarities(*simulated_rows(rho, sigma, df, 400_000, 1, 2))
    assert abs(g[0] - gmm.f_infinity(rho, sigma)) < 5 * np.sqrt(gmm.gmm_variance(rho, df, sigma) / 400_000)  # 6e-7


@pytest.mark.parametrize(("rho", "sigma"), CASES)
@pytest.mark.parametrize("df", [5, np.inf])
def test_gmm_variance__is_the_simulated_one(rho, sigma, df):
    n = 1_000
    g = similarities(*simulated_rows(rho, sigma, df, n, 2_500, 3))
    squares = n * (g - g.mean()) ** 2
    wanted = gmm.gmm_variance(rho, df, sigma)
    # 4.5 standard errors, 7e-6, and 3 % for the length
    assert abs(squares.mean() - wanted) < 4.5 * squares.std() / np.sqrt(len(g)) + 0.03 * wanted
    assert 4.5 * squares.std() / np.sqrt(len(g)) < 0.2 * wanted


@pytest.mark.parametrize(("rho", "sigma"), CASES)
def test_gmm_moments__are_the_simulated_moments(rho, sigma):
    # one coordinate at radius 1: theta uniform on the circle
    theta = np.random.default_rng(4).uniform(0, 2 * np.pi, 400_000)
    x, y = sigma * np.cos(theta), np.cos(theta - np.arccos(rho))
    low = np.where(x * y > 0, np.minimum(abs(x), abs(y)), 0)
    high = np.where(x * y > 0, np.maximum(abs(x), abs(y)), abs(x) + abs(y))
    v, h = gmm.gmm_moments(rho, sigma)
    assert abs(high.mean() - h) < 4.5 * high.std() / np.sqrt(len(theta))  # 7e-6
    squares = (high * gmm.f_infinity(rho, sigma) * h - low * h) ** 2
    assert abs(squares.mean() - v) < 4.5 * squares.std() / np.sqrt(len(theta))  # 7e-6


@pytest.mark.parametrize("df", [2.5, 3, 5, 40])
def test_radial_ratio__is_the_simulated_one(df):
    rng = np.random.default_rng(5)
    n = 2_000_000
    t = rng.chisquare(2, n) ** 0.5 * np.sqrt(df / rng.chisquare(df, n))
    # E T by simulation, E T^2 = 2 df / (df - 2) because its own spread is infinite up to df = 4
    ratio = 2 * df / (df - 2) / t.mean() ** 2
    error = 2 * t.std() / t.mean() / np.sqrt(n)
    assert abs(ratio / gmm.radial_ratio(df) - 1) < 5 * error  # 6e-7 where t^4 has a mean; |z| is 0.3 to 1.1 here


@pytest.mark.parametrize(("rho", "sigma"), [(0.5, 1.0), (-0.3, 2.0)])
@pytest.mark.parametrize("df", [12, np.inf])
def test_rho_estimates__have_the_stated_variances(rho, sigma, df):
    n = 1_000
    x, y = simulated_rows(rho, sigma, df, n, 2_500, 6)
    cosine = (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    for estimates, wanted in (
        (gmm.rho_from_gmm(similarities(x, y), sigma), gmm.rho_from_gmm_variance(rho, df, sigma)),
        (cosine, gmm.rho_from_cosine_variance(rho, df)),
    ):
        squares = n * (estimates - estimates.mean()) ** 2
        # 4.5 standard errors, 7e-6, and 4 % for the length
        assert abs(squares.mean() - wanted) < 4.5 * squares.std() / np.sqrt(len(squares)) + 0.04 * wanted
        assert abs(estimates.mean() - rho) < 4.5 * estimates.std() / np.sqrt(len(estimates)) + 3 / n


def test_rho_from_gmm__inverts_the_limit():
    rho, sigma = np.linspace(-1, 1, 41), np.array([[0.1], [1.0], [7.0]])
    np.testing.assert_allclose(gmm.rho_from_gmm(gmm.f_infinity(rho, sigma), sigma), rho * np.ones((3, 1)), atol=1e-12)


def test_rho_estimates__gmm_wins_for_heavy_tails():
    rho = np.linspace(-0.8, 0.9, 18)
    assert (gmm.rho_from_gmm_variance(rho, 5) < gmm.rho_from_cosine_variance(rho, 5)).all()
    assert gmm.rho_from_gmm_variance(0.5, 50) > gmm.rho_from_cosine_variance(0.5, 50)
    assert np.isinf(gmm.rho_from_cosine_variance(0.5, 4))


def test_limits__at_the_ends_and_under_exchange():
    sigma = np.geomspace(0.01, 100, 21)
    np.testing.assert_allclose(gmm.f_1(-1.0, sigma), 0, atol=1e-14)
    np.testing.assert_allclose(gmm.f_infinity(-1.0, sigma), 0, atol=1e-15)
    np.testing.assert_allclose(gmm.f_infinity(1.0, sigma), np.minimum(sigma, 1 / sigma), rtol=1e-9)
    np.testing.assert_allclose(gmm.f_1(1.0, sigma), np.minimum(sigma, 1 / sigma), rtol=1e-9)
    np.testing.assert_allclose(gmm.gmm_variance([[-1.0], [1.0]], 5, sigma), 0, atol=1e-12)
    rho = np.linspace(-0.99, 0.99, 9)[:, None]
    for function in (gmm.f_1, gmm.f_infinity):
        np.testing.assert_allclose(function(rho, sigma), function(rho, 1 / sigma), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(gmm.gmm_variance(rho, 5, sigma), gmm.gmm_variance(rho, 5, 1 / sigma), rtol=1e-6)
