import inspect
import operator

import numba
import numpy as np
import pytest

from dkfeat.compiled import simd
from dkfeat.compiled.jit import kernel
from dkfeat.compiled.simd import LANES

jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="compares compiled vectors with their NumPy equivalents")

FLOATS = np.array([0, -0.0, 1, -1, 0.5, -2.5, 3e38, 1e-40, np.inf, -np.inf, 7, 1.5, 2**24, -3, 9, 1e-3], np.float32)
OTHERS = np.array([1, 0, 1, 2, -0.5, 2.5, 2, 1e-40, 1, 3, 7, -1.5, 1, 3, np.nan, 1e3], np.float32)
WORDS = np.array([0, 1, 2, 3, 2**31, 2**32 - 1, 7, 8, 2**24 + 1, 10, 11, 12, 13, 14, 15, 2**31 - 1], np.uint32)
COUNTS = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 30, 12, 13, 14, 15], np.uint32)


def both(function, *arrays):
    """Result of ``function(*vectors)`` compiled, which must be that of the NumPy equivalents."""
    out = np.zeros_like(function(*arrays))

    @numba.njit
    def run_one(x, out):
        simd.store(out, 0, compiled(simd.load(x, 0)))

    @numba.njit
    def run_two(x, y, out):
        simd.store(out, 0, compiled(simd.load(x, 0), simd.load(y, 0)))

    compiled = numba.njit(function) if inspect.isfunction(function) else function
    (run_one if len(arrays) == 1 else run_two)(*arrays, out)
    return out


@jit
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv"])
def test_floats__same_bits_as_numpy(name):
    operation = getattr(operator, name)
    with np.errstate(all="ignore"):
        expected = operation(FLOATS, OTHERS)
        result = both(operation, FLOATS, OTHERS)
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(result), nan)
    assert np.array_equal(result.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


@jit
@pytest.mark.parametrize("name", ["add", "sub", "mul", "and_", "or_", "xor", "lshift", "rshift"])
def test_words__same_as_numpy(name):
    operation = getattr(operator, name)
    other = COUNTS if "shift" in name else WORDS[::-1].copy()
    assert np.array_equal(both(operation, WORDS, other), operation(WORDS, other))
    low, high = np.full(LANES, 5, np.uint32), np.full(LANES, 2**31 + 5, np.uint32)
    assert np.array_equal(both(lambda x, y: simd.select(x < y, x, y), low, high), low)  # comparisons are unsigned


@jit
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: simd.select(x < y, x, y),
        lambda x, y: simd.select(x == y, x, y),
        lambda x, y: simd.minimum(x, y),
        lambda x, y: simd.maximum(x, y),
        lambda x, y: simd.floor(x) + y,
        lambda x, y: simd.to_float(simd.bits_of(x)) + y,
        lambda x, y: simd.float_of(simd.bits_of(x)) * y,
    ],
)
def test_floats__comparisons_and_casts(function):
    x, y = np.nan_to_num(FLOATS), np.nan_to_num(OTHERS)
    with np.errstate(over="ignore"):
        assert np.array_equal(both(function, x, y), function(x, y))


@pytest.mark.parametrize("lane", [None, 0, 7, 8, 15])
def test_any_of__one_lane(lane):
    def count_any(x, y):
        return simd.any_of(simd.load(x, 0) < simd.load(y, 0))

    x, y = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    if lane is not None:
        y[lane] = 1
    run = count_any if numba.config.DISABLE_JIT else numba.njit(count_any)
    assert run(x, y) == (lane is not None)


@kernel
def _products(words, x, y):
    a = simd.count_up(np.uint64(x)) + simd.splat64(np.uint64(y))
    product = simd.multiply_low(a, simd.splat64(np.uint64(0xFFFFFFFF00000003)))
    simd.store(words, 0, simd.interleave(product, product >> simd.splat64(np.uint64(32))))


def test_multiply_low__full_product_of_low_words():
    words = np.zeros(LANES, np.uint32)
    _products(words, 2, 0xF_FFFF_FFFF)
    expected = []
    for lane in range(LANES // 2):
        product = ((2 * lane + 0xF_FFFF_FFFF) & 0xFFFFFFFF) * 3
        expected += [product & 0xFFFFFFFF, product >> 32]
    assert words.tolist() == expected


@kernel
def _high_products(words, factor):
    simd.store(words, 0, simd.multiply_high(simd.load(words, 0), simd.splat(factor)))


def test_multiply_high__high_words_of_products():
    words = np.arange(LANES, dtype=np.uint32) * np.uint32(0xF1234567)
    expected = [int(word) * 0x87654321 >> 32 for word in words]
    _high_products(words, np.uint32(0x87654321))
    assert words.tolist() == expected


@kernel
def _store_narrowed(words, out):
    simd.prefetch(out, LANES)
    simd.store(out, LANES, simd.narrowed(simd.load(words, 0), out))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_narrowed__keeps_low_bits_and_neighbours(dtype):
    out = np.full(3 * LANES, 9, dtype)
    _store_narrowed(WORDS, out)
    assert np.array_equal(out[LANES : 2 * LANES], WORDS.astype(dtype))
    assert (out[:LANES] == 9).all()
    assert (out[2 * LANES :] == 9).all()


@kernel
def _multiply_add(x, y, z, out):
    simd.store(out, 0, simd.load(x, 0) * simd.broadcast(y, 5) + simd.load(z, 0))


def test_multiply_add__is_not_fused():
    # (1 + e)(1 - e) rounds to 1; fused, the sum would be -e**2
    e = np.float32(2.0**-13)
    x, y, z = (np.full(LANES, value, np.float32) for value in (1 + e, 1 - e, -1))
    out = np.ones(LANES, np.float32)
    _multiply_add(x, y, z, out)
    assert out.tolist() == [0.0] * LANES
