import numba
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import hadamard

from dkfeat.compiled.products.hadamard import (
    FastfoodTables,
    FlatRows,
    hadamard_rows,
    project_fastfood,
    project_orthogonal,
)

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


N, WIDTH = 32, 21
NOTHING = np.empty(0, np.int64)


def padded_rows():
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((4, WIDTH)) * (rng.random((4, WIDTH)) < 0.5)).astype(np.float32)
    rows = sp.csr_matrix(X)
    sparse = rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data
    padded = np.pad(X.astype(np.float64), ((0, 0), (0, N - WIDTH)))
    return padded, FlatRows(NOTHING, NOTHING, X.ravel(), WIDTH), FlatRows(*sparse, WIDTH)


def some_signs(rng, n_blocks):
    return rng.choice([-1, 1], n_blocks * N).astype(np.float32)


@pytest.mark.parametrize("n_components", [5, 32, 80])
def test_fastfood__is_the_product_of_its_factors(n_components):
    rng, H = np.random.default_rng(1), hadamard(N)
    n_blocks = -(-n_components // N)
    signs = some_signs(rng, n_blocks)
    order = np.concatenate([rng.permutation(N) for _ in range(n_blocks)]).astype(np.uint32)
    gaussians, lengths = rng.standard_normal((2, n_blocks * N)).astype(np.float32)
    padded, dense, sparse = padded_rows()
    expected = []
    for block in range(n_blocks):
        of = slice(block * N, (block + 1) * N)
        permutation = np.eye(N)[order[of]]
        W = np.diag(lengths[of]) @ H @ np.diag(gaussians[of]) @ permutation @ H @ np.diag(signs[of])
        expected.append(padded @ W.T)
    found = np.empty((2, 4 * n_components), np.float32)
    for out, rows in zip(found, (dense, sparse), strict=True):
        project_fastfood(rows, FastfoodTables(signs, order, gaussians, lengths), N, n_components, out)
    assert np.array_equal(found[0], found[1])
    assert np.allclose(found[0].reshape(4, -1), np.hstack(expected)[:, :n_components], atol=2e-4)


@pytest.mark.parametrize("n_components", [5, 32, 80])
def test_orthogonal__is_the_product_of_its_factors(n_components):
    rng, H = np.random.default_rng(2), hadamard(N)
    n_blocks = -(-n_components // N)
    first, second, third = (some_signs(rng, n_blocks) for _ in range(3))
    padded, dense, sparse = padded_rows()
    expected = []
    for block in range(n_blocks):
        of = slice(block * N, (block + 1) * N)
        expected.append(padded @ ((H * first[of]) @ (H * second[of]) @ (H * third[of])).T)
    found = np.empty((2, 4 * n_components), np.float32)
    for out, rows in zip(found, (dense, sparse), strict=True):
        project_orthogonal(rows, (first, second, third), N, n_components, out)
    assert np.array_equal(found[0], found[1])
    assert np.allclose(found[0].reshape(4, -1), np.hstack(expected)[:, :n_components], atol=5e-3)
