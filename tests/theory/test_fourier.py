"""Variances of Fourier features and of GCWS against simulations that share no code with them."""

import numpy as np
import pytest
from reproduction.theory import fourier

PAIRS = [(0.95, 1.0), (0.5, 2.0), (0.0, 0.5), (-0.4, 1.0), (0.8, 10.0)]


def simulated_products(rho, gamma, k, repeats, seed, normalize):
    """Estimates of the kernel from k components each, of two unit rows in the plane."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((repeats, k, 2))
    b = rng.uniform(0, 2 * np.pi, (repeats, k))
    x, y = np.array([1.0, 0.0]), np.array([rho, np.sqrt(1 - rho**2)])
    u, v = (np.sqrt(2) * np.cos(np.sqrt(gamma) * (w @ row) + b) for row in (x, y))
    products = (u * v).sum(axis=1)
    return products / np.sqrt((u**2).sum(axis=1) * (v**2).sum(axis=1)) if normalize else products / k


def z_of_variance(samples, variance):
    """Distance of the sample variance from the expected one, in its standard errors."""
    squares = (samples - samples.mean()) ** 2
    return (squares.mean() - variance) / (squares.std() / np.sqrt(len(samples)))


@pytest.mark.parametrize(("rho", "gamma"), PAIRS)
def test_rff_variance__is_the_simulated_one(rho, gamma):
    samples = simulated_products(rho, gamma, 1, 400_000, 1, normalize=False)
    # a correct formula fails any |z| < 4.5 with probability 7e-6
    assert abs(z_of_variance(samples, fourier.rff_variance(rho, gamma))) < 4.5
    assert abs(samples.mean() - np.exp(-gamma * (1 - rho))) < 4.5 * samples.std() / np.sqrt(len(samples))


@pytest.mark.parametrize(
    ("rho", "gamma"), [*PAIRS[:2], *(pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS[2:])]
)
def test_nrff_variance__is_the_simulated_one_with_an_error_of_second_order(rho, gamma):
    k = 256
    samples = simulated_products(rho, gamma, k, 12_000, 2, normalize=True)
    variance = fourier.nrff_variance(rho, gamma) / k
    squares = (samples - samples.mean()) ** 2
    # 4.5 standard errors, 7e-6, and for the term of 1/k^2 a share of 8/k, 3 %
    assert abs(squares.mean() - variance) < 4.5 * squares.std() / np.sqrt(len(samples)) + variance * 8 / k


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "gamma"), PAIRS)
def test_nrff_bias__is_the_simulated_one(rho, gamma):
    k = 16
    samples = simulated_products(rho, gamma, k, 200_000, 3, normalize=True)
    bias = samples.mean() - np.exp(-gamma * (1 - rho))
    # 4.5 standard errors, 7e-6, and the term of 1/k^2
    assert abs(bias - fourier.nrff_bias(rho, gamma) / k) < 4.5 * samples.std() / np.sqrt(len(samples)) + 0.25 / k**2


@pytest.mark.parametrize(("similarity", "gamma"), [(0.9, 1.0), (0.5, 3.0), (0.2, 1.0)])
def test_gcws_variances__are_the_simulated_ones(similarity, gamma):
    k = 2_000
    shares = np.random.default_rng(4).binomial(k, similarity, 60_000) / k
    assert abs(z_of_variance(np.sqrt(k) * shares, fourier.gcws_variance(similarity))) < 4.5
    powers = np.sqrt(k) * np.exp(-gamma * (1 - shares))
    wanted = fourier.exponentiated_gcws_variance(similarity, gamma)
    squares = (powers - powers.mean()) ** 2
    assert abs(squares.mean() - wanted) < 4.5 * squares.std() / np.sqrt(len(squares)) + 5 * wanted * gamma**2 / k


def test_gcws_variance__of_codes_is_that_of_bernoulli_trials():
    g = np.array([0.0, 0.3, 1.0])
    np.testing.assert_allclose(fourier.gcws_variance(g, 2), [0.25 * 0.75 / 0.75**2, 0.475 * 0.525 / 0.75**2, 0])


def test_relative_variances__are_over_the_squared_kernel():
    rho, gamma = np.array([0.1, 0.7]), np.array([[0.5], [4.0]])
    square = np.exp(-2 * gamma * (1 - rho))
    for relative, absolute in (
        (fourier.rff_relative_variance, fourier.rff_variance),
        (fourier.nrff_relative_variance, fourier.nrff_variance),
        (fourier.exponentiated_gcws_relative_variance, fourier.exponentiated_gcws_variance),
    ):
        np.testing.assert_allclose(relative(rho, gamma), absolute(rho, gamma) / square, rtol=1e-12)


def test_relative_variances__cross_at_five_sixths_for_a_small_gamma():
    gamma = 1e-3
    for similarity, gcws_wins in ((0.82, True), (0.85, False)):
        gcws = fourier.exponentiated_gcws_relative_variance(similarity, gamma)
        assert (gcws < fourier.nrff_relative_variance(similarity, gamma)) == gcws_wins
