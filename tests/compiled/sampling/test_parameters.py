import numba
import numpy as np
import pytest

from dkfeat.compiled.jit import aligned
from dkfeat.compiled.sampling.gcws import CODE_LOW, LARGEST_LOG, TABLE_ROW, fill_parameters, least_a
from dkfeat.compiled.simd import load, store

f32 = np.float32


@pytest.fixture(scope="module")
def bounds_and_parameters():
    """Bounds, and q, r, beta and h, for words that are random, extreme, or give products near powers of two."""

    def compute(words, table, bounds, places, shifts, codes):
        for place in range(len(places)):
            for x in range(4):
                store(table, place * TABLE_ROW + 16 * x, load(words, place * TABLE_ROW + 16 * x))
            store(bounds, place * 16, least_a(table, place))
        fill_parameters(places, 0, places, 0, len(places), CODE_LOW, 8, load(shifts, 0), table, codes, codes[:0])

    n = 1000 if numba.config.DISABLE_JIT else 20_000
    rng = np.random.default_rng(3)
    words = rng.integers(0, 2**32, (n, 4, 16), dtype=np.uint32)
    ends = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1], np.uint32) ^ rng.integers(0, 2**13, 5).astype(np.uint32)
    extreme = rng.random(words.shape) < 0.3
    words[extreme] = rng.choice(ends, extreme.sum())
    table, bounds = aligned(n * TABLE_ROW, f32), aligned(n * 16, f32)
    places, codes = np.arange(n), aligned(n * 16, np.uint8)
    run = compute if numba.config.DISABLE_JIT else numba.njit(compute)
    run(words.reshape(-1).view(f32), table, bounds, places, np.zeros(16, np.uint32), codes)
    return bounds.reshape(n, 16), *table.reshape(n, 4, 16).transpose(1, 0, 2)


def test_least_a__is_a_bound_of_the_rounded_a(bounds_and_parameters):
    bounds, q, r, beta, h = bounds_and_parameters
    assert -51 < bounds.min() < -15
    rng = np.random.default_rng(4)
    least_slack = np.inf
    for size in (0.0, 0.1, 1.0, 10.0, 100.0, LARGEST_LOG):
        for near in (0, 1, 2):
            logs = rng.uniform(-size, size, r.shape).astype(f32)
            if near:  # where l / r + beta is a whole number or just below one, a bound is tightest or just broken
                logs = (r * (np.round(logs / r) - beta) * f32(1 - (near - 1) * 2.0**-23)).clip(-size, size).astype(f32)
            a = h - r * (np.floor(logs * q + beta) - beta)
            assert a.dtype == f32
            slack = a.astype(float) + logs.astype(float) - bounds
            assert slack.min() > 0
            least_slack = min(least_slack, slack.min())
    assert least_slack < 0.005
