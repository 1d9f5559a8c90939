from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dkfeat import canonical as strict_json
from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import DkfeatError, ShardError, SpecConflictError
from dkfeat.store.manifest.batch_plan import BatchPlan
from dkfeat.store.manifest.former import read_records
from dkfeat.store.manifest.manifest import Manifest, PreviousManifest, parse_head
from dkfeat.store.manifest.records import ShardEntry, SourceEntry, check_shard_name
from tests.store.tiny_job import TinyJob, write_sources

ENTRY = ShardEntry(
    split=0,
    piece=0,
    last=True,
    name="part-000000-0000-3f9c2a71b0de.parquet",
    size=418_879,
    sha256="a" * 64,
    rows=1700,
    nnz=68_001,
    n_empty=3,
    source="day1.svm.gz",
    range=(0, 1 << 20),
    source_sha256="b" * 64,
)


SOURCE = SourceEntry(name="day1.svm.gz", size=123, mtime_ns=1, etag=None, rows=1700)
FILE = SourceFile(name="day1.svm.gz", url="", size=123, mtime_ns=1)


def values_of(*entries, **changes):
    """Values of a manifest of the first format, which lists its records."""
    entries = entries or (ENTRY,)
    values = {
        "format": 1,
        "requires": [],
        "number": 1,
        "previous": None,
        "spec_fp": "c" * 64,
        "schema": {"label": "int64", "codes": "fixed_size_binary[256]"},
        "n_features": 1 << 20,
        "labels": (-1, 1, 2.5),
        "rows": sum(entry.rows for entry in entries),
        "nnz": sum(entry.nnz for entry in entries),
        "n_empty_rows": sum(entry.n_empty for entry in entries),
        "shards": list(entries),
        "sources": [SOURCE],
        "run": {"id": "f" * 32, "host": "über"},
    }
    return {**values, **changes}


def read(text):
    """Read a manifest of the first format; its plan is made up."""
    head, values = parse_head(text)
    shards = values.get("shards") if isinstance(values.get("shards"), list) else []
    n_splits = 1 + max((entry.get("split", 0) for entry in shards if isinstance(entry, dict)), default=-1)
    return Manifest.of(head, read_records(_Planned(n_splits, len(values.get("sources") or ())), head, values))


class _Planned:
    """Storage with one plan of splits of a file, as often as a manifest lists sources."""

    url = "target"

    def __init__(self, n_splits, n_sources):
        splits = tuple(Split(number=number, file=FILE, start=0, stop=9) for number in range(n_splits))
        self.plan = BatchPlan(number=1, spec_fp="c" * 64, files=(FILE,), splits=splits)
        self.n_sources = n_sources

    def map(self, _, numbers):
        return [replace(self.plan, files=(FILE,) * self.n_sources)] * bool(numbers)


def manifest(*entries, **changes):
    return read(strict_json.dumps(values_of(*entries, **changes)))


def at(split, piece, *, last=True):
    name = f"part-{split:06d}-{piece:04d}-3f9c2a71b0de.parquet"
    return replace(ENTRY, split=split, piece=piece, last=last, name=name)


def changed(**values):
    return json.dumps({**json.loads(strict_json.dumps(values_of())), **values}).encode()


def test_json__of_the_first_format():
    made = manifest(at(0, 0, last=False), at(0, 1), at(1, 0))
    assert [*made.shards] == [at(0, 0, last=False), at(0, 1), at(1, 0)]
    assert [*made.sources] == [SOURCE]
    assert len(made.sha256) == 64
    assert [type(label) for label in made.labels] == [int, int, float]


def test_json__is_as_documented(tmp_path):
    job = TinyJob(write_sources(tmp_path / "in"), tmp_path / "out")
    text = job.run().to_json()
    keys = "format requires number previous spec_fp schema n_features labels rows nnz n_empty_rows records_file run"
    assert list(json.loads(text)) == keys.split()
    assert list(json.loads(text)["records_file"]) == ["sha256", "size", "sources", "splits", "shards"]
    assert text == (job.target / "_dkfeat/manifest-000001.json").read_bytes()


@pytest.mark.fault("V-06")
def test_json__unknown_keys_are_ignored():
    text = json.loads(changed(new={"a": [1]}))
    text["shards"][0]["new"] = 1
    text["sources"][0]["owner"] = "x"
    assert read(json.dumps(text).encode()) == manifest()


