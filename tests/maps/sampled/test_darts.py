"""DartFeatures: parameters, codes and samples, preparation of rows, and estimates from codes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkfeat import DartFeatures, GCWSFeatures
from dkfeat.theory import fourier
from tests.maps.test_sampled import same, some_rows


@given(n_components=st.sampled_from([1, 2, 15, 16, 17, 40, 511, 513, 1100]), bits=st.integers(1, 16))
def test_encode__packs_the_top_bits_of_the_sampled_darts(n_components, bits):
    X = some_rows(6)
    X[2] = 0
    wide, features = (DartFeatures(n_components, bits=b, random_state=1).fit(X) for b in (16, bits))
    encoded, Z = features.encode(X), features.transform(X)
    assert encoded.codes.shape == (6, features.encoded_row_bytes) == (6, -(-n_components * bits // 8))
    assert encoded.empty.tolist() == [row == 2 for row in range(6)]
    assert not encoded.codes[2].any()
    words = wide.encode(X).codes.view("<u2") >> (16 - bits)
    wanted = words + np.arange(n_components) * 2**bits
    assert Z.shape == (6, n_components * 2**bits)
    assert Z.indices.tolist() == wanted[~encoded.empty].ravel().tolist()
    assert same(features.decode(encoded), Z)


def test_sample__equal_darts_have_equal_codes_and_others_by_chance_alone():
    X = some_rows(2, 200, seed=4)
    X[1] = np.where(np.arange(200) < 100, X[0], X[1])
    features = DartFeatures(8192, bits=4, random_state=0).fit(X)
    i_star, dart = features.sample(X)
    agree = (i_star[0] == i_star[1]) & (dart[0] == dart[1])
    Z = features.transform(X)
    codes_agree = Z[0].indices == Z[1].indices
    assert codes_agree[agree].all()
    n = np.count_nonzero(~agree)
    # |z| < 4.5: fails one correct program in 150,000
    assert abs(np.count_nonzero(codes_agree[~agree]) - n / 16) < 4.5 * np.sqrt(n * 15) / 16
    assert 2000 < n < 6000


def test_sample__no_row_owns_a_dart_above_its_weight():
    X = some_rows()
    i_star, dart = DartFeatures(600, random_state=0).fit(X).sample(X)
    octaves, values = dart >> 32, np.take_along_axis(np.abs(X), np.maximum(i_star, 0) // 2, axis=1)
    held = i_star >= 0
    assert (2.0 ** octaves[held] <= values[held]).all()


def test_scale__extremes_of_both_dtypes_work():
    features = DartFeatures(64, p=1.0, random_state=0).fit_width(3)
    wide = np.array([[1e308, -1e308, 0], [5e-324, 0, 1e-310], [1e308, 5e-324, 0]])
    i_star, _ = features.sample(wide)
    assert [sorted(set(row)) for row in i_star.tolist()] == [[0, 3], [4], [0]]
    narrow = np.array([[1e30, -1e30, 0], [1e-45, 0, 1e-45]], np.float32)
    assert same(features.transform(narrow), features.transform(narrow.astype(np.float64)))
    steep = DartFeatures(64, p=1000.0, random_state=0).fit_width(3)
    assert sorted(set(steep.sample(wide)[0][0].tolist())) == [0, 3]


def test_kernel_pairs__errors_are_those_of_theory_without_a_bias():
    # few columns, where codes of GCWS without levels are far off
    X = np.random.default_rng(1).lognormal(sigma=1.5, size=(40, 4))
    pairs = DartFeatures(4096, random_state=0).fit(X).kernel_pairs(X)
    assert (pairs.kernel, pairs.note) == ("GMM", "")
    assert pairs.error < 1.5 * pairs.expected_error
    levels_dropped = GCWSFeatures(4096, random_state=0).fit(X).kernel_pairs(X)
    assert levels_dropped.error > 4 * pairs.error
    at = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(DartFeatures(8).expected_error_at(at) ** 2 * 8, fourier.gcws_variance(at, 8))
