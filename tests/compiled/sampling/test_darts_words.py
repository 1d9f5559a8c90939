"""The random words of arrivals, over bits of what they are drawn from and over millions of coordinates.

The words are the oracle's, of which `test_darts` says that they are the package's.
"""

import lzma
from itertools import pairwise

import numba
import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from dkfeat.compiled.sampling import darts
from dkfeat.compiled.sampling.darts import signed_octaves
from tests.reference import darts as oracle
from tests.reference.gcws import gmm
from tests.reference.law import scores

SEED = 2**40 + 7
WEBSPAM = 16_609_143  # columns of Webspam's trigrams


def arrival_words(coordinates, octaves, seed=SEED, tile=0, number=0):
    """The words of arrivals, by default of first ones, as 32-bit numbers of shape (4, n)."""
    coordinates, octaves = np.broadcast_arrays(np.asarray(coordinates, np.int64), np.asarray(octaves, np.int64))
    words, key = np.empty((4, len(coordinates)), np.uint32), oracle.tile_key(seed, tile)
    for first in range(0, len(coordinates), 1 << 16):
        part = slice(first, first + (1 << 16))
        octave = octaves[part]
        words[:, part] = oracle.arrival_words(coordinates[part], octave, np.full_like(octave, number), key)
    return words


def assert_uniform(cells, n_cells):
    # chi-square off by 5 of its standard deviations: 1e-6
    counts = np.bincount(cells, minlength=n_cells)
    expected = len(cells) / n_cells
    deviation = ((counts - expected) ** 2 / expected).sum() - (n_cells - 1)
    assert abs(deviation) < 5 * np.sqrt(2 * (n_cells - 1)), deviation


