from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.errors import CommitConflictError, CommitError
from dkfeat.store.manifest.metadata import read_spec
from dkfeat.store.storage import base, open_storage
from tests.faults import kills
from tests.faults.kills import POINTS
from tests.invariants import assert_dataset_whole, dataset_state
from tests.programs import wait_for_first
from tests.store.tiny_job import TinyJob, write_sources

ROOT = Path(dkfeat.__file__).parent.parent
OFTEN = ("before_tmp", "mid_write", "after_tmp", "after_publish")
"""Points that every file passes; each run passes the others once."""
QUICK = ("mid_write",)
"""Points at which `make test` kills."""


def start(job, *options, **environment):
    command = [sys.executable, "-m", "tests.store.tiny_job", str(job.sources), str(job.target), *options]
    environment = {**os.environ, **environment}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """An undisturbed run, and how often it passes each kill point."""
    folder = tmp_path_factory.mktemp("golden")
    job = TinyJob(write_sources(folder / "in"), folder / "out")
    passes = dict.fromkeys(POINTS, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "passed", lambda point: passes.__setitem__(point, passes[point] + 1))
        job.run()
    return job, passes


def test_kill_points__every_one_is_passed(golden):
    _, passes = golden
    assert all(passes.values()), passes


@pytest.mark.slow
@pytest.mark.fault("P-01")
@pytest.mark.parametrize(
    ("point", "when"),
    [
        *(pytest.param(point, "first", marks=pytest.mark.quick) for point in QUICK),
        *((point, "first") for point in POINTS if point not in QUICK),
        *((point, when) for point in OFTEN for when in ("middle", "last")),
    ],
)
def test_crash__at_kill_point__resume_is_identical(golden, tmp_path, point, when):
    _, passes = golden
    assert (passes[point] > 1) == (point in OFTEN)
    count = {"first": 1, "middle": (passes[point] + 1) // 2, "last": passes[point]}[when]
    kill_and_resume(golden, tmp_path / "out", point, count)


def kill_and_resume(golden, target, point, count):
    done, _ = golden
    job = replace(done, target=target, transforms=[])
    child = start(job, DKFEAT_KILL_AT=f"{point}:{count}")
    child.communicate(timeout=240)
    assert child.returncode == -signal.SIGKILL
    assert_dataset_whole(job.target, finished=False)
    kept = len(list((job.target / "data").iterdir())) if (job.target / "data").exists() else 0
    job.run()
    assert dataset_state(job.target) == dataset_state(done.target)
    assert_dataset_whole(job.target, committed=True)
    assert len(job.transforms) == len(set(done.transforms)) - kept
    kills.SURVIVED[point] += 1


@pytest.mark.fault("P-01")
@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_crash__at_every_pass_of_a_kill_point__resume_is_identical(golden, tmp_path, point):
    _, passes = golden
    for count in range(1, passes[point] + 1):
        kill_and_resume(golden, tmp_path / str(count), point, count)


@pytest.mark.fault("P-01")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_crash__at_random_times__resume_is_identical(golden, tmp_path, seed):
    import random

    done, _ = golden
    clock = random.Random(seed)
    job = replace(done, target=tmp_path / "out", transforms=[])
    struck = 0
    for _ in range(6):
        child = start(job, "--pause", "0.02")
        time.sleep(clock.uniform(0.2, 1.5))
        child.kill()
        struck += child.wait(timeout=240) == -signal.SIGKILL
        child.communicate()
        assert_dataset_whole(job.target, finished=False)
    job.run()
    assert dataset_state(job.target) == dataset_state(done.target)
    assert_dataset_whole(job.target, committed=True)
    kills.SURVIVED[kills.RANDOM] += struck


@pytest.mark.fault("P-03")
def test_data_folder__never_holds_a_half_file(tmp_path):
    job = TinyJob(write_sources(tmp_path / "in", files=6), tmp_path / "out", pause=0.005)
    seen: set[str] = set()
    faults: list[str] = []
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            for path in (job.target / "data").glob("*"):
                seen.add(path.name)
                try:
                    pq.ParquetFile(path, page_checksum_verification=True).read()
                except Exception as fault:  # this test looks for any error
                    faults.append(f"{path}: {fault}")
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        manifest = job.run()
    finally:
        stop.set()
        watcher.join()
    assert faults == []
    assert len(seen) > len(manifest.shards) / 2
    assert all(name.endswith(".parquet") for name in seen)


@pytest.mark.fault("C-03")
def test_lock__holder_was_killed__is_taken_over(golden, tmp_path, caplog):
    done, _ = golden
    job = replace(done, target=tmp_path / "out", transforms=[])
    child = start(job, DKFEAT_KILL_AT="after_publish:5")
    child.communicate(timeout=240)
    assert (job.target / "_dkfeat" / "lock.json").exists()
    job.run()
    assert "taking over" in caplog.text
    assert f"pid {child.pid}" in caplog.text
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.slow
@pytest.mark.fault("C-01", "C-02")
@pytest.mark.parametrize(
    ("seed", "repeat"),
    [
        pytest.param("1", 0, marks=pytest.mark.quick),
        *((seed, repeat) for seed in "01" for repeat in range(10) if (seed, repeat) != ("1", 0)),
    ],
)
def test_two_writers__one_works_the_other_names_it(golden, tmp_path, seed, repeat):
    done, _ = golden
    job = replace(done, target=tmp_path / "out", transforms=[])
    barrier = tmp_path / "go"
    release = tmp_path / "release"
    options = ("--barrier", str(barrier), "--until", str(release))
    children = [start(job, *options), start(job, *options, "--seed", seed)][:: 1 if repeat % 2 else -1]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    barrier.touch()
    wait_for_first(children)
    release.touch()
    ends = {child.pid: (child.communicate(timeout=240)[1], child.returncode) for child in children}
    assert sorted(code for _, code in ends.values()) == [0, 4], ends
    [winner] = [pid for pid, (_, code) in ends.items() if code == 0]
    [complaint] = [text for text, code in ends.values() if code == 4]
    assert re.search(rf"being written by run [0-9a-f]{{32}} \(host .+, pid {winner}, since 20.+\)", complaint)
    assert_dataset_whole(job.target, committed=True)
    alone = replace(job, target=tmp_path / "alone", seed=read_spec(open_storage(job.target))["map"]["seed"])
    alone.run()
    assert dataset_state(job.target) == dataset_state(alone.target)


@pytest.mark.fault("C-01")
def test_two_runs_in_one_process__second_is_refused(golden, tmp_path):
    done, _ = golden
    job = replace(done, target=tmp_path / "out", transforms=[])
    from dkfeat.store.commit import begin as commit

    with (
        commit.begin(open_storage(job.target), job.spec, job.files(), job.splits()) as run,
        pytest.raises(CommitConflictError, match=run.id),
    ):
        job.run()
    job.run()
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("C-01")
def test_two_runs__the_holder_sweeps__second_is_still_a_conflict(golden, tmp_path, monkeypatch):
    done, _ = golden
    job = replace(done, target=tmp_path / "out", transforms=[])
    from dkfeat.store.commit import begin as commit

    with commit.begin(open_storage(job.target), job.spec, job.files(), job.splits()):
        holder = open_storage(job.target)
        monkeypatch.setattr(base, "passed", lambda point: point == "after_tmp" and holder.sweep())
        with pytest.raises(CommitConflictError, match="is being written"):
            job.run()


@pytest.mark.fault("S-02")
def test_probe__fails__frees_the_target(golden, tmp_path, monkeypatch):
    done, _ = golden
    job = replace(done, target=tmp_path / "out", transforms=[])

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


@pytest.mark.slow
@pytest.mark.fault("C-03")
def test_lock__worker_forked_by_a_killed_run__does_not_keep_it(golden, tmp_path):
    done, _ = golden
    job = replace(done, target=tmp_path / "out", transforms=[])
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from tests.store.tiny_job import TinyJob\n"
        "from dkfeat.store import storage\n"
        "from dkfeat.store.commit.begin import begin\n"
        f"job = TinyJob(Path({str(job.sources)!r}), Path({str(job.target)!r}))\n"
        "run = begin(storage.open_storage(job.target), job.spec, job.files(), job.splits())\n"
        "worker = os.fork()\n"
        "if worker == 0:\n"
        "    time.sleep(300)\n"
        "    os._exit(0)\n"
        "print(worker, flush=True)\n"
        "time.sleep(0.2)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    worker = int(child.stdout.readline())
    try:
        child.wait(timeout=240)
        job.run()
        assert_dataset_whole(job.target, committed=True)
    finally:
        os.kill(worker, signal.SIGKILL)
        child.stdout.close()


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
def test_full_disk__names_the_shard_and_the_room(tmp_path):
    job = TinyJob(write_sources(tmp_path / "in", files=1), tmp_path / "out")
    child = subprocess.run(
        [sys.executable, "-c", LIMITED, str(job.sources), str(job.target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert child.returncode == 3, child.stderr
    assert "part-000000-0000-" in child.stderr
    assert "are free" in child.stderr
    assert "Traceback" not in child.stderr
    assert list((job.target / "data").iterdir()) == []
    assert_dataset_whole(job.target, committed=False)
    job.run()
    assert_dataset_whole(job.target, committed=True)
    undisturbed = replace(job, target=tmp_path / "undisturbed")
    undisturbed.run()
    assert dataset_state(job.target) == dataset_state(undisturbed.target)


@pytest.mark.slow
@pytest.mark.fault("S-16")
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_order_of_system_calls__as_the_kernel_sees_it(tmp_path):
    job = TinyJob(write_sources(tmp_path / "in", files=1), tmp_path / "out")
    command = ["strace", "-f", "-y", "-o", str(tmp_path / "calls"), "-e", "trace=fsync,linkat,unlinkat"]
    child = [sys.executable, "-m", "tests.store.tiny_job", str(job.sources), str(job.target)]
    done = subprocess.run([*command, *child], cwd=ROOT, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        pytest.skip("tracing is not allowed here")
    assert done.returncode == 0, done.stderr
    calls = re.findall(
        r"(fsync|unlinkat|linkat)\(\d+<([^>]*)>(?:, \"([^\"]*)\"(?:, \d+<([^>]*)>, \"([^\"]*)\")?)?.* = 0$",
        (tmp_path / "calls").read_text(),
        re.MULTILINE,
    )
    linked = [
        place for place, call in enumerate(calls) if call[0] == "linkat" and not call[4].startswith(("probe-", "lock."))
    ]
    for place in linked:
        _, tmp, temporary, folder, name = calls[place]
        assert calls[place - 1][:2] == ("fsync", f"{tmp}/{temporary}"), name
        assert calls[place + 1][:3] == ("unlinkat", tmp, temporary)
        assert calls[place + 2][:2] == ("fsync", folder)
    names = [calls[place][4] for place in linked]
    shards = {path.name for path in (job.target / "data").iterdir()}
    assert names[:2] == ["spec.json", "plan-000001.json"]
    assert set(names[2:-3]) == shards
    assert names[-3].startswith("records-")
    assert names[-2:] == ["manifest-000001.json", "_SUCCESS"]
