"""The page about SLURM does what it says: its commands are run as printed, SLURM's own stood in for."""

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

import dkfeat
from dkfeat.config.execution import read_cluster
from dkfeat.errors import TargetBusyError
from tests.docs.pages import run_page, texts
from tests.engine.clusters.slurm_commands import write_commands
from tests.programs import ROOT, run_killed


def small_blocks(text):
    """The commands with a blocksize at which few rows make several shards, and as many parts as many rows have."""
    text = text.replace("dkfeat featurize", "dkfeat featurize --blocksize 16KiB")
    return text.replace("dkfeat train features --out", "dkfeat train features --parts 2 --out")


SRUN = """#!/usr/bin/env bash
exec "$@" --death-timeout 60
"""


def blocks(language):
    return texts("how-to/slurm.md", language)


@pytest.fixture
def home(tmp_path, tiny_folder, monkeypatch):
    """A folder as the page wants it, on a machine with a SLURM of sorts."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    for name, file in (("rows.svm", "a.svm"), ("more.svm", "b.svm")):
        shutil.copy(tiny_folder / file, tmp_path / name)
    commands = tmp_path / "commands"
    commands.mkdir()
    write_commands(commands)
    (commands / "srun").write_text(SRUN)
    (commands / "srun").chmod(0o755)
    bin_folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (commands, bin_folder, os.environ["PATH"]))))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    (settings,) = map(yaml.safe_load, blocks("yaml"))
    assert read_cluster(settings).kind == "slurm"
    smaller = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "2GiB", "interface": "lo"}
    (tmp_path / "slurm.yaml").write_text(yaml.safe_dump({**settings, **smaller}))
    return tmp_path


def run(words, home):
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.cluster
def test_slurm_page__commands_run(home, monkeypatch):
    """A minute of processes that start: what the page adds to the tests of clusters is its wording."""
    monkeypatch.chdir(home)
    run_page("how-to/slurm.md", small_blocks)
    assert len(list((home / "commands").glob("*.cancelled"))) == len(list((home / "commands").glob("*.script"))) == 6
    one_job(home)


def one_job(home):
    (script,) = blocks("bash")
    smaller = script.replace("--nworkers 2 --nthreads 8 --memory-limit 16GiB", "--nthreads 1 --memory-limit 2GiB")
    assert smaller != script
    (home / "job.sh").write_text(small_blocks(smaller))
    run(["bash", "job.sh"], home)
    data = [home / name / "data" for name in ("features", "features-2")]
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in data)
    assert first == second


@pytest.mark.fault("C-04")
def test_slurm_page__a_requeued_job_breaks_the_lock_that_it_left_on_another_host(tmp_path, tiny_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(tiny_folder / "a.svm", "rows.svm")
    (job,) = (text for text in blocks("python") if "break_lock" in text)
    elsewhere = "import socket; socket.gethostname = lambda: 'node-1'\n"
    run_killed("before_manifest:1", [sys.executable, "-c", elsewhere + job], SLURM_JOB_ID="7")
    assert dkfeat.status("features-3").holder.host == "node-1"
    code = compile(job, "job", "exec")
    for number in ("8", "7"):
        monkeypatch.setenv("SLURM_JOB_ID", number)
        with pytest.raises(TargetBusyError, match="node-1") if number == "8" else nullcontext():
            exec(code, {"__name__": "__main__"})
    assert dkfeat.status("features-3").state == "complete"
    assert not list(tmp_path.glob("run-*"))
