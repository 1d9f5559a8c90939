import numpy as np
import pytest

from dkfeat.compiled.sampling.codes import pack_bytes, pack_tile
from tests.reference.gcws import unpack


@pytest.mark.parametrize(("i_bits", "t_bits"), [(1, 0), (3, 0), (8, 0), (8, 2), (11, 1), (16, 0), (16, 2)])
@pytest.mark.parametrize("n_components", [5, 16, 37])
def test_pack_tile__round_trip(i_bits, t_bits, n_components):
    rng = np.random.default_rng(i_bits)
    bits, n_rows = i_bits + t_bits, 4
    row_bytes = -(-n_components * bits // 8)
    packed = np.full(n_rows * row_bytes, 255, np.uint8)
    expected = np.empty((n_rows, n_components), np.int64)
    for component in range(0, n_components, 16):
        kept = rng.integers(0, 1 << i_bits, n_rows * 16).astype(np.uint8 if i_bits <= 8 else np.uint16)
        levels = rng.integers(-(10**6), 10**6, n_rows * 16).astype(np.float32)
        levels[:3] = -(2.0**40), 3 * 2.0**30, -1
        n_live = min(16, n_components - component)
        pack_tile(kept, levels, i_bits, t_bits, component, n_live, row_bytes, packed)
        codes = kept.astype(np.int64) | (levels.astype(np.int64) % (1 << t_bits)) << i_bits
        expected[:, component : component + n_live] = codes.reshape(n_rows, 16)[:, :n_live]
    assert np.array_equal(unpack(packed.reshape(n_rows, -1), n_components, bits), expected)


def test_pack_bytes__equals_pack_tile():
    kept = np.random.default_rng(0).integers(0, 256, 3 * 16).astype(np.uint8)
    one, other = np.zeros(3 * 48, np.uint8), np.zeros(3 * 48, np.uint8)
    pack_bytes(kept, 16, 48, one)
    pack_tile(kept, np.zeros(0, np.float32), 8, 0, 16, 16, 48, other)
    assert np.array_equal(one, other)
    assert np.array_equal(one.reshape(3, 48)[:, 16:32], kept.reshape(3, 16))
