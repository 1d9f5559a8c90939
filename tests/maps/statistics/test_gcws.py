"""Does GCWS sample by the law? Counts over components and seeds against the exact kernel.

Seeds are fixed. Each test says how often a correct program with fresh seeds would fail it.
"""

import numba
import numpy as np
import pytest
from scipy import sparse

from dkfeat.compiled.sampling import gcws as cws
from dkfeat.compiled.sampling.feature_major import signed_logs
from tests.maps.small import FEATURE_MAPS
from tests.reference.law import assert_binomial, assert_cover, noisy_pairs, similarities

GCWSFeatures = FEATURE_MAPS["gcws"]
N_SEEDS, N_COMPONENTS = 20, 256
TRIALS = N_SEEDS * N_COMPONENTS

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="large counts")


def collisions(u, v):
    """Collisions of (i*, t*), and of i* alone, of each pair of rows over all components and seeds."""
    X = sparse.csr_matrix(np.concatenate([u, v]))
    full, coordinate = np.zeros(len(u), np.int64), np.zeros(len(u), np.int64)
    for seed in range(N_SEEDS):
        i_star, t_star = GCWSFeatures(n_components=N_COMPONENTS, random_state=seed).fit(X).sample(X)
        same = i_star[: len(u)] == i_star[len(u) :]
        coordinate += same.sum(axis=1)
        full += (same & (t_star[: len(u)] == t_star[len(u) :])).sum(axis=1)
    return full, coordinate


def many_pairs():
    """210 pairs: plain, signed, sparse, heavy-tailed, some with coordinates of opposite sign only."""
    rng = np.random.default_rng(12)
    noise = np.geomspace(0.02, 6, 50)
    kinds = [
        noisy_pairs(rng, 50, 40, noise),
        noisy_pairs(rng, 50, 40, noise, signed=True),
        noisy_pairs(rng, 50, 40, noise, signed=True, density=0.2),
        noisy_pairs(rng, 50, 40, noise, tail=4.0),
    ]
    u, v = (np.concatenate(parts) for parts in zip(*kinds, strict=True))
    a = np.abs(rng.normal(size=(10, 40)))
    b = a.copy()
    b[:, : len(b[0]) // 2] *= -1
    return np.concatenate([u, a]), np.concatenate([v, b])


@pytest.fixture(scope="module")
def pairs():
    u, v = many_pairs()
    return similarities(u, v), *collisions(u, v)


def test_law__pairs_cover_all_similarities(pairs):
    assert len(pairs[0]) == 210
    assert_cover(pairs[0])


def test_law__collisions_are_binomial(pairs):
    similarity, full, _ = pairs
    assert_binomial(full, similarity, TRIALS)


def test_zero_bit__bias(pairs, record_property):
    # i* alone collides more often: by little where many coordinates share the mass, by much where one coordinate
    # holds most of the mass of both rows, for then it is sampled whatever its value
    similarity, full, coordinate = pairs
    assert (coordinate >= full).all()
    excess = coordinate / TRIALS - similarity
    names = ("plain", "signed", "sparse and signed", "heavy-tailed", "half of the signs opposite")
    for name, part in zip(names, np.split(excess, [50, 100, 150, 200]), strict=True):
        record_property(f"0-bit bias, {name}", f"mean {part.mean():.4f}, largest {part.max():.4f}")
        print(f"\n0-bit bias, {name}: mean {part.mean():.4f}, largest {part.max():.4f}")  # noqa: T201  # shown by -s
    assert 0 < excess[:50].mean() < 0.05
    assert 0.1 < excess[150:200].mean() < 0.3


def one_coordinate_codes(n_rows, n_components, i_bits, mode, seed=3):
    """Codes of rows that hold one coordinate each, which is what they sample."""
    columns = np.random.default_rng(0).choice(2**30, n_rows, replace=False)
    logs, negative = signed_logs(np.ones(n_rows))
    packed, _ = cws.encode(np.arange(n_rows + 1), columns, logs, negative, n_components, seed, i_bits, 0, mode)
    bits = np.unpackbits(packed, axis=1, bitorder="little").reshape(n_rows, -1, i_bits)[:, :n_components]
    return (bits.astype(np.int64) << np.arange(i_bits)).sum(axis=2)


@pytest.mark.parametrize("i_bits", [1, 4, 8, 12])
def test_mixed_codes__pairs_collide_independently(i_bits):
    codes = one_coordinate_codes(400, 1024, i_bits, "mixed")
    counts = np.array([(codes[i] == codes[:i]).sum(axis=1) for i in range(1, 400)], dtype=object)
    counts = np.concatenate(list(counts)).astype(float)
    rate, trials = 2.0**-i_bits, 1024
    variance = trials * rate * (1 - rate)
    # 79,800 pairs: mean and spread of their counts, 5 standard errors (pairs of uniform codes are uncorrelated): 1e-6
    assert abs(counts.mean() - trials * rate) < 5 * np.sqrt(variance / len(counts))
    fourth = variance**2 * (3 + (1 - 6 * rate * (1 - rate)) / variance)  # central moment of the binomial
    assert abs(((counts - trials * rate) ** 2).mean() - variance) < 5 * np.sqrt((fourth - variance**2) / len(counts))


def test_mixed_codes__are_uniform():
    codes = one_coordinate_codes(500, 1024, 8, "mixed")
    counts = np.bincount(codes.ravel(), minlength=256)
    chi_square = ((counts - 2000) ** 2 / 2000).sum()
    assert abs(chi_square - 255) < 5 * np.sqrt(2 * 255)  # 1e-6


def test_mixed_codes__do_not_depend_on_the_draws():
    # codes of the sampled coordinates are uniform too: selection must not favour codes
    rng = np.random.default_rng(2)
    X = sparse.random(300, 5000, 0.01, format="csr", random_state=rng)
    logs, negative = signed_logs(X.data)
    packed, _ = cws.encode(X.indptr, X.indices, logs, negative, 2048, 9, 8, 0, "mixed")
    i_star, _ = cws.sample(X.indptr, X.indices, logs, negative, 2048, 9)
    _, first = np.unique(i_star + np.arange(2048) * 20_000, return_index=True)  # a coordinate once a component
    counts = np.bincount(packed.ravel()[first], minlength=256)
    expected = len(first) / 256
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - 255) < 5 * np.sqrt(2 * 255)  # 1e-6
