"""Disks that are full, read-only, forbidden or lost during a run: status 3, and the next run finishes the work."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import dkfeat
from dkfeat.errors import CommitError, DkfeatError, ShardError, SourceError
from dkfeat.sources import contents as files
from tests.engine.helpers import BLOCK, featurized
from tests.invariants import assert_dataset_whole, dataset_state

ROOT = Path(dkfeat.__file__).parent.parent


@pytest.fixture(scope="module")
def source(tiny_folder):
    return dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=BLOCK)


@pytest.fixture(scope="module")
def golden(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden") / "features"
    featurized(source, folder)
    return dataset_state(folder)


@contextmanager
def mounted(folder, options):
    """Mount a file system in memory at `folder`."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield lambda options: subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def as_a_plain_user(*command):
    """Run a command that obeys the modes of files, even if root runs the tests."""
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read and write everything, and setpriv, which can prevent that, is missing")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def command_line(source, target):
    program = "from dkfeat.cli import main; main()"
    options = ["--n-components", "24", "--seed", "11", "--blocksize", str(BLOCK), "--out", str(target)]
    return sys.executable, "-c", program, "featurize", *source, *options


@pytest.mark.fault("S-02")
def test_full_disk__names_the_shard_and_the_room_and_resumes_identical(source, golden, tmp_path):
    with mounted(tmp_path / "disk", "size=64k") as remount:
        target = tmp_path / "disk" / "features"
        with pytest.raises(ShardError, match=r"data/part-.*: cannot be written: No space left .* are free") as caught:
            featurized(source, target)
        assert caught.value.exit_code == 3
        assert_dataset_whole(target, committed=False)
        assert 0 < len(list((target / "data").iterdir())) < len(golden[0])
        remount("size=4m")
        featurized(source, target)
        assert dataset_state(target) == golden


@pytest.mark.fault("S-03")
def test_read_only_disk__is_refused_before_any_work(source, tmp_path, monkeypatch):
    with mounted(tmp_path / "disk", "size=1m") as remount:
        remount("ro")
        monkeypatch.setattr(dkfeat.LibsvmSource, "scan_split", lambda *_: sys.exit("scanned"))
        for target in (tmp_path / "disk", tmp_path / "disk" / "features"):
            with pytest.raises(CommitError) as caught:
                featurized(source, target)
            assert caught.value.exit_code == 3
            assert str(tmp_path / "disk") in str(caught.value)


@pytest.mark.slow
@pytest.mark.fault("S-03")
def test_forbidden_folder__is_refused_before_any_work(source, tmp_path):
    target = tmp_path / "features"
    target.mkdir(mode=0o555)
    done = as_a_plain_user(*command_line(source.urlpath, target))
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith(f"dkfeat: error: featurize: target {target} cannot be written")
    assert "Traceback" not in done.stderr
    assert list(target.iterdir()) == []


@pytest.mark.slow
@pytest.mark.fault("S-04")
def test_forbidden_source__is_named(tiny_folder, tmp_path):
    path = shutil.copy(tiny_folder / "a.svm", tmp_path / "a.svm")
    path.chmod(0)
    done = as_a_plain_user(*command_line([str(path)], tmp_path / "features"))
    assert done.returncode == 3, done.stderr
    assert f"{path} cannot be read: Permission denied" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "features").exists()


@pytest.mark.fault("S-04")
def test_source_that_fails_while_it_is_read__is_named_and_the_run_resumes_identical(
    source, golden, tmp_path, monkeypatch
):
    target, armed = tmp_path / "features", []

    class FailingRaw(io.FileIO):
        def readinto(self, buffer):
            if armed:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return super().readinto(buffer)

    def arm(state):
        if (state.stage, state.tasks) == ("featurize", 5):
            armed.append(True)

    class FailingFile(files.LocalFile, FailingRaw):
        pass

    monkeypatch.setattr(files, "LocalFile", FailingFile)
    with pytest.raises(SourceError, match=r"[ab]\.svm cannot be read: Stale file handle") as caught:
        featurized(source, target, scheduler="synchronous", progress=arm)
    monkeypatch.undo()
    assert caught.value.exit_code == 3
    assert_dataset_whole(target, committed=False)
    assert list((target / "data").iterdir())
    featurized(source, target)
    assert dataset_state(target) == golden


@pytest.mark.fault("S-17")
@pytest.mark.parametrize("scheduler", ["threads", pytest.param("cluster", marks=pytest.mark.cluster)])
def test_target_deleted_during_a_run__is_not_made_anew(source, tmp_path, scheduler, request):
    target = tmp_path / "features"

    def delete(state):
        if state.stage == "featurize" and state.tasks == 3:
            while target.exists():  # tasks add files meanwhile
                shutil.rmtree(target, ignore_errors=True)

    options = {"scheduler": scheduler, "n_workers": 2}
    if scheduler == "cluster":
        options = {"client": request.getfixturevalue("cluster_client")}
    with pytest.raises(DkfeatError) as caught:
        featurized(source, target, progress=delete, **options)
    assert caught.value.exit_code == 3
    assert not target.exists()


@pytest.mark.slow
@pytest.mark.fault("S-15")
@pytest.mark.parametrize(
    ("place", "scheduler"),
    [
        ("full", "threads"),
        pytest.param("full", "cluster", marks=[pytest.mark.cluster, pytest.mark.slow]),
        pytest.param("missing", "threads", marks=pytest.mark.slow),
        pytest.param("missing", "cluster", marks=[pytest.mark.cluster, pytest.mark.slow]),
    ],
)
def test_temporary_folder__is_not_needed(source, golden, tmp_path, scheduler, place):
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, "-m", "tests.engine.helpers", *source.urlpath, str(tmp_path / "features"), scheduler]

    def run():
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    if place == "missing":
        run()
    else:
        with mounted(tmp_path / "tmp", "size=4k"):
            (tmp_path / "tmp" / "full").write_bytes(bytes(4096))
            run()
    assert dataset_state(tmp_path / "features") == golden
