"""The embedded cluster tells what stands in its way."""

import subprocess
import sys

import pytest

SCRIPT = """
import dkfeat
gcws = dkfeat.GCWSFeatures(16, random_state=0)
dkfeat.featurize("rows.svm", gcws, "features", n_workers=1, progress=False)
"""


@pytest.mark.cluster
def test_local_cluster__script_without_a_guard_is_told(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:1\n2 2:1\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert "if __name__ == '__main__':" in done.stderr.splitlines()[-1]
    assert "ClusterError" in done.stderr.splitlines()[-1]
