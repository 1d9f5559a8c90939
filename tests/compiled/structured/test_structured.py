import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import hadamard

from dkfeat.compiled.products.hadamard import FastfoodTables, FlatRows, project_fastfood, project_orthogonal

N, WIDTH = 32, 21
NOTHING = np.empty(0, np.int64)


def some_rows():
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
    padded, dense, sparse = some_rows()
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
    padded, dense, sparse = some_rows()
    expected = []
    for block in range(n_blocks):
        of = slice(block * N, (block + 1) * N)
        expected.append(padded @ ((H * first[of]) @ (H * second[of]) @ (H * third[of])).T)
    found = np.empty((2, 4 * n_components), np.float32)
    for out, rows in zip(found, (dense, sparse), strict=True):
        project_orthogonal(rows, (first, second, third), N, n_components, out)
    assert np.array_equal(found[0], found[1])
    assert np.allclose(found[0].reshape(4, -1), np.hstack(expected)[:, :n_components], atol=5e-3)
