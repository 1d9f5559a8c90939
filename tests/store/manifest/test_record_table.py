"""Records in a table: there and back, joined, and refused if they contradict each other."""

from __future__ import annotations

import pickle
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import CommitError, ShardError
from dkfeat.store.manifest import record_table
from dkfeat.store.manifest.record_table import Records, Shards, Sources, planned_splits
from dkfeat.store.manifest.records import ShardEntry, SourceEntry

HASHES = "0123456789abcdef" * 4


def batch(first_split, first_file, pieces, n_files=1):
    """Records of a split with some pieces, of one file or of a group, and of a file without rows."""
    names = [f"day{first_file + number}.svm" for number in range(n_files + 1)]
    files = [SourceFile(name=name, url="", size=9, etag="tag", compression="gzip") for name in names]
    entries = [
        ShardEntry(
            split=first_split,
            piece=piece,
            last=piece == pieces - 1,
            name=f"part-{first_split:06d}-{piece:04d}-{HASHES[piece : piece + 12]}.parquet",
            size=100 + piece,
            sha256=HASHES[piece:] + HASHES[:piece],
            rows=2 * n_files,
            nnz=5,
            n_empty=1,
            source=names[0],
            range=(piece, piece + 1),
            source_sha256=HASHES,
            rows_by_file=(2,) * n_files if n_files > 1 else (),
            bad_rows=((n_files - 1, "index", 3),) if piece else (),
            lines=piece or None,
        )
        for piece in range(pieces)
    ]
    sources = [
        SourceEntry(name=file.name, size=9, mtime_ns=None, etag="tag", rows=2, bad_rows={"index": 1} if place else {})
        for place, file in enumerate(files)
    ]
    splits = [Split(number=first_split, file=files[0], others=tuple(files[1:n_files]), start=0, stop=9 * n_files)]
    return entries, sources, splits, files


def parts():
    return [batch(0, 0, 2), batch(1, 2, 1, n_files=3), batch(2, 6, 3)]


def read(data, n_sources):
    return Records.from_parquet(data, "records", n_sources=n_sources)


def test_records__there_and_back():
    for records in [*(Records.of(*each) for each in parts()), Records.of((), (), (), ())]:
        found = read(records.to_parquet(), records.n_sources)
        assert found.table.equals(records.table)
        assert found.sums() == records.sums()
        assert pickle.loads(pickle.dumps(found)).table.equals(records.table)


def test_records__joined_are_the_records_of_all():
    joined = Records.joined([Records.of(*records) for records in parts()])
    whole = read(joined.to_parquet(), joined.n_sources)
    entries, sources, splits, _ = ([*chain.from_iterable(lists)] for lists in zip(*parts(), strict=True))
    for records in (joined, whole):
        shards = Shards(records)
        assert shards == entries
        assert list(reversed(shards)) == entries[::-1]
        assert (shards[1:4], shards[-1], shards[::2]) == (tuple(entries[1:4]), entries[-1], tuple(entries[::2]))
        assert shards.names == [entry.name for entry in entries]
        assert shards.sha256 == [entry.sha256 for entry in entries]
        assert [entry.lines for entry in shards] == [entry.lines for entry in entries]
        assert [*Sources(records)] == sources
        assert [*planned_splits(records)] == splits
        assert [*planned_splits(records, {2, 1})] == splits[1:]
        with pytest.raises(IndexError):
            shards[len(entries)]


def test_records__too_long_to_be_read_again__are_refused(monkeypatch):
    monkeypatch.setattr(record_table, "MAX_BYTES", 900)
    with pytest.raises(CommitError, match=r"records of 2 shards take .*raise blocksize"):
        Records.of(*batch(0, 0, 2)).to_parquet()


