import numba
import numpy as np
import pytest
from scipy.linalg import hadamard

from tests.compiled.products.transforms import hadamard_rows

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
