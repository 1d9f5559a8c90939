import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from types import SimpleNamespace

import dask
import psutil
import pytest
import yaml

import dkfeat
from dkfeat.config import ExecutionConfig, LocalClusterConfig, SlurmClusterConfig
from dkfeat.engine.clusters import local
from dkfeat.engine.clusters import open as clusters
from dkfeat.engine.runners.connect import read_address
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ClusterError, ConfigError
from tests.engine.clusters.slurm_commands import REFUSING, SBATCH, WAITING, write_commands
from tests.programs import command, end, start

SMALL = {"threads_per_worker": 1, "memory_limit": "1GiB", "start_seconds": 120}


@pytest.fixture(scope="module")
def golden(tiny_folder, tmp_path_factory):
    """Shards of the tiny rows, made on threads."""
    target = tmp_path_factory.mktemp("golden") / "features"
    featurized(tiny_folder, target, scheduler="threads", n_workers=2)
    return shards_of(target)


def featurized(folder, target, **where):
    source = dkfeat.LibsvmSource(str(folder / "*.svm"), blocksize=4096)
    gcws = dkfeat.GCWSFeatures(n_components=16, random_state=0)
    dkfeat.featurize(source, target, gcws, progress=False, **ExecutionConfig.gather(where))


def shards_of(target):
    return {path.name: path.read_bytes() for path in sorted((target / "data").iterdir())}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Folder with substitutes for SLURM's commands, on the PATH; the test runs in its parent."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return folder


def slurm_config(**settings):
    return SlurmClusterConfig(**{"n_workers": 2, "interface": "lo", **SMALL, **settings})


@pytest.mark.cluster
def test_slurm__jobs_make_the_same_bytes(slurm, tiny_folder, golden, tmp_path):
    write_commands(slurm)
    featurized(tiny_folder, tmp_path / "features", cluster=slurm_config(queue="night", walltime="00:10:00"))
    assert shards_of(tmp_path / "features") == golden
    scripts = sorted(slurm.glob("*.script"))
    assert len(scripts) == 2
    assert all("#SBATCH -p night\n" in script.read_text() for script in scripts)
    # both jobs were cancelled, used only TLS, and left no key behind
    assert sorted(path.stem for path in slurm.glob("*.cancelled")) == [script.stem for script in scripts]
    assert all("dask_worker tls://127.0.0.1:" in script.read_text() for script in scripts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["commands", "features"]


@pytest.mark.cluster
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
def test_slurm__a_signal_cancels_the_jobs(slurm, tiny_folder, tmp_path, number, status):
    """The run is a process of its own, because importing dask-jobqueue changes the signal handlers of this one."""
    write_commands(slurm)
    settings = {"kind": "slurm", "n_workers": 1, "interface": "lo", **SMALL}
    (tmp_path / "slurm.yaml").write_text(yaml.safe_dump(settings))
    words = ["featurize", tiny_folder / "a.svm", "--out", tmp_path / "features", "--cluster", tmp_path / "slurm.yaml"]
    process = start(command(*words), cwd=tmp_path)
    while not list(slurm.glob("*.script")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    ended = end(process)
    assert ended.status == status
    assert "run the same command again to continue" in ended.err
    assert [path.stem for path in slurm.glob("*.cancelled")] == [path.stem for path in slurm.glob("*.script")]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "features") == ["commands", "slurm.yaml"]


@pytest.mark.cluster
def test_slurm__without_certificates_speaks_plainly(slurm, tmp_path):
    write_commands(slurm)
    with dkfeat.open_cluster(slurm_config(n_workers=1, encrypt=False)) as client:
        assert client.submit(sum, [1, 2]).result() == 3
    assert "dask_worker tcp://127.0.0.1:" in next(slurm.glob("*.script")).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["commands"]


@pytest.mark.cluster
def test_slurm__a_run_with_nothing_to_do_submits_no_job(slurm, tiny_folder, tmp_path):
    target = tmp_path / "features"
    featurized(tiny_folder, target, scheduler="synchronous")
    write_commands(slurm)
    featurized(tiny_folder, target, cluster=slurm_config())
    assert list(slurm.glob("*.script")) == []


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("sbatch", "settings", "words"),
    [
        (REFUSING, {}, "SLURM rejected all jobs for 2 workers.*invalid partition specified: night"),
        (None, {}, "SLURM rejected all jobs for 2 workers.*No such file.*sbatch"),
        (WAITING, {"start_seconds": 0.5}, "no worker of the cluster of kind 'slurm' started within 0.5 s"),
        (
            SBATCH,
            {"interface": "nowhere0"},
            "kind 'slurm' did not start: .*'nowhere0' is not a valid network interface",
        ),
    ],
    ids=["refused", "no SLURM", "queue too long", "interface"],
)
def test_slurm__says_why_no_worker_comes(slurm, sbatch, settings, words):
    if sbatch is not None:
        write_commands(slurm, sbatch)
    with pytest.raises(ClusterError, match=words), dkfeat.open_cluster(slurm_config(**settings)):
        pass


