"""Bit-packed codes and their one-hot columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkfeat.compiled.sampling.bands import band_keys, shared_keys
from dkfeat.compiled.sampling.codes import (
    best_rows,
    count_matches,
    count_pair_matches,
    empty_heaps,
    in_whole_bytes,
    keep_best,
    merged,
    one_hot_columns,
)


@given(data=st.data(), bits=st.integers(1, 18), n_components=st.integers(1, 19))
def test_one_hot_columns__unpacks_what_was_packed(data, bits, n_components):
    codes = data.draw(
        st.lists(
            st.lists(st.integers(0, 2**bits - 1), min_size=n_components, max_size=n_components), min_size=1, max_size=4
        )
    )
    packed = _pack(np.array(codes), bits)
    columns = np.empty(len(codes) * n_components, np.int64)
    one_hot_columns(packed, np.zeros(len(codes), bool), n_components, bits, columns)
    wanted = [[component * 2**bits + code for component, code in enumerate(row)] for row in codes]
    assert columns.reshape(len(codes), -1).tolist() == wanted


def test_one_hot_columns__skips_empty_rows():
    columns = np.full(2, -1, np.int32)
    one_hot_columns(np.array([[0], [0x21], [0]], np.uint8), np.array([True, False, True]), 2, 4, columns)
    assert columns.tolist() == [1, 18]


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
    keep_best((codes[1:], none[1:]), (codes, none), 2**37 - 2, np.array([-1]), heaps, 2**24, 1)
    counts, rows = best_rows(heaps)
    assert (counts.tolist(), rows.tolist()) == ([[2**24, 2**24 - 1]], [[2**37 - 1, 2**37 - 2]])


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 11, 16, 18])
@pytest.mark.parametrize(("n_bands", "n_codes"), [(1, 1), (5, 3), (2, 17), (1, 40)])
def test_band_keys__equal_where_the_codes_of_a_band_are_equal(bits, n_bands, n_codes):
    rng = np.random.default_rng(bits)
    n_components = n_bands * n_codes + 2  # two codes belong to no band
    codes = rng.integers(0, 1 << bits, (60, n_components))
    codes[30:] = codes[:30]  # copies, of which one code differs in one bit
    codes[np.arange(30, 60), rng.integers(0, n_components, 30)] ^= 1 << rng.integers(0, bits, 30)
    with np.errstate(over="ignore"):  # as plain Python, products wrap with a warning
        keys = band_keys(_pack(codes, bits), bits, n_bands, n_codes, first_row=100, row_bits=8)
    assert keys.shape == (n_bands, 60)
    assert keys.dtype == np.uint64
    assert (keys & np.uint64(255) == np.arange(100, 160)).all()
    for band, of_band in enumerate(keys >> np.uint64(8)):
        held = codes[:, band * n_codes : (band + 1) * n_codes]
        expected = (held[:, None] == held[None]).all(axis=2)
        assert np.array_equal(of_band[:, None] == of_band[None], expected)


def test_band_keys__high_bits_are_uniform():
    codes = np.arange(1 << 16).astype("<u2").view(np.uint8).reshape(-1, 2)  # values with 48 leading zeros
    with np.errstate(over="ignore"):
        (keys,) = band_keys(codes, 16, 1, 1, first_row=0, row_bits=16)
    counts = np.bincount((keys >> np.uint64(56)).astype(int), minlength=256)
    chi_square = ((counts - 256) ** 2 / 256).sum()
    assert abs(chi_square - 255) < 4.5 * np.sqrt(2 * 255)  # fixed values: 7e-6


def test_shared_keys__equal_high_bits():
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 500):
        keys = rng.integers(0, 1 << 17, n).astype(np.uint64)
        counts = np.bincount((keys >> np.uint64(8)).astype(int), minlength=1 << 9)
        expected = np.sort(keys[counts[(keys >> np.uint64(8)).astype(int)] > 1])
        assert np.array_equal(shared_keys(keys, np.uint64(255)), expected)
