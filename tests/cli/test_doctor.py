"""The command, as a person and as a program would use it."""

import json
import sys

import pytest
from click.testing import CliRunner

from dkfeat.cli import cli
from dkfeat.doctor import checks
from tests.doctor.lines import ALWAYS


def run(*arguments, status=0):
    outcome = CliRunner().invoke(cli, ["doctor", *map(str, arguments)], prog_name="dkfeat")
    assert outcome.exit_code == status, outcome.output
    return outcome


@pytest.fixture(autouse=True)
def _with_jit():
    if checks.config.DISABLE_JIT:
        pytest.skip("without the JIT there are other lines")


def test_doctor__tells_line_by_line():
    lines = run().stdout.splitlines()
    checks = [line for line in lines if line.startswith(("ok ", "warn", "fail"))]
    assert [line[6:23].strip() for line in checks] == ALWAYS
    assert lines[-1].endswith(" ok") or "warn" in lines[-1]


def test_doctor__as_an_object_has_stable_keys(tmp_path):
    found = json.loads(run("--json", "--scheduler-file", tmp_path, status=2).stdout)
    assert sorted(found) == ["checks", "state"]
    assert found["state"] == "fail"
    assert [check["name"] for check in found["checks"]] == [*ALWAYS, "scheduler"]
    assert set(found["checks"][-1]) == {"name", "state", "found", "to_do", "exit_code"}


def test_doctor__quietly_tells_what_is_not_well():
    lines = run("--quiet", "--scheduler", "localhost:8786", status=2).stdout.splitlines()
    assert not any(line.startswith("ok") for line in lines)
    assert lines[-1].startswith("fail  scheduler        'localhost:8786' is no address of a scheduler")


def test_doctor__two_schedulers_are_a_usage_error():
    outcome = run("--scheduler", "tcp://127.0.0.1:9", "--scheduler-file", "x", status=2)
    assert "name a scheduler each" in outcome.stderr


def test_doctor__what_cannot_be_imported_is_a_finding(monkeypatch):
    monkeypatch.setitem(sys.modules, "dkfeat.doctor.checks", None)
    lines = run("--quiet", status=2).stdout.splitlines()
    assert lines[-2].startswith("fail  import           import of dkfeat.doctor.checks halted")
    assert "-m pip install --force-reinstall" in lines[-1]
