import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dkfeat.compiled.products.rows import (
    L1,
    L2,
    MAX,
    decay_features,
    finish_features,
    normalise_rows,
    scale_values,
    squares_of_dense,
    squares_of_sparse,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False).filter(bool)


def normalised(rows, norm):
    values = np.array([value for row in rows for value in row], np.float64)
    indptr = np.cumsum([0, *map(len, rows)])
    out = np.full(len(values), np.nan)
    normalise_rows(indptr, values, norm, out)
    return np.split(out, indptr[1:-1])


@given(row=st.lists(FINITE, min_size=1, max_size=8), norm=st.sampled_from([L1, L2, MAX]))
def test_normalise_rows__norm_of_the_result_is_1(row, norm):
    (result,) = normalised([row], norm)
    size = {L1: np.abs(result).sum(), L2: np.sqrt((result**2).sum()), MAX: np.abs(result).max()}[norm]
    assert size == pytest.approx(1.0, abs=1e-14)
    assert (np.sign(result) * np.sign(row) >= 0).all()


def test_decay__is_the_exponential():
    v = np.concatenate([np.linspace(0, 87.3, 20_011), np.geomspace(1e-30, 1, 1000)]).astype(np.float32)
    out = v.copy()
    decay_features(out, np.float32(1))
    expected = np.exp(-v.astype(np.float64))
    assert (np.abs(out - expected) <= 1.5e-7 * expected).all()


def test_decay__has_ends():
    out = np.array([0.0, -0.0, -3.0, -1e30, 87.34, 1e4, np.inf] * 5, np.float32)
    decay_features(out, np.float32(0.5))
    assert out.tolist() == [0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0] * 5


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 100])
def test_decay__does_not_depend_on_the_place(n):
    v = np.random.default_rng(0).exponential(5, 100).astype(np.float32)
    whole, part = v.copy(), v[100 - n :].copy()
    decay_features(whole, np.float32(0.3))
    decay_features(part, np.float32(0.3))
    assert np.array_equal(part, whole[100 - n :])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scale__multiplies_and_bounds(dtype):
    values = np.array([0, 1e-300, 0.5, 3, 1e30], dtype)
    out = np.empty(5, np.float32)
    with np.errstate(over="ignore"):  # where the loop runs as plain Python
        assert scale_values(values, 1e200, 1.0, 7.0, out)
    assert out.tolist() == [0.0, 7.0 if dtype is np.float64 else 0.0, 7.0, 7.0, 7.0]
    with np.errstate(over="ignore"):
        assert scale_values(values, 1.0, 5e-324, 7.0, out)
    assert out[0] == 0
    assert scale_values(values, 2.0, 8.0, 7.0, out)
    assert out.tolist() == [0.0, 0.0, 0.25, 1.5, 7.0]


@pytest.mark.parametrize("value", [-1e-300, -1, np.nan, np.inf, -np.inf])
def test_scale__tells_of_unfit_values(value):
    out = np.empty(3, np.float32)
    assert not scale_values(np.array([1.0, value, 2.0]), 1.0, 1.0, 9.0, out)
    assert scale_values(np.array([1.0, -0.0, 2.0]), 1.0, 1.0, 9.0, out)


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
