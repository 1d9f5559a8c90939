from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from dkfeat.blocks import RowBlock
from dkfeat.errors import CommitConflictError, CommitError, ConfigError, ShardError, SpecConflictError
from dkfeat.store.commit import batch
from dkfeat.store.commit import begin as commit
from dkfeat.store.commit import publish as publishing
from dkfeat.store.commit.maintenance import abort, clean
from dkfeat.store.commit.publish import existing_entry, publish
from dkfeat.store.commit.run_log import LogWriter
from dkfeat.store.commit.status import status
from dkfeat.store.manifest import metadata
from dkfeat.store.shards import codec as shards
from dkfeat.store.shards import reader
from dkfeat.store.storage import base, open_storage
from dkfeat.store.storage.base import LOCK
from dkfeat.store.storage.local import LocalStorage
from tests.invariants import assert_dataset_whole, dataset_state, verified
from tests.store.tiny_job import TinyJob, features, identity, write_sources


def test_run__commits_a_whole_data_set(job):
    manifest = job.run()
    assert_dataset_whole(job.target, committed=True)
    assert manifest.rows == 48
    assert manifest.n_empty_rows == 6
    assert [source.rows for source in manifest.sources] == [24, 24]
    assert reader.read_manifest(open_storage(job.target)) == manifest
    assert reader.read_spec(open_storage(job.target)) == job.spec


def test_run__layout_is_as_documented(job):
    job.run()
    meta = job.target / "_dkfeat"
    assert sorted(path.name for path in job.target.iterdir()) == ["_SUCCESS", "_dkfeat", "data"]
    files = sorted(path.name for path in meta.iterdir() if path.is_file())
    assert [re.sub("[0-9a-f]{64}", "<hash>", name) for name in files] == [
        "manifest-000001.json",
        "plan-000001.json",
        "records-000001-<hash>.parquet",
        "spec.json",
    ]


@pytest.mark.fault("C-09")
def test_run__twice_does_nothing_the_second_time(job):
    def stamps():
        return {path: path.stat().st_mtime_ns for path in job.target.rglob("*") if path.is_file()}

    first = job.run()
    before = dataset_state(job.target), stamps()
    done = len(job.transforms)
    assert job.run() == job.run() == first
    assert len(job.transforms) == done
    assert (dataset_state(job.target), stamps()) == before
    assert_dataset_whole(job.target, committed=True)


def test_run_block__names_run_host_times_versions(job):
    first = job.run().run
    assert set(first) == {"id", "host", "started", "ended", "versions", "numeric_env", "source_root"}
    assert len(first["id"]) == 32
    assert first["started"] <= first["ended"]
    assert first["versions"] == shards.versions()


def test_begin__source_touched__tells_how_to_give_it_its_time_back(job):
    job.run()
    source = job.sources / "day0.txt"
    os.utime(source, ns=(0, source.stat().st_mtime_ns + 1_000_000_007))
    with pytest.raises(SpecConflictError, match=r"'day0\.txt' changed since .*restore it .*verify --inputs") as caught:
        job.run()
    (when,) = re.findall(r"`touch -d (@[0-9.]+)`", str(caught.value))
    subprocess.run(["touch", "-d", when, source], check=True)
    assert job.run().number == 1


def test_begin__more_splits_than_names_in_order__warns_once(job, monkeypatch, caplog):
    monkeypatch.setattr(commit, "FIRST_OUT_OF_ORDER", 4)
    job.run()
    assert len(job.splits()) == 4
    assert "order" not in caplog.text
    for number in (2, 3):
        write_sources(job.sources, files=1, lines=4, first=number)
        job.run()
    (warning,) = (message for message in caplog.messages if "order" in message)
    assert "from split 4 on, the names of shards have another order than the rows" in warning


@pytest.mark.fault("S-06")
@pytest.mark.parametrize("edited", ["_SUCCESS", "_dkfeat/manifest-000001.json"])
def test_writers__success_does_not_vouch_for_the_manifest__is_an_error(job, edited):
    job.run()
    path = job.target / edited
    former, latter = {"_SUCCESS": (r'"sha256":"[0-9a-f]{4}', '"sha256":"0000')}.get(edited, (r'"plain"', '"plane"'))
    text, n_changes = re.subn(former, latter, path.read_text())
    assert n_changes == 1
    path.write_text(text)
    before = dataset_state(job.target)
    storage = open_storage(job.target)
    calls = (
        job.run,
        partial(reader.read_manifest, storage),
        *(partial(act, storage) for act in (abort, clean, status)),
    )
    for call in calls:
        with pytest.raises(ShardError, match=r"_SUCCESS names manifest-000001\.json with SHA-256 .* restore it"):
            call()
    assert dataset_state(job.target) == before


