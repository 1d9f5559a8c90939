"""The commit protocol of the smallest job: killed at each step, raced for, on a full disk."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from dataclasses import replace

import pytest

from dkfeat.errors import CommitConflictError, CommitError
from dkfeat.store.commit import begin as commit
from dkfeat.store.manifest.metadata import read_spec
from dkfeat.store.storage import base, open_storage
from tests import programs
from tests.faults.kills import POINTS
from tests.invariants import assert_dataset_whole, dataset_state
from tests.store.tiny_job import TinyJob, write_sources

OFTEN = ("before_tmp", "mid_write", "after_tmp", "after_publish")
"""Points that every file passes; each run passes the others once."""


def words(job, *options):
    return programs.module("tests.store.tiny_job", job.sources, job.target, *options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """An undisturbed run, and how often it passes each kill point."""
    folder = tmp_path_factory.mktemp("undisturbed")
    job = TinyJob(write_sources(folder / "in"), folder / "out")
    passes = dict.fromkeys(POINTS, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "passed", lambda point: passes.__setitem__(point, passes[point] + 1))
        job.run()
    return job, passes


@pytest.fixture
def job(undisturbed, tmp_path):
    """The job with a target of its own."""
    return replace(undisturbed[0], target=tmp_path / "out", transforms=[])


@pytest.mark.fault("P-01")
def test_kill_points__every_one_is_passed(undisturbed):
    assert all(undisturbed[1].values()), undisturbed[1]


@pytest.mark.slow
@pytest.mark.fault("P-01", "C-03")
@pytest.mark.parametrize(
    ("point", "when"),
    [
        pytest.param("after_publish", "middle", marks=pytest.mark.quick),
        *((point, "first") for point in POINTS),
        *(
            (point, when)
            for point in OFTEN
            for when in ("middle", "last")
            if (point, when) != ("after_publish", "middle")
        ),
    ],
)
def test_crash__at_kill_point__resume_is_identical(undisturbed, job, caplog, point, when):
    done, passes = undisturbed
    assert (passes[point] > 1) == (point in OFTEN)
    count = {"first": 1, "middle": (passes[point] + 1) // 2, "last": passes[point]}[when]
    programs.run_killed(f"{point}:{count}", words(job))
    assert_dataset_whole(job.target, finished=False)
    is_locked = (job.target / "_dkfeat" / "lock.json").exists()
    kept = len(list(job.target.glob("data/*")))
    job.run()
    assert is_locked == ("taking over" in caplog.text)
    assert dataset_state(job.target) == dataset_state(done.target)
    assert_dataset_whole(job.target, committed=True)
    assert len(job.transforms) == len(set(done.transforms)) - kept


@pytest.mark.fault("P-01")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_crash__at_random_times__resume_is_identical(undisturbed, job, seed):
    clock = random.Random(seed)
    for _ in range(6):
        child = programs.start(words(job, "--pause", "0.02"))
        time.sleep(clock.uniform(0.2, 1.5))
        child.kill()
        programs.end(child)
        assert_dataset_whole(job.target, finished=False)
    job.run()
    assert dataset_state(job.target) == dataset_state(undisturbed[0].target)
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.slow
@pytest.mark.fault("C-01", "C-02")
@pytest.mark.parametrize("seed", [pytest.param("1", marks=pytest.mark.quick), "0"])
def test_two_writers__one_works_the_other_names_it(job, tmp_path, seed):
    barrier, release = tmp_path / "go", tmp_path / "release"
    options = ("--barrier", barrier, "--until", release)
    children = [programs.start(words(job, *options, *more)) for more in ((), ("--seed", seed))]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    barrier.touch()
    programs.wait_for_first(children)
    release.touch()
    ends = {child.pid: programs.end(child) for child in children}
    assert sorted(ended.status for ended in ends.values()) == [0, 4], ends
    [winner] = [pid for pid, ended in ends.items() if ended.status == 0]
    [complaint] = [ended.err for ended in ends.values() if ended.status == 4]
    assert re.search(rf"being written by run [0-9a-f]{{32}} \(host .+, pid {winner}, since 20.+\)", complaint)
    assert_dataset_whole(job.target, committed=True)
    alone = replace(job, target=tmp_path / "alone", seed=read_spec(open_storage(job.target))["map"]["seed"])
    alone.run()
    assert dataset_state(job.target) == dataset_state(alone.target)


@pytest.mark.fault("C-01")
def test_two_runs_in_one_process__second_is_refused_even_while_the_holder_sweeps(job, monkeypatch):
    with commit.begin(open_storage(job.target), job.spec, job.files(), job.splits()) as run:
        with pytest.raises(CommitConflictError, match=run.id):
            job.run()
        holder = open_storage(job.target)
        with monkeypatch.context() as patch:
            patch.setattr(base, "passed", lambda point: point == "after_tmp" and holder.sweep())
            with pytest.raises(CommitConflictError, match="is being written"):
                job.run()
    job.run()
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("S-02")
def test_probe__fails__frees_the_target(job, monkeypatch):
    written = []

    def full(point):
        if point == "mid_write":
            written.append(point)
            if len(written) > 1:  # the first file is the lock
                raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(base, "passed", full)
        with pytest.raises(CommitError, match="cannot create files here: No space left") as fault:
            job.run()
    assert fault.value.exit_code == 3
    job.run()
    assert_dataset_whole(job.target, committed=True)


FORKED = """
import os, sys, time
from pathlib import Path
from dkfeat.store.commit.begin import begin
from dkfeat.store.storage import open_storage
from tests.store.tiny_job import TinyJob
job = TinyJob(Path(sys.argv[1]), Path(sys.argv[2]))
run = begin(open_storage(job.target), job.spec, job.files(), job.splits())
worker = os.fork()
if worker == 0:
    os.close(1)
    os.close(2)
    time.sleep(300)
    os._exit(0)
print(worker, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.fault("C-03")
def test_lock__worker_forked_by_a_killed_run__does_not_keep_it(job):
    ended = programs.run([sys.executable, "-c", FORKED, str(job.sources), str(job.target)])
    assert ended.status == -signal.SIGKILL, ended.err
    try:
        job.run()
        assert_dataset_whole(job.target, committed=True)
    finally:
        os.kill(int(ended.out), signal.SIGKILL)


LIMITED = """
import resource, sys
from tests.store import tiny_job
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (900, limits[1]))
status = tiny_job.main()
resource.setrlimit(resource.RLIMIT_FSIZE, limits)  # what measures coverage writes at the end
sys.exit(status)
"""


@pytest.mark.fault("S-02")
def test_full_disk__names_the_shard_and_the_room(undisturbed, job):
    ended = programs.run([sys.executable, "-c", LIMITED, str(job.sources), str(job.target)])
    assert ended.status == 3, ended.err
    assert "part-000000-0000-" in ended.err
    assert "are free" in ended.err
    assert "Traceback" not in ended.err
    assert list((job.target / "data").iterdir()) == []
    assert_dataset_whole(job.target, committed=False)
    job.run()
    assert_dataset_whole(job.target, committed=True)
    assert dataset_state(job.target) == dataset_state(undisturbed[0].target)
