import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import ndtr

from dkfeat.compiled.jit import kernel
from dkfeat.compiled.random import (
    cosine_of_turns,
    exponentials,
    levy,
    normals,
    packed_signs,
    signs_of_samples,
    transposed_signs,
)
from dkfeat.compiled.simd import LANES, load, store
from tests.programs import AVX2
from tests.reference.gcws import draw
from tests.reference.laplace import exponential_weight, levy_weight
from tests.reference.maclaurin import SAMPLE, SIGN, sign


def expected_normal(seed, coordinate, component, stream):
    """The specification in float64 with NumPy's functions."""
    q, i, lane = component // 64, component % 64 // 16, component % 16
    x = draw(seed, coordinate, 16 * q + lane, stream)
    u, turns = (x[i // 2 * 2] >> 1 | 1) * 2.0**-31, x[i // 2 * 2 + 1] * 2.0**-32
    return np.sqrt(-2 * np.log(u)) * (np.sin if i % 2 else np.cos)(2 * np.pi * turns)


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_normals__follow_the_specification(seed):
    coordinates = np.array([0, 7, 2**40 + 1])
    table = normals(coordinates, 100, 20, seed)
    expected = [[expected_normal(seed, int(c), j, 20) for j in range(100)] for c in coordinates]
    assert np.abs(table - expected).max() < 2e-6


def test_normals__a_tile_is_a_part_of_the_table():
    coordinates = np.array([5, 2, 9])
    tile = np.empty((3, 64), np.float32)
    normals(coordinates, 64, 16, 1, first=64, out=tile)
    assert np.array_equal(normals(coordinates, 128, 16, 1)[:, 64:], tile)


def test_normals__are_gaussian():
    x = np.sort(normals(np.arange(300), 64, 17, 5).ravel().astype(np.float64))
    n = len(x)
    # moments 1 to 4 with their standard errors, |z| > 5: 6e-7 each
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - mean) < 5 * np.sqrt(variance / n)
    # Kolmogorov's distance beyond 2.7 / sqrt(n): 9e-7
    steps = np.arange(n + 1) / n
    assert max((ndtr(x) - steps[:-1]).max(), (steps[1:] - ndtr(x)).max()) < 2.7 / np.sqrt(n)


def test_normals__neighbours_are_uncorrelated():
    table = normals(np.arange(200), 128, 16, 3).astype(np.float64)
    n = 200 * 64
    pairs = {
        "cosine and sine": (table[:, :16], table[:, 16:32]),
        "words": (table[:, :32], table[:, 32:64]),
        "components": (table[:, :127], table[:, 1:]),
        "coordinates": (table[:-1], table[1:]),
        "streams": (table, normals(np.arange(200), 128, 17, 3)),
    }
    # products of independent Gaussians have variance 1; |z| > 5, 6e-7 each
    for x, y in pairs.values():
        n = x.size
        assert abs((x * y).sum()) < 5 * np.sqrt(n)
        assert abs(((x**2 - 1) * (y**2 - 1)).sum()) < 5 * np.sqrt(4 * n)


@kernel
def _cosines(turns, out):
    for at in range(0, turns.shape[0], LANES):
        store(out, at, cosine_of_turns(load(turns, at)))


def test_cosine__of_turns():
    turns = np.concatenate([np.linspace(-3, 3, 3201)[:3200], np.geomspace(1e-20, 1e6, 1600)]).astype(np.float32)
    out = np.empty_like(turns)
    _cosines(turns, out)
    assert np.abs(out - np.cos(2 * np.pi * np.float64(turns))).max() < 2e-7
    assert np.abs(out).max() <= 1 + 2.0**-23
    exact = np.array([0, 0.25, 0.5, 0.75] * 4, np.float32)
    out = np.empty_like(exact)
    _cosines(exact, out)
    assert out.tolist() == [1.0, 0.0, -1.0, 0.0] * 4


NORMALS = """
import hashlib
import numpy as np
from dkfeat.compiled.random import normals
print(hashlib.sha256(normals(np.arange(4), 128, 16, 8).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_normals__same_bits_on_other_cpus_and_as_plain_python():
    digests = set()
    for change in ({}, {"NUMBA_CPU_NAME": "generic"}, AVX2, {"NUMBA_DISABLE_JIT": "1"}):
        environment = {key: value for key, value in os.environ.items() if key != "NUMBA_DISABLE_JIT"} | change
        done = subprocess.run(
            [sys.executable, "-c", NORMALS], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


LAWS = [(exponentials, exponential_weight), (levy, levy_weight)]


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
@pytest.mark.parametrize(("table_of", "weight"), LAWS)
def test_weights__follow_the_specification(table_of, weight, seed):
    coordinates = np.array([0, 7, 2**40 + 1])
    table = table_of(coordinates, 100, 41, seed)
    expected = [[weight(seed, int(c), j, 41) for j in range(100)] for c in coordinates]
    assert table.dtype == np.float32
    assert np.allclose(table, expected, rtol=2e-6)


@pytest.mark.parametrize("table_of", [exponentials, levy])
def test_weights__a_tile_is_a_part_of_the_table(table_of):
    coordinates = np.array([5, 2, 9])
    tile = np.empty((3, 64), np.float32)
    table_of(coordinates, 64, 40, 1, first=64, out=tile)
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


WEIGHTS = """
import hashlib, numpy as np
from dkfeat.compiled.random import exponentials, levy
print(hashlib.sha256(b"".join(t(np.arange(50), 200, 41, 3).tobytes() for t in (levy, exponentials))).hexdigest())
"""


@pytest.mark.slow
def test_weights__are_equal_on_other_cpus():
    found = {
        subprocess.run(
            [sys.executable, "-c", WEIGHTS], env=os.environ | name, capture_output=True, text=True, check=True
        ).stdout
        for name in ({}, {"NUMBA_CPU_NAME": "generic"})
    }
    assert len(found) == 1


def unpacked(table):
    return 1 - 2 * np.unpackbits(table.view(np.uint8), axis=1, bitorder="little").astype(int)


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_packed_signs__follow_the_specification(seed):
    coordinates = np.array([0, 7, 2**40 + 1])
    signs = unpacked(packed_signs(coordinates, 1, 2, SIGN, seed))
    assert signs.shape == (3, 4096)
    for factor in (0, 1, 31, 32, 511, 512, 513, 1700, 2047, 2048, 4095):
        assert signs[:, factor].tolist() == [sign(seed, int(c), 2048 + factor) for c in coordinates]


def test_packed_signs__superblocks_are_parts_of_the_table():
    coordinates = np.array([5, 2])
    table = packed_signs(coordinates, 0, 3, SIGN, 9)
    assert np.array_equal(packed_signs(coordinates, 1, 2, SIGN, 9), table[:, 64:])


def test_packed_signs__are_fair_and_uncorrelated():
    signs = unpacked(packed_signs(np.arange(256), 0, 1, SIGN, 3))
    n = signs.size
    # each sum of n signs has the standard deviation sqrt(n): |z| < 5 fails with chance 6e-7
    assert abs(signs.sum()) < 5 * np.sqrt(n)
    for shifted in (np.roll(signs, 1, axis=0), np.roll(signs, 1, axis=1), np.roll(signs, 32, axis=1)):
        assert abs((signs * shifted).sum()) < 5 * np.sqrt(n)


@pytest.mark.parametrize("n_columns", [1, 63, 64, 130])
def test_turned_signs__hold_the_same_bits(n_columns):
    table = packed_signs(np.arange(n_columns), 0, 1, SIGN, 1)
    turned = transposed_signs(table)
    assert turned.shape == (-(-n_columns // 64), 2048)
    bits = np.unpackbits(np.ascontiguousarray(turned.T).view(np.uint8), axis=1, bitorder="little")  # factor, column
    assert np.array_equal(1 - 2 * bits[:, :n_columns].T.astype(int), unpacked(table))
    assert not bits[:, n_columns:].any()


def test_signs_of_samples__follow_the_specification():
    i_star = np.array([[3, 3, -1], [2**41, 0, 5]])
    t_star = np.array([[0, -2, 0], [7, 2**40, -1]])
    signs = np.empty((2, 3), np.float32)
    seed = 2**63 + 11
    signs_of_samples(i_star, t_star, np.uint64(SAMPLE), np.uint64(seed), signs)
    for row, component in np.ndindex(2, 3):
        i, t = int(i_star[row, component]), int(t_star[row, component])
        if i < 0:
            assert signs[row, component] == 0
        else:
            word = draw((seed ^ t) % 2**64, i, component, SAMPLE)[0]
            assert signs[row, component] == (-1 if word >> 31 else 1)


def test_signs_of_samples__differ_where_only_the_level_does():
    t_star = np.arange(-5000, 5000)[:, None]
    signs = np.empty(t_star.shape, np.float32)
    signs_of_samples(np.full_like(t_star, 4), t_star, np.uint64(SAMPLE), np.uint64(1), signs)
    assert abs(signs.sum()) < 500  # five standard deviations of 10,000 signs: 6e-7
    assert abs((signs[1:] * signs[:-1]).sum()) < 500


FEATURES = """
import hashlib, numpy as np, scipy.sparse as sp
from dkfeat.maps import MaclaurinFeatures
X = np.random.default_rng(0).standard_normal((40, 150)).astype(np.float32)
X[:20] *= np.random.default_rng(1).random((20, 150)) < 0.1
features = MaclaurinFeatures(n_components=50, measure="proper", random_state=3).fit_width(150)
found = hashlib.sha256(features.transform(X).tobytes())
found.update(features.transform(sp.csr_matrix(X[:20])).tobytes())
print(found.hexdigest())
"""


@pytest.mark.slow
def test_features__are_equal_on_other_cpus():
    found = {
        subprocess.run(
            [sys.executable, "-c", FEATURES], env=os.environ | change, capture_output=True, text=True, check=True
        ).stdout
        for change in ({}, {"NUMBA_CPU_NAME": "generic"})
    }
    assert len(found) == 1
