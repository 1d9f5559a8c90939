"""Pairs of rows whose similarity is known, and bounds for counts of their equal samples and for their estimates."""

import numpy as np

from tests.reference.gcws import gmm


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


def similarities(u, v):
    """GMM similarity of each pair of rows."""
    return np.array([gmm(x, y) for x, y in zip(u, v, strict=True)])


def assert_cover(similarity):
    """Assert that pairs of all similarities are there."""
    assert similarity.min() < 0.02
    assert similarity.max() > 0.98
    assert (np.histogram(similarity, bins=10, range=(0, 1))[0] >= 8).all()


def pairs_of_cosines(rng, cosines, n_features):
    """Unit rows in the order x0, y0, x1, y1, ... ."""
    rows = []
    for rho in cosines:
        basis = np.linalg.qr(rng.standard_normal((n_features, 2)))[0].T
        rows += [basis[0], rho * basis[0] + np.sqrt(1 - rho**2) * basis[1]]
    return np.array(rows)


def estimates(features, X, n_seeds):
    """Estimates of the kernel of all pairs x0, y0, x1, y1, ... for each seed, of shape (n_seeds, n_pairs)."""
    found = []
    for seed in range(n_seeds):
        Z = features.set_params(random_state=seed).fit_width(X.shape[1]).transform(X).astype(np.float64)
        found.append((Z[::2] * Z[1::2]).sum(axis=1))
    return np.array(found)


def assert_variance(found, expected, slack=0.0):
    """Assert the variances of columns, up to 5 of their standard errors and the slack."""
    centred = found - found.mean(axis=0)
    second, fourth = (centred**2).mean(axis=0), (centred**4).mean(axis=0)
    error = np.sqrt((fourth - second**2) / len(found))
    assert (np.abs(second - expected) <= 5 * error + slack).all(), second / expected
