import numpy as np
import pytest
import scipy.sparse as sp

from dkfeat.compiled.phases import finish_features, squares_of_dense, squares_of_sparse


@pytest.mark.parametrize("n_columns", [1, 15, 16, 100, 1024, 2500])
def test_squares__dense_and_sparse_agree(n_columns):
    rng = np.random.default_rng(n_columns)
    X = (rng.standard_normal((5, n_columns)) * (rng.random((5, n_columns)) < 0.1)).astype(np.float32)
    X[2] = 0
    dense, sparse = np.empty(5), np.empty(5)
    squares_of_dense(X.ravel(), n_columns, dense)
    rows = sp.csr_matrix(X)
    squares_of_sparse(rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data, sparse)
    assert np.array_equal(dense, sparse)
    assert np.allclose(dense, (X.astype(np.float64) ** 2).sum(axis=1), rtol=1e-6)


def test_squares__skip_blocks_without_nonzeros():
    squares = np.empty(2)
    columns = np.array([0, 5000, 2**40, 2**40 + 16])
    squares_of_sparse(np.array([0, 4, 4]), columns, np.array([1, 2, 3, 4], np.float32), squares)
    assert squares.tolist() == [30.0, 0.0]


@pytest.mark.parametrize("n_components", [1, 16, 40, 1030, 2048])
@pytest.mark.parametrize("amplitude", [0.0, 0.3])
def test_features__are_cosines(n_components, amplitude):
    rng = np.random.default_rng(3)
    projected = rng.standard_normal((3, n_components)).astype(np.float32)
    phases = rng.random(n_components).astype(np.float32)
    scales = np.array([0.5, 0.0, 2.0], np.float32)
    cosines = np.cos(2 * np.pi * (projected.astype(np.float64) * scales[:, None] + phases))
    expected = amplitude * cosines if amplitude else cosines / np.linalg.norm(cosines, axis=1, keepdims=True)
    finish_features(projected.reshape(-1), phases, scales, np.float32(amplitude), n_components)
    assert np.abs(projected - expected).max() < 3e-6


def test_features__of_a_row_of_zeros_are_zeros():
    projected = np.array([0.25], np.float32)
    finish_features(projected, np.zeros(1, np.float32), np.ones(1, np.float32), np.float32(0), 1)
    assert projected.tolist() == [0.0]
