import numpy as np
import pytest

from dkfeat.compiled.products.convolution import add_shifted


@pytest.mark.parametrize(("n_columns", "n", "width"), [(7, 7, 7), (5, 8, 8), (5, 8, 3), (1, 4, 2), (6, 6, 1)])
def test_shifts__add_up_to_a_circular_convolution(n_columns, n, width):
    rng = np.random.default_rng(1)
    x, weights = rng.random((3, n_columns), np.float32), rng.random(4).astype(np.float32)
    factors = rng.integers(-1, 2, n_columns).astype(np.float32)
    shifts = np.array([0, n - 1, n // 2, 0])
    out = np.ones((3, width + 4), np.float32)
    add_shifted(x.ravel(), (3, n_columns, n), factors, shifts, weights, out.reshape(-1), 2, width, width + 4)
    expected = np.ones((3, n))
    for shift, weight in zip(shifts, weights, strict=True):
        for j in range(n_columns):
            expected[:, (shift + j) % n] += weight * factors[j] * x[:, j]
    assert np.allclose(out[:, 2 : 2 + width], expected[:, :width], rtol=1e-6)
    assert (out[:, :2] == 1).all()
    assert (out[:, 2 + width :] == 1).all()
