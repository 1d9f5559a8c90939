"""The semigroup kernels against plain loops, random weights and their laws."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dkfeat.errors import InputError
from dkfeat.kernels import exponential_semigroup, reciprocal_semigroup
from tests.reference import kernels as oracle

VALUES = st.sampled_from([0.0, 0.0, 0.0, 1.0, 0.5, 3.0, 7.25, 0.1, 1e-9, 250.0])
ROWS = hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(5)), elements=VALUES)
KINDS = pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
KERNELS = pytest.mark.parametrize("kernel", [exponential_semigroup, reciprocal_semigroup])
PARAMETERS = st.sampled_from([0.01, 0.5, 3.0])


@KINDS
@given(X=ROWS, Y=ROWS, beta=PARAMETERS)
def test_exponential__equals_plain_loops(kind, X, Y, beta):
    wanted = oracle.gram(oracle.exponential_semigroup, X.tolist(), Y.tolist(), beta)
    np.testing.assert_allclose(exponential_semigroup(kind(X), kind(Y), beta), wanted, rtol=1e-12)


@KINDS
@given(X=ROWS, Y=ROWS, rate=PARAMETERS)
def test_reciprocal__equals_plain_loops(kind, X, Y, rate):
    wanted = oracle.gram(oracle.reciprocal_semigroup, X.tolist(), Y.tolist(), rate)
    np.testing.assert_allclose(reciprocal_semigroup(kind(X), kind(Y), rate), wanted, rtol=1e-13)


def test_kernels__are_the_means_over_their_weights(rng):
    x, y = np.array([[0.4, 0.0, 1.2]]), np.array([[0.1, 0.3, 0.5]])
    n = 200_000
    levy = 0.7**2 / (2 * rng.standard_normal((n, 3)) ** 2)
    for weights, wanted in (
        (levy, exponential_semigroup(x, y, 0.7)),
        (rng.exponential(1 / 2.0, (n, 3)), reciprocal_semigroup(x, y, 2.0)),
    ):
        products = np.exp(-weights @ x[0]) * np.exp(-weights @ y[0])
        assert abs(products.mean() - wanted[0, 0]) < 4.5 * products.std() / np.sqrt(n)  # 7e-6


@KERNELS
@given(X=ROWS, Y=ROWS)
def test_kernels__depend_on_the_sum_alone(kernel, X, Y):
    n = min(len(X), len(Y))
    sums = X[:n] + Y[:n]
    pairs = np.diag(kernel(X[:n], Y[:n]))
    np.testing.assert_allclose(pairs, np.diag(kernel(sums, np.zeros_like(sums))), rtol=1e-12)


@KERNELS
@KINDS
def test_kernels__more_rows_than_one_step_holds(kernel, kind, rng):
    X, Y = rng.random((9, 4)), rng.random((70_000, 4))
    block = kernel(kind(X), kind(Y))
    parts = [kernel(kind(X), kind(Y[part])) for part in (slice(0, 30_000), slice(30_000, None))]
    assert np.array_equal(block, np.concatenate(parts, axis=1))


@KERNELS
@KINDS
def test_kernels__extremes_neither_overflow_nor_vanish(kernel, kind):
    X = np.array([[1.7e308, 1e-308], [1e308, 1e308], [0.0, 0.0], [1e-300, 0.0]])
    block = kernel(kind(X))
    assert (block[:2] <= 1e-300).all()
    np.testing.assert_allclose(block[2:, 2:], 1.0)
    np.testing.assert_allclose(reciprocal_semigroup(kind(X[2:]), rate=1e-300), [[1, 0.5], [0.5, 1 / 3]], rtol=1e-12)


@KERNELS
@KINDS
@pytest.mark.parametrize("width", [4, 2**40])
def test_kernels__refuse_negative_values_by_name(kernel, kind, width):
    if width > 4 and kind is np.asarray:
        rows = np.zeros((2, 4))
        rows[1, 3] = -0.5
        column = 3
    else:
        column = width - 2
        rows = sp.csr_array((np.array([1.0, -0.5]), np.array([0, column]), np.array([0, 0, 2])), shape=(2, width))
    good = sp.csr_array((1, rows.shape[1]))
    for call, name in ((lambda: kernel(rows), "X"), (lambda: kernel(good, rows), "Y")):
        with pytest.raises(
            InputError, match=rf"^Negative values in data: {name} holds -0.5 at row 1, column"
        ) as caught:
            call()
        assert (caught.value.row, caught.value.column) == (1, column)


def test_kernels__take_minus_zero_for_zero():
    assert exponential_semigroup(np.array([[-0.0]])).tolist() == [[1.0]]
