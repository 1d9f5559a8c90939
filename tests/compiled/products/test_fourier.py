import numba
import numpy as np
import pytest
from numba.core import config

from dkfeat.compiled.products.fourier import (
    fourier,
    fourier_half,
    load_3,
    load_4,
    load_5,
    load_8,
    load_9,
    load_16,
    load_chosen_4,
    plus,
    plus_mirrored,
    store,
    store_single,
    swapped,
    times,
    transposed,
    turned,
)

STEP = 24
"""Between vectors; more than they take."""


def some_memory(size):
    return np.random.default_rng(size).standard_normal(size * STEP)


def complex_of(group):
    half = len(group) // 2
    return group[:half] + 1j * group[half:]


def both(run, *arrays):
    """Result of a loop as plain Python; compiled code must write the same bits."""
    expected = np.zeros(16 * STEP)
    run(*arrays, expected)
    if not config.DISABLE_JIT:
        found = np.zeros(16 * STEP)
        numba.njit(run)(*arrays, found)
        assert np.array_equal(found, expected)
    return expected


@pytest.mark.parametrize(("size", "load"), [(4, load_4), (8, load_8), (16, load_16)])
def test_fourier__is_the_discrete_transform(size, load):
    memory = some_memory(size)

    def run(memory, out):
        store(out, 0, 16, fourier(load(memory, 0, STEP)))

    found = complex_of(load(both(run, memory), 0, 16))
    assert np.allclose(found, np.fft.fft(complex_of(load(memory, 0, STEP)), axis=0), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(("size", "load"), [(3, load_3), (5, load_5), (9, load_9)])
def test_fourier_half__is_that_of_numbers_filled_up(size, load):
    memory = some_memory(size)

    def run(memory, out):
        singles = np.zeros(16 * STEP, np.float32)
        store_single(singles, 0, 8, fourier_half(load(memory, 0, STEP)))
        out[:] = singles

    found = both(run, memory)[: (2 * size - 2) * 8].reshape(-1, 8)
    expected = np.fft.fft(complex_of(load(memory, 0, STEP)), 2 * size - 2, axis=0).imag
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_groups__combine_as_numbers_do():
    memory, other = some_memory(8), some_memory(9)

    def run(memory, other, out):
        x, y = load_8(memory, 0, STEP), load_8(other, 0, STEP)
        store(out, 0, 16, turned(swapped(plus(times(x, y), plus_mirrored(x, transposed(y)))), other, 3))

    found = complex_of(load_8(both(run, memory, other), 0, 16))
    x, y = (complex_of(load_8(a, 0, STEP)) for a in (memory, other))
    expected = x * y + x + y.T[::-1, ::-1].conj()
    expected = 1j * expected.conj()
    expected[1:] *= np.stack(
        [other[3 + 16 * q : 11 + 16 * q] + 1j * other[11 + 16 * q : 19 + 16 * q] for q in range(7)]
    )
    assert np.allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_deal__puts_numbers_where_they_were_chosen():
    row = np.arange(32, dtype=np.float32)
    choice = (np.arange(32) % 3).astype(np.uint16)

    def run(row, choice, out):
        store(out, 0, 16, load_chosen_4(row, choice, 0, 8, 1))

    found = complex_of(load_4(both(run, row, choice), 0, 16)).ravel()
    assert np.array_equal(found, np.where(choice == 1, row, 0) + 1j * np.where(choice == 2, row, 0))
