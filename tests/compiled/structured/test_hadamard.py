import os
import subprocess
import sys

import numba
import numpy as np
import pytest
from scipy.linalg import hadamard

from dkfeat.compiled.products.hadamard import hadamard_rows
from tests.programs import AVX2

SIZES = [2**bits for bits in range(4, 12)]


def some_rows(n, n_samples=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_samples, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("n", SIZES)
def test_hadamard__is_the_matrix(n):
    rows, factors = some_rows(n)
    expected = (rows.astype(np.float64) * factors) @ hadamard(n)
    # log2 n sums of growing size: each rounds by at most 2^-24 of it, and norms grow to sqrt(n) |x|
    bound = (np.log2(n) + 1) * 2.0**-24 * np.sqrt(n) * np.linalg.norm(rows * factors, axis=1, keepdims=True)
    assert (np.abs(hadamard_rows(rows, factors) - expected) < bound).all()


@pytest.mark.parametrize("n", [4096, 8192, 16384, 65536])
def test_hadamard__large_ones_are_their_own_inverse(n):
    if numba.config.DISABLE_JIT and n > 4096:
        pytest.skip("too long as plain Python")
    rows, _ = some_rows(n)
    ones = np.ones(n, np.float32)
    twice = hadamard_rows(hadamard_rows(rows, ones), np.full(n, 1 / n, np.float32))
    assert np.abs(twice - rows).max() < 1e-5
    column = n // 3
    unit = np.zeros((1, n), np.float32)
    unit[0, column] = 1
    bits = np.array([(column & j).bit_count() for j in range(n)])
    assert np.array_equal(hadamard_rows(unit, ones)[0], 1 - 2 * (bits % 2))


@pytest.mark.parametrize("n", [16, 64, 1024])
def test_hadamard__whole_numbers_are_exact(n):
    rows = np.random.default_rng(1).integers(-50, 50, (4, n)).astype(np.float32)
    signs = np.random.default_rng(2).choice([-1, 1], n).astype(np.float32)
    assert np.array_equal(hadamard_rows(rows, signs), (rows * signs) @ hadamard(n))


def test_hadamard__a_row_does_not_depend_on_the_others():
    rows, factors = some_rows(512, n_samples=9)
    whole = hadamard_rows(rows, factors)
    for i in range(9):
        assert np.array_equal(hadamard_rows(rows[i : i + 1], factors), whole[i : i + 1])


SCRIPT = """
import hashlib
import numpy as np
from dkfeat.compiled.products.hadamard import hadamard_rows
digest = hashlib.sha256()
for n in (16, 32, 256, 2048):
    rng = np.random.default_rng(n)
    rows, factors = (rng.standard_normal(shape).astype("f4") for shape in ((5, n), n))
    digest.update(hadamard_rows(rows, factors).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_hadamard__same_bits_on_other_cpus_and_as_plain_python():
    digests = set()
    for change in ({}, {"NUMBA_CPU_NAME": "generic"}, AVX2, {"NUMBA_DISABLE_JIT": "1"}):
        environment = {key: value for key, value in os.environ.items() if key != "NUMBA_DISABLE_JIT"} | change
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
