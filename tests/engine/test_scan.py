from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.engine.runners.base import Stopped
from dkfeat.engine.scan import scan_split
from dkfeat.errors import ConfigError, ParseError
from dkfeat.sources.base import Scan
from dkfeat.sources.lines import WINDOW_BYTES
from tests.engine.helpers import featurized


def scan_text(folder, *texts, **options):
    for number, text in enumerate(texts):
        (folder / f"{number}.svm").write_text(text)
    return dkfeat.scan(dkfeat.LibsvmSource(str(folder / "*.svm"), **options))


def test_scan_task__stops_within_a_window(tmp_path):
    row = b"1 1:1 # " + b"-" * 2_000 + b"\n"
    (tmp_path / "much.svm.gz").write_bytes(gzip.compress(row * (8 * WINDOW_BYTES // len(row)), 1))
    source = dkfeat.LibsvmSource(str(tmp_path / "much.svm.gz"))
    (split,) = source.splits()
    asked = []
    with pytest.raises(Stopped):
        scan_split(source, split, lambda: asked.append(1) or len(asked) == 3)
    assert len(asked) == 3
    asked.clear()
    scan_split(source, split, lambda: asked.append(1))
    assert 8 <= len(asked) <= 10


def test_scan__joins_the_labels_of_splits(tmp_path, monkeypatch):
    merged, merge = [], Scan.merge
    monkeypatch.setattr(Scan, "merge", lambda *parts: merged.extend(parts[-1]) or merge(*parts))
    blocks = ["".join(f"{label}\n" for label in range(first, first + 500)) for first in range(10_000, 20_000, 500)]
    assert scan_text(tmp_path, "".join(blocks), blocksize=3000).labels == tuple(range(10_000, 20_000))
    assert len(merged) == len(blocks)
    assert len({id(part.labels) for part in merged}) == 1
    assert scan_text(tmp_path, "".join(blocks), "20000\n", blocksize=3000).labels is None


@pytest.mark.parametrize("blocksize", [1, "64MiB"])
def test_scan__labels_are_not_those_of_rows_that_only_the_second_pass_sets_aside(tmp_path, blocksize):
    texts = ["1 1:1\n2 5:1\n", "3 0:1\n", f"4 1:1\n{2**53 + 1} 1:1\n", "0.5 1:1\n"]
    for order in (texts, texts[::-1]):
        found = scan_text(tmp_path, *order, n_features=5, blocksize=blocksize, on_bad_row="quarantine")
        assert (found.labels, found.n_bad_rows) == ((0.5, 1.0, 3.0, 4.0), 2)


def test_scan__more_splits_than_a_plan_can_list__are_refused_before_work(tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.engine.scan.MOST_SPLITS", 20)
    with pytest.raises(ConfigError, match=r"24 splits, but a plan can list at most 20; raise blocksize to 1MiB, or"):
        scan_text(tmp_path, "no row\n" * 24, blocksize=7)


def test_run__more_splits_than_a_plan_can_list__is_advised_what_works(tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.engine.scan.MOST_SPLITS", 2)
    for number in range(3):
        pq.write_table(pa.table({"x": np.arange(5.0), "label": np.ones(5)}), tmp_path / f"{number}.parquet", 1)
    for names, advice in (("0.parquet", r"raise blocksize to 1MiB, or divide"), ("*.parquet", "at most 2; divide")):
        source = dkfeat.ParquetSource(str(tmp_path / names), blocksize=1)
        with pytest.raises(ConfigError, match=advice):
            featurized(source, tmp_path / "features")
    featurized(dkfeat.ParquetSource(str(tmp_path / "0.parquet"), blocksize="1MiB"), tmp_path / "features")


@pytest.mark.fault("I-41")
@pytest.mark.parametrize("other", ["0.5", "1e300", "9223372036854775808"])
@pytest.mark.parametrize("blocksize", [1, "64MiB"])
def test_scan__an_integer_that_other_labels_make_inexact(tmp_path, other, blocksize):
    texts = ["1 1:1\n9007199254740993 1:1\n", f"{other} 1:1\n"]
    for order in (texts, texts[::-1]):
        with pytest.raises(ParseError, match=r":2:1: the label '9007199254740993' is an integer that is not exact"):
            scan_text(tmp_path, *order, blocksize=blocksize)
    found = scan_text(tmp_path, *texts, blocksize=blocksize, on_bad_row="quarantine")
    assert (found.n_rows, found.n_bad_rows, found.label_dtype) == (2, 1, "float64")
    assert found.first_bad[1].reason == "label not allowed"


@pytest.mark.fault("I-41")
def test_scan__a_bad_row_does_not_set_the_label_type(tmp_path):
    found = scan_text(tmp_path, "9007199254740993 1:1\n0.5 1:x\n", on_bad_row="quarantine")
    assert (found.label_dtype, found.labels, found.n_bad_rows) == ("int64", (2**53 + 1,), 1)


@pytest.mark.fault("I-08")
@pytest.mark.parametrize(
    ("zero_based", "index", "is_good"),
    [(True, 2**63 - 2, True), (True, 2**63 - 1, False), (True, 2**63, False)]
    + [(base, index, index < 2**63) for base in (False, "auto") for index in (2**63 - 2, 2**63 - 1, 2**63, 10**30)],
)
@pytest.mark.parametrize("row", ["1 1:1 {}:1\n", "1 {}:1\n"])
def test_scan__highest_index(tmp_path, zero_based, index, is_good, row):
    text = "1 1:1\n" + row.format(index)
    if is_good:
        found = scan_text(tmp_path, text, zero_based=zero_based)
        assert (found.n_features, found.zero_based) == (index + (zero_based is True), zero_based is True)
    else:
        column = text.index(str(index)) - text.index("\n")
        with pytest.raises(ParseError, match=rf":2:{column}: '{index}:1' is beyond the highest index"):
            scan_text(tmp_path, text, zero_based=zero_based)


@pytest.mark.fault("I-08")
def test_scan__highest_index_with_an_index_zero_elsewhere(tmp_path):
    texts = ["1 1:1\n1 9223372036854775807:1\n", "1 0:1\n"]
    for order in (texts, texts[::-1]):
        with pytest.raises(ParseError, match=r":2:3: '9223372036854775807:1' is beyond the highest index"):
            scan_text(tmp_path, *order)


@pytest.mark.fault("I-42")
def test_scan__warns_of_a_last_line_without_line_end(tmp_path, caplog):
    found = scan_text(tmp_path, "1 1:1\n1 2:1", "1 1:1\n", "", blocksize=4)
    assert [file.name for file in found.unterminated] == ["0.svm"]
    (message,) = caplog.messages
    assert (
        message
        == f"{tmp_path}/0.svm:2: the last line has no line end; it is read as a row, but the file may be cut off"
    )
