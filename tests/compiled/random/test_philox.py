import numpy as np
import pytest

from dkfeat.compiled.jit import kernel
from dkfeat.compiled.random import draw_words, philox, philox_lanes
from dkfeat.compiled.simd import LANES, store
from tests.reference import gcws as oracle

u64 = np.uint64

# Random123, kat_vectors: philox4x32 with 10 rounds, (counter, key, output)
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@kernel
def _one(c, k, out):
    out[0], out[1], out[2], out[3] = philox(c[0], c[1], c[2], c[3], k[0], k[1])


@kernel
def _lanes(c, k, out):
    coordinate, seed = c[0] | c[1] << u64(32), k[0] | k[1] << u64(32)
    x0, x1, x2, x3 = philox_lanes(coordinate, c[2], c[3], seed)
    store(out, 0, x0)
    store(out, LANES, x1)
    store(out, 2 * LANES, x2)
    store(out, 3 * LANES, x3)


@pytest.mark.fault("D-11")
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers__scalar_lanes_and_oracle(counter, key, words):
    c, k = np.array(counter, u64), np.array(key, u64)
    one, lanes = np.zeros(4, u64), np.zeros(4 * LANES, np.uint32)
    _one(c, k, one)
    _lanes(c, k, lanes)
    assert one.tolist() == words
    assert lanes[::LANES].tolist() == words
    assert oracle.words(counter, key) == words


def test_lanes__are_components_in_a_row():
    rng = np.random.default_rng(3)
    for _ in range(20):
        c, k = rng.integers(0, 2**32 - LANES, 4, u64), rng.integers(0, 2**32, 2, u64)
        lanes = np.zeros(4 * LANES, np.uint32)
        _lanes(c, k, lanes)
        for lane in range(LANES):
            one = np.zeros(4, u64)
            _one(c + np.array([0, 0, lane, 0], u64), k, one)
            assert lanes[lane::LANES].tolist() == one.tolist()


def test_draw_words__counter_is_coordinate_component_stream():
    words = np.zeros((3, 4), np.uint32)
    draw_words(u64(5 << 32 | 9), u64(2), u64(7 << 32 | 4), words)
    assert words.tolist() == [oracle.words((9, 5, j, 2), (4, 7)) for j in range(3)]
