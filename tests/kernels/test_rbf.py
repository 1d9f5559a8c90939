"""The RBF kernels against plain loops and their laws."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dkfeat.errors import InputError
from dkfeat.kernels import exponential_semigroup, rbf, rbf_cosine, reciprocal_semigroup
from tests.reference import kernels as oracle

VALUES = st.sampled_from([0.0, 0.0, 0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.25, 0.1, 1e-3, -25.0])
ROWS = hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(5)), elements=VALUES)
GAMMAS = st.sampled_from([1e-3, 0.3, 1.0, 4.0])
KINDS = pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])


@KINDS
@given(X=ROWS, Y=ROWS, gamma=GAMMAS)
def test_rbf__equals_plain_loops(kind, X, Y, gamma):
    wanted = oracle.gram(oracle.rbf, X.tolist(), Y.tolist(), gamma)
    # an exponent of size e carries a relative error of about e times rounding; e is at most 2,800
    np.testing.assert_allclose(rbf(kind(X), kind(Y), gamma), wanted, rtol=1e-11, atol=1e-300)


@KINDS
@given(X=ROWS, Y=ROWS, gamma=GAMMAS)
def test_rbf_cosine__equals_plain_loops(kind, X, Y, gamma):
    wanted = oracle.gram(oracle.rbf_cosine, X.tolist(), Y.tolist(), gamma)
    np.testing.assert_allclose(rbf_cosine(kind(X), kind(Y), gamma), wanted, rtol=1e-13)


@KINDS
@given(X=ROWS, gamma=GAMMAS)
def test_rbf__diagonal_is_1(kind, X, gamma):
    for kernel in (rbf, rbf_cosine):
        block = kernel(kind(X), gamma=gamma)
        assert (np.diag(block) == 1).all()
        assert ((block >= 0) & (block <= 1)).all()


@KINDS
def test_rbf__close_rows_far_from_the_origin_keep_their_digits(kind):
    X = 1e6 + np.arange(4.0)[:, None] * np.array([[1e-3, 2e-3, -1e-3]])
    wanted = oracle.gram(oracle.rbf, X.tolist(), X.tolist(), 1e5)
    np.testing.assert_allclose(rbf(kind(X), gamma=1e5), wanted, rtol=1e-12)
    np.testing.assert_allclose(rbf(kind(X), kind(X.copy()), gamma=1e5), wanted, rtol=1e-12)
    angles = np.array([0.0, 1e-7, 3e-7])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    wanted = np.exp(-1e13 * (angles[:, None] - angles) ** 2 / 2)
    np.testing.assert_allclose(rbf_cosine(kind(rows), gamma=1e13), wanted, rtol=1e-7)


def test_rbf__close_rows_differ_in_which_columns_they_hold():
    X = sp.csr_matrix(np.array([[5.0, 1e-9, 0.0, 3.0], [5.0, 0.0, 1e-9, 3.0], [5.0, 0.0, 0.0, 3.0 + 2**-30]]))
    wanted = oracle.gram(oracle.rbf, X.toarray().tolist(), X.toarray().tolist(), 1e17)
    np.testing.assert_allclose(rbf(X, gamma=1e17), wanted, rtol=1e-13)


@KINDS
@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**-500, 2.0**500, 2.0**1000])
def test_rbf__extremes_neither_overflow_nor_vanish(kind, scale):
    X = np.array([[1.0, -0.5, 0.25], [0.5, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert np.array_equal(rbf_cosine(kind(scale * X)), rbf_cosine(kind(X)))
    assert np.array_equal(rbf_cosine(kind(scale * X), kind(X)), rbf_cosine(kind(X), kind(X)))
    wanted = 1.0 if scale < 1 else 0.0
    assert rbf(kind(scale * X))[0, 1] == wanted
    assert rbf(kind(scale * X), kind(X[:1]))[1, 0] == (rbf(np.zeros((1, 3)), X[:1])[0, 0] if scale < 1 else 0.0)


def test_rbf__extremes_meet_a_gamma_that_fits():
    X = np.array([[1.0, 0.0], [0.0, 1.0]]) * 2.0**-450
    np.testing.assert_allclose(rbf(X, gamma=2.0**900)[0, 1], np.exp(-2.0), rtol=1e-14)


@KINDS
def test_rbf__a_row_of_another_scale_changes_nothing_between_the_others(kind, rng):
    X = rng.standard_normal((9, 4)) * (rng.random((9, 4)) < 0.8)
    for scale, gamma in ((1.0, 0.3), (2.0**-600, 2.0**1023), (2.0**-450, 2.0**900), (2.0**450, 2.0**-900)):
        rows = scale * X
        wanted = rbf(kind(rows), gamma=gamma)
        for other in (0.0, 2.0**-1050, 2.0**-700, 1.0, 2.0**500, 2.0**1020):
            more = np.vstack([rows[:3], np.full((1, 4), other), rows[3:]])
            places = np.delete(np.arange(10), 3)
            for block in (rbf(kind(more), gamma=gamma), rbf(kind(more), kind(more.copy()), gamma)):
                np.testing.assert_allclose(block[np.ix_(places, places)], wanted, rtol=1e-12)
                np.testing.assert_array_equal(np.diag(block), 1.0)
            block = rbf(kind(more), gamma=gamma)
            np.testing.assert_array_equal(block, block.T)
            alone = [rbf(kind(more[3:4]), kind(more[i : i + 1]), gamma)[0, 0] for i in range(10)]
            np.testing.assert_allclose(block[3], alone, rtol=1e-12)


@KINDS
def test_rbf_cosine__of_empty_rows_is_that_of_their_random_features(kind):
    X = kind(np.array([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(rbf_cosine(X, gamma=2.0), [[1.0, np.exp(-1)], [np.exp(-1), 1.0]], rtol=1e-15)
    # E cos(b) cos(w + b), with w normal of variance gamma
    rng = np.random.default_rng(1)
    w, b = np.sqrt(2.0) * rng.standard_normal(200_000), rng.uniform(0, 2 * np.pi, 200_000)
    products = 2 * np.cos(b) * np.cos(w + b)
    assert abs(products.mean() - np.exp(-1)) < 4.5 * products.std() / np.sqrt(200_000)  # 7e-6


AMOUNTS = st.sampled_from([0.0, 0.0, 0.0, 1.0, 0.5, 3.0, 7.25, 0.1, 1e-9, 250.0])
NON_NEGATIVE = hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(5)), elements=AMOUNTS)
KERNELS = pytest.mark.parametrize("kernel", [exponential_semigroup, reciprocal_semigroup])
PARAMETERS = st.sampled_from([0.01, 0.5, 3.0])


@KINDS
@given(X=NON_NEGATIVE, Y=NON_NEGATIVE, beta=PARAMETERS)
def test_exponential__equals_plain_loops(kind, X, Y, beta):
    wanted = oracle.gram(oracle.exponential_semigroup, X.tolist(), Y.tolist(), beta)
    np.testing.assert_allclose(exponential_semigroup(kind(X), kind(Y), beta), wanted, rtol=1e-12)


@KINDS
@given(X=NON_NEGATIVE, Y=NON_NEGATIVE, rate=PARAMETERS)
def test_reciprocal__equals_plain_loops(kind, X, Y, rate):
    wanted = oracle.gram(oracle.reciprocal_semigroup, X.tolist(), Y.tolist(), rate)
    np.testing.assert_allclose(reciprocal_semigroup(kind(X), kind(Y), rate), wanted, rtol=1e-13)


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