@pytest.mark.cluster
def test_open_cluster__serves_several_steps(tiny_folder, golden, tmp_path):
    path = tmp_path / "local.yaml"
    path.write_text("{kind: local, n_workers: 2, memory_limit: 2GiB}")
    with dkfeat.open_cluster(path, n_workers=1) as client:
        assert len(client.nthreads()) == 1
        featurized(tiny_folder, tmp_path / "features", client=client)
        found = dkfeat.scan(str(tiny_folder / "a.svm"), client=client)
    assert shards_of(tmp_path / "features") == golden
    assert found.n_rows == 250


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cluster": 5}, "cluster=5, but it must be the path of a cluster file"),
        ({"cluster": "nowhere.yaml"}, r"nowhere\.yaml: cannot be read as a cluster file"),
        ({"cluster": "c.yaml", "scheduler": "threads"}, "scheduler and cluster are given"),
        ({"scheduler_file": "s.json", "cluster": "c.yaml"}, "scheduler_file and cluster are given"),
        ({"cluster": LocalClusterConfig(memory_limit="100MiB")}, "memory_limit='100MiB', but .* at least 512 MiB"),
        ({"scheduler_file": "s.json", "n_workers": 2}, "belong to scheduler='cluster', not to 'scheduler_file'"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_open_runner__refuses_before_anything_starts(settings, words):
    with pytest.raises(ConfigError, match=words):
        open_runner(ExecutionConfig(**settings))


def test_as_cluster__names_the_extra_that_is_missing(monkeypatch):
    monkeypatch.setattr(clusters, "find_spec", {}.get)
    with pytest.raises(ConfigError, match=r"kind 'slurm' needs .*pip install "):
        clusters.as_cluster(slurm_config())


def test_read_address__waits_and_says_what_is_missing(tmp_path, monkeypatch, caplog):
    path = tmp_path / "scheduler.json"
    monkeypatch.setattr("dkfeat.engine.runners.connect.QUIET_SECONDS", 0.05)
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(ClusterError, match=r"no scheduler wrote .*within 0\.2 s; start one by `dask scheduler"),
    ):
        read_address(path)
    assert caplog.messages == [f"waiting for up to 0.2 s for a scheduler to write {path}"]
    with subprocess.Popen(["sh", "-c", f'sleep 0.3; echo \'{{"address": "tcp://10.0.0.1:1"}}\' > {path}']):
        assert read_address(path) == "tcp://10.0.0.1:1"


@pytest.mark.parametrize("text", ["[]", "{}", "kind: local", '{"address": 5}', "[" * 10_000])
def test_read_address__refuses_other_files(tmp_path, text):
    path = tmp_path / "scheduler.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is no scheduler file"):
        read_address(path)


def test_shared_cluster__is_replaced_when_it_was_lost(monkeypatch):
    """The first run that needs the cluster starts it, the next one uses it, and a lost cluster is started again."""
    states = []

    @contextmanager
    def begin(_config):
        state = SimpleNamespace(status="running")
        states.append(state)
        yield state
        state.status = "closed"

    monkeypatch.setattr(clusters, "_open", begin)
    with clusters.SharedCluster(LocalClusterConfig(), n_workers=2) as shared:
        assert (states, shared.config.n_workers) == ([], 2)
        for _ in range(2):
            with shared.opened() as client:
                assert client is states[0]
        states[0].status = "closed"  # lost
        with shared.opened() as client:
            assert client is states[1]
    assert states[1].status == "closed"


def test_open_runner__needs_no_library_of_a_cluster_manager():
    script = "import sys; sys.modules['dask_jobqueue'] = None; import dkfeat.engine.runners.open; "
    script += "assert 'distributed' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


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


@pytest.mark.cluster
def test_local_cluster__worker_that_hangs_while_it_starts_ends_the_wait(monkeypatch):
    monkeypatch.setattr(local, "_IGNORE_INTERRUPTS", "import time; time.sleep(600)")
    monkeypatch.setattr(local, "START_SECONDS", 3)
    before = psutil.Process().children()  # the session's cluster may be among them
    with pytest.raises(ClusterError, match="1 worker process did not start"), local.local_cluster(1, 1):
        pass
    for process in set(psutil.Process().children()) - set(before):
        if "spawn_main" in " ".join(process.cmdline()):
            process.kill()
