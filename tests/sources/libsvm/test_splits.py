"""The same rows for any cut of the bytes, any blocksize and any window."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkfeat.blocks import Split
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.sources import lines
from dkfeat.sources.libsvm.source import LibsvmSource
from dkfeat.sources.pieces import Piece
from tests.reference.libsvm import read_rows
from tests.sources.strategies import libsvm_texts, partitions

OPTIONS = {"n_features": 40, "zero_based": False, "label_dtype": "float64"}
TEXT = (
    "\ufeff# 数据 ü\r\n1 1:1 2:2\r\n\r\n-1 3:0.5 # ü\n2\n"
    + "0.5 "
    + " ".join(f"{i}:{i}.25" for i in range(1, 27))
    + "\r\n"
    "   \n#\n3 40:1e3\n# 終\n1 2:3"
).encode()


def pieces_of(path, splits=None, **options) -> list[Piece]:
    rows = options.pop("max_piece_rows", None)
    source = LibsvmSource(str(path), **{**OPTIONS, **options})
    return [piece for split in splits or source.splits() for piece in source.read(split, rows)]


def rows_of(pieces: list[Piece]):
    """All rows as plain values."""
    rows = []
    for block in (piece.block for piece in pieces):
        X, ends = block.X, block.X.indptr
        for i in range(X.shape[0]):
            own = slice(ends[i], ends[i + 1])
            rows.append((block.y[i].item(), X.indices[own].tolist(), X.data[own].tolist()))
    return rows


def expected_rows(data: bytes):
    return [
        (row.labels[0], [index - 1 for index in row.features], np.float32(list(row.features.values())).tolist())
        for row in read_rows(data)
    ]


def assert_pieces_tile(pieces: list[Piece], data: bytes, start: int, stop: int) -> None:
    """Pieces follow one another from start to stop, and their hashes are those of their bytes."""
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    ends = [start, *(piece.stop for piece in pieces)]
    assert [piece.start for piece in pieces] == ends[:-1]
    assert ends[-1] == stop
    for piece in pieces:
        assert piece.source_sha256 == hashlib.sha256(data[piece.start : piece.stop]).hexdigest()


def test_splits__too_many_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MOST_RANGES", 20)
    path = tmp_path / "rows.svm"
    path.write_bytes(b"1 1:1\n" * 4)
    with pytest.raises(ConfigError, match=r"cuts 24 bytes of text into more than 20 tasks; raise blocksize to 1MiB"):
        LibsvmSource(str(path), blocksize=1).splits()
    assert len(LibsvmSource(str(path), blocksize=2).splits()) == 12


@pytest.mark.fault("I-18", "I-25", "I-26")
@given(data=libsvm_texts(), cuts=st.data())
def test_splits__any_partition_gives_the_rows_of_the_whole(tmp_path, data, cuts):
    path = tmp_path / "rows.svm"
    path.write_bytes(data)
    (whole,) = LibsvmSource(str(path), **OPTIONS).splits()
    bounds = [0, *(cut for cut in cuts.draw(partitions(len(data))) if cut < len(data)), len(data)]
    splits = [Split(number=i, file=whole.file, start=a, stop=b) for i, (a, b) in enumerate(pairwise(bounds))]
    window = cuts.draw(st.sampled_from([1, 7, 64, 1 << 20]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "WINDOW_BYTES", window)
        patch.setattr(lines, "_TAIL_BYTES", min(window, 1 << 16))
        parts = [pieces_of(path, [split]) for split in splits]
    assert rows_of([piece for part in parts for piece in part]) == expected_rows(data)
    ends = [0, *(data.find(b"\n", cut - 1) + 1 or len(data) for cut in bounds[1:-1]), len(data)]
    for part, (start, stop) in zip(parts, pairwise(ends), strict=True):
        if rows_of(part):  # a range within one line has a place of its own
            assert_pieces_tile(part, data, start, stop)


@given(
    data=libsvm_texts(), most=st.integers(1, 4), blocksize=st.integers(1, 80), window=st.sampled_from([1, 16, 1 << 20])
)
def test_pieces__follow_the_rule_alone(tmp_path, data, most, blocksize, window):
    import gzip

    path = tmp_path / "rows.svm.gz"
    path.write_bytes(gzip.compress(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "WINDOW_BYTES", window)
        pieces = pieces_of(path, blocksize=blocksize, max_piece_rows=most)
    assert rows_of(pieces) == expected_rows(data)
    assert_pieces_tile(pieces, data, 0, len(data))
    for piece in pieces[:-1]:
        n_rows = piece.block.n_rows
        own = data[piece.start : piece.stop]
        assert 1 <= n_rows <= most
        assert n_rows == most or piece.stop - piece.start >= blocksize
        last_row = max(at for at in range(len(own)) if own[at - 1 : at] in (b"", b"\n") and read_rows(own[at:]))
        assert n_rows == 1 or last_row < blocksize  # the last row began before the block was full
    assert all(piece.block.n_rows for piece in pieces[1:])


def test_pieces__checksum_on_demand(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_bytes(TEXT)
    source = LibsvmSource(str(path), **OPTIONS)
    assert [piece.source_sha256 for piece in source.read(source.splits()[0], checksum=False)] == [""]


def test_splits__cover_files_in_order(tmp_path):
    for name, size in (("b", 25), ("a", 10), ("c", 0)):
        (tmp_path / f"{name}.svm").write_bytes(b"1 1:1\n" * (size // 6) + b"#" * (size % 6))
    (tmp_path / "d.svm.gz").write_bytes(b"")
    source = LibsvmSource(str(tmp_path / "*"), blocksize=10)
    found = [(split.number, split.title, split.start, split.stop) for split in source.splits()]
    assert found == [
        (0, "a.svm", 0, 10), (1, "b.svm", 0, 10), (2, "b.svm", 10, 20), (3, "b.svm", 20, 25),
        (4, "c.svm and 1 more", 0, 0),
    ]  # fmt: skip


def test_read__refuses_a_file_that_changed(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:1\n2 1:1\n")
    source = LibsvmSource(str(path), **OPTIONS)
    (split,) = source.splits()
    pieces = source.read(split, 1)
    next(pieces)
    path.write_text("1 1:1\n2 1:1\n3 1:1\n")
    with pytest.raises(SpecConflictError, match="has changed"):
        next(pieces)
    with pytest.raises(SpecConflictError, match=r"rows\.svm has changed.*size 12 is now 18"):
        list(source.read(split))
    with pytest.raises(SpecConflictError, match=r"rows\.svm has changed"):
        source.scan_split(split)
    path.unlink()
    with pytest.raises(SpecConflictError, match=r"rows\.svm is gone"):
        list(source.read(split))
