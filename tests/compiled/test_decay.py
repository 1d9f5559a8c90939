import numpy as np
import pytest

from dkfeat.compiled.decay import decay_features, scale_values


def test_decay__is_the_exponential():
    v = np.concatenate([np.linspace(0, 87.3, 20_011), np.geomspace(1e-30, 1, 1000)]).astype(np.float32)
    out = v.copy()
    decay_features(out, np.float32(1))
    expected = np.exp(-v.astype(np.float64))
    assert (np.abs(out - expected) <= 1.5e-7 * expected).all()


def test_decay__has_ends():
    out = np.array([0.0, -0.0, -3.0, -1e30, 87.34, 1e4, np.inf] * 5, np.float32)
    decay_features(out, np.float32(0.5))
    assert out.tolist() == [0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0] * 5


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 100])
def test_decay__does_not_depend_on_the_place(n):
    v = np.random.default_rng(0).exponential(5, 100).astype(np.float32)
    whole, part = v.copy(), v[100 - n :].copy()
    decay_features(whole, np.float32(0.3))
    decay_features(part, np.float32(0.3))
    assert np.array_equal(part, whole[100 - n :])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scale__multiplies_and_bounds(dtype):
    values = np.array([0, 1e-300, 0.5, 3, 1e30], dtype)
    out = np.empty(5, np.float32)
    assert scale_values(values, 1e200, 1.0, 7.0, out)
    assert out.tolist() == [0.0, 7.0 if dtype is np.float64 else 0.0, 7.0, 7.0, 7.0]
    assert scale_values(values, 1.0, 5e-324, 7.0, out)
    assert out[0] == 0
    assert scale_values(values, 2.0, 8.0, 7.0, out)
    assert out.tolist() == [0.0, 0.0, 0.25, 1.5, 7.0]


@pytest.mark.parametrize("value", [-1e-300, -1, np.nan, np.inf, -np.inf])
def test_scale__tells_of_unfit_values(value):
    out = np.empty(3, np.float32)
    assert not scale_values(np.array([1.0, value, 2.0]), 1.0, 1.0, 9.0, out)
    assert scale_values(np.array([1.0, -0.0, 2.0]), 1.0, 1.0, 9.0, out)
