import os
import subprocess
import sys

import numpy as np
import pytest

from dkfeat.compiled.convolution import SMALLEST, blocked, convolve_rows, spectra_of, unblocked


def some_mixture(n, m, n_features, n_samples=3):
    rng = np.random.default_rng(n + m)
    weights = rng.standard_normal((m, n))
    masks = (rng.integers(0, m, n) == np.arange(m)[:, None]).astype(np.float32)
    return weights, masks, rng.standard_normal((n_samples, n_features)).astype(np.float32)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    ("n", "n_features"), [(SMALLEST, 130), (SMALLEST, 256), (512, 300), (1024, 1024), (2048, 1025), (4096, 4096)]
)
def test_convolution__is_the_sum_of_circular_convolutions(n, n_features, m):
    weights, masks, x = some_mixture(n, m, n_features)
    out = np.full((3, n + 5), 9, np.float32)
    convolve_rows(x, blocked(masks), spectra_of(weights), out, 2, n)
    expected = np.zeros((3, n))
    for row, sums in zip(x, expected, strict=True):
        for j in np.flatnonzero(row)[:n_features]:
            sums += row[j].astype(np.float64) * np.roll(masks[:, j].astype(np.float64) @ weights, j)
    scale = np.linalg.norm(weights) * np.linalg.norm(x, axis=1, keepdims=True)
    # results are rounded to float32; before, errors are those of float64
    assert (np.abs(out[:, 2:-3] - expected) <= 2.0**-24 * np.abs(expected) + 1e-16 * scale).all()
    assert (out[:, :2] == 9).all()
    assert (out[:, -3:] == 9).all()


def test_convolution__is_cut_to_the_width():
    weights, masks, x = some_mixture(512, 2, 400)
    whole, part = np.empty((3, 512), np.float32), np.full((3, 40), 9, np.float32)
    convolve_rows(x, blocked(masks), spectra_of(weights), whole, 0, 512)
    convolve_rows(x, blocked(masks), spectra_of(weights), part, 7, 30)
    assert np.array_equal(part[:, 7:37], whole[:, :30])
    assert (part[:, :7] == 9).all()
    assert (part[:, 37:] == 9).all()


def test_convolution__a_row_does_not_depend_on_its_place():
    weights, masks, x = some_mixture(1024, 3, 900)
    many, one = np.empty((3, 1024), np.float32), np.empty((1, 1024), np.float32)
    convolve_rows(x, blocked(masks), spectra_of(weights), many, 0, 1024)
    for i in range(3):
        convolve_rows(x[i : i + 1], blocked(masks), spectra_of(weights), one, 0, 1024)
        assert np.array_equal(one[0], many[i])


@pytest.mark.parametrize("n", [256, 512, 2048])
def test_blocked__is_a_permutation_that_is_undone(n):
    numbers = np.arange(3 * n).reshape(3, n)
    assert np.array_equal(unblocked(blocked(numbers)), numbers)
    assert np.array_equal(np.sort(blocked(numbers)), numbers)
    assert np.array_equal(blocked(numbers)[0, :16], np.arange(16))


DIGEST = """
import hashlib, numpy as np
from dkfeat.compiled.convolution import blocked, convolve_rows, spectra_of
x = (np.arange(3 * 500) % 17 / 16).astype(np.float32).reshape(3, 500)
weights = (np.arange(3 * 512) % 29 / 32).reshape(3, 512)
masks = (np.arange(512) % 3 == np.arange(3)[:, None]).astype(np.float32)
out = np.empty((3, 512), np.float32)
convolve_rows(x, blocked(masks), spectra_of(weights), out, 0, 512)
print(hashlib.sha256(out.tobytes()).hexdigest())
"""


def test_convolution__is_equal_on_other_cpus():
    found = {
        subprocess.run(
            [sys.executable, "-c", DIGEST], env=os.environ | name, capture_output=True, text=True, check=True
        ).stdout
        for name in ({}, {"NUMBA_CPU_NAME": "generic"})
    }
    assert len(found) == 1
