"""The grammar of LIBSVM text: what is read, what is refused, and where."""

from __future__ import annotations

import lzma
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from dkfeat.errors import ConfigError, ParseError
from dkfeat.sources.libsvm.source import LibsvmSource
from dkfeat.sources.options import parse_size
from tests.sources.parquet.rows import resolved, rows, scan
from tests.sources.strategies import csr_blocks, numerals

SETTLED = {"n_features": 1000, "zero_based": False, "label_dtype": "float64"}


def read(folder, data: bytes | str, **options):
    """The only piece's block of a file with this content."""
    path = folder / "rows.svm"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    source = LibsvmSource(str(path), **{**SETTLED, **options})
    pieces = [piece for split in source.splits() for piece in source.read(split)]
    assert len(pieces) == 1
    return pieces[0].block


def dense(folder, data, **options) -> list[list[float]]:
    return read(folder, data, **{"n_features": 3, **options}).X.toarray().tolist()


# ---- what is read

GOOD = {
    "one_row": ("1 1:2 3:4\n", [[2, 0, 4]]),
    "no_final_newline": ("1 1:2", [[2, 0, 0]]),
    "crlf": ("1 1:2\r\n-1 2:3\r\n", [[2, 0, 0], [0, 3, 0]]),
    "cr_at_the_end_only_with_lf": ("1\r\n", [[0, 0, 0]]),
    "tabs_and_blanks": ("1\t1:2 \t  3:4 \t\n", [[2, 0, 4]]),
    "label_alone": ("1\n2\n", [[0, 0, 0], [0, 0, 0]]),
    "blank_lines": ("\n  \n\t\n\r\n \r\n1 1:2\n\n", [[2, 0, 0]]),
    "comments": ("# all\n  # of it\n1 1:2 # bar 9:9\n1 1:1#2:2\n1#\n", [[2, 0, 0], [1, 0, 0], [0, 0, 0]]),
    "utf8_comment": ("# ü 数据\n1 1:2 # ü\n", [[2, 0, 0]]),
    "bom": (b"\xef\xbb\xbf1 1:2\n", [[2, 0, 0]]),
    "bom_alone": (b"\xef\xbb\xbf", []),
    "nothing": ("", []),
    "comments_only": ("# a\n# b", []),
    "zeros_are_not_kept": ("1 1:0 2:-0.0 3:0e5\n", [[0, 0, 0]]),
    "leading_zeros": ("1 001:02.50 0000000000000000000000000000003:1\n", [[2.5, 0, 1]]),
    "value_forms": ("1 1:+.5 2:-5. 3:1E+2\n", [[0.5, -5, 100]]),
}  # fmt: skip


@pytest.mark.fault("I-11", "I-18", "I-22", "I-23", "I-24")
@pytest.mark.parametrize("case", GOOD)
def test_read__good_text(tmp_path, case):
    data, expected = GOOD[case]
    assert dense(tmp_path, data) == expected


def test_read__csr_is_canonical_without_a_check(tmp_path):
    X = read(tmp_path, "1 2:1 5:2 7:0\n0 1:3\n").X
    assert isinstance(X, sparse.csr_matrix)
    assert X.indices.dtype == X.indptr.dtype == np.int32
    assert X.nnz == 3
    X.check_format(full_check=True)
    assert X.has_canonical_format
    fresh = sparse.csr_matrix((X.data, X.indices, X.indptr), shape=X.shape)
    assert fresh.has_canonical_format


@pytest.mark.fault("I-08", "I-09")
def test_read__wide_sources_have_int64_indices(tmp_path):
    for n_features, expected in ((2**31 - 1, np.int32), (2**31, np.int64), (2**63 - 1, np.int64)):
        X = read(tmp_path, f"1 1:1 {n_features}:2\n", n_features=n_features).X
        assert X.shape == (1, n_features)
        assert X.indices.dtype == X.indptr.dtype == expected
        assert X.indices.tolist() == [0, n_features - 1]


