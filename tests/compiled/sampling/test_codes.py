"""Bit-packed codes and their one-hot columns."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkfeat.compiled.sampling.codes import one_hot_columns

PATIENT = settings(deadline=None)  # the first call compiles


def pack(codes, bits):
    """Bytes of codes, least significant bit first, by one big integer a row."""
    size = (len(codes) * bits + 7) // 8
    number = sum(code << (position * bits) for position, code in enumerate(codes))
    return np.frombuffer(number.to_bytes(size, "little"), np.uint8)


@PATIENT
@given(data=st.data(), bits=st.integers(1, 18), n_components=st.integers(1, 19))
def test_one_hot_columns__unpacks_what_was_packed(data, bits, n_components):
    codes = data.draw(
        st.lists(
            st.lists(st.integers(0, 2**bits - 1), min_size=n_components, max_size=n_components), min_size=1, max_size=4
        )
    )
    packed = np.stack([pack(row, bits) for row in codes])
    columns = np.empty(len(codes) * n_components, np.int64)
    one_hot_columns(packed, np.zeros(len(codes), bool), n_components, bits, columns)
    wanted = [[component * 2**bits + code for component, code in enumerate(row)] for row in codes]
    assert columns.reshape(len(codes), -1).tolist() == wanted


def test_one_hot_columns__skips_empty_rows():
    columns = np.full(2, -1, np.int32)
    one_hot_columns(np.array([[0], [0x21], [0]], np.uint8), np.array([True, False, True]), 2, 4, columns)
    assert columns.tolist() == [1, 18]
