import itertools

import numpy as np
import pytest

from dkfeat.compiled import random as philox
from dkfeat.compiled.random import draw_words
from dkfeat.validation import check_seed

STREAMS = {name: value for name, value in vars(philox).items() if name.startswith("STREAM_")}


@pytest.mark.fault("D-09")
def test_streams__are_distinct():
    assert len(set(STREAMS.values())) == len(STREAMS) >= 2


@pytest.mark.fault("D-09")
def test_streams__of_one_seed_are_independent():
    # of 4096 words of 128 bits, equal bits are binomial; beyond 6 sigma in one of some 200 pairs: 4e-7
    words = {}
    for name, stream in STREAMS.items():
        words[name] = np.zeros((4096, 4), np.uint32)
        draw_words(np.uint64(3), np.uint64(stream), np.uint64(7), words[name])
    n = 4096 * 128
    for one, other in itertools.combinations(words.values(), 2):
        differing = int(np.unpackbits((one ^ other).view(np.uint8)).sum())
        assert abs(differing - n / 2) < 6 * np.sqrt(n) / 2


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1, np.int32(5), np.uint64(2**63)])
def test_check_seed__integer_stands_for_itself(seed):
    assert check_seed(seed) == int(seed)
    assert type(check_seed(seed)) is int


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_check_seed__out_of_range(seed):
    with pytest.raises(ValueError, match=str(seed)):
        check_seed(seed)


@pytest.mark.parametrize("seed", [1.0, "7", True, [1]])
def test_check_seed__other_types(seed):
    with pytest.raises(ValueError, match="pass an integer"):
        check_seed(seed)


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_check_seed__generator_draws_and_advances(make):
    generator = make(3)
    first, second = check_seed(generator), check_seed(generator)
    assert first == check_seed(make(3))
    assert first != second
    assert 0 <= first < 2**64


def test_check_seed__all_64_bits_move():
    # a bit that never moves in 64 draws: 64 * 2**-63 of correct programs
    seeds = [check_seed(None) for _ in range(64)]
    ones, zeros = 0, 2**64 - 1
    for seed in seeds:
        ones |= seed
        zeros &= seed
    assert ones == 2**64 - 1
    assert zeros == 0


def test_check_seed__none_draws():
    assert check_seed(None) != check_seed(None)