def test_begin__success_names_an_earlier_manifest__rewrites_it(job, caplog):
    """A run that lost the target to another run may have written it."""
    job.run()
    first = (job.target / "_SUCCESS").read_bytes()
    write_sources(job.sources, files=2, first=4)
    job.run()
    (job.target / "_SUCCESS").write_bytes(first)
    with pytest.raises(
        ShardError, match=r"names manifest-000001\.json .* newest is manifest-000002\.json .* repeat the run"
    ):
        reader.read_manifest(open_storage(job.target))
    assert status(open_storage(job.target)).state == "unfinished"
    job.run()
    assert "rewriting" in caplog.text
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("V-01")
def test_begin__another_spec__names_every_difference(job):
    job.run()
    before = dataset_state(job.target)
    with pytest.raises(SpecConflictError, match=r"map\.seed: 0 there, 7 asked") as fault:
        replace(job, seed=7).run()
    assert fault.value.exit_code == 4
    assert dataset_state(job.target) == before
    assert_dataset_whole(job.target, committed=True)


def test_begin__spec_too_long_to_be_read_again__is_refused_before_anything_is_made(job):
    storage = open_storage(job.target)
    spec = {**job.spec, "map": {"map": "tiny", "center": "0" * (1 << 24)}}
    with pytest.raises(ConfigError, match=r"at most 16,777,216 are allowed; .*fewer digits"):
        commit.begin(storage, spec, job.files(), job.splits())
    assert not job.target.exists()


def test_differences__lists_added_and_removed_keys():
    lines = metadata.differences({"a": {"x": 1, "y": 2.0}, "b": [1]}, {"a": {"x": 1.0, "z": None}, "b": [1]})
    assert lines == ["a.x: 1 there, 1.0 asked", "a.y: 2.0 there, nothing asked", "a.z: nothing there, null asked"]


@pytest.mark.fault("V-03", "V-04", "V-05")
@pytest.mark.parametrize("change", ["edited", "touched", "removed", "renamed"])
@pytest.mark.parametrize("moment", ["half-way", "committed"])
def test_begin__source_changed__is_a_conflict(job, change, moment):
    job.run() if moment == "committed" else job.stage(1)
    source = job.sources / "day1.txt"
    if change == "edited":
        source.write_text(source.read_text() + "more\n")
    elif change == "touched":
        os.utime(source, ns=(1, 1))
    elif change == "removed":
        source.unlink()
    else:
        source.rename(job.sources / "day9.txt")
    before = dataset_state(job.target)
    with pytest.raises(SpecConflictError, match=r"day1\.txt"):
        job.run()
    assert dataset_state(job.target) == before
    assert_dataset_whole(job.target)


@pytest.mark.fault("V-04")
def test_begin__new_source_after_an_interrupted_plan__waits_for_the_next_batch(job):
    job.stage(1)
    write_sources(job.sources, files=1, first=5)
    first = job.run()
    assert [source.name for source in first.sources] == ["day0.txt", "day1.txt"]
    second = job.run()
    assert [source.name for source in second.sources] == ["day0.txt", "day1.txt", "day5.txt"]
    assert_dataset_whole(job.target, committed=True)


def test_begin__sources_without_rows__are_listed(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "empty.txt").touch()
    job = TinyJob(tmp_path / "in", tmp_path / "out")
    manifest = job.run()
    assert (manifest.shards, manifest.rows, manifest.sources[0].rows) == ((), 0, 0)
    assert job.run() == manifest
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("S-05")
@pytest.mark.parametrize("damage", ["gone", "cut", "emptied"])
def test_begin__committed_shard_is_damaged__exactly_that_one_is_made_again(job, damage, caplog):
    job.run()
    write_sources(job.sources, files=1, first=4)
    manifest = job.run()
    before = dataset_state(job.target)
    done = len(job.transforms)
    for entry in (manifest.shards[2], manifest.shards[-1]):
        path = job.target / "data" / entry.name
        path.unlink() if damage == "gone" else os.truncate(path, 0 if damage == "emptied" else entry.size - 1)
    assert job.run() == manifest
    assert "making them again" in caplog.text
    assert sorted(job.transforms[done:]) == [(entry.split, entry.piece) for entry in (manifest.shards[2], entry)]
    assert dataset_state(job.target) == before
    assert_dataset_whole(job.target, committed=True)