def test_read__values_round_to_float64_first(tmp_path):
    text = "1.00000005960464477540"  # a half above 1 in float32 but for its last digits, which float64 drops
    block = read(tmp_path, f"1 1:{text}\n")
    assert block.X.data[0] == np.float32(float(text))
    assert read(tmp_path, "1 1:0.1\n", dtype="float64").X.data[0] == 0.1


@pytest.mark.fault("I-11")
@pytest.mark.parametrize(
    ("dtype", "kept"), [("float32", ["1e-40", "1e-45"]), ("float64", ["5e-324", "1e-40", "1e300"])]
)
def test_read__small_values_stay_until_they_round_to_zero(tmp_path, dtype, kept):
    tokens = [f"{i}:{value}" for i, value in enumerate([*kept, "1e-400"], 1)]
    X = read(tmp_path, " ".join(["1", *tokens]), dtype=dtype).X
    assert X.data.tolist() == [float(np.dtype(dtype).type(value)) for value in kept]


@pytest.mark.fault("I-13")
@given(value=numerals())
def test_read__value_is_the_float_of_its_text(tmp_path, value):
    expected = float(value)
    if abs(expected) == np.inf:
        with pytest.raises(ParseError, match="overflows float64"):
            read(tmp_path, f"1 1:{value}\n", dtype="float64")
        return
    data = read(tmp_path, f"1 1:{value} 2:1\n", dtype="float64").X.data
    assert data.tobytes() == np.array([expected, 1] if expected else [1.0]).tobytes()


@pytest.mark.fault("I-13")
@pytest.mark.parametrize(
    "form", ["repr", ".1f", ".7g", ".8g", ".9g", ".14f", ".15f", ".16f", ".17f", ".18f", ".19f", ".20g", ".30f"]
)
def test_read__every_length_of_digits(tmp_path, form):
    rng = np.random.default_rng(6)
    values = (rng.choice([-1, 1], 2000) * rng.lognormal(0, 4, 2000)).tolist()
    texts = [repr(value) if form == "repr" else format(value, form) for value in values]
    block = read(tmp_path, "".join(f"{text} 7:{text}\n" for text in texts), dtype="float64")
    assert block.y.tolist() == [float(text) for text in texts]
    assert block.X.data.tolist() == [float(text) for text in texts if float(text) != 0]


@given(X=csr_blocks(dtype="float64"), data=st.data())
def test_write_then_read__is_identity(tmp_path, X, data):
    y = data.draw(st.lists(st.integers(-(2**53), 2**53), min_size=X.shape[0], max_size=X.shape[0]))
    lines = [
        f"{y[i]} " + " ".join(f"{j + 1}:{v!r}" for j, v in zip(row.indices, row.data.tolist(), strict=True))
        for i, row in enumerate(X)
    ]
    block = read(tmp_path, "\n".join(lines), dtype="float64", n_features=X.shape[1])
    assert block.X.data.tobytes() == X.data.tobytes()
    assert block.X.indices.tolist() == X.indices.tolist()
    assert block.X.indptr.tolist() == X.indptr.tolist()
    assert block.y.tolist() == y


INTEGERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3).flatmap(lambda n: st.sampled_from([2**53 + n, -(2**53) + n, 2**63 - 4 + n, -(2**63) + 3 + n])),
)


@pytest.mark.fault("I-41")
@given(labels=st.lists(INTEGERS, min_size=1, max_size=20), zeros=st.integers(0, 30))
def test_read__integer_labels_are_exact(labels, zeros):
    text = "".join(f"{'-' if label < 0 else '+'}{'0' * zeros}{abs(label)} 1:1\n" for label in labels)
    with TemporaryDirectory() as folder:
        assert read(Path(folder), text, label_dtype="int64").y.tolist() == labels
        found = scan(LibsvmSource(str(Path(folder) / "rows.svm")))
        lists = read(Path(folder), ",".join(map(str, labels)) + " 1:1\n", label_dtype="int64", multilabel=True)
        assert lists.y.tolist() == labels
        assert (found.label_dtype, found.labels) == ("int64", tuple(sorted(set(labels))))