@pytest.mark.fault("V-06")
@pytest.mark.parametrize("change", [{"format": 2}, {"requires": ["deltas"]}, {"format": 99, "shards": "else"}])
def test_json__from_a_newer_dkfeat__is_a_conflict(change):
    with pytest.raises(SpecConflictError, match="written by a newer dkfeat") as fault:
        read(changed(**change))
    assert fault.value.exit_code == 4


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0},
        {"format": True},
        {"number": 0},
        {"number": 2},
        {"previous": {"name": "manifest-000000.json", "sha256": "a" * 64}},
        {"previous": {"name": "../manifest-000001.json", "sha256": "a" * 64}, "number": 2},
        {"previous": {"name": "manifest-000001.json", "sha256": "A" * 64}, "number": 2},
        {"n_features": -1},
        {"rows": 1701},
        {"nnz": 0},
        {"n_empty_rows": 4},
        {"sources": [{}]},
    ],
    ids=str,
)
def test_json__wrong_values__are_refused(change):
    with pytest.raises(ShardError):
        read(changed(**change))


@pytest.mark.parametrize("key", list(values_of()))
def test_json__missing_key__is_refused(key):
    text = json.loads(changed())
    del text[key]
    with pytest.raises(ShardError, match=key):
        read(json.dumps(text).encode())


BAD_NAMES = [
    "../x.parquet",
    "/x.parquet",
    "a/../../x",
    "C:\\x",
    "file:///x",
    "s3://other/x",
    "part-000000-0000-3f9c2a71b0de.parquet\0",
    "part-000000-0000-3f9c2a71b0de.parquet\n",
    "%2e%2e/part-000000-0000-3f9c2a71b0de.parquet",
    "data/part-000000-0000-3f9c2a71b0de.parquet",
    "part-00000-0000-3f9c2a71b0de.parquet",
    "part-000000-0000-3F9C2A71B0DE.parquet",
    "part-\u0660\u0660\u0660\u0660\u0660\u0660-0000-3f9c2a71b0de.parquet",
    "",
    None,
    7,
]


@pytest.mark.fault("X-01")
@pytest.mark.parametrize("name", BAD_NAMES)
def test_names__other_than_a_shards__are_refused(name):
    with pytest.raises(ShardError) as fault:
        check_shard_name(name)
    assert str(fault.value).isascii()
    with pytest.raises(ShardError):
        replace(ENTRY, name=name)


@pytest.mark.parametrize(
    "change", [{"split": 1}, {"size": -1}, {"n_empty": 1701}, {"sha256": "b" * 63}, {"range": (5, 4)}], ids=str
)
def test_entry__wrong_values__are_refused(change):
    entry = {**json.loads(changed())["shards"][0], **change}
    with pytest.raises(ShardError):
        read(changed(shards=[entry]))


@pytest.mark.parametrize(
    "entries",
    [
        [at(1, 0)],
        [at(0, 1)],
        [at(0, 0, last=False)],
        [at(0, 0), at(0, 0)],
        [at(0, 0), at(2, 0)],
        [at(0, 0), at(0, 1)],
        [at(1, 0), at(0, 0)],
        [at(0, 0, last=False), at(1, 0)],
        [at(0, 0, last=False), at(0, 2)],
    ],
)
def test_manifest__hole_double_or_disorder__is_refused(entries):
    with pytest.raises(ShardError, match=r"expected split|last piece"):
        manifest(*entries)


def test_manifest__source_twice__is_refused():
    with pytest.raises(ShardError, match="twice"):
        manifest(sources=[SOURCE, SOURCE])


def test_manifest__successor():
    previous = PreviousManifest(name="manifest-000001.json", sha256="d" * 64)
    assert manifest(number=2, previous=previous).previous == previous
    with pytest.raises(ShardError):
        manifest(number=2)


@pytest.mark.fault("X-11")
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":18446744073709551616}',
        b'{"a":-9223372036854775809}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":1}x',
        b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}",
        b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"a":' * 200_000,
    ],
    ids=lambda text: text[:24],
)
def test_strict_json__refuses(text):
    with pytest.raises(ShardError):
        strict_json.parse_object(text, "x")


@pytest.mark.parametrize(
    "change",
    [
        {"files": [{"name": "a"}]},
        {"splits": [{"number": 0, "file": "b", "start": 0, "stop": 1}]},
        {"files": [{"name": "a", "size": -1, "mtime_ns": 2, "etag": None, "compression": None}]},
        {"format": 2},
    ],
    ids=str,
)
def test_plan__wrong_values__are_refused(change):
    file = {"name": "a", "size": 1, "mtime_ns": 2, "etag": None, "compression": None}
    split = {"number": 0, "file": "a", "start": 0, "stop": 1}
    whole = {"format": 1, "number": 1, "spec_fp": "c" * 64, "files": [file], "splits": [split]}
    plan = BatchPlan.from_json(json.dumps(whole).encode(), "plan")
    assert json.loads(plan.to_json()) == whole
    with pytest.raises(DkfeatError):
        BatchPlan.from_json(json.dumps({**whole, **change}).encode(), "plan")
