"""Checks that maps and kernels share."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dkfeat.errors import ConfigError, InputError
from dkfeat.validation import check_choice, check_columns, check_finite, check_integer, check_real, rows_as_csr

BLOCKS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(0, 5), st.integers(1, 5)),
    elements=st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-320]),
)


def assert_canonical(rows):
    assert isinstance(rows, sp.csr_matrix)
    assert rows.data.all()
    for begin, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        assert (np.diff(rows.indices[begin:end]) > 0).all()


@pytest.mark.parametrize("value", [1, 16, np.int8(3), np.uint64(5)])
def test_check_integer__takes_integers_in_range(value):
    checked = check_integer(value, "i_bits", low=1, high=16)
    assert checked == value
    assert type(checked) is int


@pytest.mark.parametrize("value", [0, 17, 2.0, True, np.True_, "3", None, [3]])
def test_check_integer__says_what_it_wants_and_got(value):
    with pytest.raises(ConfigError) as caught:
        check_integer(value, "i_bits", low=1, high=16)
    assert f"i_bits={value!r}" in str(caught.value)
    assert "an integer from 1 to 16" in str(caught.value)
    with pytest.raises(ConfigError, match="of at least 18"):
        check_integer(value, "i_bits", low=18)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(2), np.int64(3)])
def test_check_real__takes_finite_numbers_in_range(value):
    checked = check_real(value, "p", above=0, high=3)
    assert checked == value
    assert type(checked) is float


@pytest.mark.parametrize("value", [0, -1, 3.5, np.nan, np.inf, -np.inf, True, "1", None, 1j])
def test_check_real__says_what_it_wants_and_got(value):
    with pytest.raises(ConfigError) as caught:
        check_real(value, "p", above=0, high=3)
    assert f"p={value!r}, but it must be a finite number above 0 and at most 3" in str(caught.value)


def test_check_real__without_bounds_only_asks_for_a_finite_number():
    assert check_real(-1e300, "center") == -1e300
    with pytest.raises(ConfigError, match="must be a finite number; set"):
        check_real(np.inf, "center")


@pytest.mark.parametrize("value", ["l3", 2, True, ["l1"], np.array(["l1"])])
def test_check_choice__lists_what_is_allowed(value):
    assert check_choice(None, "normalize", (None, "l1")) is None
    assert check_choice("l1", "normalize", (None, "l1")) == "l1"
    with pytest.raises(ConfigError, match="one of None, 'l1'"):
        check_choice(value, "normalize", (None, "l1"))


def test_check_columns__passes_equal_widths():
    check_columns(4, 4, "Map")
    with pytest.raises(InputError, match="X has 3 features, but Map is expecting 4 features as input"):
        check_columns(3, 4, "Map")


@settings(deadline=None)  # loaded machines stall
@given(X=BLOCKS)
def test_rows_as_csr__dense_and_sparse_give_the_same_canonical_rows(X):
    rows = rows_as_csr(X)
    assert_canonical(rows)
    assert np.array_equal(rows.toarray(), X)
    full = sp.csr_matrix(
        (X.ravel(), np.tile(np.arange(X.shape[1]), len(X)), np.arange(len(X) + 1) * X.shape[1]), X.shape
    )
    for other in (np.asfortranarray(X), full, sp.csc_array(X), sp.coo_matrix(X), sp.lil_array(X)):
        found = rows_as_csr(other)
        assert_canonical(found)
        for name in ("data", "indices", "indptr"):
            assert np.array_equal(getattr(found, name), getattr(rows, name))


def test_rows_as_csr__hands_canonical_rows_on_without_a_copy():
    X = sp.csr_array(np.eye(3, dtype=np.float32))
    rows = rows_as_csr(X)
    assert rows.dtype == np.float32
    assert np.shares_memory(rows.data, X.data)
    assert np.shares_memory(rows.indices, X.indices)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, bool, np.float16, ">f4", ">f8"])
def test_rows_as_csr__other_dtypes_become_native_float64(dtype):
    rows = rows_as_csr(np.eye(2).astype(dtype))
    assert rows.dtype == np.float64
    assert rows.dtype.isnative


@pytest.mark.parametrize("X", [np.ones(3), np.ones((1, 1, 1)), np.ones((1, 1), complex), np.array([["a"]]), 3.0])
def test_rows_as_csr__refuses_what_is_no_table_of_numbers(X):
    with pytest.raises(InputError, match="X has shape"):
        rows_as_csr(X)


@pytest.mark.parametrize("bad", [-1, 3])
def test_rows_as_csr__refuses_indices_out_of_range(bad):
    X = sp.csr_matrix(np.eye(3))
    X.indices[2] = bad
    with pytest.raises(InputError, match="its indices run from"):
        rows_as_csr(X)


def test_check_finite__names_the_first_bad_cell_in_the_callers_rows():
    X = np.ones((4, 3))
    X[2, 1], X[3, 0] = np.inf, np.nan
    check_finite(sp.csr_matrix(np.ones((2, 2))))
    with pytest.raises(InputError, match=r"Y holds inf at row 102, column 1 \(counted from 0\) here, but") as caught:
        check_finite(sp.csr_matrix(X), name="Y", first_row=100, cause="here")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.row, error.column, error.exit_code) == (102, 1, 2)


def test_check_finite__counts_empty_rows():
    X = sp.csr_matrix(([np.nan], [4], [0, 0, 0, 1, 1]), shape=(4, 5))
    with pytest.raises(InputError, match="NaN at row 2, column 4"):
        check_finite(X)
