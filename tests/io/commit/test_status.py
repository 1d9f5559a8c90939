"""Status tells what is there, and disturbs nobody."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

import dkfeat
from dkfeat.errors import ShardError
from dkfeat.io.commit import begin as commit
from dkfeat.io.storage import open_storage
from tests.io.commit.test_maintenance import die_in_run
from tests.io.tiny_job import TinyJob, write_sources


@pytest.fixture
def job(tmp_path):
    return TinyJob(write_sources(tmp_path / "in"), tmp_path / "out")


def test_status__complete(job):
    manifest = job.run()
    found = dkfeat.status(job.target)
    assert found.state == "complete"
    assert found.marked
    assert (found.holder, found.unfinished, found.missing, found.unlisted) == (None, None, (), ())
    assert found.committed.rows == manifest.rows == 48
    assert found.committed.shards == len(manifest.shards)
    assert found.committed.size == sum(entry.size for entry in manifest.shards)
    assert (found.committed.number, found.committed.sources) == (1, 2)
    assert (found.committed.run_id, found.committed.at) == (manifest.run["id"], manifest.run["ended"])


def test_status__while_a_run_holds_it(job):
    with commit.begin(open_storage(job.target), job.spec, job.files(), job.splits()) as run:
        first = run.splits[0]
        list(job.run_split(open_storage(job.target), run, first))
        found = dkfeat.status(job.target)
    assert found.state == "running"
    assert (found.holder.run_id, found.holder.alive) == (run.id, True)
    assert found.committed is None
    assert found.unfinished.number == 1
    assert found.unfinished.sources == ("day0.txt", "day1.txt")
    assert (found.unfinished.splits_done, found.unfinished.splits_left) == (1, len(run.splits) - 1)
    assert len(found.unfinished.shards) == 2
    assert dkfeat.status(job.target).state == "unfinished"


def test_status__after_a_kill(job):
    die_in_run(job, "after_publish:5")  # the probe, the spec, the plan, and both shards of the first split
    found = dkfeat.status(job.target)
    assert found.state == "unfinished"
    assert found.holder.alive is False
    assert (found.unfinished.splits_done, len(found.unfinished.shards)) == (1, 2)
    job.run()
    assert dkfeat.status(job.target).state == "complete"


def test_status__a_split_with_one_of_two_shards_is_not_done(job):
    with commit.begin(open_storage(job.target), job.spec, job.files(), job.splits()) as run:
        next(job.run_split(open_storage(job.target), run, run.splits[0]))
    assert dkfeat.status(job.target).unfinished.splits_done == 0
    shard = next((job.target / "data").iterdir())
    shard.write_bytes(b"cut")
    assert dkfeat.status(job.target).unfinished.splits_done == 0


@pytest.mark.slow
def test_status__killed_before_the_mark(job):
    die_in_run(job, "after_manifest:1")
    found = dkfeat.status(job.target)
    assert (found.state, found.marked, found.unfinished) == ("unfinished", False, None)


def test_status__lost_and_foreign_files(job):
    manifest = job.run()
    (job.target / "data" / manifest.shards[0].name).unlink()
    (job.target / "data" / "notes.txt").write_text("mine")
    found = dkfeat.status(job.target)
    assert found.state == "damaged"
    assert found.missing == (manifest.shards[0].name,)
    assert found.unlisted == ("notes.txt",)


def test_status__empty(job):
    open_storage(job.target).prepare()
    assert dkfeat.status(job.target).state == "empty"


def test_status__of_what_is_no_data_set(tmp_path):
    for target in (tmp_path / "none", tmp_path):
        with pytest.raises(ShardError, match="no data set"):
            dkfeat.status(target)
    assert list(tmp_path.iterdir()) == []


def test_status__lock_of_another_host_is_not_known_to_live(job):
    job.run()
    lock = {"run_id": "\x1b[31m", "host": "elsewhere", "pid": "x", "since": None}
    (job.target / "_dkfeat" / "lock.json").write_text(json.dumps(lock))
    found = dkfeat.status(job.target)
    assert found.state == "running"
    assert (found.holder.host, found.holder.pid, found.holder.alive) == ("elsewhere", None, None)
    assert "\x1b" not in found.holder.run_id
    assert open_storage(job.target).holder() == found.holder


def test_status__is_plain_json(job):
    die_in_run(job, "after_publish:5")
    values = json.loads(json.dumps(dkfeat.status(job.target).to_mapping()))
    assert values["state"] == "unfinished"
    assert values["unfinished"]["splits_left"] == values["unfinished"]["splits"] - 1
    assert values["holder"]["alive"] is False


@pytest.mark.slow
@pytest.mark.fault("C-06")
def test_status__asked_all_the_time_does_not_look_like_a_writer(job):
    job.run()
    stop, states, faults = threading.Event(), set(), []

    def ask():
        while not stop.is_set():
            try:
                states.add(dkfeat.status(job.target).state)
            except Exception as fault:  # any fault at all is what this test looks for
                faults.append(fault)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        for first in range(2, 10):
            write_sources(job.sources, files=1, first=first)
            replace(job, transforms=[]).run()
    finally:
        stop.set()
        for thread in asking:
            thread.join()
    assert faults == []
    assert states <= {"running", "unfinished", "complete"}
    assert "complete" in states
