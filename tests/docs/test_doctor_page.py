"""The page on `dkfeat doctor` does what it says."""

import re

import pytest

from dkfeat.doctor import machine
from tests.docs.pages import DOCS, run_page
from tests.doctor.lines import ALWAYS


def test_doctor_page__runs(monkeypatch, tmp_path):
    if machine.config.DISABLE_JIT:
        pytest.skip("without the JIT there are other lines")
    monkeypatch.chdir(tmp_path)
    run_page("how-to/doctor.md")
    assert not (tmp_path / "features").exists()


def test_doctor_page__shows_the_lines_that_there_are():
    text = (DOCS / "how-to" / "doctor.md").read_text(encoding="utf-8")
    assert [name.strip() for name in re.findall(r"^(?:ok|warn|fail) {2,4}(.{15})", text, re.MULTILINE)] == ALWAYS
