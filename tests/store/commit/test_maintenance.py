"""Batches are aborted and leftovers deleted: under the lock, in an order that survives a kill, by name alone."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import dkfeat
from dkfeat.errors import CommitError, ShardError, TargetBusyError
from dkfeat.store.commit import maintenance
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import LOCK
from tests.faults.kills import ABORT_POINTS
from tests.invariants import assert_dataset_whole, dataset_state, listed_in
from tests.programs import module, run_killed
from tests.store.tiny_job import TinyJob, write_sources

STRAY = "part-000000-0000-0123456789ab.parquet"
HEX = f"{7:032x}"


def die_in_run(job: TinyJob, at: str) -> None:
    run_killed(at, module("tests.store.tiny_job", job.sources, job.target))


def die_in_abort(job: TinyJob, at: str) -> None:
    program = f"from dkfeat.store.commit.maintenance import abort; abort({str(job.target)!r})"
    run_killed(at, [sys.executable, "-c", program])


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A data set of one batch and its state; then killed in a second one, which left shards."""
    folder = tmp_path_factory.mktemp("interrupted")
    job = TinyJob(write_sources(folder / "in"), folder / "out")
    job.run()
    first = dataset_state(job.target)
    write_sources(job.sources, files=1, first=2)
    die_in_run(job, "after_publish:5")
    assert len(list((job.target / "data").iterdir())) > len(first[0])
    return job, first


@pytest.fixture
def job(interrupted, tmp_path):
    """A copy of the interrupted data set, to be spoilt."""
    done, _ = interrupted
    shutil.copytree(done.sources, tmp_path / "in")
    shutil.copytree(done.target, tmp_path / "out")
    return replace(done, sources=tmp_path / "in", target=tmp_path / "out", transforms=[])


@pytest.fixture(scope="module")
def finished(interrupted, tmp_path_factory):
    """What the interrupted batch gives when it is finished."""
    done, _ = interrupted
    folder = tmp_path_factory.mktemp("finished")
    job = TinyJob(shutil.copytree(done.sources, folder / "in"), shutil.copytree(done.target, folder / "out"))
    job.run()
    return dataset_state(job.target)


@pytest.mark.fault("S-06")
def test_plan_of_an_unfinished_batch__is_cut__the_error_says_how_to_continue(job, finished):
    plan = job.target / "_dkfeat" / "plan-000002.json"
    text = plan.read_bytes()
    others = json.loads(text)
    others["splits"].reverse()
    for damaged in (text[:-9], json.dumps(others).encode()):
        plan.write_bytes(damaged)
        for act in (job.run, partial(maintenance.abort, job.target)):
            with pytest.raises(ShardError, match=r"plan-000002\.json.*delete this file and run again"):
                act()
    plan.unlink()  # as the message says
    job.run()
    assert dataset_state(job.target) == finished


def test_abort__dry_run_changes_nothing(job):
    before = {path: path.stat().st_mtime_ns for path in job.target.rglob("*") if path.is_file()}
    told = maintenance.abort(job.target, dry_run=True)
    del before[job.target / "_dkfeat" / "lock.json"]  # of the killed run, whose lock was taken and given back
    assert {path: path.stat().st_mtime_ns for path in job.target.rglob("*") if path.is_file()} == before
    assert (told.number, told.removed[-1]) == (2, "_dkfeat/plan-000002.json")
    assert maintenance.abort(job.target) == told
    assert maintenance.abort(job.target) == maintenance.Aborted(number=None, removed=())


@pytest.mark.slow
@pytest.mark.fault("P-01")
@pytest.mark.parametrize(
    "at", [pytest.param("abort_before_shard:1", marks=pytest.mark.quick), "abort_before_shard:2", *ABORT_POINTS[1:]]
)
@pytest.mark.parametrize("then", ["abort", "resume"])
def test_abort__killed_at_every_step(job, interrupted, finished, at, then):
    die_in_abort(job, at if ":" in at else f"{at}:1")
    assert_dataset_whole(job.target, finished=False)
    if then == "abort":
        maintenance.abort(job.target)
        assert dataset_state(job.target) == interrupted[1]
        assert_dataset_whole(job.target, committed=True)
    job.run()
    assert dataset_state(job.target) == finished
    assert_dataset_whole(job.target, committed=True)


def test_abort__deletes_shards_of_the_plan_alone(job):
    stray = job.target / "data" / "part-000005-0000-0123456789ab.parquet"  # of other settings, by its hash
    stray.write_bytes(b"stray")
    (job.target / "data" / "notes.txt").write_text("mine")
    removed = maintenance.abort(job.target).removed
    assert stray.exists()
    assert (job.target / "data" / "notes.txt").exists()
    assert f"data/{stray.name}" not in removed


