"""Disks that are full, read-only, forbidden or lost during a run: status 3, and the next run finishes the work."""

from __future__ import annotations

import errno
import io
import os
import shutil

import pytest

from dkfeat.errors import DkfeatError, SourceError
from dkfeat.sources import contents as files
from tests import programs
from tests.engine.helpers import featurized
from tests.faults.resumed import assert_resumes


def as_a_plain_user(*command):
    """Run a command that obeys the modes of files, even if root runs the tests."""
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read and write everything, and setpriv, which can prevent that, is missing")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    return programs.run(list(command))


@pytest.mark.slow
@pytest.mark.fault("S-03")
def test_forbidden_folder__is_refused_before_any_work(source, tmp_path):
    target = tmp_path / "features"
    target.mkdir(mode=0o555)
    done = as_a_plain_user(*programs.command("featurize", *source.urlpath, "--out", target))
    assert done.status == 3, done.err
    assert done.err.startswith(f"dkfeat: error: featurize: target {target} cannot be written")
    assert "Traceback" not in done.err
    assert list(target.iterdir()) == []


@pytest.mark.slow
@pytest.mark.fault("S-04")
def test_forbidden_source__is_named(tiny_folder, tmp_path):
    path = shutil.copy(tiny_folder / "a.svm", tmp_path / "a.svm")
    path.chmod(0)
    done = as_a_plain_user(*programs.command("featurize", path, "--out", tmp_path / "features"))
    assert done.status == 3, done.err
    assert f"{path} cannot be read: Permission denied" in done.err
    assert "Traceback" not in done.err
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
    assert assert_resumes(source, target, golden) > 0


@pytest.mark.fault("S-17")
@pytest.mark.parametrize("scheduler", ["threads", pytest.param("cluster", marks=pytest.mark.cluster)])
def test_target_deleted_during_a_run__is_not_made_anew(source, tmp_path, scheduler, request):
    target = tmp_path / "features"

    def delete(state):
        if state.stage == "featurize" and state.tasks == 3:
            shutil.rmtree(target.rename(tmp_path / "removed"))  # all at once: half a target has lost its lock first

    options = {"scheduler": scheduler, "n_workers": 2}
    if scheduler == "cluster":
        options = {"client": request.getfixturevalue("cluster_client")}
    with pytest.raises(DkfeatError) as caught:
        featurized(source, target, progress=delete, **options)
    assert caught.value.exit_code == 3
    assert not target.exists()
