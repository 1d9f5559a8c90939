"""The exact GMM and pGMM kernels: against plain loops, and by their laws."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dkfeat.errors import InputError
from dkfeat.kernels import egmm, gmm, resemblance
from dkfeat.kernels.minmax import gmm_pairs
from tests.reference import kernels as kernels_oracle
from tests.reference import minmax as oracle

# magnitudes on a coarse grid: a similarity is then far from rounding trouble, zeros and ties are frequent
VALUES = st.sampled_from([0.0, 0.0, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -7.25, 0.1, 1e-3, -250.0])
ROWS = hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.just(5)), elements=VALUES)


@given(X=ROWS, Y=ROWS)
def test_gmm__equals_plain_loops(X, Y):
    np.testing.assert_allclose(gmm(X, Y), oracle.gram(X.tolist(), Y.tolist()), rtol=4e-16 * 10, atol=0)


@given(X=ROWS, Y=ROWS, p=st.sampled_from([0.25, 0.5, 2.0, 3.7, 40.0]))
def test_gmm__equals_plain_loops_at_other_powers(X, Y, p):
    np.testing.assert_allclose(gmm(X, Y, p), oracle.gram(X.tolist(), Y.tolist(), p), rtol=1e-12, atol=1e-300)


@given(X=ROWS, p=st.sampled_from([1.0, 0.5, 3.0]))
def test_gmm__diagonal_is_1_except_for_empty_rows(X, p):
    assert np.diag(gmm(X, p=p)).tolist() == X.any(axis=1).astype(float).tolist()


@given(X=ROWS, Y=ROWS, exponent=st.integers(-900, 900), sign=st.sampled_from([1.0, -1.0]))
def test_gmm__ignores_a_common_scale(X, Y, exponent, sign):
    scale = sign * 2.0**exponent
    assert np.array_equal(gmm(scale * X, scale * Y), gmm(X, Y))


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300, 2.0**-1070, 1.7e308])
def test_gmm__float_extremes_neither_overflow_nor_vanish(scale):
    x, y = np.array([[1.0, -0.5, 0.25]]) * scale, np.array([[0.5, -1.0, 0.0]]) * scale
    np.testing.assert_allclose(gmm(x, y), [[1.0 / 2.25]], rtol=0.3 if scale < 1e-310 else 1e-15)


@pytest.mark.parametrize("p", [0.5, 2.0, 80.0])
def test_gmm__powers_of_extremes_neither_overflow_nor_vanish(p):
    x, y = np.array([[1.0, 0.9]]), np.array([[0.8, 1.0]])
    np.testing.assert_allclose(gmm(x * 1e300, y * 1e300, p), gmm(x, y, p), rtol=1e-11)


def test_gmm__rows_of_very_different_scale_meet_at_the_larger():
    x, y = np.array([[1e300, 1e-300]]), np.array([[1e-300, 1e-300]])
    assert gmm(x, y).tolist() == [[0.0]]
    np.testing.assert_allclose(gmm(x * 1e-160, y * 1e140), [[1e-300]], rtol=1e-12)
    near, far = np.array([[1e-300, 0.0]]), np.array([[0.0, 1e300], [1e-300, 0.0]])
    assert gmm(near, far).tolist() == [[0.0, 1.0]]  # the first column has a zero for the far row


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_gmm__empty_rows_and_empty_blocks_give_0(kind):
    X = kind(np.array([[0.0, 0.0], [1.0, 0.0]]))
    assert gmm(X).tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert gmm(X[:0], X).shape == (0, 2)
    assert gmm(X, X[:0]).shape == (2, 0)
    assert gmm(X[:1], X[:1]).tolist() == [[0.0]]


@pytest.mark.parametrize("width", [3, 60, 40_000, 2**31 - 1, 2**40])
@pytest.mark.parametrize("p", [1.0, 0.5])
def test_gmm_pairs__have_the_bits_of_the_block_in_any_order(width, p):
    rng = np.random.default_rng(width)
    # equal low bits and equal low halves of columns, which a hash may put in one place
    columns = np.unique(np.concatenate([np.arange(0, width, max(1, width // 300)), rng.integers(0, width, 300)]))
    parts = []
    for size in (0, 1, 2, 40, 300):
        for _ in range(4):
            held = np.sort(rng.permutation(columns)[:size])
            values = (
                rng.lognormal(sigma=3, size=len(held)) * rng.choice([-1, 1], len(held)) * 2.0 ** rng.integers(-9, 9)
            )
            parts.append(sp.csr_matrix((values, held, [0, len(held)]), shape=(1, width)))
    X = sp.vstack(parts[::2], format="csr")
    Y = sp.vstack(parts, format="csr")
    left, right = (indices.ravel() for indices in np.indices((X.shape[0], Y.shape[0])))
    expected = gmm(X, Y, p)
    for order in (np.arange(len(left)), rng.permutation(len(left))):
        found = gmm_pairs(X, Y, left[order], right[order], p)
        assert np.array_equal(found, expected[left[order], right[order]])
    assert len(gmm_pairs(X, Y, left[:0], right[:0], p)) == 0


def test_gmm_pairs__extremes_have_the_bits_of_the_block():
    X = np.array([[5e-324, 0, 1e-310], [1e308, -1e308, 0], [1e-308, 3, 1e308], [2, 1, -4], [0, 0, 0]])
    left, right = (indices.ravel() for indices in np.indices((5, 5)))
    assert np.array_equal(gmm_pairs(X, X, left, right).reshape(5, 5), gmm(X))
    assert gmm(X[:1], np.array([[5e-324, 0, 0.0]]))[0, 0] == 5e-324 / (1e-310 + 5e-324)


def test_gmm__refuses_indices_out_of_range():
    X = sp.csr_matrix(np.eye(3))
    X.indices[1] = 3
    with pytest.raises(InputError, match="indices run from 0 to 3"):
        gmm(X)


@given(X=ROWS, Y=ROWS, gamma=st.sampled_from([0.1, 1.0, 20.0]), p=st.sampled_from([1.0, 0.5]))
def test_egmm__is_the_exponential_of_plain_loops(X, Y, gamma, p):
    wanted = np.exp(-gamma * (1 - np.array(oracle.gram(X.tolist(), Y.tolist(), p))))
    np.testing.assert_allclose(egmm(sp.csr_matrix(X), Y, gamma, p), wanted, rtol=1e-12)


@given(X=ROWS, Y=ROWS)
def test_resemblance__equals_plain_loops_to_the_bit(X, Y):
    wanted = kernels_oracle.gram(kernels_oracle.resemblance, X.tolist(), Y.tolist())
    for kind in (np.asarray, sp.csr_matrix):
        assert np.array_equal(resemblance(kind(X), kind(Y)), wanted)
