from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix

import dkfeat
from dkfeat.errors import ConfigError, DkfeatError, ShardError, SpecConflictError
from dkfeat.store.shards import codec as shards
from dkfeat.store.shards import columns as rows
from dkfeat.store.shards import reader
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.local import LocalStorage
from tests.invariants import verified
from tests.store.shards.test_codec import codes, encode, parts
from tests.store.tiny_job import ROW_BYTES, TinyJob, features, pieces, write_sources

FORMATS = Path(__file__).parents[2] / "data" / "formats"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A committed data set that no test changes."""
    folder = tmp_path_factory.mktemp("whole")
    job = TinyJob(write_sources(folder / "in"), folder / "out")
    job.run()
    return job


@pytest.fixture
def job(tmp_path):
    made = TinyJob(write_sources(tmp_path / "in", files=1), tmp_path / "out")
    made.run()
    return made


def expected_rows(job):
    lines = [line for split in job.splits() for _, _, text in pieces(split) for line in text.splitlines()]
    return features(lines, job.seed)


def opened(job):
    return reader.open_reader(open_storage(job.target))


def test_read__gives_the_rows_in_source_order(whole):
    it = opened(whole)
    encoded, labels = expected_rows(whole)
    data = [it.read(entry) for entry in it.manifest.shards]
    assert np.array_equal(np.concatenate([part.X.codes for part in data]), encoded.codes)
    assert np.array_equal(np.concatenate([part.X.empty for part in data]), encoded.empty)
    assert np.array_equal(np.concatenate([part.y for part in data]), labels)
    assert all(part.qid is None and part.label_offsets is None for part in data)


def test_read__columns_asked_for_alone(whole):
    it = opened(whole)
    entry = it.manifest.shards[0]
    labels = it.read(entry, only=["label"])
    assert labels.X is None
    assert np.array_equal(labels.y, it.read(entry).y)
    encoded = it.read(entry, only=["encoded"])
    assert encoded.y is None
    assert np.array_equal(encoded.X.codes, it.read(entry).X.codes)


def test_read__codes_are_not_copied_out_of_arrow():
    table = pa.table({"codes": pa.array([b"ab", b"cd"], pa.binary(2))})
    encoded = rows.from_table(table, 2).X
    assert encoded.codes.__array_interface__["data"][0] == table["codes"].chunk(0).buffers()[1].address


def test_reader__other_spec__is_a_conflict(whole):
    it = opened(whole)
    with pytest.raises(SpecConflictError, match="another spec"):
        reader.ShardReader(it.storage, {**it.spec, "map": {}}, it.manifest)


def test_read__unknown_verification__is_refused(whole):
    it = opened(whole)
    with pytest.raises(ConfigError, match="sha256"):
        it.read(it.manifest.shards[0], "none")


def test_foreign_readers__see_equal_rows(whole):
    encoded, labels = expected_rows(whole)
    values = [None if empty else row.tobytes() for row, empty in zip(encoded.codes, encoded.empty, strict=True)]
    data = str(whole.target / "data")
    table = pyarrow.dataset.dataset(data, format="parquet").to_table()
    assert table["codes"].to_pylist() == values
    assert table["label"].to_pylist() == labels.tolist()
    frame = pd.read_parquet(data)
    assert [None if value is None or value is pd.NA else value for value in frame["codes"]] == values
    assert frame["label"].tolist() == labels.tolist()
    lazy = pl.scan_parquet(data).collect()
    assert lazy["codes"].to_list() == values
    assert lazy["label"].to_list() == labels.tolist()
    with duckdb.connect() as connection:
        query = f"select label, codes from read_parquet('{data}/*.parquet', file_row_number=true, filename=true)"
        found = connection.execute(f"{query} order by filename, file_row_number").fetchall()
    assert found == list(zip(labels.tolist(), values, strict=True))


@pytest.mark.parametrize("layout", ["sparse", "dense"])
def test_foreign_readers__see_lists_of_numbers(tmp_path, layout):
    given = parts(layout, 30)
    file = str(tmp_path / "one.parquet")
    Path(file).write_bytes(encode(**given).data)
    with duckdb.connect() as connection:
        found = connection.execute(f"select * exclude (label) from '{file}'").fetchall()
    rows_of = [given["encoded"][at] for at in range(30)]
    if layout == "dense":
        expected = [(row.tolist(),) for row in rows_of]
    else:
        expected = [(row.indices.tolist(), row.data.tolist()) for row in rows_of]
    frame = pd.read_parquet(file).drop(columns="label")
    assert found == pl.read_parquet(file).drop("label").rows() == expected
    assert [tuple(column.tolist() for column in row) for row in frame.itertuples(index=False)] == expected


def damaged(job, change):
    """Apply `change` to the bytes of one shard, and return its entry."""
    entry = reader.read_manifest(open_storage(job.target)).shards[1]
    path = job.target / "data" / entry.name
    path.write_bytes(change(bytearray(path.read_bytes())))
    return entry


@pytest.mark.fault("S-05")
@pytest.mark.parametrize(
    "change",
    [lambda data: data[:-1], lambda data: data[: len(data) // 2], lambda _: b"", lambda data: data + b"\0"],
    ids=["cut by one", "cut to half", "emptied", "longer"],
)
@pytest.mark.parametrize("how", ["sha256", "size"])
def test_read__shard_of_another_size__names_it(job, change, how):
    entry = damaged(job, change)
    with pytest.raises(ShardError, match=entry.name) as fault:
        opened(job).read(entry, how)
    assert fault.value.exit_code == 3
    [problem] = verified(job.target).problems
    assert entry.name in problem


@pytest.mark.fault("S-05")
def test_read__no_bit_flip_passes(job):
    it = opened(job)
    entry = it.manifest.shards[1]
    path = job.target / "data" / entry.name
    good = path.read_bytes()
    for bit in range(0, len(good) * 8, 29):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(ShardError, match=entry.name):
            opened(job).read(entry)
    path.write_bytes(good)
    it.read(entry)


@pytest.mark.fault("S-05")
def test_read__page_checksums__find_what_size_alone_would_not(job):
    it = opened(job)
    entry = it.manifest.shards[1]
    path = job.target / "data" / entry.name
    place = path.read_bytes().index(it.read(entry).X.codes[0].tobytes())
    damaged(job, lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(ShardError, match=f"{entry.name}.*(?i:crc|checksum)"):
        opened(job).read(entry, "size")


def test_read__hash_is_compared_once(whole, monkeypatch):
    it = opened(whole)
    hashed = []
    real = hashlib.sha256
    monkeypatch.setattr(reader.hashlib, "sha256", lambda data: hashed.append(1) or real(data))
    for _ in range(3):
        it.read(it.manifest.shards[0])
    assert len(hashed) == 1


@pytest.mark.fault("X-02")
def test_read__shard_replaced_by_a_link__is_refused(job, tmp_path):
    entry = reader.read_manifest(open_storage(job.target)).shards[0]
    path = job.target / "data" / entry.name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ShardError, match=entry.name):
        opened(job).read(entry)
    path.unlink()
    os.link(tmp_path / "elsewhere", path)
    opened(job).read(entry)


def substituted(it, entry, **changes):
    """Put another whole shard in place of one, and return an entry that vouches for its bytes."""
    good = it.read(entry)
    given = {"layout": "codes", "encoded": good.X, "labels": good.y}
    keys = ("split", "piece", "last", "source", "range", "source_sha256", "rows", "nnz", "n_empty")
    stated = {"spec_fp": it.manifest.spec_fp, **{key: getattr(entry, key) for key in keys}}
    footer_keys = {key: value for key, value in changes.items() if key in (*keys, "spec_fp")}
    given |= {key: value for key, value in changes.items() if key not in footer_keys}
    made = encode(**given, footer=shards.ShardFooter(**{**stated, **footer_keys}, versions=shards.versions()))
    (Path(it.storage.url) / "data" / entry.name).write_bytes(made.data)
    return replace(entry, size=len(made.data), sha256=made.sha256)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"split": 1}, "not that of split 1"),
        ({"spec_fp": "0" * 64}, "footer does not agree"),
        ({"nnz": 0}, "footer does not agree"),
        ({"last": True}, "footer does not agree"),
        ({"qid": "rows"}, "columns are"),
        ({"labels": "floats"}, "columns are"),
        ({"encoded": "wide"}, "columns are"),
    ],
)
def test_read__whole_but_wrong_shard__is_refused(job, change, reason):
    it = opened(job)
    entry = it.manifest.shards[0]
    n_rows = entry.rows
    values = {
        "rows": np.zeros(n_rows, np.int64),
        "floats": np.zeros(n_rows),
        "wide": codes(n_rows, ROW_BYTES + 1, every=7)._replace(empty=it.read(entry).X.empty),
    }
    change = {key: values.get(value, value) if isinstance(value, str) else value for key, value in change.items()}
    entry = substituted(it, entry, **change)
    with pytest.raises(ShardError, match=reason):
        it.read(entry)


def lists(values, kind):
    return pa.array(values, pa.list_(kind))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"indices": lists([[1, 3]], pa.int32()), "values": lists([[1.0]], pa.float32())}, "different lengths"),
        ({"indices": lists([[0], [3, 1]], pa.int32())}, "row 1: indices do not ascend"),
        ({"indices": lists([[0], [3, 3]], pa.int32())}, "row 1: indices do not ascend"),
        ({"indices": lists([[0, 1], [5]], pa.int32())}, "expected 0 to 4"),
        ({"indices": lists([[-1]], pa.int32())}, "expected 0 to 4"),
        ({"indices": lists([[1]], pa.int32()), "values": lists([[np.nan]], pa.float32())}, "not finite"),
        ({"indices": lists([[None]], pa.int32())}, "nulls inside lists"),
        ({"indices": lists([None], pa.int32())}, "nulls, but none are allowed"),
        ({"features": lists([[1.0] * 4], pa.float32())}, "does not have 5 values"),
        ({"features": lists([[1.0] * 4, [1.0] * 6], pa.float32())}, "does not have 5 values"),
        ({"features": lists([[1.0] * 4 + [np.inf]], pa.float32())}, "not finite"),
        ({"codes": pa.array([b"abcd"], pa.binary(4))}, "expected fixed_size_binary"),
        ({"codes": pa.array([b"abcde"])}, "expected fixed_size_binary"),
        ({"label": pa.array([1, None])}, "nulls, but none are allowed"),
    ],
)
def test_rows__that_contradict_the_layout__are_refused(columns, reason):
    with pytest.raises(ShardError, match=reason):
        rows.from_table(pa.table(columns), 5)


def test_rows__without_values__are_ones():
    matrix = rows.from_table(pa.table({"indices": lists([[0, 4], [], [2]], pa.int32())}), 5).X
    assert (matrix != csr_matrix([[1, 0, 0, 0, 1], [0] * 5, [0, 0, 1, 0, 0]])).nnz == 0


def test_rows__of_several_chunks_and_hidden_null_bytes():
    hidden = pa.FixedSizeBinaryArray.from_buffers(pa.binary(2), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(b"abcd")])
    column = pa.chunked_array([hidden, pa.array([b"ef"], pa.binary(2))])
    encoded = rows.from_table(pa.table({"codes": column}), 2).X
    assert encoded.codes.tobytes() == b"ab\0\0ef"
    assert encoded.empty.tolist() == [False, True, False]


@pytest.mark.fault("S-06")
def test_manifest__no_changed_byte_passes(job):
    meta = job.target / "_dkfeat" / "manifest-000001.json"
    good = meta.read_bytes()
    storage = open_storage(job.target)
    for place in range(0, len(good), 7):
        meta.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        with pytest.raises(DkfeatError):
            reader.read_manifest(storage)
    for cut in (0, 1, len(good) // 2, len(good) - 1):
        meta.write_bytes(good[:cut])
        with pytest.raises(DkfeatError):
            reader.read_manifest(storage)
    meta.unlink()
    with pytest.raises(ShardError, match="the manifest that it names does not"):
        reader.read_manifest(storage)


@pytest.mark.fault("S-06")
@pytest.mark.parametrize(
    "text", ["", "{}", "x", '{"manifest": 1, "sha256": "a"}', '{"manifest": "manifest-000001.json"}']
)
def test_success__unreadable__is_refused(job, text):
    (job.target / "_SUCCESS").write_text(text)
    for call in (lambda: reader.read_manifest(open_storage(job.target)), job.run):
        with pytest.raises(ShardError, match=r"_SUCCESS: .* or delete it and repeat the run"):
            call()


@pytest.mark.fault("S-06")
@pytest.mark.parametrize("gone", ["spec.json", "manifest-000001.json", "manifest-000002.json", "records-*.parquet"])
def test_metadata__file_is_gone__is_refused(job, gone):
    write_sources(job.sources, files=1, first=3)
    job.run()
    for path in (job.target / "_dkfeat").glob(gone):
        path.unlink()
    with pytest.raises(ShardError):
        reader.read_manifest(open_storage(job.target))


@pytest.mark.fault("S-06")
def test_metadata__former_manifest_changed__is_refused(job):
    write_sources(job.sources, files=1, first=3)
    job.run()
    path = job.target / "_dkfeat" / "manifest-000001.json"
    path.write_bytes(path.read_bytes().replace(b'"numeric_env":"plain"', b'"numeric_env":"other"'))
    with pytest.raises(ShardError, match="changed since"):
        reader.read_manifest(open_storage(job.target))


@pytest.mark.fault("S-06")
@pytest.mark.parametrize("change", ["spec", "sources", "splits", "names"])
def test_metadata__that_does_not_agree__is_refused(job, change):
    """Of the first format, whose manifests need their plans."""
    shutil.rmtree(job.target)
    shutil.copytree(FORMATS / "v1", job.target)
    meta = job.target / "_dkfeat"
    (job.target / "_SUCCESS").unlink()
    plan = json.loads((meta / "plan-000001.json").read_bytes())
    if change == "spec":
        (meta / "spec.json").write_text(json.dumps({**job.spec, "more": 1}))
    elif change == "sources":
        plan["files"][0]["size"] += 1
    elif change == "splits":
        plan["splits"].pop()
    else:
        plan["files"][0]["name"] = "else"
        for split in plan["splits"]:
            split["file"] = "else"
    (meta / "plan-000001.json").write_text(json.dumps(plan))
    with pytest.raises(ShardError):
        reader.read_manifest(open_storage(job.target))


@pytest.mark.fault("C-06")
@pytest.mark.parametrize("what", ["nothing", "a file", "an empty folder", "not finished"])
def test_target__without_a_data_set__is_told(tmp_path, what):
    target = tmp_path / "out"
    if what == "a file":
        target.write_text("x")
    elif what == "an empty folder":
        target.mkdir()
    elif what == "not finished":
        open_storage(target).prepare()
    with pytest.raises(
        ShardError, match=r"not a data set|no such folder|not a folder of shards|repeat the run of featurize or predict"
    ):
        reader.read_manifest(open_storage(target))
    with pytest.raises(ShardError):
        reader.read_spec(open_storage(target))


@pytest.mark.fault("S-07")
def test_unlisted__are_ignored_and_told_by_verify(job, monkeypatch):
    stranger = io.BytesIO()
    pq.write_table(pa.table({"label": [1]}), stranger)
    (job.target / "data" / "part-000077-0000-3f9c2a71b0de.parquet").write_bytes(stranger.getvalue())
    with monkeypatch.context() as patch:
        lists = LocalStorage.list  # a reader lists no shards, which takes minutes for a million of them in a store
        patch.setattr(LocalStorage, "list", lambda self, name, **more: {"_dkfeat": lists}[name](self, name, **more))
        it = opened(job)
        for entry in it.manifest.shards:
            it.read(entry)
    (job.target / "data" / "notes.txt").write_text("of somebody else")
    report = verified(job.target)
    assert report.unlisted == ["notes.txt", "part-000077-0000-3f9c2a71b0de.parquet"]
    assert len(report.problems) == 1
    assert "part-000077-0000-3f9c2a71b0de.parquet: no manifest lists this shard" in report.problems[0]


def test_verify__reports_every_problem(job):
    names = [entry.name for entry in opened(job).manifest.shards]
    (job.target / "data" / names[0]).unlink()
    (job.target / "data" / names[2]).write_bytes(b"")
    report = verified(job.target)
    assert len(report.problems) == 2
    assert f"{names[0]}: damaged: " in report.problems[0]
    assert "it is missing" in report.problems[0]
    assert names[2] in report.problems[1]
    assert report.n_shards == len(names)


def test_verify__storage_fails__is_reported(job, monkeypatch):
    entry = opened(job).manifest.shards[0]
    storage = open_storage(job.target)
    load = storage.load

    def failing(name, size):
        if name.endswith(entry.name):
            raise OSError(5, "Input/output error")
        return load(name, size)

    monkeypatch.setattr(storage, "load", failing)
    [problem] = verified(storage).problems
    assert entry.name in problem


def test_verify__data_is_gone__is_a_clean_error(job):
    shutil.rmtree(job.target / "data")
    with pytest.raises(ShardError, match="cannot be listed"):
        verified(job.target)


@pytest.mark.fault("C-06")
def test_readers__while_batches_are_added__see_whole_states(tmp_path):
    job = TinyJob(write_sources(tmp_path / "in", files=1), tmp_path / "out", pause=0.002)
    job.run()
    seen, faults, stop = [], [], threading.Event()

    def read():
        while not stop.is_set():
            try:
                it = reader.open_reader(open_storage(job.target))
                count = sum(len(it.read(entry).y) for entry in it.manifest.shards)
                assert count == it.manifest.rows == 24 * it.manifest.number
                assert dkfeat.status(job.target).state in ("running", "unfinished", "complete")
                seen.append(it.manifest.number)
            except Exception as fault:  # any fault at all is what this test looks for
                faults.append(repr(fault))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        while not seen and not faults:
            time.sleep(0.001)
        for batch in range(1, 6):
            write_sources(job.sources, files=1, first=batch)
            job.run()
        while not faults and (not seen or seen[-1] < 6):
            time.sleep(0.001)
    finally:
        stop.set()
        thread.join()
    assert faults == []
    assert seen == sorted(seen)
