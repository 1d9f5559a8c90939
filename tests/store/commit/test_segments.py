"""Many batches: few small files of metadata, of which none is removed that a reader needs."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dkfeat.errors import CommitError, ConfigError, InputError, ShardError
from dkfeat.store.commit import begin as commit
from dkfeat.store.commit.maintenance import abort, clean
from dkfeat.store.commit.superseded import remove_superseded
from dkfeat.store.manifest import batch_plan, metadata, segment
from dkfeat.store.manifest.record_lists import planned_splits
from dkfeat.store.shards import reader
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.local import LocalStorage
from tests.invariants import assert_dataset_whole, dataset_state, listed_in
from tests.store.tiny_job import TinyJob, write_sources

V1 = Path(__file__).parents[2] / "data" / "formats" / "v1"


@pytest.fixture
def job(tmp_path):
    return TinyJob(write_sources(tmp_path / "in", files=1, lines=4), tmp_path / "out")


def add(job, first, count):
    """Commit one file after another."""
    for number in range(first, first + count):
        write_sources(job.sources, files=1, lines=4, first=number)
        job.run()


def names(job, kind):
    return sorted(path.name for path in (job.target / "_dkfeat").glob(f"{kind}-*"))


def test_batches__metadata_do_not_grow_with_their_number(job):
    add(job, 0, 40)
    assert names(job, "manifest") == [f"manifest-{number:06d}.json" for number in range(25, 41)]
    assert names(job, "plan") == ["plan-000040.json"]
    heads = [json.loads((job.target / "_dkfeat" / name).read_bytes()) for name in names(job, "manifest")]
    assert max(len(head["segments"]) for head in heads) <= 6
    listed = {each["sha256"] for head in heads for each in head["segments"]}
    assert set(names(job, "segment")) == {f"segment-{sha256}.json" for sha256 in listed}
    assert_dataset_whole(job.target, committed=True)
    found = reader.read_manifest(open_storage(job.target))
    assert [source.name for source in found.sources] == [f"day{number}.txt" for number in range(40)]
    assert [split.file.name for split in planned_splits(found.records)] == [source.name for source in found.sources]
    assert len(listed_in(job.target, 40)["shards"]) == len(found.shards) == 80


def test_batch__too_long_for_one_segment__is_several(job, tmp_path, monkeypatch):
    write_sources(job.sources, files=7, lines=4)
    whole = replace(job, target=tmp_path / "whole").run()
    monkeypatch.setattr(segment, "MAX_BYTES", 1500)
    create = LocalStorage.create

    def full_disk(storage, name, data, **options):
        if "segment" in name and names(job, "segment"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(storage, name, data, **options)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", full_disk)
        with pytest.raises(CommitError, match="No space"):
            job.run()
    manifest = job.run()
    assert max(entry.size for entry in manifest.segments) <= 1500
    assert names(job, "segment") == sorted(entry.name for entry in manifest.segments)
    assert len(manifest.segments) > 2
    assert manifest.records.to_json() == whole.records.to_json()
    add(job, 7, 3)
    assert reader.read_manifest(open_storage(job.target)).n_splits == whole.n_splits + 3
    assert_dataset_whole(job.target, committed=True)
    monkeypatch.setattr(segment, "MAX_BYTES", 500)
    with pytest.raises(CommitError, match=r"source 'day[0-9]+\.txt' gave 2 shards, .*raise blocksize"):
        add(job, 10, 1)


def test_plan__too_long_to_be_read_again__is_refused_before_work(job, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(batch_plan, "MAX_BYTES", 200)
        with pytest.raises(ConfigError, match=r"plan of 1 splits .*raise blocksize"):
            job.run()
    assert not job.transforms
    assert names(job, "plan") == []
    job.run()


def test_plan__cannot_be_made__the_data_set_stays_marked(job):
    job.run()
    write_sources(job.sources, files=1, lines=4, first=1)

    def damaged(files):
        raise InputError(f"{files[0].name}: damaged")

    with pytest.raises(InputError):
        commit.begin(open_storage(job.target), job.spec, job.files(), damaged)
    assert_dataset_whole(job.target, committed=True)


def test_reader__of_a_kept_manifest_reads_it_after_later_commits(job):
    add(job, 0, 1)
    storage = open_storage(job.target)
    pinned = reader.read_manifest(storage)
    add(job, 1, metadata.KEPT - 1)
    assert metadata.read_numbered(storage, 1, pinned.sha256) == pinned
    add(job, metadata.KEPT, 1)
    with pytest.raises(ShardError, match=r"manifest-000001\.json is missing"):
        metadata.read_numbered(storage, 1, pinned.sha256)


def test_reader__a_commit_removes_what_it_reads__begins_again(job, monkeypatch):
    add(job, 0, metadata.KEPT)
    storage, read = open_storage(job.target), LocalStorage.read
    commits = iter([metadata.KEPT])

    def interrupted(storage, name):
        if name.endswith("manifest-000001.json"):
            for number in commits:
                add(job, number, 1)
        return read(storage, name)

    monkeypatch.setattr(LocalStorage, "read", interrupted)
    assert reader.read_manifest(storage).number == metadata.KEPT + 1


@pytest.mark.fault("S-06")
@pytest.mark.parametrize("change", ["gone", "cut", "changed", "of another"])
def test_segment__damaged__is_refused(job, change):
    add(job, 0, 3)
    segments = [(job.target / "_dkfeat" / name) for name in names(job, "segment")]
    newest = json.loads((job.target / "_dkfeat/manifest-000003.json").read_bytes())["segments"]
    path = next(path for path in segments if newest[0]["sha256"] in path.name)
    good = path.read_bytes()
    other = next(each for each in segments if each != path).read_bytes()
    texts = {"cut": good[:-1], "changed": good.replace(b"day0", b"day9"), "of another": other}
    path.unlink() if change == "gone" else path.write_bytes(texts[change])
    for call in (lambda: reader.read_manifest(open_storage(job.target)), job.run):
        with pytest.raises(ShardError, match=r"segment-[0-9a-f]{64}\.json"):
            call()


@pytest.mark.fault("S-17")
def test_commit__a_segment_was_deleted_meanwhile__nothing_is_committed(job):
    add(job, 0, 1)
    write_sources(job.sources, files=1, lines=4, first=1)
    storage = open_storage(job.target)
    with commit.begin(storage, job.spec, job.files(), job.splits()) as run:
        entries = [entry for split in run.splits for entry in job.run_split(storage, run, split)]
        (job.target / "_dkfeat" / names(job, "segment")[0]).unlink()
        with pytest.raises(CommitError, match=r"segment-[0-9a-f]{64}\.json was deleted during the run"):
            run.commit(entries, schema={"label": "int64"}, n_features=10, versions={})


@pytest.mark.fault("P-01")
def test_segment__of_a_killed_run_is_found_again_or_cleaned(job, tmp_path, monkeypatch):
    add(job, 0, 1)
    whole = TinyJob(job.sources, tmp_path / "whole")
    write_sources(job.sources, files=1, lines=4, first=1)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", _all_but("manifest-"))
        with pytest.raises(CommitError):
            job.run()
    assert len(names(job, "segment")) == 2
    left = {name: (job.target / "_dkfeat" / name).stat().st_ino for name in names(job, "segment")}
    cleaned = shutil.copytree(job.target, tmp_path / "cleaned")
    assert clean(cleaned).removed == ()  # its driver may be alive behind a broken lock, and about to list the segment
    abort(cleaned)
    assert [name for name in clean(cleaned).removed if "segment" in name]
    assert_dataset_whole(cleaned)
    job.run()
    assert {name: (job.target / "_dkfeat" / name).stat().st_ino for name in names(job, "segment")} == left
    assert_dataset_whole(job.target, committed=True)
    whole.run()
    assert dataset_state(whole.target)[0] == dataset_state(job.target)[0]


def test_segment__of_a_killed_run_is_damaged__is_written_anew(job, monkeypatch, caplog):
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", _all_but("manifest-"))
        with pytest.raises(CommitError):
            job.run()
    [name] = names(job, "segment")
    (job.target / "_dkfeat" / name).write_bytes(b"{}")
    job.run()
    assert "was damaged; set aside as" in caplog.text
    assert_dataset_whole(job.target, committed=True)


def _all_but(prefix):
    create = LocalStorage.create

    def failing(storage, name, data, **options):
        if name.rpartition("/")[2].startswith(prefix):
            raise OSError("no more files")
        create(storage, name, data, **options)

    return failing


def test_removal__fails__the_batch_is_committed_and_the_next_commit_continues(job, monkeypatch, caplog):
    add(job, 0, metadata.KEPT)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "remove", _no_removal_of("manifest-"))
        add(job, metadata.KEPT, 1)
    assert "superseded manifests are left for the next commit" in caplog.text
    assert len(names(job, "manifest")) == metadata.KEPT + 1
    add(job, metadata.KEPT + 1, 1)
    assert len(names(job, "manifest")) == metadata.KEPT
    assert_dataset_whole(job.target, committed=True)


def test_removal__of_a_damaged_manifest__goes_on(job, monkeypatch, caplog):
    add(job, 0, metadata.KEPT)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "remove", _no_removal_of("manifest-"))
        add(job, metadata.KEPT, 1)
    first = job.target / "_dkfeat" / "manifest-000001.json"
    first.write_bytes(first.read_bytes()[:-2])
    add(job, metadata.KEPT + 1, 1)
    assert "a superseded manifest is damaged" in caplog.text
    assert len(names(job, "manifest")) == metadata.KEPT
    clean(job.target)
    assert_dataset_whole(job.target, committed=True)


def test_removal__of_a_manifest_that_cannot_be_read_now__is_left_for_the_next_commit(job, monkeypatch, caplog):
    add(job, 0, metadata.KEPT)
    read = LocalStorage.read

    def failing(storage, name):
        if name.endswith("manifest-000001.json"):
            raise OSError("not today")
        return read(storage, name)

    with monkeypatch.context() as patch:
        patch.setattr(metadata, "kept_numbers", lambda newest: range(2, newest + 1))
        patch.setattr(LocalStorage, "read", failing)
        remove_superseded(open_storage(job.target), metadata.newest_manifest(open_storage(job.target)))
    assert "manifest-000001.json" in names(job, "manifest")
    assert "left for the next commit" in caplog.text


def test_success__of_a_driver_that_went_on_after_its_manifest_was_removed__is_written_anew(job):
    add(job, 0, 1)
    marked = (job.target / "_SUCCESS").read_bytes()
    add(job, 1, metadata.KEPT)
    assert "manifest-000001.json" not in names(job, "manifest")
    (job.target / "_SUCCESS").write_bytes(marked)
    with pytest.raises(ShardError, match=r"names manifest-000001\.json .* repeat the run that wrote it"):
        reader.read_manifest(open_storage(job.target))
    job.run()
    assert_dataset_whole(job.target, committed=True)


def _no_removal_of(prefix):
    remove = LocalStorage.remove

    def failing(storage, name):
        if name.rpartition("/")[2].startswith(prefix):
            raise OSError("not today")
        remove(storage, name)

    return failing


def test_removal__leaves_a_segment_that_no_manifest_lists(job):
    """It may be of a run that is about to commit, while an earlier driver continues after its own commit."""
    add(job, 0, metadata.KEPT)
    foreign = job.target / "_dkfeat" / f"segment-{'0' * 64}.json"
    foreign.write_bytes(b"{}")
    add(job, metadata.KEPT, 2)
    assert foreign.exists()
    assert f"_dkfeat/{foreign.name}" in clean(job.target).removed


@pytest.mark.fault("V-07")
def test_first_format__is_extended_and_superseded(tmp_path):
    job = TinyJob(write_sources(tmp_path / "in", files=2, lines=10), tmp_path / "out")
    shutil.copytree(V1, job.target)
    for folder in ("tmp", "set-aside"):
        (job.target / "_dkfeat" / folder).mkdir(exist_ok=True)
    pinned = reader.read_manifest(open_storage(job.target))
    add(job, 2, 1)
    assert_dataset_whole(job.target, committed=True)
    found = reader.read_manifest(open_storage(job.target))
    assert found.shards[:4] == tuple(pinned.shards)
    assert [split.file.name for split in planned_splits(found.records)] == ["day0.txt", "day1.txt", "day2.txt"]
    assert metadata.read_numbered(open_storage(job.target), 1, pinned.sha256) == pinned
    assert names(job, "plan") == ["plan-000001.json", "plan-000002.json"]
    add(job, 3, metadata.KEPT - 1)
    assert "manifest-000001.json" not in names(job, "manifest")
    assert names(job, "plan") == [f"plan-{metadata.KEPT + 1:06d}.json"]
    assert_dataset_whole(job.target, committed=True)


def test_repair__sizes_and_footers_take_turns(job, monkeypatch):
    from dkfeat.store.commit import repair

    monkeypatch.setattr(repair, "MOST_SIZES", 4)
    monkeypatch.setattr(repair, "MOST_FOOTERS", 4)
    monkeypatch.setattr(repair, "EACH", 1)
    add(job, 0, 6)
    found = reader.read_manifest(open_storage(job.target)).shards
    cut = job.target / "data" / found[5].name
    cut.write_bytes(cut.read_bytes()[:-1])
    (job.target / "data" / found[9].name).unlink()
    add(job, 6, 8)  # turns of four shards of 12 to 28
    assert_dataset_whole(job.target, committed=True)


@pytest.fixture
def large(monkeypatch):
    """A data set of four shards counts as large."""
    from dkfeat.store.commit import repair

    monkeypatch.setattr(repair, "MOST_SIZES", 4)


@pytest.fixture
def listed(monkeypatch):
    """Folders of which a run lists all files."""
    folders, lists = [], LocalStorage.list
    monkeypatch.setattr(
        LocalStorage, "list", lambda self, name, **more: folders.append(name) or lists(self, name, **more)
    )
    return folders


@pytest.mark.usefixtures("large")
def test_large__a_batch_lists_no_shards_if_none_came_or_went(job, listed):
    add(job, 0, 2)
    assert listed.count("data") > 2
    add(job, 2, 1)
    listed.clear()
    add(job, 3, 4)
    assert "data" not in listed
    lost = job.target / "data" / reader.read_manifest(open_storage(job.target)).shards[3].name
    lost.unlink()
    add(job, 7, 1)
    assert lost.exists()
    listed.clear()
    job.run()  # nothing is new: all names are compared
    assert "data" in listed
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.usefixtures("large")
def test_large__a_loss_that_the_folder_does_not_tell_is_found_by_an_eighth_batch(job):
    add(job, 0, 3)
    data = job.target / "data"
    lost, times = data / reader.read_manifest(open_storage(job.target)).shards[0].name, data.stat()
    lost.unlink()
    os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))
    add(job, 3, 5)
    assert not lost.exists()
    add(job, 8, 1)
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.usefixtures("large")
def test_large__a_storage_that_notices_no_new_file_is_not_trusted(job, listed, monkeypatch):
    monkeypatch.setattr(LocalStorage, "modified", lambda *_: 1)
    add(job, 0, 4)
    assert "data_mtime_ns" not in reader.read_manifest(open_storage(job.target)).run
    listed.clear()
    add(job, 4, 1)
    assert listed.count("data") >= 2


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("change", ["gone", "cut"])
def test_large__a_new_shard_is_lost_before_the_commit__nothing_is_committed(job, listed, change):
    add(job, 0, 3)
    write_sources(job.sources, files=1, lines=4, first=3)
    storage = open_storage(job.target)
    with commit.begin(storage, job.spec, job.files(), job.splits()) as run:
        entries = [entry for split in run.splits for entry in job.run_split(storage, run, split)]
        path = job.target / "data" / entries[1].name
        path.unlink() if change == "gone" else path.write_bytes(path.read_bytes()[:-1])
        listed.clear()
        with pytest.raises(CommitError, match=f"{entries[1].name}: .*run again"):
            run.commit(entries, schema={"label": "int64"}, n_features=10, versions={})
    assert "data" not in listed
    job.run()
    assert_dataset_whole(job.target, committed=True)
