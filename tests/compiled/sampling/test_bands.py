import numpy as np
import pytest

from dkfeat.compiled.sampling.codes import band_keys, shared_keys


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 11, 16, 18])
@pytest.mark.parametrize(("n_bands", "n_codes"), [(1, 1), (5, 3), (2, 17), (1, 40)])
def test_band_keys__equal_where_the_codes_of_a_band_are_equal(bits, n_bands, n_codes):
    rng = np.random.default_rng(bits)
    n_components = n_bands * n_codes + 2  # two codes belong to no band
    codes = rng.integers(0, 1 << bits, (60, n_components))
    codes[30:] = codes[:30]  # copies, of which one code differs in one bit
    codes[np.arange(30, 60), rng.integers(0, n_components, 30)] ^= 1 << rng.integers(0, bits, 30)
    one_bit_each = (codes[:, :, None] >> np.arange(bits) & 1).astype(np.uint8).reshape(60, n_components * bits)
    packed = np.packbits(one_bit_each, axis=1, bitorder="little")
    with np.errstate(over="ignore"):  # as plain Python, products wrap with a warning
        keys = band_keys(packed, bits, n_bands, n_codes, first_row=100, row_bits=8)
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
        keys = np.sort(rng.integers(0, 1 << 17, n)).astype(np.uint64)
        counts = np.bincount((keys >> np.uint64(8)).astype(int), minlength=1 << 9)
        expected = keys[counts[(keys >> np.uint64(8)).astype(int)] > 1]
        assert np.array_equal(shared_keys(keys, np.uint64(255)), expected)
