"""Similarity sketches: codes against an oracle, and their law, in counts over pairs of sets.

Seeds are fixed. Each test of the law says how often a correct program with fresh seeds would fail it.
"""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkfeat.compiled.sampling import minhash
from dkfeat.theory.minhash import sketch_variance
from tests.reference import minhash as oracle
from tests.reference.gcws import unpack

compiled = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="large input")
# lanes beyond the end of a set hold anything, and words overflow
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

K = 100
SHAPES = {"few": (5, 2), "consecutive": (60, 20), "many": (400, 200)}
"""Elements in either of two sets, and in both."""
N_SEEDS, N_PAIRS = 20, 1000


def encode(sets, k, seed, bits, dtype=np.int64):
    """Codes of each set, None for an empty one."""
    columns = np.array([column for each in sets for column in each], dtype)
    packed, empty = minhash.encode(np.cumsum([0, *map(len, sets)]), columns, k, seed, bits)
    assert not packed[empty].any()
    found = unpack(packed, k, bits).tolist()
    return [None if is_empty else row for row, is_empty in zip(found, empty, strict=True)]


@given(
    st.lists(st.lists(st.integers(0, 30) | st.integers(0, 2**62 - 1), max_size=40), min_size=1, max_size=3),
    st.sampled_from([1, 2, 3, 15, 16, 17, 64, 100]),
    st.integers(0, 2**64 - 1),
    st.integers(1, 16),
)
@compiled
def test_encode__equals_oracle(sets, k, seed, bits):
    wanted = [oracle.codes(each, k, seed, bits) if each else None for each in sets]
    assert encode(sets, k, seed, bits) == wanted
    low = [[column % 2**31 for column in each] for each in sets]
    assert encode(low, k, seed, bits, np.int32) == encode(low, k, seed, bits)


@compiled
@pytest.mark.parametrize("size", [255, 256, 257, 3000])
def test_encode__equals_oracle_for_long_sets(size):
    columns = np.random.default_rng(size).integers(0, 2**40, size)
    assert encode([columns, columns[::-1]], 130, 7, 8) == 2 * [oracle.codes(columns, 130, 7, 8)]


def test_encode__equals_oracle_also_as_plain_python():
    sets = [[3, 2**40 - 1, 17], [], [5]]
    assert encode(sets, 7, 2**63 + 5, 9) == [oracle.codes(each, 7, 2**63 + 5, 9) if each else None for each in sets]


def drawn_pairs(shape, rng):
    """Columns of N_PAIRS pairs of sets, in two arrays."""
    size, common = SHAPES[shape]
    columns = rng.integers(0, 2**40, (N_PAIRS, size))
    if shape == "consecutive":
        columns = rng.permuted(rng.integers(0, 2**31, (N_PAIRS, 1)) + np.arange(size), axis=1)
    half = (size + common) // 2
    return columns[:, :half], np.concatenate([columns[:, :common], columns[:, half:]], axis=1)


@pytest.fixture(scope="module", params=SHAPES)
def agreement(request):
    """Elements in either set, their resemblance, and for each of 20,000 pairs which of its codes are equal."""
    rng = np.random.default_rng(10)
    size, common = SHAPES[request.param]
    equal = []
    for seed in range(N_SEEDS):
        sides = []
        for columns in drawn_pairs(request.param, rng):
            bounds = np.arange(N_PAIRS + 1) * columns.shape[1]
            sides.append(minhash.encode(bounds, columns.ravel(), K, seed, 8)[0])
        equal.append(sides[0] == sides[1])
    return size, common / size, np.concatenate(equal)


@compiled
def test_law__codes_are_equal_as_often_as_the_sets_resemble_each_other(agreement):
    size, resemblance, equal = agreement
    estimates = (equal.mean(axis=1) - 1 / 256) / (1 - 1 / 256)
    error = np.sqrt(sketch_variance(resemblance, K, size, bits=8) / len(estimates))
    assert abs(estimates.mean() - resemblance) < 4 * error  # 6e-5


@compiled
def test_law__variance_is_that_of_theory_and_half_the_binomial_one_below_k(agreement):
    size, resemblance, equal = agreement
    variance = equal.mean(axis=1).var() / (1 - 1 / 256) ** 2
    ratio = variance / sketch_variance(resemblance, K, size, bits=8)
    assert abs(ratio - 1) < 4.5 * np.sqrt(2 / len(equal))  # of nearly normal estimates: 7e-6
    assert variance / sketch_variance(resemblance, K, bits=8) < (0.6 if size < K else 0.85)


@compiled
def test_law__bins_are_exchangeable(agreement):
    size, resemblance, equal = agreement
    rate = resemblance + (1 - resemblance) / 256
    counts = equal.sum(axis=0)
    z = (counts - len(equal) * rate) / np.sqrt(len(equal) * rate * (1 - rate))
    assert abs((z**2).mean() - 1) < 4.5 * np.sqrt(2 / K)  # 7e-6
    # all pairs of bins agree together equally often, so bands of neighbours are like any others
    variance = sketch_variance(resemblance, K, size, bits=8) * (1 - 1 / 256) ** 2
    together = rate**2 + (K * variance - rate * (1 - rate)) / (K - 1)
    for lag in (1, 2, 8, 16, 50):
        both = (equal[:, lag:] & equal[:, :-lag]).mean(axis=1)
        assert abs(both.mean() - together) < 4.5 * both.std() / np.sqrt(len(both))  # 7e-6 each


@compiled
@pytest.mark.parametrize("bits", [1, 4, 12])
def test_law__codes_of_other_elements_are_equal_by_chance(bits):
    columns = np.random.default_rng(bits).permutation(400_000).reshape(2000, 2, 100)
    left, right = (
        unpack(minhash.encode(np.arange(2001) * 100, columns[:, side].ravel(), K, 3, bits)[0], K, bits)
        for side in (0, 1)
    )
    n, chance = left.size, 2.0**-bits
    assert abs((left == right).sum() - n * chance) < 4.5 * np.sqrt(n * chance * (1 - chance))  # 7e-6
