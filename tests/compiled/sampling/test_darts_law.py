"""Do darts sample by the law? Counts over components and seeds against the exact kernel.

Seeds are fixed. Each test says how often a correct program with fresh seeds would fail it.
"""

import numba
import numpy as np
import pytest

from dkfeat.compiled.sampling import darts
from dkfeat.compiled.sampling.darts import signed_octaves
from tests.reference.law import assert_binomial, assert_cover, noisy_pairs, scores, similarities

N_SEEDS, N_COMPONENTS = 20, 520  # two tiles
TRIALS = N_SEEDS * N_COMPONENTS
APART = 2**20  # columns of different pairs are different, so that pairs are independent

pytestmark = [pytest.mark.slow, pytest.mark.skipif(numba.config.DISABLE_JIT, reason="large counts")]


def entries(rows):
    """Dense rows, each on columns of its own, as arguments of `darts.sample` and `darts.encode`."""
    indptr = np.cumsum([0, *map(np.count_nonzero, rows)])
    columns = np.concatenate([i * APART + np.flatnonzero(row) for i, row in enumerate(rows)])
    values = np.concatenate([row[np.flatnonzero(row)] for row in rows])
    return indptr, columns, *signed_octaves(values)


def codes_of(arrays, seed, bits, n_components=N_COMPONENTS):
    """Codes as integers, shape (n_rows, n_components)."""
    packed, _ = darts.encode(*arrays, n_components, seed, bits)
    unpacked = np.unpackbits(packed, axis=1, bitorder="little", count=n_components * bits)
    return (unpacked.reshape(len(packed), n_components, bits) << np.arange(bits)).sum(axis=2)


def equal_samples(one, other, seed):
    """Whether the samples of two sets of rows are equal, shape (n_rows, n_components)."""
    (i, dart), (j, other_dart) = (darts.sample(*arrays, N_COMPONENTS, seed) for arrays in (one, other))
    return (i == j) & (dart == other_dart)


def many_pairs():
    """Pairs from one to 5,000 nonzeros: plain, signed, sparse, heavy-tailed, at many scales."""
    rng = np.random.default_rng(12)
    noise = np.geomspace(0.02, 6, 40)
    kinds = [
        noisy_pairs(rng, 40, 40, noise),
        noisy_pairs(rng, 40, 40, noise, signed=True),
        noisy_pairs(rng, 40, 40, noise, signed=True, density=0.2),
        noisy_pairs(rng, 40, 40, noise, tail=4.0),
        noisy_pairs(rng, 20, 40, noise[::2], tail=40.0),
        noisy_pairs(rng, 20, 3, noise[::2]),
        noisy_pairs(rng, 10, 700, noise[::4]),
        noisy_pairs(rng, 10, 5000, noise[::4], signed=True, tail=2.0),
        (np.geomspace(0.01, 0.99, 30)[:, None], np.ones((30, 1))),
    ]
    return [pair for u, v in kinds for pair in zip(u, v, strict=True)]


@pytest.fixture(scope="module")
def agreement():
    """Similarity of each pair, and by seed the number of components with equal samples and with equal 16-bit codes."""
    pairs = many_pairs()
    one, other = (entries([pair[side] for pair in pairs]) for side in range(2))
    same = np.array([equal_samples(one, other, seed) for seed in range(N_SEEDS)])
    codes = np.array([codes_of(one, seed, 16) ^ codes_of(other, seed, 16) for seed in range(N_SEEDS)])
    return similarities(*zip(*pairs, strict=True)), same, codes


def test_law__pairs_cover_all_similarities(agreement):
    assert len(agreement[0]) == 250
    assert_cover(agreement[0])


def test_law__equal_samples_are_binomial(agreement):
    similarity, same, _ = agreement
    assert_binomial(same.sum(axis=(0, 2)), similarity, TRIALS)
    for tile in (slice(0, 260), slice(260, 520)):
        assert_binomial(same[:, :, tile].sum(axis=(0, 2)), similarity, TRIALS // 2)


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_law__equal_codes_are_binomial(agreement, bits):
    similarity, _, difference = agreement
    assert_binomial(
        (difference >> (16 - bits) == 0).sum(axis=(0, 2)), similarity + (1 - similarity) * 2.0**-bits, TRIALS
    )


def test_law__variance_of_an_estimate(agreement):
    # of r (1 - r) / n_components; components that depended on each other by a correlation c would change it by the
    # factor 1 + 519 c
    similarity, same, _ = agreement
    spread = N_COMPONENTS * similarity * (1 - similarity)
    z = scores(same.sum(axis=2), similarity, N_COMPONENTS)[:, spread > 5]
    assert z.size > 4000
    excess = np.tile(1 / spread - 6 / N_COMPONENTS, (N_SEEDS, 1))[:, spread > 5]  # kurtosis of the binomial law
    # 5,000 independent scores: mean square off by 4.5 of its standard errors: 7e-6
    assert abs((z**2).mean() - 1) < 4.5 * np.sqrt((2 + excess).sum()) / z.size


def test_law__components_tiles_and_seeds_are_uncorrelated(agreement):
    # products of centred agreements have mean 0 and variance (r (1 - r))^2; each bound is 4.5 standard errors: 7e-6
    similarity, same, _ = agreement
    middle = (similarity > 0.05) & (similarity < 0.95)
    z = (same - similarity[:, None])[:, middle] / np.sqrt(similarity * (1 - similarity))[middle, None]
    products = [z[:, :, lag:] * z[:, :, :-lag] for lag in (1, 2, 16, 259, 260, 261)]
    for product in [*products, z[1:] * z[:-1]]:
        assert abs(product.mean()) < 4.5 / np.sqrt(product.size)
    sums = z[:, :, :260].sum(axis=2) * z[:, :, 260:].sum(axis=2) / 260
    assert abs(sums.mean()) < 4.5 / np.sqrt(sums.size)


def test_codes__are_uniform_and_independent():
    # each row has columns of its own; chi-square of 256 cells, 5 standard deviations: 1e-6 each
    rows = np.random.default_rng(3).lognormal(size=(400, 3))
    arrays = entries(rows)
    words = codes_of(arrays, 5, 16)
    other_seed = codes_of(arrays, 5 + 2**32, 16)
    top = words >> 12
    both = [
        words >> 8,
        words & 255,
        top[:, 1:] << 4 | top[:, :-1],
        top[:, :260] << 4 | top[:, 260:],
        top[1:] << 4 | top[:-1],
        top << 4 | other_seed >> 12,
    ]
    for cells in both:
        counts = np.bincount(cells.ravel(), minlength=256)
        expected = cells.size / 256
        assert abs(((counts - expected) ** 2 / expected).sum() - 255) < 5 * np.sqrt(2 * 255)