@pytest.mark.fault("I-41")
@given(number=st.integers(2**53, 2**1000) | st.integers(2**53, 2**66))
def test_read__integers_as_float64_are_exact_or_errors(number):
    text = f"0.5\n{number} 1:1\n{number}.0 1:1\n"
    with TemporaryDirectory() as folder:
        if int(float(number)) == number:
            assert read(Path(folder), text, label_dtype="float64").y.tolist() == [0.5, float(number), float(number)]
        else:
            with pytest.raises(ParseError, match=r":2:1: .*not exact in float64"):
                read(Path(folder), text, label_dtype="float64")


@pytest.mark.data
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["letter", "rcv1"])
def test_data_set__equals_scikit_learn(data_folder, name, dtype):
    path = data_folder / name / "test.svm.xz"
    source = resolved(LibsvmSource(str(path), dtype=dtype, blocksize="1MiB"))
    ours, labels = rows(source)
    with lzma.open(path) as file:
        X, y = load_svmlight_file(file, n_features=source.n_features, dtype=dtype, zero_based=False)
    assert ours.shape == X.shape
    assert (ours.data.tobytes(), ours.indices.tolist(), ours.indptr.tolist()) == (
        X.data.tobytes(),
        X.indices.tolist(),
        X.indptr.tolist(),
    )
    assert labels.tolist() == y.tolist()


# ---- labels and query ids


def test_labels__integers_and_floats(tmp_path):
    y = read(tmp_path, "+1\n-1\n-0\n1.0\n", label_dtype="int64").y
    assert y.dtype == np.int64
    assert y.tolist() == [1, -1, 0, 1]
    y = read(tmp_path, "0.25 1:1\n-1e3\n").y
    assert y.dtype == np.float64
    assert y.tolist() == [0.25, -1000]


def test_labels__several(tmp_path):
    block = read(tmp_path, "1,2 1:1\n 1:2\n3\n4,5,6\n", multilabel=True, label_dtype="int64")
    assert block.y.tolist() == [1, 2, 3, 4, 5, 6]
    assert block.label_offsets.tolist() == [0, 2, 2, 3, 6]
    assert block.X.shape[0] == 4


@pytest.mark.fault("I-21")
def test_query_ids__kept(tmp_path):
    block = read(tmp_path, f"1 qid:3 1:2\n2\tqid:{2**63 - 1}\n", query_id=True)
    assert block.qid.dtype == np.int64
    assert block.qid.tolist() == [3, 2**63 - 1]
    assert block.X.sum() == 2


# ---- what is refused

