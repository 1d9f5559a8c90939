"""Many batches: few small files of metadata, of which none is removed that a reader needs."""

from __future__ import annotations

import json
import shutil

import pytest

from dkfeat.errors import CommitError, ConfigError, ShardError
from dkfeat.store.commit.maintenance import abort, clean
from dkfeat.store.manifest import batch_plan, metadata
from dkfeat.store.manifest.record_table import planned_splits
from dkfeat.store.shards import reader
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.local import LocalStorage
from tests.invariants import assert_dataset_whole, dataset_state, listed_in
from tests.store.tiny_job import TinyJob, write_sources


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


def failing(method, prefix):
    """A method of storages that fails for files whose names begin with `prefix`."""
    call = getattr(LocalStorage, method)

    def fails(storage, name, *more, **options):
        if name.rpartition("/")[2].startswith(prefix):
            raise OSError("not today")
        call(storage, name, *more, **options)

    return fails


def test_batches__metadata_do_not_grow_with_their_number(job):
    add(job, 0, 40)
    assert names(job, "manifest") == [f"manifest-{number:06d}.json" for number in range(25, 41)]
    assert names(job, "plan") == ["plan-000040.json"]
    heads = [json.loads((job.target / "_dkfeat" / name).read_bytes()) for name in names(job, "manifest")]
    listed = [f"records-{head['number']:06d}-{head['records_file']['sha256']}.parquet" for head in heads]
    assert names(job, "records") == listed
    assert_dataset_whole(job.target, committed=True)
    found = reader.read_manifest(open_storage(job.target))
    assert [source.name for source in found.sources] == [f"day{number}.txt" for number in range(40)]
    assert [split.file.name for split in planned_splits(found.records)] == [source.name for source in found.sources]
    assert len(listed_in(job.target, 40)["shards"]) == len(found.shards) == 80


def test_plan__too_long_to_be_read_again__is_refused_before_work(job, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(batch_plan, "MAX_BYTES", 200)
        with pytest.raises(ConfigError, match=r"plan of 1 splits .*raise blocksize"):
            job.run()
        assert not job.transforms
        assert names(job, "plan") == []
        patch.undo()
        job.run()
        write_sources(job.sources, files=1, lines=4, first=1)
        patch.setattr(batch_plan, "MAX_BYTES", 200)
        with pytest.raises(ConfigError, match="raise blocksize"):
            job.run()
    assert_dataset_whole(job.target, committed=True)  # it is still marked


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
    commits = [metadata.KEPT]

    def interrupted(storage, name, most=None):
        if name.endswith(f"manifest-{metadata.KEPT - 1:06d}.json"):
            while commits:
                add(job, commits.pop(), metadata.KEPT)
        return read(storage, name, most)

    monkeypatch.setattr(LocalStorage, "read", interrupted)
    assert reader.read_manifest(storage).number == 2 * metadata.KEPT


@pytest.mark.fault("S-06")
@pytest.mark.parametrize("change", ["gone", "cut", "changed", "of another"])
def test_records__damaged__are_refused(job, change):
    add(job, 0, 3)
    other, path = [(job.target / "_dkfeat" / name) for name in names(job, "records")][-2:]
    good = path.read_bytes()
    texts = {"cut": good[:-1], "changed": good.replace(b"day0", b"day9"), "of another": other.read_bytes()}
    path.unlink() if change == "gone" else path.write_bytes(texts[change])
    for call in (lambda: reader.read_manifest(open_storage(job.target)), job.run):
        with pytest.raises(ShardError, match=r"records-000003-[0-9a-f]{64}\.parquet"):
            call()


@pytest.mark.fault("P-01")
def test_records__of_a_killed_run_are_found_again_or_cleaned(job, tmp_path, monkeypatch):
    add(job, 0, 1)
    whole = TinyJob(job.sources, tmp_path / "whole")
    write_sources(job.sources, files=1, lines=4, first=1)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", failing("create", "manifest-"))
        with pytest.raises(CommitError):
            job.run()
    assert len(names(job, "records")) == 2
    left = {name: (job.target / "_dkfeat" / name).stat().st_ino for name in names(job, "records")}
    cleaned = shutil.copytree(job.target, tmp_path / "cleaned")
    assert clean(cleaned).removed == ()  # its driver may be alive behind a broken lock, and about to list the records
    abort(cleaned)
    assert [name for name in clean(cleaned).removed if "records" in name]
    assert_dataset_whole(cleaned)
    job.run()
    assert {name: (job.target / "_dkfeat" / name).stat().st_ino for name in names(job, "records")} == left
    assert_dataset_whole(job.target, committed=True)
    whole.run()
    assert dataset_state(whole.target)[0] == dataset_state(job.target)[0]


def test_records__of_a_killed_run_are_damaged__are_written_anew(job, monkeypatch, caplog):
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", failing("create", "manifest-"))
        with pytest.raises(CommitError):
            job.run()
    [name] = names(job, "records")
    (job.target / "_dkfeat" / name).write_bytes(b"{}")
    job.run()
    assert "was damaged; set aside as" in caplog.text
    assert_dataset_whole(job.target, committed=True)


def test_removal__fails__the_batch_is_committed_and_the_next_commit_continues(job, monkeypatch, caplog):
    add(job, 0, metadata.KEPT)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "remove", failing("remove", "manifest-"))
        add(job, metadata.KEPT, 1)
    assert "superseded manifests are left for the next commit" in caplog.text
    assert len(names(job, "manifest")) == metadata.KEPT + 1
    add(job, metadata.KEPT + 1, 1)
    assert len(names(job, "manifest")) == metadata.KEPT
    assert_dataset_whole(job.target, committed=True)
