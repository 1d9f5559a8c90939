"""Covariances of circulant Laplace features against full enumerations."""

import itertools
from functools import partial

import numpy as np
import pytest
from reproduction.theory import circulant

D = 6
Z = np.array([0.3, 1.1, 0.0, 0.7, 0.2, 1.6])
FACTORS = {
    "reciprocal": partial(circulant.reciprocal_log_factor, rate=2.0),
    "exponential": partial(circulant.exponential_log_factor, beta=0.4),
}


def kernel(log_factor, z):
    return np.exp(log_factor(z).sum())


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("shift", range(7))
def test_alternating_covariance__is_the_mean_over_all_choices(m, shift):
    log_factor = FACTORS["reciprocal"]
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
    log_factor = FACTORS[name]
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
