"""Versions and the compiled loops."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from dkfeat.doctor import checks
from tests.doctor.lines import ALWAYS


def check_of(found, name):
    return next(check for check in found if check.name == name)


def test_machine__is_well_here():
    if checks.config.DISABLE_JIT:
        pytest.skip("without the JIT there are no compiled loops")
    found = list(checks.check_machine())
    assert [check.name for check in found] == ALWAYS
    assert [check.state for check in found[-2:]] == ["ok", "ok"]
    assert version("numpy") in found[0].found


def test_machine__that_gives_other_samples_fails(monkeypatch):
    monkeypatch.setattr(checks, "EXPECTED", "0" * 64)
    bits = check_of(checks.check_machine(), "same bits")
    assert (bits.state, bits.exit_code) == ("fail", 1)


def test_cache__that_is_off_or_has_no_folder_is_a_warning(monkeypatch):
    monkeypatch.setattr(checks, "Dispatcher", type(None))
    check = check_of(checks.check_machine(), "compiled loops")
    assert (check.state, check.found[:27]) == ("warn", "no folder can be written: e")
    monkeypatch.setenv("DKFEAT_JIT_CACHE", "0")
    check = check_of(checks.check_machine(), "compiled loops")
    assert (check.state, check.to_do) == ("warn", "unset DKFEAT_JIT_CACHE")
    monkeypatch.setattr(checks.config, "DISABLE_JIT", 1)
    check = check_of(checks.check_machine(), "compiled loops")
    assert (check.state, check.to_do) == ("warn", "unset NUMBA_DISABLE_JIT")


@pytest.mark.slow
def test_cold_cache__is_warmed_and_a_generic_cpu_gives_the_same_bits(tmp_path):
    """It compiles the loops of sampling, for a quarter of a minute."""
    words = "from dkfeat.doctor.checks import check_machine\nfor each in check_machine(): print(each.state, each.found)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "generic"}
    done = subprocess.run([sys.executable, "-c", words], env=environment, capture_output=True, text=True, check=True)
    *_, cache, bits = done.stdout.splitlines()
    assert cache.startswith("ok ")
    assert str(tmp_path) in cache
    assert bits.startswith("ok")