def test_begin__lost_shard_is_made_again_with_other_bytes__is_refused(job, monkeypatch):
    manifest = job.run()
    (job.target / "data" / manifest.shards[2].name).unlink()
    with monkeypatch.context() as patch:
        patch.setattr("dkfeat.store.shards.codec.versions", lambda: {"dkfeat": "9"})
        for _ in range(2):
            with pytest.raises(CommitError, match=manifest.shards[2].name):
                job.run()
    assert not (job.target / "_SUCCESS").exists()
    job.run()
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.parametrize("case", ["missing", "doubled", "lost", "cut", "a committed one is lost"])
def test_commit__incomplete_batch__is_refused(job, case):
    committed = job.run().shards if case.startswith("a committed") else ()
    write_sources(job.sources, files=1, first=4)
    with job.begin() as run:
        entries = job.work(run)
        path = job.target / "data" / entries[1].name
        if case == "missing":
            del entries[1]
        elif case == "doubled":
            entries.append(entries[0])
        elif case == "cut":
            os.truncate(path, 100)
        else:
            path = job.target / "data" / (committed[2].name if committed else path.name)
            path.unlink()
        with pytest.raises(CommitError, match=f"{path.name}|a shard is missing, listed twice"):
            job.commit(run, entries)
    assert len(list((job.target / "_dkfeat").glob("manifest-*"))) == bool(committed)
    if case == "cut":
        path.unlink()
    job.run()
    assert_dataset_whole(job.target, committed=True)


def test_commit__number_was_taken_meanwhile__is_a_conflict(job, monkeypatch):
    monkeypatch.setattr(batch, "check_holder", lambda *_: None)  # as if each run saw its own lock
    storage = open_storage(job.target)
    with job.begin() as run:
        entries = job.work(run)
        rival = replace(run, log=LogWriter(storage, 1, "f" * 32, "then"))
        job.commit(rival, entries)
        with pytest.raises(CommitConflictError, match="f" * 32):
            job.commit(run, entries)
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("S-17")
def test_commit__target_deleted_meanwhile__is_not_made_anew(job):
    storage = open_storage(job.target)
    with job.begin() as run:
        entries = job.work(run)
        shutil.rmtree(job.target)
        with pytest.raises(ShardError):
            list(job.run_split(storage, run, run.splits[0]))
        with pytest.raises(CommitError):
            job.commit(run, entries)
    assert not job.target.exists()


@pytest.mark.fault("S-17")
@pytest.mark.parametrize("name", ["_dkfeat/spec.json", "_dkfeat/manifest-000001.json"])
def test_commit__metadata_deleted_meanwhile__nothing_is_committed(job, name):
    job.run()
    (job.sources / "z.txt").write_text("a\nb\n")
    with job.begin() as run:
        entries = job.work(run)
        (job.target / name).unlink()
        with pytest.raises(CommitError, match=rf"{name} was deleted during the run, and nothing was committed"):
            job.commit(run, entries)
    assert not (job.target / "_dkfeat/manifest-000002.json").exists()


@pytest.mark.fault("S-01")
def test_commit__success_cannot_be_written__is_committed_and_says_so(job, monkeypatch):
    create = LocalStorage.create

    def full(storage, name, data, **check):
        if name == "_SUCCESS":
            raise OSError(errno.ENOSPC, "No space left on device")
        create(storage, name, data, **check)

    monkeypatch.setattr(LocalStorage, "create", full)
    with pytest.raises(CommitError, match=r"manifest-000001\.json is committed, but _SUCCESS cannot be written"):
        job.run()
    monkeypatch.undo()
    assert reader.read_manifest(open_storage(job.target)).number == 1
    job.run()
    assert_dataset_whole(job.target, committed=True)


def one_shard(job):
    """Storage, run and an encoded shard with its name; the caller must close the run."""
    storage = open_storage(job.target)
    run = job.begin()
    split = run.splits[0]
    shard = job.encode(run.spec_fp, split, 0, (0, 9), b"one\ntwo\n\n")
    return storage, run, shard, shards.shard_name(run.spec_fp, split, 0)


