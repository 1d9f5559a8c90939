import numpy as np
import pytest
import scipy.sparse as sp

from dkfeat.compiled.products.matrix import AHEAD, multiply_dense, multiply_sparse

KINDS = [(np.float32, np.float32), (np.float64, np.float64), (np.float32, np.float64)]


@pytest.mark.parametrize(
    ("n_samples", "n_columns", "n_tiles"), [(1, 1, 1), (7, 30, 2), (13, 5, 3), (100, 3, 1), (6, 0, 1), (8, 200, 1)]
)
@pytest.mark.parametrize(("dtype", "sums"), KINDS)
def test_products__dense_and_sparse_are_the_product(n_samples, n_columns, n_tiles, dtype, sums):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((n_samples, n_columns)) * (rng.random((n_samples, n_columns)) < 0.5)).astype(dtype)
    table = rng.standard_normal((n_tiles, n_columns, 64)).astype(dtype)
    width = n_tiles * 64 + 5
    dense, sparse = np.full((2, n_samples, width), 9, sums)
    dense[:, 3:-2] = sparse[:, 3:-2] = 0
    rows = sp.csr_matrix(X)
    target = 3, width
    multiply_dense(X.ravel(), n_samples, n_columns, table.ravel(), n_tiles * 64, dense.reshape(-1), *target)
    indptr, positions = rows.indptr.astype(np.int64), np.append(rows.indices, np.zeros(AHEAD)).astype(np.int64)
    multiply_sparse(indptr, positions, rows.data, n_columns, table.ravel(), n_tiles * 64, sparse.reshape(-1), *target)
    matrix = table.transpose(1, 0, 2).reshape(n_columns, n_tiles * 64).astype(np.longdouble)
    bound = np.finfo(dtype).eps / 2 * n_columns * np.abs(X) @ np.abs(matrix)
    assert (np.abs(dense[:, 3:-2] - X.astype(np.longdouble) @ matrix) <= bound).all()
    assert np.array_equal(sparse, dense)
    assert (dense[:, :3] == 9).all()
    assert (dense[:, -2:] == 9).all()


def test_products__of_float32_in_float64_have_the_errors_of_64_terms():
    rng = np.random.default_rng(3)
    X, table = rng.random((13, 1000), np.float32), rng.random((2, 1000, 64), np.float32)
    exact = X.astype(np.float64) @ table.transpose(1, 0, 2).reshape(1000, 128).astype(np.float64)
    out = np.zeros((13, 128))
    multiply_dense(X.ravel(), 13, 1000, table.ravel(), 128, out.reshape(-1), 0, 128)
    # a sum of 64 terms has a rounding error of about eps / 2 * sqrt(64 / 9) of itself, and 16 such errors average out;
    # a sum of all 1,000 terms in float32 has one of eps / 2 * sqrt(1000 / 9), fifteen times as large
    error = np.sqrt(np.square(out / exact - 1).mean())
    assert error < np.finfo(np.float32).eps / 2