def test_abort__a_missing_committed_shard_is_left_to_the_next_run(job):
    entry = listed_in(job.target)["shards"][0]
    (job.target / "data" / entry["name"]).unlink()
    maintenance.abort(job.target)
    assert not (job.target / "_SUCCESS").exists()
    job.run()
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("C-01")
@pytest.mark.parametrize("act", [maintenance.abort, maintenance.clean])
def test_maintenance__a_run_holds_the_target(job, act):
    with job.begin() as run, pytest.raises(TargetBusyError, match=run.id):
        act(job.target)
    job.run()
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.parametrize("act", [maintenance.abort, maintenance.clean])
@pytest.mark.parametrize("folder", ["none", "empty", "foreign"])
def test_maintenance__of_what_is_no_data_set_makes_nothing(tmp_path, act, folder):
    if folder != "none":
        (tmp_path / folder).mkdir()
    if folder == "foreign":
        (tmp_path / folder / "data").mkdir()
        (tmp_path / folder / "data" / STRAY).write_bytes(b"mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ShardError, match=r"not a data set|no such folder"):
        act(tmp_path / folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_break_lock__of_a_free_target_does_nothing(tmp_path):
    assert not maintenance.break_lock(tmp_path / "none", "7f3a")
    assert not (tmp_path / "none").exists()


def test_break_lock__spares_a_live_run(job):
    storage = open_storage(job.target)
    holder = {"run_id": "7f3a", "host": "elsewhere", "pid": 1, "since": "2026-01-31T12:00:00+00:00"}
    lock = storage.acquire(holder)
    with pytest.raises(TargetBusyError, match="being written"):
        maintenance.break_lock(job.target, "7f3a")
    lock.release()


@pytest.mark.fault("X-03", "X-02")
def test_clean__deletes_dkfeats_own_files_alone(job, tmp_path):
    data, meta = job.target / "data", job.target / "_dkfeat"
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(b"precious")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "leaf").write_text("precious")
    ours = [data / STRAY, meta / "tmp" / f"{STRAY}.{HEX}.tmp", meta / f"probe-{HEX}"]
    aside = meta / "set-aside" / f"{STRAY}.{HEX}"
    link = data / "part-000001-0000-0123456789ab.parquet"
    folder_link = data / "part-000002-0000-0123456789ab.parquet"
    folder = data / "part-000003-0000-0123456789ab.parquet"
    foreign = [
        data / "part-1.parquet",
        data / "notes.txt",
        meta / "tmp" / "mine.tmp",
        meta / "set-aside" / "mine",
        meta / "probe-me",
        meta / f"landmarks-{7:064x}.npz",
    ]
    for path in (*ours, aside, *foreign):
        path.write_bytes(b"x")
    link.symlink_to(outside)
    folder_link.symlink_to(tmp_path / "tree")
    folder.mkdir()
    tmp_link = meta / "tmp" / f"{STRAY}.{8:032x}.tmp"
    tmp_link.symlink_to(outside)
    before = set(job.target.rglob("*"))
    kept = dataset_kept(job)
    told = maintenance.clean(job.target, dry_run=True)
    assert set(job.target.rglob("*")) | {meta / "lock.json"} == before
    cleaned = maintenance.clean(job.target)
    assert cleaned == told
    expected = {f"data/{STRAY}", f"_dkfeat/tmp/{STRAY}.{HEX}.tmp", f"_dkfeat/probe-{HEX}"}
    expected |= {name for name in cleaned.removed if name.startswith("_dkfeat/tmp/part-00000")}  # of the killed run
    assert set(cleaned.removed) == expected
    assert {Path(name).name for name in cleaned.refused} == {
        *(path.name for path in (link, folder_link, folder, tmp_link)),
        "part-1.parquet",
        "notes.txt",
    }
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in (aside, link, folder_link, folder, *foreign))
    assert maintenance.clean(job.target, set_aside=True).removed == (f"_dkfeat/set-aside/{STRAY}.{HEX}",)
    assert outside.read_bytes() == b"precious"
    assert (tmp_path / "tree" / "leaf").exists()
    assert dataset_kept(job) == kept


def dataset_kept(job: TinyJob) -> set[str]:
    """Names of the shards that the manifest lists or the plan left."""
    found = dkfeat.status(job.target)
    return {entry["name"] for entry in listed_in(job.target)["shards"]} | set(found.unfinished.shards)


def test_clean__keeps_what_an_interrupted_batch_left(job, finished):
    kept = len(list((job.target / "data").iterdir()))
    maintenance.clean(job.target)
    assert len(list((job.target / "data").iterdir())) == kept
    job.run()
    assert dataset_state(job.target) == finished


def test_clean__a_zombies_shard_after_an_abort(job, interrupted):
    zombie = next(name for name in maintenance.abort(job.target, dry_run=True).removed if name.startswith("data/"))
    text = (job.target / zombie).read_bytes()
    maintenance.abort(job.target)
    (job.target / zombie).write_bytes(text)  # a task of the killed run that went on elsewhere
    assert dkfeat.status(job.target).unlisted == (Path(zombie).name,)
    assert maintenance.clean(job.target).removed == (zombie,)
    assert dataset_state(job.target) == interrupted[1]
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.parametrize("act", [maintenance.abort, maintenance.clean])
def test_maintenance__storage_refuses__says_how_to_continue(job, act, monkeypatch):
    (job.target / "data" / STRAY).write_bytes(b"x")

    remove = type(open_storage(job.target)).remove

    def refuse(self, name, **options):
        if name == LOCK:
            return remove(self, name, **options)
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(type(open_storage(job.target)), "remove", refuse)
    with pytest.raises(CommitError, match=r"out cannot be changed; correct the .*: Permission denied") as fault:
        act(job.target)
    assert fault.value.exit_code == 3
