"""Arrays on pages of their own."""

from __future__ import annotations

import numpy as np
import pytest

from dkfeat.sources.libsvm.parser import empty_array, first_items


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 3_000_000])
def test_arrays__are_plain_writable_arrays(size):
    array = empty_array(size, np.float32)
    array[:] = 1
    assert len(array) >= size
    assert (array.dtype, array.flags.c_contiguous) == (np.float32, True)


@pytest.mark.parametrize("size", [1000, 3_000_000])
def test_first_items__have_a_base_of_their_size(size):
    array = empty_array(size, np.int64)
    array[:size] = np.arange(size)
    first = first_items(array, size // 4)
    del array
    assert first.tolist() == list(range(size // 4))
    assert first.base is None or first.base.size == first.size
    assert first.flags.writeable
