"""The dot-product kernels against plain loops and their closed forms."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels import exponential_dot_product, maclaurin, polynomial, vovk_infinite, vovk_real
from tests.reference import kernels as oracle

# binary fractions: inner products are exact, and below 1 in absolute value
VALUES = st.sampled_from([0.0, 0.0, 0.0, 0.25, -0.25, 0.375, -0.125, 2.0**-10])
ROWS = hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(5)), elements=VALUES)
KINDS = pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])


@KINDS
@given(X=ROWS, Y=ROWS, degree=st.integers(1, 6), coef0=st.sampled_from([0.0, 0.5, 2.0]))
def test_polynomial__equals_plain_loops(kind, X, Y, degree, coef0):
    coefficients = [math.comb(degree, n) * coef0 ** (degree - n) for n in range(degree + 1)]
    wanted = oracle.gram(oracle.power_series, X.tolist(), Y.tolist(), coefficients)
    np.testing.assert_allclose(polynomial(kind(X), kind(Y), degree, coef0), wanted, rtol=1e-13)


@KINDS
@given(X=ROWS, Y=ROWS, degree=st.integers(1, 8))
def test_vovk_real__equals_plain_loops(kind, X, Y, degree):
    wanted = oracle.gram(oracle.power_series, X.tolist(), Y.tolist(), [1] * degree)
    np.testing.assert_allclose(vovk_real(kind(X), kind(Y), degree), wanted, rtol=1e-13)


@KINDS
@given(X=ROWS, Y=ROWS, alpha=st.sampled_from([0.5, 1.0, 3.0]), gamma=st.sampled_from([0.1, 1.0, 5.0]))
def test_infinite_series__equal_plain_loops(kind, X, Y, alpha, gamma):
    inner = np.array(oracle.gram(oracle.inner, X.tolist(), Y.tolist()))
    wanted = [[(1 - t) ** -alpha for t in row] for row in inner.tolist()]
    np.testing.assert_allclose(vovk_infinite(kind(X), kind(Y), alpha), wanted, rtol=1e-13)
    wanted = [[math.exp(gamma * t) for t in row] for row in inner.tolist()]
    np.testing.assert_allclose(exponential_dot_product(kind(X), kind(Y), gamma), wanted, rtol=1e-13)


@KINDS
@given(X=ROWS, Y=ROWS, coefficients=st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=6))
def test_maclaurin__equals_plain_loops(kind, X, Y, coefficients):
    wanted = oracle.gram(oracle.power_series, X.tolist(), Y.tolist(), coefficients)
    np.testing.assert_allclose(maclaurin(kind(X), kind(Y), coefficients), wanted, rtol=1e-13, atol=1e-17)


@KINDS
@pytest.mark.parametrize("inner", [1.0, -1.0, 1.5, -40.0])
def test_vovk_infinite__names_rows_out_of_its_domain(kind, inner):
    X, Y = kind(np.array([[0.01], [0.5]])), kind(np.array([[0.0], [1.0], [2 * inner]]))
    with pytest.raises(InputError, match=rf"between -1 and 1, not {inner:g} for row 1 of .* row 2 ") as caught:
        vovk_infinite(X, Y)
    assert caught.value.row == 1
    with pytest.raises(InputError, match="row 0 of the first block and row 0 of the second"):
        vovk_infinite(kind(np.array([[2.0]])))


@KINDS
@pytest.mark.parametrize(
    "kernel",
    [polynomial, vovk_real, exponential_dot_product, maclaurin, vovk_infinite],
    ids=lambda kernel: kernel.__name__,
)
def test_kernels__name_rows_that_overflow(kind, kernel):
    X = np.array([[1.0, 0.0], [1e200, -1e200], [1e200, 1e200]])
    with pytest.raises(InputError, match=r"overflows float64: it is .* for row 1 .* row 1 ") as caught:
        kernel(kind(X))
    assert caught.value.row == 1


def test_kernels__name_rows_whose_power_overflows():
    for call in (lambda X: polynomial(X, degree=4), lambda X: vovk_real(X, degree=9), exponential_dot_product):
        with pytest.raises(InputError, match="row 1 of the first block and row 1 of the second"):
            call(np.diag([1.0, 1e60]))


def test_polynomial__refuses_a_coef0_out_of_range():
    for coef0 in (-1e-9, np.nan, np.inf, "1"):
        with pytest.raises(ConfigError, match="coef0="):
            polynomial(np.ones((1, 1)), coef0=coef0)
