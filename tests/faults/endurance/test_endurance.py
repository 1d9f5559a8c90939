"""Each part of `make endurance` holds for a few runs."""

import json
import subprocess
import sys

import pytest

from tests.programs import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.cluster
@pytest.mark.parametrize("part", ["kills", "nights", "memory"])
def test_endurance__holds_for_a_few_runs(part, tmp_path):
    command = [sys.executable, "-m", "tests.faults.endurance", part, "--quick", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert part in json.loads(done.stdout.splitlines()[-1])
