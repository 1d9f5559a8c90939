"""Decimal text to floats, bit for bit."""

import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dkfeat.compiled.decimals import MALFORMED, ROUNDED, UNDECIDED, read_number
from tests.sources.strategies import numerals

MANY = settings(max_examples=10 * settings.default.max_examples)


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
@MANY
@example("17.065995780200002000000")
@example("0." + "0" * 400 + "1e400")
@example("1" + "0" * 400 + "e-400")
@example("9007199254740993")
@example("1e-99999999999999999999")
def test_numbers__equal_python_to_the_last_bit(text):
    assert_as_python(text)


@given(st.integers(0, 2**63 - 1), st.integers(1, 17))
@MANY
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
