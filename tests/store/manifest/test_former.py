"""Data sets that earlier versions wrote: what manifests or segments list is read, checked and converted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.errors import ShardError
from dkfeat.store.manifest import metadata
from dkfeat.store.shards import reader
from dkfeat.store.storage import open_storage
from tests.invariants import assert_dataset_whole, verified
from tests.store.tiny_job import TinyJob, write_sources

FORMATS = Path(__file__).parents[2] / "data" / "formats"
NIGHTS = FORMATS / "nights-0.2"
"""Three batches with a group of tiny files, compressed segments and rows set aside."""


def names(target, kind):
    return sorted(path.name for path in (target / "_dkfeat").glob(f"{kind}-*"))


def kept(version, tmp_path, files, lines):
    """A kept data set of `TinyJob`, whose sources are there again."""
    job = TinyJob(write_sources(tmp_path / "in", files=files, lines=lines), tmp_path / "out")
    shutil.copytree(FORMATS / version, job.target)
    for folder in ("tmp", "set-aside"):
        (job.target / "_dkfeat" / folder).mkdir(exist_ok=True)
    return job


@pytest.mark.fault("V-07")
@pytest.mark.parametrize(("version", "files", "number"), [("v1", 2, 1), ("v2", 2, 1), ("v3", 6, 4)])
def test_former__is_extended_and_superseded(version, files, number, tmp_path):
    job = kept(version, tmp_path, files, 10)
    pinned = reader.read_manifest(open_storage(job.target))
    assert job.run() == pinned  # nothing is new, and nothing is written
    assert names(job.target, "records") == []
    write_sources(job.sources, files=1, lines=10, first=files)
    found = job.run()
    assert found.number == number + 1
    assert_dataset_whole(job.target, committed=True)
    assert found.shards[: len(pinned.shards)] == tuple(pinned.shards)
    assert [source.name for source in found.sources] == [f"day{day}.txt" for day in range(files + 1)]
    whole = TinyJob(job.sources, tmp_path / "whole").run()
    assert found.shards.names == whole.shards.names
    assert metadata.read_numbered(open_storage(job.target), number, pinned.sha256) == pinned
    for day in range(metadata.KEPT - 1):
        write_sources(job.sources, files=1, lines=10, first=files + 1 + day)
        job.run()
    assert names(job.target, "segment") == []
    assert names(job.target, "plan") == [f"plan-{number + metadata.KEPT:06d}.json"]
    assert len(names(job.target, "manifest")) == len(names(job.target, "records")) == metadata.KEPT
    assert_dataset_whole(job.target, committed=True)


@pytest.mark.fault("V-07")
def test_segments__of_groups_and_of_rows_set_aside__are_converted(tmp_path):
    target = shutil.copytree(NIGHTS, tmp_path / "features")
    for folder in ("tmp", "set-aside"):
        (target / "_dkfeat" / folder).mkdir(exist_ok=True)
    before = reader.read_manifest(open_storage(target))
    assert verified(target).problems == []
    assert [entry.rows_by_file for entry in before.shards] == [(5, 7, 7), (), ()]
    assert [entry.bad_rows for entry in before.shards] == [((1, "bad feature", 1),), (), ((0, "bad feature", 1),)]
    assert [entry.lines for entry in before.shards] == [20, 6, 7]
    assert [source.n_bad_rows for source in before.sources] == [0, 1, 0, 0, 1]
    (tmp_path / "day6.svm").write_text("+1 1:1\n")
    for source in before.sources:
        path = tmp_path / source.name
        path.write_bytes(b" " * source.size)
        os.utime(path, ns=(source.mtime_ns, source.mtime_ns))
    source = dkfeat.LibsvmSource(str(tmp_path / "*.svm"), on_bad_row="quarantine")
    after = dkfeat.featurize(source, target, progress=False, client=ExecutionConfig(scheduler="synchronous"))
    read = reader.read_manifest(open_storage(target))
    assert read == after
    assert (read.shards[:3], read.sources[:5], read.rows) == (before.shards, before.sources, before.rows + 1)
    assert [entry.lines for entry in read.shards] == [20, 6, 7, 1]
    assert names(target, "records") != []


WRONG = [
    ("shards", "name", "../../x.parq"),
    ("shards", "name", "ABCDEF012345"),
    ("shards", "name", "0123456789ab" * 2),
    ("shards", "sha256", "0" * 63),
    ("shards", "rows", [1, 2]),
    ("shards", "rows", [-1]),
    ("shards", "rows", [1.5]),
    ("shards", "start", [999]),
    ("shards", "bad_rows", {"2": [[0, "index", 1]]}),
    ("shards", "bad_rows", {"0": [[3, "index", 1]]}),
    ("shards", "rows_by_file", {"0": [1, 1]}),
    ("shards", "lines", {"9" * 5000: 1}),
    ("splits", "pieces", [0]),
    ("splits", "pieces", [1 << 62]),
    ("splits", "source", [1]),
    ("splits", "n_files", [0]),
    ("splits", "stop", [-1]),
    ("sources", "name", ["a"]),
    ("sources", "name", "abc"),
    ("sources", "size", ["1", 2, 3]),
    ("sources", "bad_rows", {"5": {"index": 1}}),
    ("sources", "rows", None),
]


def first_segment(target):
    """Manifest 1 and the path of its segment, once more with the counts that the manifest states of it."""
    head = json.loads((target / "_dkfeat" / "manifest-000001.json").read_bytes())
    return head, target / "_dkfeat" / f"segment-{head['segments'][0]['sha256']}.json"


def read_with(target, text):
    """Read manifest 1 of a data set whose segment has this text."""
    head, _ = first_segment(NIGHTS)
    entry = head["segments"][0]
    entry |= {"sha256": hashlib.sha256(text).hexdigest(), "size": len(text)}
    (target / "_dkfeat" / f"segment-{entry['sha256']}.json").write_bytes(text)
    data = json.dumps(head).encode()
    (target / "_dkfeat" / "manifest-000001.json").write_bytes(data)
    return metadata.read_numbered(open_storage(target), 1, hashlib.sha256(data).hexdigest())


@pytest.fixture
def target(tmp_path):
    return shutil.copytree(NIGHTS, tmp_path / "features")


@pytest.mark.fault("X-01", "X-11")
@pytest.mark.parametrize(("group", "column", "values"), WRONG, ids=str)
def test_segment__wrong_columns__are_refused(target, group, column, values):
    text = json.loads(first_segment(NIGHTS)[1].read_bytes())
    text[group][column] = values
    with pytest.raises(ShardError, match="segment"):
        read_with(target, json.dumps(text).encode())


@pytest.mark.fault("X-11")
def test_manifest__without_segments__is_refused(target):
    data = json.dumps({**first_segment(target)[0], "segments": []}).encode()
    (target / "_dkfeat" / "manifest-000001.json").write_bytes(data)
    with pytest.raises(ShardError, match=r"manifest-000001\.json: lists no segments"):
        metadata.read_numbered(open_storage(target), 1, hashlib.sha256(data).hexdigest())


@pytest.mark.fault("S-06")
@pytest.mark.parametrize("change", ["gone", "cut", "changed", "of another"])
def test_segment__damaged__is_refused(target, change):
    paths = sorted((target / "_dkfeat").glob("segment-*.json"))
    newest = json.loads((target / "_dkfeat" / "manifest-000003.json").read_bytes())["segments"]
    path = next(path for path in paths if newest[0]["sha256"] in path.name)
    good = path.read_bytes()
    other = next(each for each in paths if each != path).read_bytes()
    texts = {"cut": good[:-1], "changed": good.replace(b"day1", b"day9"), "of another": other}
    path.unlink() if change == "gone" else path.write_bytes(texts[change])
    with pytest.raises(ShardError, match=r"segment-[0-9a-f]{64}\.json"):
        reader.read_manifest(open_storage(target))
