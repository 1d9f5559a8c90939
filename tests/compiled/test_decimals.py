"""Decimal text to floats, bit for bit."""

import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dkfeat.compiled.decimals import (
    MALFORMED,
    ROUNDED,
    UNDECIDED,
    as_float,
    count_digits,
    eight_digits,
    high_product,
    leading_zeros,
    read_number,
    trailing_zeros,
    word_at,
)
from dkfeat.compiled.jit import kernel
from tests.sources.strategies import numerals


@kernel
def load(data, i):
    return word_at(data, i)


@kernel
def spell(text):
    n, digits = count_digits(word_at(text, 0))  # 64 bits without a sign, which Python's integers would not stay
    return n, eight_digits(digits, n)


@kernel
def product(a, b):
    return high_product(a, b)


@kernel
def gaps(word):
    return trailing_zeros(word), leading_zeros(word)


@kernel
def floats(word):
    return as_float(word)


def read(text: str, after: str = "\n"):
    data = np.frombuffer((text + after).encode() + bytes(16), np.uint8)
    with np.errstate(over="ignore"):
        return read_number(data, 0)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def assert_as_python(text: str) -> None:
    value, stop, status = read(text)
    assert stop == len(text)
    if status != UNDECIDED:
        assert status == ROUNDED
        assert bits(value) == bits(float(text)), text


@given(numerals())
@settings(max_examples=1000)
@example("17.065995780200002000000")
@example("0." + "0" * 400 + "1e400")
@example("1" + "0" * 400 + "e-400")
@example("9007199254740993")
@example("1e-99999999999999999999")
def test_numbers__equal_python_to_the_last_bit(text):
    assert_as_python(text)


@given(st.integers(0, 2**63 - 1), st.integers(1, 17))
@settings(max_examples=1000)
def test_floats__any_bits_in_any_length(pattern, digits):
    x = struct.unpack("<d", struct.pack("<Q", pattern))[0]
    if np.isfinite(x):
        assert_as_python(repr(x))
        assert_as_python(f"{x:.{digits}g}")
        assert_as_python(f"{x:.{digits + 25}e}")


@pytest.mark.parametrize(
    "text",
    [
        "0", "-0.0", "5.", ".5", "+1", "007", "1e400", "-1e400", "5e-324", "2.4703282292062327e-324", "1e-400",
        "2.4703282292062328e-324", "2.2250738585072011e-308", "2.2250738585072014e-308", "1.7976931348623157e308",
        "1.7976931348623159e308", "1.7976931348623158e308", "9007199254740993.0000000000", "4503599627370497.5",
        "9223372036854775808", "18446744073709551615", "1e22", "1e23", "8.5e-22", "6929495644600919.5", "1E0005",
    ],
)  # fmt: skip
def test_edges__equal_python(text):
    value, _, status = read(text)
    assert status == ROUNDED
    assert bits(value) == bits(float(text))


def test_halves__every_tie_goes_to_even():
    rng = np.random.default_rng(3)
    for mantissa in rng.integers(2**52, 2**53, 200).tolist():
        for shift in (0, 1, 5, 10):
            assert_as_python(str((2 * mantissa + 1) << shift))


def test_long_numbers__few_are_left_undecided():
    rng = np.random.default_rng(5)
    statuses = [read(f"{a}{b}")[2] for a, b in rng.integers(10**14, 10**15, (500, 2)).tolist()]
    assert statuses.count(UNDECIDED) < 25


@pytest.mark.parametrize("text", ["", ".", "-", "+", "e5", "--1", "+-1", "1e", "1e+", "-.e1", "nan", "inf", "x"])
def test_malformed__is_no_number(text):
    assert read(text)[1:] == (0, MALFORMED)


@pytest.mark.parametrize(
    ("text", "stop"), [("1_000", 1), ("0x1p3", 1), ("1d3", 1), ("1.2.3", 3), ("1,5", 1), ("1e5e", 3)]
)
def test_number__ends_before_what_python_alone_would_take(text, stop):
    assert read(text)[1:] == (stop, ROUNDED)


@given(st.text("0123456789", min_size=1, max_size=8), st.sampled_from("/:. \n\0\x7f\xff"))
@settings(max_examples=200)
@example("0000000", "\xff")
@example("1234567", "\xff")
def test_eight_digits__spell_their_integer(text, after):
    data = np.frombuffer((text + after).encode("latin-1") + bytes(16), np.uint8)
    with np.errstate(over="ignore"):
        assert spell(data) == (len(text), int(text))


def test_words__one_instruction_each():
    data = np.arange(1, 20, dtype=np.uint8)
    assert load(data, 3) == 0x0B0A090807060504
    a, b = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0x8000000000000001)
    assert product(a, b) == (0xFFFFFFFFFFFFFFFF * 0x8000000000000001) >> 64
    assert gaps(np.uint64(1)) == (0, 63)
    assert gaps(np.uint64(0)) == (64, 64)
    assert gaps(b) == (0, 0)
    assert floats(np.uint64(0x3FF8000000000000)) == 1.5
