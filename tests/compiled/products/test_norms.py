"""Norms of sparse rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkfeat.compiled.products.norms import L1, L2, MAX, normalise_rows

PATIENT = settings(deadline=None)  # the first call compiles

FINITE = st.floats(allow_nan=False, allow_infinity=False).filter(bool)


def normalised(rows, norm):
    values = np.array([value for row in rows for value in row], np.float64)
    indptr = np.cumsum([0, *map(len, rows)])
    out = np.full(len(values), np.nan)
    normalise_rows(indptr, values, norm, out)
    return np.split(out, indptr[1:-1])


@pytest.mark.parametrize(("norm", "wanted"), [(L1, [3 / 7, -4 / 7]), (L2, [0.6, -0.8]), (MAX, [0.75, -1.0])])
def test_normalise_rows__known_values(norm, wanted):
    first, second, third = normalised([[3.0, -4.0], [], [5.0]], norm)
    assert first.tolist() == wanted
    assert second.tolist() == []
    assert third.tolist() == [1.0]


@PATIENT
@given(row=st.lists(FINITE, min_size=1, max_size=8), norm=st.sampled_from([L1, L2, MAX]))
def test_normalise_rows__norm_of_the_result_is_1(row, norm):
    (result,) = normalised([row], norm)
    size = {L1: np.abs(result).sum(), L2: np.sqrt((result**2).sum()), MAX: np.abs(result).max()}[norm]
    assert size == pytest.approx(1.0, abs=1e-14)
    assert (np.sign(result) * np.sign(row) >= 0).all()


@PATIENT
@given(
    row=st.lists(st.floats(-1e100, 1e100).filter(lambda v: abs(v) > 1e-100), min_size=1, max_size=8),
    norm=st.sampled_from([L1, L2]),
)
def test_normalise_rows__equals_the_plain_sum_where_that_is_safe(row, norm):
    total = 0.0
    for value in row:
        total += abs(value) if norm == L1 else value * value
    size = total if norm == L1 else np.sqrt(total)
    assert normalised([row], norm)[0].tolist() == [value / size for value in row]