@pytest.mark.fault("C-12")
@pytest.mark.parametrize("seed", [0, 7], ids=["same spec", "another spec"])
def test_publish__another_run_took_over__is_refused(job, seed):
    storage, run, shard, name = one_shard(job)
    storage.remove(LOCK)  # as if the driver had died
    if seed:
        abort(storage)
    other = replace(job, seed=seed)
    other.run()
    before = dataset_state(job.target)
    with pytest.raises(CommitConflictError, match="does not hold the lock any more"):
        publish(storage, name, shard, run_id=run.id)
    run.close()
    assert dataset_state(job.target) == before
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("C-12")
@pytest.mark.parametrize("moved", [(5.0, 0.0), (0.0, 5.0), (0.0, -1.0)], ids=["monotonic", "wall", "wall set back"])
def test_publish__in_a_store__looks_at_the_lock_again_after_five_seconds(job, monkeypatch, moved):
    job.storage = storage = open_storage(f"memory://{os.urandom(8).hex()}/out")
    looks, read, clocks = [], storage.lock_values, [100.0, 1e9]
    monkeypatch.setattr(storage, "lock_values", lambda: looks.append(None) or read())
    clock = SimpleNamespace(monotonic=lambda: clocks[0], time=lambda: clocks[1])
    monkeypatch.setattr(publishing, "time", clock)
    run = job.begin()

    def publish_one(number):
        split = run.splits[number]
        shard = job.encode(run.spec_fp, split, 0, (0, 9), b"one\ntwo\n\n")
        publish(storage, shards.shard_name(run.spec_fp, split, 0), shard, run_id=run.id)

    publish_one(0)
    clocks[:] = 104.9, 1e9 + 4.9
    publish_one(1)
    assert len(looks) == 1
    storage.remove(LOCK)  # as if the driver had died
    clocks[:] = 100.0 + moved[0], 1e9 + moved[1]
    with pytest.raises(CommitConflictError, match="does not hold the lock any more"):
        publish_one(2)
    assert len(storage.list("data")) == 2


def once_before_link(monkeypatch, act):
    """Call `act` when the next file passed its check and is not yet linked."""
    acts = [act]

    def passed(point):
        if point == "after_tmp" and acts:
            acts.pop()()

    monkeypatch.setattr(base, "passed", passed)


@pytest.mark.fault("C-12")
@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("act", ["abort", "clean", "same spec", "another spec"])
def test_publish__another_run_takes_over_between_check_and_link__adds_no_shard(job, monkeypatch, act, links):
    storage, run, shard, name = one_shard(job)

    def take_over():
        storage.remove(LOCK)  # as if the driver had died
        {"same spec": job.run, "clean": partial(clean, storage)}.get(act, partial(abort, storage))()
        if act == "another spec":
            replace(job, seed=7).run()
        states.append(dataset_state(job.target))

    states = []
    if not links:
        monkeypatch.setattr(os, "link", refuse_link)
    once_before_link(monkeypatch, take_over)
    with pytest.raises(CommitConflictError, match="does not hold the lock any more"):
        publish(storage, name, shard, run_id=run.id)
    run.close()
    assert [dataset_state(job.target)] == states
    assert not list((job.target / "_dkfeat" / "tmp").iterdir())


@pytest.mark.fault("C-12")
@pytest.mark.parametrize("moment", ["before_tmp", "after_tmp"])
@pytest.mark.parametrize("act", ["abort and clean", "same spec", "another spec", "another plan"])
def test_commit__another_run_takes_over_before_the_manifest__is_refused(job, monkeypatch, act, moment):
    storage, moments, states = open_storage(job.target), [], []

    def passed(point):
        moments.append(point)
        if point == moment and "before_manifest" in moments:  # the manifest is not yet linked
            monkeypatch.setattr(base, "passed", moments.append)
            storage.remove(LOCK)  # as if the driver had died
            if act != "same spec":
                abort(storage)
                clean(storage)
            if act == "another plan":
                replace(job, seed=7).stage(1)
            elif act != "abort and clean":
                (job if act == "same spec" else replace(job, seed=7)).run()
            states.append(dataset_state(job.target))

    monkeypatch.setattr(base, "passed", passed)
    committed = "spec" in act
    message = "was committed first by run|does not hold the lock any more"
    with pytest.raises(CommitConflictError, match=message):
        job.run()
    assert [dataset_state(job.target)] == states
    assert_dataset_whole(job.target, committed=committed)


def refuse_link(*_, **__):
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.fault("C-12")
@pytest.mark.parametrize("moment", ["before its check", "before its link"])
def test_withdraw__a_late_task_of_the_run__adds_no_shard(job, monkeypatch, moment):
    storage, run, shard, name = one_shard(job)

    def fail():
        run.__exit__(ConfigError, ConfigError("settings that cannot work"), None)

    fail() if moment == "before its check" else once_before_link(monkeypatch, fail)
    with pytest.raises(CommitConflictError, match="does not hold the lock any more"):
        publish(storage, name, shard, run_id=run.id)
    assert metadata.next_batch(storage, None)[1] is None
    assert not storage.list("data")
    assert storage.holder() is None


