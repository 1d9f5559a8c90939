"""Pairs of rows whose similarity is known, and bounds for counts of their equal samples."""

import numpy as np


def scores(counts, probabilities, trials):
    """Counts in standard deviations of the binomial law."""
    return (counts - trials * probabilities) / np.sqrt(trials * probabilities * (1 - probabilities))


def assert_binomial(counts, probabilities, trials):
    """Assert that independent counts follow the binomial law: their extremes, mean and spread."""
    # |z| of a count beyond 5: 6e-7 each; root mean square of n scores off by 4.5 of its standard errors: 7e-6
    # Of pairs with few expected collisions or misses, too few for z, only the count is bounded: 1e-6 each.
    few = trials * probabilities * (1 - probabilities) < 20
    assert (np.abs(counts - trials * probabilities)[few] < 40).all()
    z = scores(counts[~few], probabilities[~few], trials)
    assert len(z) >= 20
    assert np.abs(z).max() < 5, f"largest |z| is {np.abs(z).max():.2f}"
    n = len(z)
    assert abs((z**2).mean() - 1) < 4.5 * np.sqrt(2 / n), f"mean square of z is {(z**2).mean():.3f}"
    assert abs(z.mean()) < 4.5 / np.sqrt(n), f"mean of z is {z.mean():.3f}"


def noisy_pairs(rng, n_pairs, n_features, noise, signed=False, tail=1.0, density=1.0):
    """Pairs of rows whose similarity falls with `noise`, an array of shape (n_pairs,)."""
    u = np.exp(tail * rng.normal(size=(n_pairs, n_features)))
    v = u * np.exp(noise[:, None] * rng.normal(size=u.shape))
    if signed:
        u *= rng.choice([-1, 1], size=u.shape)
        v *= np.sign(u) * np.where(rng.random(u.shape) < noise[:, None] / 8, -1, 1)
    keep = rng.random(u.shape) < density
    keep[:, 0] = True
    return np.where(keep, u, 0), np.where(keep | (rng.random(u.shape) < density * noise[:, None] / 8), v, 0)