WRONG = [
    ("shards", "rows", [-1, 2]),
    ("shards", "rows", [0, 2]),
    ("shards", "start", [9, 9]),
    ("shards", "bad_rows", [[], [(1, "index", 1)]]),
    ("shards", "bad_rows", [[(-1, "index", 1)], []]),
    ("shards", "rows_by_file", [[1, 1], []]),
    ("splits", "n_files", [0]),
    ("splits", "n_files", [2]),
    ("splits", "n_files", [3]),
    ("splits", "n_files", [(1 << 63) - 1]),
    ("splits", "stop", [-1]),
    ("splits", "start", [99]),
    ("sources", "size", [-1, 2]),
]


@pytest.mark.fault("X-01", "X-11")
@pytest.mark.parametrize(("group", "column", "values"), WRONG, ids=str)
def test_records__that_contradict_each_other__are_refused(group, column, values):
    made = Records.of(*batch(0, 0, 2))
    groups = {name: dict(getattr(made, name)) for name in ("sources", "splits", "shards")}
    groups[group][column] = values
    wrong = Records.of_columns(**groups, what=None)
    with pytest.raises(ShardError, match="records: "):
        read(wrong.to_parquet(), 2)


@pytest.mark.fault("X-11")
@pytest.mark.parametrize(
    ("column", "values"), [("pieces", [1]), ("pieces", [1 << 62]), ("source", [2]), ("source", [-1])]
)
def test_records__of_places_that_are_not_there__are_refused(column, values):
    made = Records.of(*batch(0, 0, 2))
    with pytest.raises(ShardError, match="its splits"):
        Records.of_columns(made.sources, {**made.splits, column: values}, made.shards)


@pytest.mark.fault("X-11")
def test_records__other_columns_or_another_number_of_sources__are_refused():
    made = Records.of(*batch(0, 0, 2))
    with pytest.raises(ShardError, match="another number of source files"):
        read(made.to_parquet(), 3)
    for table in (made.table.drop_columns(["rows"]), made.table.rename_columns([*made.table.column_names[:-1], "x"])):
        other = Records(table, None)
        with pytest.raises(ShardError, match="its columns are not"):
            read(other.to_parquet(), 2)
    nulls = made.table.set_column(1, pa.field("size", pa.int64()), pa.array([None, 2], pa.int64()))
    with pytest.raises(ShardError, match="its columns are not"):
        read(Records(nulls, None).to_parquet(), 2)


@pytest.mark.fault("X-11")
@pytest.mark.parametrize(
    "options", [{"use_dictionary": True}, {"column_encoding": {"etag": "DELTA_BYTE_ARRAY"}}], ids=str
)
def test_records__that_inflate__are_refused_unread(options, monkeypatch):
    made = Records.of(*batch(0, 0, 2))
    columns = {**made.sources, "etag": pa.array(["x" * 10_000] * made.n_sources)}
    sink = pa.BufferOutputStream()
    table = Records.of_columns(columns, made.splits, made.shards).table
    pq.write_table(table, sink, **{"use_dictionary": False, **options})
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    with pytest.raises(ShardError, match="are encoded as"):
        read(sink.getvalue().to_pybytes(), made.n_sources)


@pytest.mark.fault("X-11")
def test_records__of_many_row_groups__are_bounded_together(monkeypatch):
    made = Records.joined([Records.of(*records) for records in parts()])
    sink = pa.BufferOutputStream()
    pq.write_table(made.table, sink, use_dictionary=False, row_group_size=1)
    data = sink.getvalue().to_pybytes()
    assert read(data, made.n_sources).table.equals(made.table)
    for limit, most, message in (("_MOST_GROUPS", 7, "8 row groups, too many"), ("MAX_BYTES", 500, "bytes, too many")):
        with monkeypatch.context() as patch:
            patch.setattr(record_table, limit, most)
            with pytest.raises(ShardError, match=message):
                read(data, made.n_sources)


@pytest.mark.fault("X-11")
@given(data=st.data())
def test_records__changed_bytes__never_crash(data):
    made = Records.joined([Records.of(*records) for records in parts()])
    text = bytearray(made.to_parquet())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        found = read(bytes(text), made.n_sources)
    except ShardError:
        return
    assert len([*Shards(found)]) == found.n_shards
    assert len([*Sources(found)]) == found.n_sources
    assert np.all(found.shards["rows"] >= 0)