MULTI, QID = {"multilabel": True}, {"query_id": True}
BAD = [
    # text, line, column, part of the reason, options
    ("1 3:1 1:2\n", 1, 7, "indices must ascend", {}),
    ("1 1:1\n1 3:1 3:2\n", 2, 7, "repeats the index", {}),
    ("1 1:1 0:1\n", 1, 7, "has index 0", {}),
    ("1 0:1\n", 1, 3, "pass zero_based=True", {}),
    ("1 2:1 5:1\n", 1, 7, "n_features, 3,", {"n_features": 3}),
    ("1 3:1\n", 1, 3, "highest index is 2", {"n_features": 3, "zero_based": True}),
    *[
        (f"1 1:1 {token}\n", 1, 7, part, {})
        for token, part in [
            ("-1:1", "digits only"), ("1.5:1", "digits only"), ("abc:1", "digits only"), (":5", "digits only"),
            ("+3:1", "digits only"), ("\uff10\uff13:1", "not LIBSVM text"), ("2147483647:1", "n_features, 1,000"),
            ("2147483648:1", "n_features, 1,000"), ("4294967298:1", "n_features, 1,000"),
            ("9223372036854775807:1", "n_features, 1,000"), ("9223372036854775808:1", "2^63 - 1"),
            ("1" + "0" * 30 + ":1", "n_features, 1,000"), ("18446744073709551618:1", "2^63 - 1"),
            ("12345678", "index:value"), ("5", "index:value"), ("2:", "as value"), ("2:1:3", "as value"),
            ("2:3;4:5", "as value"), ("2 : 5", "index:value"), ("2: 5", "as value"), ("qid:3", "index:value"),
            ("sid:1", "digits only"), ("cost:0.5", "digits only"), ("\uff12:1", "not LIBSVM text"),
            ("2\v3:1", "not LIBSVM text"), ("\f2:1", "not LIBSVM text"), ("2:1\xa03:1", "not LIBSVM text"),
            ("2:1\x003:1", "not LIBSVM text"), ("\x1b[31m2:1", r"'\x1b[31m2:1'"),
        ]
    ],
    *[
        (f"1 1:1 2:{value} 3:1\n", 1, 7, part, {})
        for value, part in [
            ("nan", "finite decimal"), ("NaN", "finite decimal"), ("inf", "finite decimal"), ("-inf", "finite decimal"),
            ("infinity", "finite decimal"), ("1_000", "finite decimal"), ("0x1p3", "finite decimal"),
            ("1,5", "finite decimal"), ("1e", "finite decimal"), ("--1", "finite decimal"), ("1.2.3", "finite decimal"),
            ("٣", "not LIBSVM text"), ("1d3", "finite decimal"), (".", "finite decimal"),
            ("1e400", "overflows float32"),
            ("1e39", 'pass dtype="float64"'), ("-3.4028236e38", "overflows float32"), ("123456789x", "finite decimal"),
            ("0.1234567890123456789x", "finite decimal"), ("1" * 30 + "x", "finite decimal"),
        ]
    ],
    ("1 1:1e400\n", 1, 3, "overflows float64", {"dtype": "float64"}),
    ("1 1:1\n 1:1\n", 2, 2, "label is missing", {}),
    ("1:1 2:2\n", 1, 1, "number as label", {}),
    ("1:1 2:2\n", 1, 1, "number as label", MULTI),
    (" 5 1:1\n", 1, 2, "label is missing", {}),
    (" 5 1:1\n", 1, 2, "index:value", MULTI),
    ("spam 1:1\n", 1, 1, "number as label", {}),
    ("nan 1:1\n", 1, 1, "number as label", {}),
    ("1e400\n", 1, 1, "infinite", {}),
    ("1,2 1:1\n", 1, 1, "number as label", {}),
    ("1,x 1:1\n", 1, 3, "number as label", MULTI),
    ("1, 1:1\n", 1, 3, "number as label", MULTI),
    (",1 1:1\n", 1, 1, "number as label", MULTI),
    ("0.5\n", 1, 1, "is not an integer", {"label_dtype": "int64"}),
    ("1\n# c\n\n9007199254740992.0\n", 4, 1, "is not an integer", {"label_dtype": "int64"}),
    ("1\n9223372036854775808\n", 2, 1, "is not an integer of int64", {"label_dtype": "int64"}),
    ("1\n-9223372036854775809 1:1\n", 2, 1, "is not an integer of int64", {"label_dtype": "int64"}),
    ("0.5\n9007199254740993 1:1\n", 2, 1, "not exact in float64", {"label_dtype": "float64"}),
    ("0.5\n1,-09007199254740993 1:1\n", 2, 3, "not exact in float64", {"label_dtype": "float64", "multilabel": True}),
    ("1\n9223372036854775807\n", 2, 1, "not exact in float64", {"label_dtype": "float64"}),
    ("1\n100000000000000000000000 1:1\n", 2, 1, "not exact in float64", {"label_dtype": "float64"}),
    ("7\n9007199254740993 1:1\n", 2, 1, r"is not one of {7, 9007199254740992}", {"labels": (7, 2**53)}),
    ("7\n7.5 1:1\n", 2, 1, "is not one of {7, 9007199254740992}", {"labels": (7, 2**53), "label_dtype": "int64"}),
    ("1 9223372036854775807:1\n", 1, 3, "any source can have", {"n_features": 2**63 - 1, "zero_based": True}),
    ("1 9223372036854775808:1\n", 1, 3, "any source can have", {"n_features": 2**63 - 1, "zero_based": False}),
    ("1 qid:3 1:1\n", 1, 3, "pass query_id=True", {}),
    ("1 qid:x 1:1\n", 1, 3, "integer from 0", QID),
    ("1 qid:\n", 1, 3, "integer from 0", QID),
    ("1 qid:9223372036854775808\n", 1, 3, "integer from 0", QID),
    ("1 qid:1\n1 2:1\n", 2, 3, "each row has a query id", QID),
    ("1 1:1\r2 1:1\r", 1, 6, "carriage return", {}),
    ("# a\r1 1:1\n", 1, 4, "carriage return", {}),
    ("1 # a\r1 1:1\n", 1, 6, "carriage return", {}),
    ("\r\r\n", 1, 1, "carriage return", {}),
    ("1\n  \r\r\n", 2, 3, "carriage return", {}),
    ("1 1:1\n2 1:1\r", 2, 6, "carriage return", {}),
    ("1 1:1\n2\r", 2, 2, "carriage return", {}),
    ("1 1:1\n\r", 2, 1, "carriage return", {}),
    ("1 1:1 # a\r", 1, 10, "carriage return", {}),
    ("1 1:1\n2.5 1:1\n3 x\n", 2, 1, "is not an integer", {"label_dtype": "int64"}),
    ("1\n1 1:1\n7 1:1 1:x\n", 3, 1, "not one of", {"labels": (1, 2)}),
    ("1 x\n7 1:1\n", 1, 3, "index:value", {"labels": (1, 2)}),
    ("# a\0b\n", 1, 4, "not LIBSVM text", {}),
    (b"\xff\xfe1\x00 \x001\x00", 1, 1, "not LIBSVM text", {}),
    ("1 1:1\n".encode("utf-16-be"), 1, 1, "not LIBSVM text", {}),
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 1, 1, "not LIBSVM text", {}),
    (b"1 1:1\n\xef\xbb\xbf1 1:1\n", 2, 1, "not LIBSVM text", {}),
    (b"\xef\xbb\xbf1 0:1\n", 1, 3, "index 0", {}),
]  # fmt: skip


