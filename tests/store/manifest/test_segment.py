"""Segments: columns there and back, joined and cut, and refused if they contradict each other."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import ShardError
from dkfeat.store.manifest import segment
from dkfeat.store.manifest.record_lists import Shards, Sources, planned_splits
from dkfeat.store.manifest.records import ShardEntry, SourceEntry
from dkfeat.store.manifest.segment import EMPTY, MOST_RECORDS, Segment, to_merge

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


def test_segment__there_and_back():
    for records in parts():
        made = Segment.of(*records)
        read = Segment.from_json(made.to_json())
        assert read.to_json() == made.to_json()
        assert read.entry(made.to_json()) == made.entry(made.to_json())
    assert Segment.from_json(EMPTY.to_json()).n_shards == 0


def test_segments__joined_are_the_records_of_all():
    made = [Segment.of(*records) for records in parts()]
    whole = Segment.from_json(Segment.joined(made).to_json())
    entries, sources, splits, _ = ([*chain.from_iterable(lists)] for lists in zip(*parts(), strict=True))
    shards = Shards(whole)
    assert shards == entries
    assert list(reversed(shards)) == entries[::-1]
    assert (shards[1:4], shards[-1], shards[::2]) == (tuple(entries[1:4]), entries[-1], tuple(entries[::2]))
    assert shards.names == [entry.name for entry in entries]
    assert [*Sources(whole)] == sources
    assert [*planned_splits(whole)] == splits
    assert [*planned_splits(whole, {2, 1})] == splits[1:]
    with pytest.raises(IndexError):
        shards[len(entries)]


def test_segments__shards_are_read_when_they_are_used():
    made = [Segment.of(*records) for records in parts()]
    texts = [part.to_json() for part in made]
    references = [part.entry(text) for part, text in zip(made, texts, strict=True)]
    pairs = [*zip(texts, references, strict=True)]
    later = Segment.joined([Segment.from_json(text, stated=stated, later=True) for text, stated in pairs])
    assert later.n_shards == sum(part.n_shards for part in made)
    assert pickle.loads(pickle.dumps(later)).to_json() == later.to_json() == Segment.joined(made).to_json()
    wrong = Segment.from_json(texts[0], stated=replace(references[0], rows=references[0].rows + 1), later=True)
    for _ in range(2):
        with pytest.raises(ShardError, match="states other sums"):
            _ = wrong.shards
    with pytest.raises(ShardError, match="states other sums"):
        Segment.from_json(texts[0], stated=references[1], later=True)


def test_segment__too_long_for_a_file__is_cut_between_sources(monkeypatch):
    whole = Segment.joined([Segment.of(*records) for records in parts()])
    monkeypatch.setattr(segment, "MAX_BYTES", 900)
    files = whole.files()
    assert [entry.splits for entry, _ in files] == [1, 1, 1]
    read = [Segment.from_json(text) for _, text in files]
    assert Segment.joined(read).to_json() == whole.to_json()


@given(sizes=st.lists(st.integers(1, 3 * MOST_RECORDS), max_size=60))
def test_segments__few_of_them_are_small(sizes):
    held, rewritten = [], 0
    for size in sizes:
        entries = [Segment.of((), (), (), ()).entry(b"")] * len(held)
        entries = [replace(entry, sources=records) for entry, records in zip(entries, held, strict=True)]
        n_merged = to_merge(entries, size)
        joined = held[len(held) - n_merged :]
        rewritten += sum(joined)
        held[len(held) - n_merged :] = [size + sum(joined)]
        assert all(records <= MOST_RECORDS for records in joined)
    assert sum(held) == sum(sizes)
    assert sum(records <= MOST_RECORDS for records in held) <= MOST_RECORDS.bit_length() + 1
    assert rewritten <= sum(sizes) * (MOST_RECORDS.bit_length() + 1)


WRONG = [
    ("shards", "name", "../../x.parq"),
    ("shards", "name", "ABCDEF012345" * 2),
    ("shards", "name", "0123456789ab"),
    ("shards", "sha256", HASHES),
    ("shards", "rows", [1]),
    ("shards", "rows", [-1, 2]),
    ("shards", "rows", [1 << 63, 2]),
    ("shards", "rows", [0, 2]),
    ("shards", "rows", [1.0, 2]),
    ("shards", "start", [9, 9]),
    ("shards", "bad_rows", {"2": [[0, "index", 1]]}),
    ("shards", "bad_rows", {"0": [[1, "index", 1]]}),
    ("shards", "bad_rows", {"-1": [[0, "index", 1]]}),
    ("shards", "rows_by_file", {"0": [1, 1]}),
    ("shards", "lines", {"x": 1}),
    ("splits", "pieces", [1]),
    ("splits", "pieces", [0, 2]),
    ("splits", "pieces", [1 << 62]),
    ("splits", "source", [2]),
    ("splits", "source", [1 << 62]),
    ("splits", "n_files", [0]),
    ("splits", "n_files", [2]),
    ("splits", "n_files", [(1 << 63) - 1]),
    ("splits", "stop", [-1]),
    ("splits", "start", [99]),
    ("sources", "name", ["a"]),
    ("sources", "name", ["", "b"]),
    ("sources", "size", ["1", 2]),
    ("sources", "etag", [1, 2]),
    ("sources", "bad_rows", {"5": {"index": 1}}),
    ("sources", "rows", None),
]


@pytest.mark.fault("X-01", "X-11")
@pytest.mark.parametrize(("group", "column", "values"), WRONG, ids=str)
def test_segment__wrong_columns__are_refused(group, column, values):
    text = json.loads(Segment.of(*batch(0, 0, 2)).to_json())
    text[group][column] = values
    with pytest.raises(ShardError, match="segment"):
        Segment.from_json(json.dumps(text).encode())


@pytest.mark.fault("X-11")
@settings(max_examples=300)
@given(data=st.data())
def test_segment__changed_bytes__never_crash(data):
    text = bytearray(Segment.joined([Segment.of(*records) for records in parts()]).to_json())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        read = Segment.from_json(bytes(text))
    except ShardError:
        return
    assert len([*Shards(read)]) == read.n_shards
    assert len([*Sources(read)]) == read.n_sources
    assert np.all(read.shards["rows"] >= 0)
