import numpy as np
import pytest
import scipy.sparse as sp

from dkfeat.compiled.products.matrix import AHEAD, multiply_dense, multiply_sparse


def some_product(n_samples, n_columns, n_tiles, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_samples, n_columns)) * (rng.random((n_samples, n_columns)) < 0.5)
    table = rng.standard_normal((n_tiles, n_columns, 64)).astype(np.float32)
    return X.astype(np.float32), table


@pytest.mark.parametrize(
    ("n_samples", "n_columns", "n_tiles"), [(1, 1, 1), (7, 30, 2), (13, 5, 3), (100, 3, 1), (6, 0, 1)]
)
def test_products__dense_and_sparse_are_the_product(n_samples, n_columns, n_tiles):
    X, table = some_product(n_samples, n_columns, n_tiles)
    width = n_tiles * 64 + 5
    dense, sparse = np.full((2, n_samples, width), 9, np.float32)
    dense[:, 3:-2] = sparse[:, 3:-2] = 0
    rows = sp.csr_matrix(X)
    target = 3, width
    multiply_dense(X.ravel(), n_samples, n_columns, table.ravel(), n_tiles, dense.reshape(-1), *target)
    indptr, positions = rows.indptr.astype(np.int64), np.append(rows.indices, np.zeros(AHEAD)).astype(np.int64)
    multiply_sparse(indptr, positions, rows.data, n_columns, table.ravel(), n_tiles, sparse.reshape(-1), *target)
    matrix = table.transpose(1, 0, 2).reshape(n_columns, n_tiles * 64).astype(np.float64)
    bound = 2.0**-24 * n_columns * np.abs(X).astype(np.float64) @ np.abs(matrix)
    assert (np.abs(dense[:, 3:-2] - X.astype(np.float64) @ matrix) <= bound).all()
    assert np.array_equal(sparse, dense)
    assert (dense[:, :3] == 9).all()
    assert (dense[:, -2:] == 9).all()


def test_products__a_row_does_not_depend_on_its_place():
    X, table = some_product(1, 40, 2)
    many = np.repeat(X, 103, axis=0)
    out = np.zeros((103, 128), np.float32)
    multiply_dense(many.ravel(), 103, 40, table.ravel(), 2, out.reshape(-1), 0, 128)
    assert (out == out[0]).all()


def test_products__columns_may_come_in_parts():
    X, table = some_product(13, 40, 2)
    whole, parts, sparse = np.zeros((3, 13, 128), np.float32)
    multiply_dense(X.ravel(), 13, 40, table.ravel(), 2, whole.reshape(-1), 0, 128)
    for columns in (slice(0, 17), slice(17, 40)):
        part, held = np.ascontiguousarray(X[:, columns]), np.ascontiguousarray(table[:, columns])
        multiply_dense(part.ravel(), 13, part.shape[1], held.ravel(), 2, parts.reshape(-1), 0, 128)
        rows = sp.csr_matrix(part)
        indptr, positions = rows.indptr.astype(np.int64), np.append(rows.indices, np.zeros(AHEAD)).astype(np.int64)
        multiply_sparse(indptr, positions, rows.data, part.shape[1], held.ravel(), 2, sparse.reshape(-1), 0, 128)
    assert np.array_equal(parts, whole)
    assert np.array_equal(sparse, whole)