@pytest.mark.fault(
    "I-01", "I-02", "I-03", "I-06", "I-07", "I-08", "I-10", "I-12", "I-15", "I-16", "I-17", "I-21", "I-23", "I-24"
)
@pytest.mark.parametrize("how", ["read", "scan"])
@pytest.mark.parametrize(("text", "line", "column", "reason", "options"), BAD)
def test_bad_text__is_refused_with_its_place(tmp_path, text, line, column, reason, options, how):
    path = tmp_path / "bad.svm"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    source = LibsvmSource(str(path), **{**SETTLED, **options})
    (split,) = source.splits()
    with pytest.raises(ParseError) as caught:
        list(source.read(split)) if how == "read" else source.scan_split(split)
    error = caught.value
    assert (error.path, error.line, error.column) == (str(path), line, column)
    assert str(error).startswith(f"{path}:{line}:{column}: ")
    assert reason in str(error)
    assert str(error).isprintable()
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.offset) == (str(error), error.offset)


@pytest.mark.fault("I-15")
def test_bad_text__tokens_are_cut_at_60_characters(tmp_path):
    with pytest.raises(ParseError) as caught:
        read(tmp_path, "1 " + "x" * 1000)
    assert f"'{'x' * 60}'..." in str(caught.value)
    assert "x" * 61 not in str(caught.value)


@pytest.mark.fault("I-15")
@pytest.mark.parametrize("blocksize", [1, 64, 1 << 20])
def test_bad_text__line_numbers_count_from_the_file(tmp_path, blocksize):
    path = tmp_path / "bad.svm"
    path.write_text("# one\n" * 99 + "1 1:1\n" * 100 + "1 1:x\n" + "1 1:1\n" * 100)
    source = LibsvmSource(str(path), **SETTLED, blocksize=blocksize)
    with pytest.raises(ParseError, match=rf"^{path}:200:3: "):
        [list(source.read(split)) for split in source.splits()]


