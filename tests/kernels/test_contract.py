"""What every kernel function keeps, whatever it computes."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dkfeat import kernels
from dkfeat.errors import ConfigError, InputError

KERNELS = sorted(kernels.__all__)
TOLERANCE = dict.fromkeys(KERNELS, 1e-11) | {"gmm": 0, "egmm": 0, "resemblance": 0}
PARAMETERS = {  # each with values that it refuses
    "egmm": ("gamma", (0, -1.0, np.nan, np.inf, "1", True)),
    "exponential_dot_product": ("gamma", (0, -1.0, np.inf)),
    "exponential_semigroup": ("beta", (0, -1.0, np.nan)),
    "gmm": ("p", (0, -1.0, 1001, np.inf, np.nan, "1", None, True)),
    "maclaurin": ("coefficients", ([1.0, -1.0], [], [np.nan], ["a"], 2.0, None)),
    "polynomial": ("degree", (0, -1, 1.5, True, 10_001)),
    "rbf": ("gamma", (0, -1.0, np.nan, None)),
    "rbf_cosine": ("gamma", (0, -1e-300, np.inf)),
    "reciprocal_semigroup": ("rate", (0, -1.0, np.inf)),
    "vovk_infinite": ("alpha", (0, -1.0)),
    "vovk_real": ("degree", (0, 2.5)),
}

# every kernel's domain holds these: not negative, and inner products below 1
VALUES = st.sampled_from([0.0, 0.0, 0.0, 0.125, 0.25, 0.3, 1e-3, 0.01])
ROWS = hnp.arrays(np.float64, st.tuples(st.integers(0, 6), st.just(5)), elements=VALUES)

FEW = settings(max_examples=20)  # of each of the kernels

pytestmark = pytest.mark.parametrize("name", KERNELS)


@FEW
@given(X=ROWS, Y=ROWS)
def test_kernel__dense_and_sparse_agree(name, X, Y):
    kernel = getattr(kernels, name)
    wanted = kernel(X, Y)
    assert wanted.dtype == np.float64
    assert wanted.shape == (len(X), len(Y))
    for left, right in (
        (sp.csr_matrix(X), sp.csr_matrix(Y)),
        (sp.csc_array(X), Y),
        (X, sp.coo_array(Y)),
        (np.asfortranarray(X), Y),
    ):
        np.testing.assert_allclose(kernel(left, right), wanted, rtol=TOLERANCE[name], atol=0)


@FEW
@given(X=ROWS, sparse=st.booleans())
def test_kernel__of_one_block_is_symmetric_and_positive_definite(name, X, sparse):
    kernel = getattr(kernels, name)
    block = kernel(sp.csr_matrix(X) if sparse else X)
    assert np.array_equal(block, block.T)
    np.testing.assert_allclose(block, kernel(X, X.copy()), rtol=TOLERANCE[name], atol=0)
    if len(X):
        assert np.linalg.eigvalsh(block).min() >= -1e-12 * len(X) * np.abs(block).max()


@FEW
@given(X=ROWS, Y=ROWS, cut=st.integers(0, 6), sparse=st.booleans())
def test_kernel__of_blocks_is_blocks_of_the_kernel(name, X, Y, cut, sparse):
    kernel = getattr(kernels, name)
    kind = sp.csr_matrix if sparse else np.asarray
    parts = np.concatenate([kernel(kind(X[:cut]), kind(Y)), kernel(kind(X[cut:]), kind(Y))])
    np.testing.assert_allclose(parts, kernel(kind(X), kind(Y)), rtol=TOLERANCE[name], atol=0)


@FEW
@given(X=ROWS)
def test_kernel__input_is_not_changed_and_any_dtype_will_do(name, X):
    kernel = getattr(kernels, name)
    narrow = X.astype(np.float32)
    kept = narrow.copy()
    np.testing.assert_allclose(kernel(narrow), kernel(narrow.astype(np.float64)), rtol=TOLERANCE[name], atol=0)
    rows = sp.csr_matrix(narrow)
    kernel(rows)
    assert np.array_equal(narrow, kept)
    assert np.array_equal(rows.toarray(), kept)
    whole = (X > 0).astype(np.int8) * np.eye(1, 5, dtype=np.int8)  # inner products 0 or 1
    if name != "vovk_infinite":
        np.testing.assert_allclose(kernel(whole), kernel(whole.astype(float)), rtol=0, atol=0)
        np.testing.assert_allclose(kernel(whole.astype(bool)), kernel(whole.astype(float)), rtol=0, atol=0)


def test_kernel__width_costs_nothing(name):
    last = 2**40 - 1
    kernel = getattr(kernels, name)
    wide = [
        sp.csr_array((np.array([0.25, 0.5]), np.array([at, last]), np.array([0, 2])), shape=(1, last + 1))
        for at in (0, 5)
    ]
    narrow = [np.array([[0.25, 0.0, 0.5]]), np.array([[0.0, 0.25, 0.5]])]
    np.testing.assert_allclose(kernel(*wide), kernel(*narrow), rtol=1e-12)
    np.testing.assert_allclose(kernel(wide[0]), kernel(narrow[0]), rtol=1e-12)


def test_kernel__explicit_zeros_and_duplicates_change_nothing(name):
    kernel = getattr(kernels, name)
    messy = sp.csr_matrix(([0.25, 0.125, 0.0, 0.25], [2, 0, 1, 2], [0, 4]), shape=(1, 3))
    tidy = np.array([[0.125, 0.0, 0.5]])
    np.testing.assert_allclose(kernel(messy), kernel(tidy), rtol=1e-14)
    np.testing.assert_allclose(kernel(messy, messy), kernel(tidy), rtol=1e-14)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_kernel__names_a_value_that_is_not_finite(name, kind, value):
    kernel = getattr(kernels, name)
    bad = np.full((3, 4), 0.1)
    bad[1, 2] = value
    with pytest.raises(InputError, match=r"Y holds (NaN|inf|-inf) at row 1, column 2") as caught:
        kernel(np.full((2, 4), 0.1), kind(bad))
    assert (caught.value.row, caught.value.column) == (1, 2)
    with pytest.raises(InputError, match=r"X holds (NaN|inf|-inf) at row 1, column 2"):
        kernel(kind(bad))


def test_kernel__refuses_other_shapes_and_dtypes(name):
    kernel = getattr(kernels, name)
    with pytest.raises(InputError, match="X has 3 features and Y has 2"):
        kernel(np.ones((1, 3)) / 4, sp.csr_matrix(np.ones((1, 2)) / 4))
    with pytest.raises(InputError, match=r"X has shape \(3,\)"):
        kernel(np.ones(3))
    with pytest.raises(InputError, match=r"Y has shape .* dtype complex128"):
        kernel(np.ones((1, 2)) / 4, np.ones((1, 2), complex))
    blocks = da.ones((4, 2), chunks=(2, 2)).map_blocks(sp.csr_matrix, dtype=float, meta=sp.csr_matrix((0, 0)))
    for pair in ((blocks, None), (np.ones((1, 2)) / 4, blocks)):
        with pytest.raises(InputError, match=r"is a Dask Array, but values in memory are needed"):
            kernel(*pair)


def test_kernel__refuses_parameters_out_of_range(name):
    if name == "resemblance":
        assert name not in PARAMETERS
        return
    parameter, values = PARAMETERS[name]
    for value in values:
        with pytest.raises(ConfigError, match=parameter):
            getattr(kernels, name)(np.full((1, 2), 0.1), **{parameter: value})
