import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkfeat.compiled.sampling.codes import (
    best_rows,
    count_matches,
    count_pair_matches,
    empty_heaps,
    in_whole_bytes,
    keep_best,
    merged,
)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 11, 16, 18])
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
    (queries, wide), (rows, _) = (in_whole_bytes(packed, n_components, bits) for packed in (queries, rows))
    counts = count_matches(queries, rows, n_components, wide)
    expected = (codes[:n_queries, None] == codes[None, n_queries:]).sum(axis=2)
    assert counts.dtype == np.int32
    assert np.array_equal(counts, expected)

    left, right = rng.integers(0, n_queries, 60), rng.integers(0, n_queries + n_rows, 60)
    both = np.concatenate([queries, rows])
    assert np.array_equal(
        count_pair_matches(both, left, right, n_components, wide), (codes[left] == codes[right]).sum(axis=1)
    )


def _pack(codes, bits):
    one_bit_each = codes[:, :, None] >> np.arange(bits) & 1
    one_bit_each = one_bit_each.reshape(len(codes), bits * codes.shape[1])
    return np.packbits(one_bit_each.astype(np.uint8), axis=1, bitorder="little")


@pytest.mark.parametrize("cut", [0, 1, 700])
def test_keep_best__most_equal_codes_and_lower_rows_first(cut):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (900, 24), dtype=np.uint8)  # few different counts: many ties
    empty = rng.random(900) < 0.01
    queries, own = (codes[:70], empty[:70]), np.arange(70)
    own[50:] = -1
    parts = []
    for rows in (slice(0, cut), slice(cut, 900)):
        heaps = empty_heaps(70, 40)
        keep_best(queries, (codes[rows], empty[rows]), rows.start, own, heaps, 24, 8)
        parts.append(heaps)
    counts, rows = best_rows(merged(*parts))

    expected = (codes[:70, None] == codes[None]).sum(axis=2)
    expected[empty[:70]] = 0
    expected[:, empty] = 0
    expected[np.arange(50), np.arange(50)] = -1  # a query is not compared with its own row
    order = np.argsort(-expected, axis=1, kind="stable")[:, :40]
    assert empty[:70].any()
    assert np.array_equal(rows, order)
    assert np.array_equal(counts, np.take_along_axis(expected, order, axis=1))


def test_best_rows__fewer_rows_than_places():
    heaps, codes = empty_heaps(1, 3), (np.zeros((1, 1), np.uint8), np.zeros(1, np.bool_))
    keep_best(codes, codes, 5, np.array([-1]), heaps, 1, 8)
    counts, rows = best_rows(heaps)
    assert (counts.tolist(), rows.tolist()) == ([[1, -1, -1]], [[5, -1, -1]])


def test_keep_best__counts_of_the_most_components():
    heaps, none = empty_heaps(1, 2), np.zeros(2, np.bool_)
    codes = np.zeros((2, 2**24 // 8), np.uint8)
    codes[0, 0] = 1
    keep_best((codes[1:], none[1:]), (codes, none), 2**38 - 2, np.array([-1]), heaps, 2**24, 1)
    counts, rows = best_rows(heaps)
    assert (counts.tolist(), rows.tolist()) == ([[2**24, 2**24 - 1]], [[2**38 - 1, 2**38 - 2]])