@pytest.mark.fault("I-17")
def test_allowed_labels__names_both_sets_and_the_first_place(tmp_path):
    with pytest.raises(ParseError, match=r"rows\.svm:4:1: the label '0' is not one of \{-1, 1\}.*\{0, 1\}"):
        read(tmp_path, "1\n# 0\n1.0 2:1\n0 1:1\n0\n", labels=(-1, 1))
    with pytest.raises(ParseError, match=r"rows\.svm:2:3: the label '7'"):
        read(tmp_path, "1,2\n2,7,8 1:1\n", labels=(1, 2), multilabel=True)
    assert read(tmp_path, "1\n-1\n", labels=(1, -1)).y.tolist() == [1, -1]


@pytest.mark.fault("I-28")
def test_long_lines__bounded_by_option(tmp_path):
    line = "1 " + " ".join(f"{i}:1" for i in range(1, 21))
    assert read(tmp_path, f"{line}\n1\n", max_line_bytes=len(line)).X.nnz == 20
    with pytest.raises(ParseError, match=r"rows\.svm:2:1: the line has more than 91 bytes; raise max_line_bytes"):
        read(tmp_path, f"1\n{line}\n1\n", max_line_bytes=len(line) - 1)


# ---- settings


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n_features": 0}, "n_features=0"), ({"n_features": 2**63}, "n_features="),
        ({"n_features": True}, "n_features"),
        ({"zero_based": "yes"}, "'auto'"), ({"zero_based": 1}, "zero_based=1"), ({"dtype": "float16"}, "'float64'"),
        ({"blocksize": "64 lots"}, "MiB"), ({"blocksize": 0}, "blocksize=0"), ({"label_dtype": "int32"}, "'int64'"),
        ({"labels": ()}, "labels is empty"), ({"labels": (float("nan"),)}, "finite"),
        ({"max_line_bytes": -1}, "max_line"),
        ({"urlpath": ()}, r"urlpath=\(\), but"), ({"urlpath": ""}, "urlpath='', but"),
        ({"urlpath": 5}, "urlpath=5, but"),
        ({"labels": (0.5, 1), "label_dtype": "int64"}, "labels holds 0.5, .*pass label_dtype=\"float64\""),
        ({"labels": (1, 2**63), "label_dtype": "int64"}, "labels holds 9223372036854775808, .*\"float64\""),
        ({"labels": (1, 2**53 + 1), "label_dtype": "float64"}, "labels holds 9007199254740993, .*\"int64\""),
        ({"labels": (0.5, 2**53 + 1)}, "labels holds 9007199254740993, which is not exact in float64, .* all exact"),
        ({"labels": (10**400,)}, "labels holds 1000"), ({"labels": (float("inf"),)}, "finite"),
    ],
)  # fmt: skip
def test_settings__are_checked(options, reason):
    with pytest.raises(ConfigError, match=reason):
        LibsvmSource(**{"urlpath": "x", **options})


def test_settings__mapping_holds_what_affects_values_only():
    source = LibsvmSource(["b", "a"], labels=(1.0, -1), storage_options={"key": "secret"}, blocksize="1 kB")
    assert source.to_mapping() == {
        "kind": "libsvm", "n_features": None, "zero_based": "auto", "dtype": "float32", "multilabel": False,
        "query_id": False, "labels": [-1, 1], "label_dtype": "auto", "blocksize": 1000,
    }  # fmt: skip
    assert "secret" not in repr(source)
    assert "secret" not in repr(LibsvmSource("s3://me:secret@host/rows.svm"))
    assert pickle.loads(pickle.dumps(source)) == source
    assert isinstance(hash(source), int)


def test_settings__unsettled_source_cannot_be_read(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n")
    source = LibsvmSource(str(tmp_path / "a.svm"), n_features=3)
    assert not source.is_resolved
    with pytest.raises(ConfigError, match="resolve the source by a scan"):
        source.read(source.splits()[0])


@pytest.mark.parametrize(("text", "size"), [("64MiB", 2**26), ("1.5 kB", 1500), ("7", 7), ("2gib", 2**31), (9, 9)])
def test_sizes__with_and_without_units(text, size):
    assert parse_size("blocksize", text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1MB", "nan", "1e3", "9" * 400, "9" * 5000 + "GB"])
def test_sizes__that_are_none(text):
    with pytest.raises(ConfigError, match="it must be a number of bytes, or a size with a unit"):
        parse_size("blocksize", text)
