"""Shared bands of real codes against the S-curve, and the choice of bands against a search of all."""

import numpy as np
import pytest
import scipy.sparse as sp

from dkfeat import DartFeatures
from dkfeat.theory.bands import choose_bands, sharing_probability


def planted_pairs(similarities):
    """Rows of ones, each pair on columns of its own, which makes pairs independent; their GMM is given."""
    size = 40
    left = np.arange(len(similarities))[:, None] * 2 * size + np.arange(size)
    common = np.round(2 * size * similarities / (1 + similarities)).astype(int)  # g = common / (2 size - common)
    right = left + np.where(np.arange(size) < common[:, None], 0, size)
    bounds = np.arange(len(similarities) + 1) * size
    shape = (len(similarities), len(similarities) * 2 * size)
    rows = (sp.csr_matrix((np.ones(side.size), side.ravel(), bounds), shape) for side in (left, right))
    return *rows, common / (2 * size - common)


@pytest.mark.parametrize("bits", [1, 8])
def test_sharing_probability__is_the_rate_of_real_codes(bits):
    left, right, exact = planted_pairs(np.tile([0.2, 0.5, 0.7, 0.8, 0.9], 400))
    features = DartFeatures(n_components=96, bits=bits, random_state=bits).fit(left)
    codes, others = (np.unpackbits(features.encode(rows).codes, axis=1, bitorder="little") for rows in (left, right))
    equal = (codes == others).reshape(len(exact), 96, bits).all(axis=2)
    for n_bands, n_codes in [(12, 8), (24, 4), (32, 3)]:
        shared = equal.reshape(len(exact), n_bands, n_codes).all(axis=2).any(axis=1)
        for similarity in np.unique(exact):
            of = exact == similarity
            expected = sharing_probability(similarity, n_bands, n_codes, 2.0**-bits)
            error = np.sqrt(expected * (1 - expected) / of.sum())
            assert abs(shared[of].mean() - expected) < 4.5 * error + 1 / of.sum()  # 7e-6 each


@pytest.mark.parametrize("n_components", [32, 128, 500])
@pytest.mark.parametrize("threshold", [0.3, 0.8, 0.95])
def test_choose_bands__fewest_candidates_of_all_with_the_recall(threshold, n_components):
    chance = 1 / 256
    bands = choose_bands(threshold, n_components, chance)
    below = np.linspace(0, threshold, 2001)
    best = np.inf
    for n_codes in range(1, n_components + 1):
        for n_bands in range(1, min(64, n_components // n_codes) + 1):
            if sharing_probability(threshold, n_bands, n_codes, chance) >= 0.95:
                best = min(best, sharing_probability(below, n_bands, n_codes, chance).mean())
                break
    assert bands.n_bands * bands.n_codes <= n_components
    assert sharing_probability(threshold, *bands, chance) >= 0.95
    assert sharing_probability(below, *bands, chance).mean() == pytest.approx(best, rel=0.01)


def test_choose_bands__too_few_codes():
    assert choose_bands(0.3, 4) == (4, 1)  # 0.76 is the most there is
    with pytest.raises(ValueError, match=r"only 30% of the pairs at the threshold share a band"):
        choose_bands(0.3, 1)
    assert choose_bands(0.02, 512) == (64, 1)  # 0.73; the probabilities of bands of many codes underflow


def test_choose_bands__threshold_1_is_one_band_of_all_codes():
    assert choose_bands(1.0, 300, 1 / 256) == (1, 300)
    assert sharing_probability(1.0, 1, 300, 1 / 256) == 1
