"""Every fault case has a test or a reason for having none, and the page that lists them is up to date."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_itemcollected
from tests.faults import catalogue


def test_cases__every_one_has_a_test_or_a_reason():
    tests = catalogue.covering_tests()
    without = [case for case in catalogue.CASES if case not in tests and not catalogue.REASONS.get(case)]
    assert without == [], "mark a test with pytest.mark.fault, or give a reason in tests/faults/catalogue.py"


def test_cases__are_numbered_without_holes():
    for letter in catalogue.SECTIONS:
        numbers = [int(case[2:]) for case in catalogue.CASES if case[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1))
    assert set(catalogue.REASONS) <= set(catalogue.CASES)


def test_marks__all_are_found_and_known():
    tests = catalogue.covering_tests()
    assert set(tests) <= set(catalogue.CASES)
    assert tests["D-01"]
    text = "".join(path.read_text(encoding="utf-8") for path in (catalogue.ROOT / "tests").rglob("test_*.py"))
    written = {case for call in re.findall(r"mark\.fault\(([^)]*)\)", text) for case in re.findall(r'"(.-..)"', call)}
    assert written == set(tests), "a mark must stand at a test function or at one of its parameters"


def test_mark__of_an_unknown_case__is_refused_when_tests_are_collected():
    def item(*cases):
        return SimpleNamespace(nodeid="test_x", iter_markers=lambda _: [pytest.mark.fault(*cases).mark])

    pytest_itemcollected(item("P-01", "S-02"))
    with pytest.raises(pytest.UsageError, match=r"test_x: .* has no case P-99, X-00"):
        pytest_itemcollected(item("P-01", "X-00", "P-99"))


def test_page__is_up_to_date():
    text = catalogue.PAGE.read_text(encoding="utf-8")
    assert text == catalogue.page(), "run: python -m tests.faults.catalogue"


def test_page__names_cases_that_exist():
    above = catalogue.PAGE.read_text(encoding="utf-8").partition(catalogue.MARK)[0]
    assert set(re.findall(r"\b[IPSCDVX]-\d\d\b", above)) <= set(catalogue.CASES)
