"""Do both samplers keep the law at any scale and power? Counts over components and seeds against the exact kernel.

Seeds are fixed. Each test says how often a correct program with fresh seeds would fail it.
"""

import numba
import numpy as np
import pytest
from scipy import sparse

from dkfeat import DartFeatures, GCWSFeatures
from tests.reference.law import assert_binomial, noisy_pairs, scores, similarities

N_SEEDS, N_COMPONENTS = 20, 520  # two tiles of darts
TRIALS = N_SEEDS * N_COMPONENTS

pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="large counts"),
    pytest.mark.parametrize("cls", [GCWSFeatures, DartFeatures]),
]


def count_equal(cls, u, v, p=1.0):
    """Number of equal samples of each pair of rows over all components and seeds, pairs on columns of their own."""
    one, other = (sparse.block_diag(rows[:, None], format="csr") for rows in (u, v))
    equal = np.zeros(len(u), np.int64)
    for seed in range(N_SEEDS):
        features = cls(N_COMPONENTS, p=p, random_state=seed).fit(one)
        equal += np.equal(features.sample(one), features.sample(other)).all(axis=0).sum(axis=1)
    return equal


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e30, np.float32), (1e-30, np.float32), (1e300, np.float64), (1e-300, np.float64), (2.0**-1060, np.float64)],
)
def test_law__holds_at_any_scale(cls, scale, dtype):
    rng = np.random.default_rng(5)
    u, v = noisy_pairs(rng, 60, 30, np.geomspace(0.02, 6, 60), signed=True)
    u, v = (u * scale).astype(dtype), (v * scale).astype(dtype)
    assert_binomial(count_equal(cls, u, v), similarities(u, v), TRIALS)


@pytest.mark.parametrize("p", [0.25, 0.5, 2.0, 8.0])
def test_law__powers(cls, p):
    rng = np.random.default_rng(7)
    u, v = noisy_pairs(rng, 60, 30, np.geomspace(0.02, 6, 60) / p, signed=True)
    assert_binomial(count_equal(cls, u, v, p), similarities(*(np.sign(w) * np.abs(w) ** p for w in (u, v))), TRIALS)


def test_law__each_coordinate_in_proportion(cls):
    # i* of a row has coordinate f with probability u_f / sum(u), independently in each component
    u = np.array([1.0, -2.0, 3.0, 0.5, -0.25, 2.0**-12])
    i_star, _ = cls(50_000, random_state=1).fit(u[None]).sample(u[None])
    share = np.abs(u) / np.abs(u).sum()
    counts = np.array([(i_star == 2 * f + (u[f] < 0)).sum() for f in range(len(u))])
    assert counts.sum() == 50_000
    assert (np.abs(scores(counts, share, 50_000)) < 5).all()  # 4e-6
