import os
import subprocess
import sys

import numpy as np
import pytest

from dkfeat.compiled.random.signs import packed_signs, signs_of_samples, turned_signs
from tests.reference.gcws import draw
from tests.reference.maclaurin import SAMPLE, SIGN, sign


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
    turned = turned_signs(table)
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


SCRIPT = """
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
            [sys.executable, "-c", SCRIPT], env=os.environ | change, capture_output=True, text=True, check=True
        ).stdout
        for change in ({}, {"NUMBA_CPU_NAME": "generic"})
    }
    assert len(found) == 1