def n_equal_pairs(words):
    counts = np.diff(np.flatnonzero(np.concatenate([[True], np.diff(np.sort(words)) != 0, [True]])))
    return int((counts * (counts - 1) // 2).sum())


def assert_like_random_words(words):
    """Assert uniform words, as many pairs of equal ones as chance makes, and no pair equal in 64 bits."""
    n = words.shape[1]
    expected = n * (n - 1) / 2**33
    for word in [*words, words[0] ^ words[3], words[2] ^ words[3]]:
        for cells in (word >> 16, word & 0xFFFF):
            assert_uniform(cells, 1 << 16)
        assert abs(n_equal_pairs(word) - expected) < 5 * np.sqrt(expected)  # 6e-7
        assert_uniform((word[1:] ^ word[:-1]) >> 16, 1 << 16)
        assert_uniform((word[1:] ^ word[:-1]) & 0xFFFF, 1 << 16)
    # chance makes n^2 / 2^65 pairs: 7e-6 of 16 million words
    assert n_equal_pairs(words[0].astype(np.uint64) << np.uint64(32) | words[3]) == 0


def test_words__each_bit_of_their_input_changes_each_of_theirs():
    # of 4,096 words each: a bit changes with probability 1/2; 19,000 scores beyond 6: 4e-5
    n, rng = 4096, np.random.default_rng(1)
    coordinate, octave = rng.integers(0, 2**41, n), rng.integers(-1074, 1024, n)
    words = arrival_words(coordinate, octave)
    flipped = [arrival_words(coordinate ^ 1 << bit, octave) for bit in range(41)]
    flipped += [arrival_words(coordinate, octave ^ 1 << bit) for bit in range(31)]
    flipped += [arrival_words(coordinate, octave, tile=1 << bit) for bit in range(15)]
    flipped += [arrival_words(coordinate, octave, seed=SEED ^ 1 << bit) for bit in range(64)]
    changed = np.array([[(word >> bit & 1).sum() for word in words ^ other for bit in range(32)] for other in flipped])
    assert np.abs(changed - n / 2).max() < 6 * np.sqrt(n / 4)
    # nor do two bits of the input change the same bits more often than chance
    assert_uniform((words ^ flipped[0] ^ flipped[41]).ravel() & 0xFF, 256)


def test_words__octaves_of_a_block_have_independent_bytes():
    octaves = np.arange(-1088, 1024)
    g = np.stack([arrival_words(np.full(len(octaves), c), octaves)[0] for c in range(200)]) >> 24
    assert_uniform(g.ravel(), 256)
    for lag in (1, 2, 4, 15, 16):
        assert_uniform((g[:, lag:] ^ g[:, :-lag]).ravel(), 256)
    assert_uniform((g[1:] ^ g[:-1]).ravel(), 256)


def test_words__of_successive_arrivals_are_independent():
    # a gap begins with a byte of the arrival before, of which its component and code must tell nothing
    arrivals = [arrival_words(2 * np.arange(1 << 15), -3, number=number) >> 28 for number in range(4)]
    for before, after in pairwise(arrivals):
        for one in before:
            for other in after:
                assert_uniform(one << 4 | other, 256)


@pytest.mark.slow
@pytest.mark.parametrize("octave", [-7, 0])
def test_words__over_the_columns_of_webspam(octave):
    assert_like_random_words(arrival_words(2 * np.arange(WEBSPAM), octave))


@pytest.mark.slow
@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="large counts")
def test_codes__over_the_columns_of_webspam():
    # rows of one nonzero of weight 1: octave -1 - j is sampled with probability 2^-(j + 1), whatever the column
    octaves, codes = np.zeros(64), []
    for first in range(0, WEBSPAM, 1 << 20):
        columns = np.arange(first, min(first + (1 << 20), WEBSPAM))
        rows = np.arange(len(columns) + 1), columns, *signed_octaves(np.ones(len(columns)))
        codes.append(darts.encode(*rows, 1, SEED, 16)[0].view("<u2")[:, 0])
        octaves += np.bincount(-1 - (darts.sample(*rows, 1, SEED)[1][:, 0] >> 32), minlength=64)
    codes = np.concatenate(codes)
    assert_uniform(codes, 1 << 16)
    assert_uniform(codes[1:] ^ codes[:-1], 1 << 16)
    share = 0.5 ** np.arange(1, 13)
    assert np.abs(scores(octaves[:12], share, WEBSPAM)).max() < 5  # 7e-6


def load(folder, name):
    with lzma.open(folder / name / "train.svm.xz") as file:
        return load_svmlight_file(file, zero_based=False)[0]


@pytest.mark.data
@pytest.mark.parametrize("name", ["webspam500", "news20", "rcv1"])
def test_words__of_real_columns_at_their_octaves(data_folder, name):
    X = load(data_folder, name)
    exponents, _, _ = signed_octaves(X.data)
    drawn = np.unique(np.stack([2 * X.indices.astype(np.int64), exponents.astype(np.int64)]), axis=1)
    words = np.concatenate([arrival_words(*drawn, tile=tile) for tile in range(8)], axis=1)
    for word in words:
        assert_uniform(word >> 24, 256)
        assert_uniform(word & 0xFF, 256)
        assert_uniform((word[1:] ^ word[:-1]) >> 24, 256)
    expected = words.shape[1] ** 2 / 2**33
    assert abs(n_equal_pairs(words[0]) - expected) < 5 * np.sqrt(expected) + 5


@pytest.mark.data
@pytest.mark.parametrize("name", ["webspam500", "news20", "rcv1"])
def test_law__of_real_rows(data_folder, name):
    # of each of 50 rows and the five most similar of 50 others; as pairs share columns, only the largest score is
    # bounded: 250 scores beyond 5: 1e-4
    X = load(data_folder, name)[:100]
    rows = X.toarray()
    similarity = np.array([[gmm(u, v) for v in rows[:50]] for u in rows[50:]])
    one, other = np.repeat(np.arange(50), 5), np.argsort(similarity, axis=1)[:, -5:].ravel()
    r, equal, octaves = similarity[one, other], np.zeros(250), signed_octaves(X.data)
    for seed in range(20):
        i_star, dart = darts.sample(X.indptr, X.indices, *octaves, 64, seed)
        equal += ((i_star[50 + one] == i_star[other]) & (dart[50 + one] == dart[other])).sum(axis=1)
    many = 1280 * r * (1 - r) > 20
    assert many.sum() > 100
    assert np.abs(scores(equal[many], r[many], 1280)).max() < 5
