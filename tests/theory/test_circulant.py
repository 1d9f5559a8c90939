"""Covariances of circulant Laplace features against simulations and full enumerations."""

import itertools
from functools import partial

import numpy as np
import pytest

from dkfeat.theory import circulant

D = 6
Z = np.array([0.3, 1.1, 0.0, 0.7, 0.2, 1.6])
FACTORS = {
    "reciprocal": (partial(circulant.reciprocal_log_factor, rate=2.0), lambda rng, shape: rng.exponential(0.5, shape)),
    # Lévy weights: beta^2 / (2 N^2)
    "exponential": (
        partial(circulant.exponential_log_factor, beta=0.4),
        lambda rng, shape: 0.4**2 / (2 * rng.standard_normal(shape) ** 2),
    ),
}


def simulated_block(draw, m, repeats, seed):
    """Estimates of k(z) by the d components of a block, whose matrix is built entry by entry."""
    rng = np.random.default_rng(seed)
    weights = draw(rng, (repeats, m, D))
    choice = rng.integers(0, m, (repeats, D))
    at = np.arange(repeats)
    block = np.empty((repeats, D))
    for i in range(D):
        exponent = np.zeros(repeats)
        for column in range(D):
            exponent += weights[at, choice[:, column], (column - i) % D] * Z[column]
        block[:, i] = np.exp(-exponent)
    return block


def kernel(log_factor, z):
    return np.exp(log_factor(z).sum())


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("m", [1, 2, 3])
def test_covariances__are_the_simulated_ones(name, m):
    log_factor, draw = FACTORS[name]
    block = simulated_block(draw, m, 120_000, seed=m)
    centred = block - kernel(log_factor, Z)
    for i, j in itertools.combinations_with_replacement(range(D), 2):
        products = centred[:, i] * centred[:, j]
        wanted = circulant.alternating_covariance(Z, log_factor, m, shift=j - i)
        # 21 pairs, 6 cases: |z| < 5 fails a correct formula with probability below 1e-4 in all
        assert abs(products.mean() - wanted) < 5 * products.std() / np.sqrt(len(products)), (i, j)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("shift", range(7))
def test_alternating_covariance__is_the_mean_over_all_choices(m, shift):
    log_factor, _ = FACTORS["reciprocal"]
    total = 0.0
    for choice in itertools.product(range(m), repeat=D):
        product = 1.0
        for column in range(D):
            other = (column + shift) % D
            if choice[column] == choice[other]:
                product *= kernel(log_factor, Z[column : column + 1] + Z[other : other + 1])
            else:
                product *= kernel(log_factor, Z[[column, other]])
        total += product
    wanted = total / m**D - kernel(log_factor, Z) ** 2
    assert circulant.alternating_covariance(Z, log_factor, m, shift) == pytest.approx(wanted, rel=1e-12)
    if m == 1:
        assert circulant.circulant_covariance(Z, log_factor, shift) == pytest.approx(wanted, rel=1e-12)
    if shift == 0:
        assert circulant.laplace_variance(Z, log_factor) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("z", [np.zeros(4), np.array([3.0]), np.full(3, 1e6), np.full(5000, 1e-12)])
@pytest.mark.parametrize("name", FACTORS)
def test_covariances__are_finite_at_the_ends(z, name):
    log_factor, _ = FACTORS[name]
    for m, shift in itertools.product((1, 2), (0, 1, 2)):
        value = circulant.alternating_covariance(z, log_factor, m, shift)
        assert 0 <= value <= 1
        assert (value == 0) == (not z.any() or kernel(log_factor, z) == 0)


def test_estimator_variance__counts_every_pair():
    covariances = np.array([5.0, 2.0, 1.0, 2.0])
    matrix = np.zeros((10, 10))
    for i, j in itertools.product(range(10), repeat=2):
        matrix[i, j] = covariances[(i - j) % 4] if i // 4 == j // 4 else 0.0
    assert circulant.estimator_variance(covariances, 10) == pytest.approx(matrix.sum() / 100)
