import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkfeat.compiled.sampling.matches import count_matches


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@given(data=st.data())
def test_count_matches__counts_equal_codes(bits, data):
    n_components = data.draw(st.integers(1, 2100 // bits))
    n_queries, n_rows = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    codes = rng.integers(0, 1 << bits, (n_queries + n_rows, n_components))
    # most codes of a row are those of the first one, so that all counts occur
    kept = rng.random(codes.shape) < rng.random((len(codes), 1))
    codes = np.where(kept, codes[0], codes)
    queries, rows = _pack(codes[:n_queries], bits), _pack(codes[n_queries:], bits)
    counts = count_matches(queries, rows, n_components, bits)
    expected = (codes[:n_queries, None] == codes[None, n_queries:]).sum(axis=2)
    assert counts.dtype == np.int32
    assert np.array_equal(counts, expected)


def _pack(codes, bits):
    one_bit_each = codes[:, :, None] >> np.arange(bits) & 1
    one_bit_each = one_bit_each.reshape(len(codes), bits * codes.shape[1])
    return np.packbits(one_bit_each.astype(np.uint8), axis=1, bitorder="little")