def test_withdraw__a_shard_was_linked_before__keeps_the_plan(job):
    storage, run, shard, name = one_shard(job)
    publish(storage, name, shard, run_id=run.id)
    run.__exit__(ConfigError, ConfigError("settings that cannot work"), None)
    assert metadata.next_batch(storage, None)[1] is not None


def test_publish__its_run_committed_meanwhile__says_so(job, monkeypatch):
    storage, run, shard, name = one_shard(job)
    once_before_link(monkeypatch, storage.sweep)
    with run, pytest.raises(CommitConflictError, match=rf"temporary file of {name} was removed"):
        publish(storage, name, shard, run_id=run.id)


def test_commit__shards_of_other_runs_in_data__warns_and_verify_lists_them(job, caplog):
    manifest = job.run()
    stray = "part-000000-0000-0123456789ab.parquet"
    (job.target / "data" / stray).write_bytes(b"")
    write_sources(job.sources, files=1, first=4)
    job.stage(1)
    report = verified(job.target)
    [problem] = report.problems  # shards of the batch in progress are none
    assert f"{stray}: no manifest lists this shard" in problem
    assert len(report.unlisted) == 3
    assert job.run().number == manifest.number + 1
    assert f"that no manifest lists: 1, such as {stray}; remove them with `dkfeat clean" in caplog.text
    clean(job.target)
    assert verified(job.target).problems == []


def test_close__another_run_took_over__leaves_its_lock(job, caplog):
    storage, run, _, _ = one_shard(job)
    storage.remove(LOCK)  # as if locks of other hosts could not be seen
    with job.begin() as other:
        run.close()
        assert storage.holder().run_id == other.id
    assert storage.holder() is None
    assert f"it names run {other.id}" in caplog.text  # or so a store said that answers wrongly
    assert f"else call `dkfeat break-lock {job.target} {run.id}`" in caplog.text


def test_publish__other_bytes_came_first__first_wins(job, caplog):
    storage, run, shard, name = one_shard(job)
    with run:
        older = replace(shard.footer, versions={"pyarrow": "17.0.0"})
        encoded, _ = features([b"a", b"b", b""], 0)
        block = RowBlock(X=encoded, y=encoded.codes[:, 0].astype("int64"))
        first = shards.encode_shard("codes", block, older)
        publish(storage, name, first, run_id=run.id)
        kept = publish(storage, name, shard, run_id=run.id)
    assert kept == first.entry(name) != shard.entry(name)
    assert "keeping those" in caplog.text


@pytest.mark.fault("S-05")
@pytest.mark.parametrize("damage", ["cut by one", "cut to half", "emptied", "flipped", "footer", "other piece", "text"])
def test_existing__damaged_shard_is_set_aside(job, damage, caplog):
    storage, run, shard, name = one_shard(job)
    path = job.target / "data" / name
    whole, other = bytes(shard.data), job.encode(run.spec_fp, run.splits[0], 1, (0, 9), b"one\ntwo\n\n")
    data = {
        "cut by one": whole[:-1],
        "cut to half": whole[: len(whole) // 2],
        "emptied": b"",
        "flipped": whole[:20] + bytes([whole[20] ^ 1]) + whole[21:],
        "footer": whole.replace(b"dkfeat.rows", b"dkfeat.rowt"),
        "other piece": bytes(other.data),
        "text": b"not Parquet at all, but long enough to be read as such PAR1",
    }[damage]
    with run:
        path.write_bytes(data)
        assert existing_entry(storage, name, identity(run, 0), run_id=run.id) is None
        assert not path.exists()
        [aside] = (job.target / "_dkfeat" / "set-aside").iterdir()
        assert aside.read_bytes() == data
        assert "set aside" in caplog.text
        path.write_bytes(data)
        entry = publish(storage, name, shard, run_id=run.id)
        assert entry == shard.entry(name)
    assert path.read_bytes() == shard.data


def test_existing__damaged_shard_of_a_run_without_the_lock__stays(job):
    storage, run, shard, name = one_shard(job)
    path = job.target / "data" / name
    path.write_bytes(shard.data[:-1])
    with run, pytest.raises(CommitConflictError, match="does not hold"):
        existing_entry(storage, name, identity(run, 0), run_id="0" * 32)
    assert path.exists()


@pytest.mark.parametrize("expected", [{"range": (0, 8)}, {"source_sha256": "0" * 64}, {"last": True}])
def test_existing__footer_says_otherwise__is_set_aside(job, expected):
    storage, run, shard, name = one_shard(job)
    with run:
        publish(storage, name, shard, run_id=run.id)
        assert existing_entry(storage, name, {**identity(run, 0), **expected}, run_id=run.id) is None
