"""Local cluster: its error for a script without a guard, and its addresses."""

import os
import subprocess
import sys
import urllib.error
import urllib.request

import psutil
import pytest

SCRIPT = """
import dkfeat
from dkfeat.config import ExecutionConfig
gcws = dkfeat.GCWSFeatures(16, random_state=0)
dkfeat.featurize("rows.svm", "features", gcws, progress=False, client=ExecutionConfig(n_workers=1))
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


@pytest.mark.quick
@pytest.mark.cluster
@pytest.mark.fault("X-08")
def test_local_cluster__listens_on_loopback_alone(cluster_client):
    scheduler = cluster_client.cluster.scheduler
    workers = [psutil.Process(pid) for pid in cluster_client.run(os.getpid).values()]
    processes = {process.pid: process for worker in workers for process in (psutil.Process(), worker, worker.parent())}
    listening = [
        connection.laddr
        for process in processes.values()
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) > len(workers)
    assert {address.ip for address in listening} == {"127.0.0.1"}
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{scheduler.http_server.port}/status", timeout=30)
