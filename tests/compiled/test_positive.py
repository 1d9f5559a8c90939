import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import ndtr

from dkfeat.compiled.positive import exponentials, fill_exponentials, fill_levy, levy
from tests.reference.laplace import exponential_weight, levy_weight

LAWS = [(exponentials, fill_exponentials, exponential_weight), (levy, fill_levy, levy_weight)]


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
@pytest.mark.parametrize(("table_of", "_", "weight"), LAWS)
def test_weights__follow_the_specification(table_of, _, weight, seed):
    coordinates = np.array([0, 7, 2**40 + 1])
    table = table_of(coordinates, 100, 41, seed)
    expected = [[weight(seed, int(c), j, 41) for j in range(100)] for c in coordinates]
    assert table.dtype == np.float32
    assert np.allclose(table, expected, rtol=2e-6)


@pytest.mark.parametrize(("table_of", "fill", "_"), LAWS)
def test_weights__a_tile_is_a_part_of_the_table(table_of, fill, _):
    coordinates = np.array([5, 2, 9])
    tile = np.empty((3, 64), np.float32)
    fill(coordinates, 64, 40, 1, tile)
    assert np.array_equal(table_of(coordinates, 128, 40, 1)[:, 64:], tile)


@pytest.mark.parametrize(
    ("table_of", "distribution"),
    [(exponentials, lambda w: -np.expm1(-w)), (levy, lambda w: 2 * ndtr(-np.sqrt(0.5 / w)))],
)
def test_weights__have_their_law(table_of, distribution):
    u = np.sort(distribution(table_of(np.arange(1000), 64, 41, 5).ravel().astype(np.float64)))
    # Kolmogorov's distance beyond 2.7 / sqrt(n): 9e-7
    steps = np.arange(len(u) + 1) / len(u)
    assert max((u - steps[:-1]).max(), (steps[1:] - u).max()) < 2.7 / np.sqrt(len(u))


@pytest.mark.parametrize("table_of", [exponentials, levy])
def test_weights__neighbours_are_independent(table_of):
    # ranks as uniform numbers of variance 1/12: the sum of products of independent ones has variance n/144; |z| > 5
    table = table_of(np.arange(200), 128, 41, 3).astype(np.float64)
    uniform = -np.expm1(-table) if table_of is exponentials else 2 * ndtr(-np.sqrt(0.5 / table))
    pairs = {
        "sine and cosine": (uniform[:, :16], uniform[:, 16:32]),
        "words": (uniform[:, :32], uniform[:, 32:64]),
        "components": (uniform[:, :127], uniform[:, 1:]),
        "coordinates": (uniform[:-1], uniform[1:]),
    }
    for x, y in pairs.values():
        assert abs(((x - 0.5) * (y - 0.5)).sum()) < 5 * np.sqrt(x.size) / 12


def test_weights__are_between_their_bounds():
    weights = levy(np.arange(3000), 1024, 41, 0)
    assert np.isfinite(weights).all()
    assert 0.011 < weights.min() < 0.03
    assert weights.max() > 1e10
    weights = exponentials(np.arange(3000), 1024, 41, 0)
    assert 4e-10 < weights.min() < 1e-5
    assert 12 < weights.max() < 21.5


@pytest.mark.parametrize("kernel", ["exponential", "reciprocal"])
def test_weights__their_transforms_are_the_kernels_factors(kernel):
    # mean of e^{-w t} over 640,000 weights, t over ten decades: |z| < 5, 6e-7 each
    w = (levy if kernel == "exponential" else exponentials)(np.arange(10_000), 64, 40, 9).astype(np.float64).ravel()
    for t in 10.0 ** np.arange(-6, 4):
        expected = np.exp(-np.sqrt(t)) if kernel == "exponential" else 1 / (1 + t)
        values = np.exp(-w * t)
        assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(len(w)) + 1e-9


DIGEST = """
import hashlib, numpy as np
from dkfeat.compiled.positive import exponentials, levy
print(hashlib.sha256(b"".join(t(np.arange(50), 200, 41, 3).tobytes() for t in (levy, exponentials))).hexdigest())
"""


def test_weights__are_equal_on_other_cpus():
    found = {
        subprocess.run(
            [sys.executable, "-c", DIGEST], env=os.environ | name, capture_output=True, text=True, check=True
        ).stdout
        for name in ({}, {"NUMBA_CPU_NAME": "generic"})
    }
    assert len(found) == 1
