"""Scheduler and worker with TLS, each in its own process, with certificates of a CA that the tests make."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time

import dask
import pytest
from click.testing import CliRunner

from dkfeat.cli import cli
from dkfeat.engine.runners.connect import connect
from dkfeat.errors import ClusterError, ConfigError
from tests.invariants import assert_dataset_whole, dataset_state
from tests.programs import ROOT, command, end, run, start

PAGE = (ROOT / "docs" / "how-to" / "tls.md").read_text(encoding="utf-8")
MAKE, START = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(SETTINGS,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
HOST = "scheduler.example:8786"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.fault("X-08"),
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="the certificates are made by the openssl command, which is missing"
    ),
]


def authority(folder):
    """Make a CA with one certificate by the commands of the how-to page."""
    folder.mkdir()
    subprocess.run(["sh", "-e", "-c", MAKE], cwd=folder, capture_output=True, check=True)
    (folder / "dask").mkdir()
    (folder / "dask" / "tls.yaml").write_text(SETTINGS.replace("/etc/dkfeat", str(folder)))
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Certificates and the address of a scheduler with one worker."""
    folder = tmp_path_factory.mktemp("tls")
    ca = authority(folder / "ca")
    scheduler_file = folder / "scheduler.json"
    scheduler, worker, _ = (shlex.split(line)[1:] for line in START.splitlines())
    scheduler[scheduler.index("scheduler.example")] = "127.0.0.1"
    scheduler[scheduler.index("8786")] = "0"
    program, environment = [sys.executable, "-m", "dask"], {"DASK_CONFIG": str(ca / "dask")}
    processes = [start([*program, *scheduler, "--scheduler-file", str(scheduler_file)], **environment)]
    try:
        while not (scheduler_file.exists() and scheduler_file.read_text().endswith("}")):
            assert processes[0].poll() is None, processes[0].communicate()
            time.sleep(0.05)
        address = json.loads(scheduler_file.read_text())["address"]
        worker[worker.index(f"tls://{HOST}")] = address
        processes.append(start([*program, *worker, "--no-nanny", "--host", "127.0.0.1"], **environment))
        yield ca, address
    finally:
        for process in processes:
            process.kill()
            end(process)


@pytest.mark.fault("X-08")
def test_tls__featurize_through_it(cluster, tmp_path, monkeypatch):
    ca, address = cluster
    assert address.startswith("tls://")
    (tmp_path / "day-1.svm").write_text("".join(f"{1 + i % 2} {1 + i % 5}:1 {7 + i % 3}:2\n" for i in range(600)))
    words = shlex.split(START.splitlines()[2].replace(f"tls://{HOST}", address))[1:]
    ended = run(command(*words, "--blocksize", 2048), cwd=tmp_path, DASK_CONFIG=str(ca / "dask"))
    assert ended.status == 0, ended.err
    target = tmp_path / "features" / "days"
    assert_dataset_whole(target, committed=True)
    there = dataset_state(target)
    assert len(there[0]) > 2
    shutil.rmtree(target)
    words[words.index(address)] = "threads"
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, [*words, "--blocksize", "2048"]).exit_code == 0
    assert dataset_state(target) == there


@pytest.mark.parametrize(
    ("case", "error", "message"),
    [
        ("no certificate", ConfigError, "set distributed.comm.tls.ca-file and distributed.comm.tls.client.cert"),
        ("missing file", ConfigError, "cannot be loaded: .*No such file"),
        ("not encrypted", ConfigError, "give a tls:// address"),
        ("not insisting", ClusterError, "no Dask scheduler answers at tcp://"),
        ("foreign CA", ClusterError, "no Dask scheduler answers at tls://.*certificate"),
    ],
)
def test_tls__who_may_not_is_told(cluster, tmp_path, case, error, message):
    ca, address = cluster
    if case == "foreign CA":
        ca = authority(tmp_path / "foreign")
    cert, key = str(ca / "node.pem"), str(ca / "node.key")
    if case == "no certificate":
        cert, key = None, None
    elif case == "missing file":
        cert = str(ca / "none.pem")
    elif case in ("not encrypted", "not insisting"):
        address = address.replace("tls://", "tcp://")
    comm = {
        "distributed.comm.tls.ca-file": str(ca / "ca.pem"),
        "distributed.comm.tls.client.cert": cert,
        "distributed.comm.tls.client.key": key,
        "distributed.comm.require-encryption": case != "not insisting",
        "distributed.comm.timeouts.connect": "5s",
    }
    with dask.config.set(comm), pytest.raises(error, match=message), connect(address):
        pass
