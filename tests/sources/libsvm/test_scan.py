"""What a scan settles, in agreement with what is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkfeat.errors import ParseError
from dkfeat.sources.base import Scan
from dkfeat.sources.libsvm.source import LibsvmSource
from tests.reference.libsvm import read_rows
from tests.sources.parquet.rows import scan
from tests.sources.strategies import libsvm_texts


def scan_text(folder, *texts: str, **options) -> Scan:
    for number, text in enumerate(texts):
        (folder / f"{number}.svm").write_text(text)
    return scan(LibsvmSource(str(folder / "*.svm"), **options))


@given(data=libsvm_texts(), blocksize=st.sampled_from([1, 20, 1000]))
def test_scan__counts_what_is_read(tmp_path, data, blocksize):
    (tmp_path / "a.svm").write_bytes(data)
    source = LibsvmSource(str(tmp_path / "a.svm"), blocksize=blocksize)
    found = scan(source)
    rows = read_rows(data)
    settled = source.resolve(found)
    assert settled.is_resolved
    pieces = [list(settled.read(split)) for split in found.splits]
    assert found.rows_per_split == tuple(sum(piece.block.n_rows for piece in split) for split in pieces)
    assert found.n_rows == sum(found.rows_per_split) == len(rows)
    assert found.nnz == sum(len(row.features) for row in rows)
    assert found.n_empty_rows == sum(not row.features for row in rows)
    assert found.labels == tuple(sorted({row.labels[0] for row in rows}))
    integers = all(row.labels[0].is_integer() for row in rows)
    assert found.label_dtype == ("int64" if integers else "float64")
    assert all(piece.block.y.dtype == found.label_dtype for split in pieces for piece in split)


@pytest.mark.fault("I-04")
def test_scan__base_is_settled_for_the_whole_source(tmp_path):
    found = scan_text(tmp_path, "1 1:1\n", "1 0:1 4:1\n", "1 2:1\n")
    assert found.zero_based is True
    assert found.n_features == 5
    found = scan_text(tmp_path, "1 1:1\n", "1 1:1 4:1\n", "1 2:1\n")
    assert found.zero_based is False
    assert found.n_features == 4


def test_scan__zeros_count_as_columns(tmp_path):
    found = scan_text(tmp_path, "1 0:0 9:0\n")
    assert (found.zero_based, found.n_features, found.nnz, found.n_empty_rows) == (True, 10, 0, 1)


def test_scan__given_options_are_kept(tmp_path):
    assert scan_text(tmp_path, "1,5 qid:1 3:1\n", multilabel=True, query_id=True).labels == (1, 5)
    found = scan_text(tmp_path, "1 1:1\n", n_features=99, zero_based=True, label_dtype="float64")
    assert (found.n_features, found.zero_based, found.label_dtype, found.labels) == (99, True, "float64", (1.0,))


@pytest.mark.fault("I-27")
def test_scan__no_rows(tmp_path):
    found = scan_text(tmp_path, "", "# x\n")
    assert (found.n_rows, found.n_features, found.zero_based) == (0, 1, False)
    assert (found.label_dtype, found.labels, found.rows_per_split) == ("int64", (), (0,))  # tiny files share a split


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1\n-1\n", "int64"),
        ("1.0\n", "int64"),
        ("0.5\n", "float64"),
        (f"{2**53 + 1}\n", "int64"),
        (f"{2**53}.0\n", "float64"),
        (f"{2**63}\n", "float64"),
        (f"{-(2**63)}\n", "int64"),
        (f"{2**53 - 1}.0", "int64"),
    ],
)
def test_scan__label_type(tmp_path, text, kind):
    found = scan_text(tmp_path, "1\n2\n", text)
    assert found.label_dtype == kind
    assert all(type(label) is (int if kind == "int64" else float) for label in found.labels)


@pytest.mark.parametrize(
    ("declared", "kind"), [((0.5, 1), "float64"), ((0, 1), "int64"), ((1, 2**53 + 1), "int64"), ((1, 2**63), "float64")]
)
def test_scan__label_type_holds_the_declared_labels(tmp_path, declared, kind):
    assert scan_text(tmp_path, "1 1:1\n", labels=declared).label_dtype == kind


@pytest.mark.parametrize("labels", [range(10_000), np.arange(10_000) / 7, range(-5 * 10**9, 5 * 10**9, 10**6)])
def test_scan__label_sets_up_to_10000(tmp_path, labels):
    text = "".join(f"{label!r}\n" for label in np.asarray(labels).tolist())
    assert scan_text(tmp_path, text).labels == tuple(sorted(np.asarray(labels).tolist()))
    assert scan_text(tmp_path, text, text + "123456.5\n").labels is None


def test_scan__windows_of_many_short_rows(tmp_path):
    found = scan_text(tmp_path, "1\n" * 700_000 + "2 3:1\n" + "1 1:1\n" * 200_000)
    assert (found.n_rows, found.nnz, found.n_empty_rows, found.n_features) == (900_001, 200_001, 700_000, 3)
    assert found.labels == (1, 2)


@pytest.mark.fault("I-04")
def test_scan__index_that_fits_one_base_only_is_refused_on_reading(tmp_path):
    (tmp_path / "a.svm").write_text("1 0:1 5:1\n")
    source = LibsvmSource(str(tmp_path / "a.svm"), n_features=5)
    settled = source.resolve(scan(source))
    assert settled.zero_based is True
    with pytest.raises(ParseError, match=rf"^{tmp_path}/a\.svm:1:7: .*highest index is 4"):
        list(settled.read(settled.splits()[0]))
