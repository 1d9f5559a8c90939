import numpy as np
import pytest

from dkfeat.compiled.products.convolution import SMALLEST, convolve_rows, spectra_of


def some_mixture(n, m, n_features, n_samples=3):
    rng = np.random.default_rng(n + m)
    weights = rng.standard_normal((m, n))
    choice = rng.integers(0, m, n).astype(np.uint16)
    return weights, choice, rng.standard_normal((n_samples, n_features)).astype(np.float32)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    ("n", "n_features"), [(SMALLEST, 130), (SMALLEST, 256), (512, 300), (1024, 1024), (2048, 1025), (4096, 4096)]
)
def test_convolution__is_the_sum_of_circular_convolutions(n, n_features, m):
    weights, choice, x = some_mixture(n, m, n_features)
    out = np.full((3, n + 5), 9, np.float32)
    convolve_rows(x, choice, spectra_of(weights), out, 2, n)
    expected = np.zeros((3, n))
    for row, sums in zip(x, expected, strict=True):
        for j in np.flatnonzero(row)[:n_features]:
            sums += row[j].astype(np.float64) * np.roll(weights[choice[j]], j)
    scale = np.linalg.norm(weights) * np.linalg.norm(x, axis=1, keepdims=True)
    # results are rounded to float32; before, errors are those of float64
    assert (np.abs(out[:, 2:-3] - expected) <= 2.0**-24 * np.abs(expected) + 1e-16 * scale).all()
    assert (out[:, :2] == 9).all()
    assert (out[:, -3:] == 9).all()


def test_convolution__is_cut_to_the_width():
    weights, choice, x = some_mixture(512, 2, 400)
    whole, part = np.empty((3, 512), np.float32), np.full((3, 40), 9, np.float32)
    convolve_rows(x, choice, spectra_of(weights), whole, 0, 512)
    convolve_rows(x, choice, spectra_of(weights), part, 7, 30)
    assert np.array_equal(part[:, 7:37], whole[:, :30])
    assert (part[:, :7] == 9).all()
    assert (part[:, 37:] == 9).all()
