"""Committed sources that change or vanish, where the caller says that their rows may stay as they are."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.store.manifest import metadata
from dkfeat.store.manifest.manifest import Manifest
from dkfeat.store.storage import open_storage
from tests.cli.test_commands import run
from tests.engine.helpers import featurized
from tests.invariants import assert_dataset_whole
from tests.store.tiny_job import TinyJob, write_sources


@pytest.fixture
def job(tmp_path):
    """A committed job whose first source was then edited, and whose second vanished."""
    sources = write_sources(tmp_path / "sources", first=1)
    made = TinyJob(sources, tmp_path / "features")
    made.run()
    made.transforms.clear()
    (sources / "day1.txt").write_text("something else\n")
    (sources / "day2.txt").unlink()
    return made


@pytest.mark.fault("V-05")
def test_keep__changed_and_vanished_sources_stay_as_they_are_committed(job, caplog):
    before = metadata.read_manifest(open_storage(job.target))
    assert job.run(keep_changed=True) == before
    assert not job.transforms
    assert "2 of 2 committed sources changed or are gone, such as 'day1.txt'" in caplog.text
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("V-05")
def test_keep__new_sources_are_added_and_changed_ones_named(job):
    before = metadata.read_manifest(open_storage(job.target))
    (job.sources / "day3.txt").write_text("a third day\n")
    after = job.run(keep_changed=True)
    assert after.shards[: len(before.shards)] == before.shards
    assert after.sources[:2] == before.sources
    assert [source.name for source in after.sources] == ["day1.txt", "day2.txt", "day3.txt"]
    assert after.run["changed_sources"] == ["day1.txt", "day2.txt"]
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("V-05")
def test_raise__says_how_to_keep(job):
    with pytest.raises(SpecConflictError, match=r'day1\.txt.* keep its rows .*on_changed_source="keep"'):
        job.run()


@pytest.mark.fault("V-05")
@pytest.mark.parametrize("name", ["day1.txt", "day2.txt"])
def test_keep__a_lost_shard_of_a_changed_source_cannot_be_made_again(job, name):
    manifest = metadata.read_manifest(open_storage(job.target))
    lost = next(entry for entry in manifest.shards if entry.source == name)
    (job.target / "data" / lost.name).unlink()
    with pytest.raises(
        SpecConflictError, match=rf"'{name}' .*since shards were committed that are now missing or .*{lost.name}"
    ):
        job.begin(keep_changed=True)


@pytest.mark.fault("V-05")
def test_keep__shards_of_unchanged_sources_are_repaired_beside_changed_ones(tmp_path):
    sources = write_sources(tmp_path / "sources", first=1)
    job = TinyJob(sources, tmp_path / "features")
    manifest = job.run()
    (sources / "day2.txt").unlink()
    (job.target / "data" / manifest.shards[0].name).unlink()
    assert job.run(keep_changed=True).shards == manifest.shards
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("V-05")
def test_keep__a_moved_file_is_not_added_once_more(tmp_path):
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "day1.svm").write_text("+1 1:1 4:1\n")
    (tmp_path / "days" / "day2.svm").write_text("-1 2:1 3:1\n")
    before = featurized(tmp_path / "days" / "*.svm", tmp_path / "features", scheduler="synchronous")
    with pytest.raises(
        SpecConflictError, match=r"'days/day1\.svm' has the size and time of 'day1\.svm', which .* is gone"
    ):
        featurized(tmp_path / "day*" / "*.svm", tmp_path / "features", on_changed_source="keep")
    (tmp_path / "days" / "old").mkdir()
    (tmp_path / "days" / "day1.svm").rename(tmp_path / "days" / "old" / "day1.svm")
    with pytest.raises(SpecConflictError, match=r"'old/day1\.svm' has the size and time of 'day1\.svm'"):
        featurized(tmp_path / "days" / "**" / "*.svm", tmp_path / "features", on_changed_source="keep")
    (tmp_path / "days" / "old" / "day1.svm").write_text("+1 1:1\n")  # another day's, which has the same name
    after = featurized(
        tmp_path / "days" / "**" / "*.svm", tmp_path / "features", on_changed_source="keep", scheduler="synchronous"
    )
    assert (after.rows, after.previous.name) == (3, before.name)


ROWS = "+1 1:1 4:1\n" * 40 + "# a comment\n" + "-1 2:1\n" * 300


def write_rows(path: Path, text: str) -> None:
    """Write rows as plain text, compressed text, or Parquet whose labels are the numbers of columns."""
    if path.suffix == ".parquet":
        lengths = [len(line) for line in text.splitlines()]
        pq.write_table(pa.table({"label": [1, 2] * (len(lengths) // 2), "x": lengths[: len(lengths) // 2 * 2]}), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        path.write_text(text)


def add_batch(folder: Path, pattern: str, n_bytes: int = 4096) -> Manifest:
    kind = dkfeat.ParquetSource if pattern.endswith("parquet") else dkfeat.LibsvmSource
    source = kind(str(folder / pattern), blocksize=n_bytes)
    return featurized(source, folder / "features", on_changed_source="keep", scheduler="synchronous")


@pytest.mark.fault("V-05")
@pytest.mark.parametrize("blocksize", [64, 1 << 14])  # several shards of a file, and one of a group of tiny files
@pytest.mark.parametrize("suffix", ["svm", "svm.gz", "parquet"])
def test_keep__a_renamed_file_is_known_by_its_size_and_time(tmp_path, suffix, blocksize):
    write_rows(tmp_path / f"a.{suffix}", ROWS)
    write_rows(tmp_path / f"b.{suffix}", ROWS.replace("4:1", "3:1"))
    add_batch(tmp_path, f"*.{suffix}", blocksize)
    (tmp_path / f"a.{suffix}").rename(tmp_path / f"c.{suffix}")
    with pytest.raises(
        SpecConflictError, match=rf"'c\.{suffix}' has the size and time of 'a\.{suffix}'.* and is gone: .*Give"
    ):
        add_batch(tmp_path, f"*.{suffix}", blocksize)
    os.utime(tmp_path / f"c.{suffix}")  # another file, of the same size
    added = add_batch(tmp_path, f"*.{suffix}", blocksize)
    assert [source.name for source in added.sources] == [f"{name}.{suffix}" for name in "abc"]


@pytest.mark.fault("V-05")
def test_keep__a_rotated_file_is_known(tmp_path):
    write_rows(tmp_path / "a.svm", ROWS)
    add_batch(tmp_path, "*.svm")
    (tmp_path / "a.svm").rename(tmp_path / "b.svm")
    (tmp_path / "a.svm").write_text("+1 1:1\n")
    with pytest.raises(SpecConflictError, match=r"'b\.svm' has the size and time of 'a\.svm', which .* has changed"):
        add_batch(tmp_path, "*.svm")


def test_command__on_changed_source(tmp_path, caplog):
    (tmp_path / "day1.svm").write_text("+1 1:1 4:1\n")
    words = ("featurize", tmp_path / "*.svm", "--out", tmp_path / "features", "--no-progress")
    run(*words, "--scheduler", "synchronous")
    (tmp_path / "day1.svm").rename(tmp_path / "day1.done")
    (tmp_path / "day2.svm").write_text("-1 2:1\n")
    with pytest.raises(ConfigError, match="one of 'raise', 'keep'"):
        featurized(tmp_path / "*.svm", tmp_path / "features", on_changed_source="replace")
    assert "--on-changed-source keep" in run(*words, status=4).stderr
    kept = run(*words, "--on-changed-source", "keep", "--scheduler", "synchronous")
    assert "rows    2" in kept.stdout
    assert "1 of 1 committed sources changed or are gone" in caplog.text


@pytest.mark.fault("V-05")
def test_another_folder__with_files_of_equal_names_sizes_and_times_is_told(tmp_path, caplog):
    for name, text in (("in", ROWS), ("other", ROWS.replace("4:1", "3:1"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.svm").write_text(text)
        os.utime(tmp_path / name / "a.svm", ns=(10**18, 10**18))
    target = tmp_path / "features"
    first = featurized(tmp_path / "in" / "*.svm", target, scheduler="synchronous")
    assert featurized(tmp_path / "in" / "a.svm", target) == first
    assert "another folder" not in caplog.text
    assert featurized(tmp_path / "other" / "*.svm", target) == first
    assert "the sources are in another folder than when manifest-000001.json was committed" in caplog.text
    assert dkfeat.verify_inputs(target, str(tmp_path / "other" / "*.svm")).problems
    (tmp_path / "in").rename(tmp_path / "moved")
    (tmp_path / "moved" / "b.svm").write_text("+1 1:1\n")
    assert featurized(tmp_path / "moved" / "*.svm", target, scheduler="synchronous").number == 2
    caplog.clear()
    featurized(tmp_path / "moved" / "*.svm", target)
    assert "another folder" not in caplog.text
