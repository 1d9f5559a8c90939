"""A scheduler and a worker that talk TLS, each a process of its own, with certificates of a CA made here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

import dask
import pytest

from dkfeat.engine.distributed_runner import connect
from dkfeat.errors import ClusterError, ConfigError
from tests.invariants import assert_dataset_whole, dataset_state
from tests.programs import command, end, run, start

OPENSSL = shutil.which("openssl")
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
EXTENSIONS = """basicConstraints=CA:FALSE
keyUsage=digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.fault("X-08"),
    pytest.mark.skipif(OPENSSL is None, reason="the certificates are made by the openssl command, which is missing"),
]


def openssl(folder, *arguments):
    subprocess.run([OPENSSL, *arguments], cwd=folder, capture_output=True, check=True)


def authority(folder):
    """A CA of its own, with one certificate for all roles."""
    folder.mkdir()
    (folder / "extensions").write_text(EXTENSIONS)
    usage = "keyUsage=critical,keyCertSign,cRLSign"
    names = ("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA", "-days", "2")
    openssl(folder, "req", "-x509", *KEY, *names, "-addext", usage)
    openssl(folder, "req", *KEY, "-keyout", "node.key", "-out", "node.csr", "-subj", "/CN=node")
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "extensions")
    openssl(folder, "x509", "-req", "-in", "node.csr", "-out", "node.pem", *signing)
    return folder


def settings(folder, *roles):
    """Dask's settings for these roles, as environment variables."""
    prefix = "DASK_DISTRIBUTED__COMM__"
    found = {f"{prefix}REQUIRE_ENCRYPTION": "true", f"{prefix}TLS__CA_FILE": str(folder / "ca.pem")}
    for role in roles:
        found[f"{prefix}TLS__{role.upper()}__CERT"] = str(folder / "node.pem")
        found[f"{prefix}TLS__{role.upper()}__KEY"] = str(folder / "node.key")
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Certificates and the address of a scheduler with one worker."""
    folder = tmp_path_factory.mktemp("tls")
    ca = authority(folder / "ca")
    place = folder / "scheduler.json"
    program = [sys.executable, "-m", "dask"]
    asked = (
        "--protocol",
        "tls",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
        "--scheduler-file",
        str(place),
    )
    processes = [start([*program, "scheduler", *asked], **settings(ca, "scheduler"))]
    try:
        while not (place.exists() and place.read_text().endswith("}")):
            assert processes[0].poll() is None, processes[0].communicate()
            time.sleep(0.05)
        address = json.loads(place.read_text())["address"]
        options = ("--host", "127.0.0.1", "--no-nanny", "--no-dashboard", "--nthreads", "1")
        processes.append(start([*program, "worker", address, *options], **settings(ca, "worker")))
        yield ca, address
    finally:
        for process in processes:
            process.kill()
            end(process)


@pytest.fixture
def words(tmp_path):
    def featurize(address):
        where = ("--out", tmp_path / "features", "--scheduler", address)
        return command("featurize", tmp_path / "rows.svm", "--n-components", 16, "--blocksize", 2048, *where)

    (tmp_path / "rows.svm").write_text("".join(f"{1 + i % 2} {1 + i % 5}:1 {7 + i % 3}:2\n" for i in range(600)))
    return featurize


def test_tls__featurize_through_it(cluster, words, tmp_path):
    ca, address = cluster
    assert address.startswith("tls://")
    ended = run(words(address), **settings(ca, "client"))
    assert ended.status == 0, ended.err
    assert_dataset_whole(tmp_path / "features", committed=True)
    there = dataset_state(tmp_path / "features")
    shutil.rmtree(tmp_path / "features")
    assert run(words("threads")).status == 0
    assert dataset_state(tmp_path / "features") == there


@pytest.mark.parametrize(
    ("case", "error", "told"),
    [
        ("no certificate", ConfigError, "set distributed.comm.tls.ca-file and distributed.comm.tls.client.cert"),
        ("missing file", ConfigError, "cannot be loaded: .*No such file"),
        ("not encrypted", ConfigError, "give a tls:// address"),
        ("not insisting", ClusterError, "no Dask scheduler answers at tcp://"),
        ("foreign CA", ClusterError, "no Dask scheduler answers at tls://.*certificate"),
    ],
)
def test_tls__who_may_not_is_told(cluster, tmp_path, case, error, told):
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
    with dask.config.set(comm), pytest.raises(error, match=told), connect(address):
        pass
