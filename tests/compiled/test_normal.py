import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import ndtr

from dkfeat.compiled._jit import kernel
from dkfeat.compiled.normal import cosine_of_turns, fill_normals, normals
from dkfeat.compiled.simd import LANES, load, store
from tests.reference.gcws import draw


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
    fill_normals(coordinates, 64, 16, 1, tile)
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


SCRIPT = """
import hashlib
import numpy as np
from dkfeat.compiled.normal import normals
print(hashlib.sha256(normals(np.arange(4), 128, 16, 8).tobytes()).hexdigest())
"""


def test_normals__same_bits_on_other_cpus_and_as_plain_python():
    digests = set()
    for change in ({}, {"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_NAME": "haswell"}, {"NUMBA_DISABLE_JIT": "1"}):
        environment = {key: value for key, value in os.environ.items() if key != "NUMBA_DISABLE_JIT"} | change
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
