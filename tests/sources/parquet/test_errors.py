"""What is wrong in Parquet sources, and that it is told with its place."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from dkfeat.errors import ConfigError, ParquetError
from dkfeat.sources.parquet.source import ParquetSource
from tests.sources.parquet.rows import pieces, resolved, write

PLACE = "row group 1, row 1, column "
"""Row 3 of four, two in a row group."""


def lists(bad):
    return [[0, 2], [1], [], bad]


def numbers(bad, kind=None):
    return pa.array([1, 2, 3, bad], kind)


# columns of four rows, of which the last is bad; options; place and message
VALUES = [
    ({"x": numbers(None)}, {}, "x: a null, but features are finite numbers"),
    ({"x": numbers(float("nan"))}, {}, "x: nan, but features are finite numbers"),
    ({"x": numbers(1e39)}, {}, 'x: 1e\\+39 overflows float32; pass dtype="float64"'),
    ({"a": numbers(1), "x": numbers(None), "b": numbers(2)}, {"features": ["a", "x", "b"]}, "x: a null"),
    ({"x": [[1.0, 2.0]] * 3 + [[1.0, None]]}, {}, "x: a null in a vector"),
    ({"x": [[1.0, 2.0]] * 3 + [None]}, {}, "x: a null"),
    ({"x": [[1.0, 2.0]] * 3 + [[1.0]]}, {}, "x: 1 values, but the source has n_features=2"),
    ({"x": [[1, 2]] * 3 + [[1]]}, {}, 'x: 1 values, .*; pass features_as="sparse"'),
    ({"x": [[1.0, 2.0]] * 3 + [[1.0, float("nan")]]}, {}, "x: nan, but features"),
    ({"x": pa.array([b"\0\0\0\0"] * 3 + [b"\0\0\xc0\x7f"], pa.binary(4))}, {}, "x: nan, but features"),
    ({"x": pa.array([b"\0\0\0\0"] * 3 + [None], pa.binary(4))}, {}, "x: a null"),
    ({"x": [{"indices": [1], "values": [1.0]}] * 3 + [None]}, {"n_features": 5}, "x: a null"),
]
PAIRS = [
    ([2, 1], [1.0, 1.0], "i: index 1 after 2, but indices must ascend within a row"),
    ([2, 2], [1.0, 1.0], "i: index 2 twice, but indices must ascend"),
    ([-1, 2], [1.0, 1.0], "i: -1, but indices are numbered from 0"),
    ([1, 5], [1.0, 1.0], "i: 5, but the highest index is 4, by n_features"),
    ([1, None], [1.0, 1.0], "i: a null among indices"),
    (None, [1.0], "i: a null in place of a list"),
    ([1, 2], [1.0], "v: 1 values for 2 indices"),
    ([1], [1.0, 2.0], "v: 2 values for 1 indices"),
    ([1], [None], "v: a null among values"),
    ([1], None, "v: a null in place of a list"),
    ([1], [float("nan")], "v: nan, but features are finite"),
    ([1], [-1e300], "v: -1e\\+300 overflows float32"),
]
BESIDE = [
    ({"label": numbers(None)}, {}, "label: a null, but each row has a label"),
    ({"label": numbers(float("nan"))}, {}, "label: nan, but labels are finite numbers"),
    ({"label": numbers(float("inf"))}, {"label_dtype": "float64"}, "label: inf, but labels are finite"),
    ({"label": numbers(2.5)}, {"label_dtype": "int64"}, 'label: 2.5, but .*; pass label_dtype="float64"'),
    ({"label": numbers(2**53 + 0.0)}, {"label_dtype": "int64"}, "label: 9007199254740992.0, but"),
    ({"label": numbers(4)}, {"labels": (1, 2, 3)}, "label: 4, but the allowed labels are 1, 2, 3"),
    ({"label": [[1], [2], [], [None]]}, {}, "label: a null, but each row has a label"),
    ({"label": [[1], [2], [], None]}, {}, "label: a null in place of a list"),
    ({"label": [[1], [2], [], [3, 9]]}, {"labels": (1, 2, 3)}, "label: 9, but the allowed labels"),
    ({"label": numbers(2**64 - 1, pa.uint64())}, {}, "label: 18446744073709551615, but integers are at most"),
    ({"label": numbers(2**63, pa.decimal128(20, 0))}, {}, "label: 9223372036854775808, but integers are at most"),
    ({"label": numbers(-(2**63) - 1, pa.decimal128(20, 0))}, {}, "label: -9223372036854775809, but integers are at le"),
    ({"label": numbers(2**53 + 1)}, {"label_dtype": "float64"}, "label: 9007199254740993, but it is not exact"),
    ({"label": numbers(2**53 + 1, pa.decimal128(20, 2))}, {}, "label: 9007199254740993.00, but .*; store"),
    ({"label": numbers(2**63 - 1)}, {"label_dtype": "float64"}, "label: 9223372036854775807, but it is not exact"),
    ({"label": numbers(2**53 + 1, pa.decimal128(20, 0))}, {"label_dtype": "float64"}, "label: 9007199254740993, but"),
    ({"label": numbers(2**53 + 1)}, {"labels": (1, 2, 3, 2**53)}, "label: 9007199254740993, but the allowed"),
    ({"w": numbers(None)}, {"weight": "w"}, "w: a null, but each row has a weight"),
    ({"w": numbers(-0.5)}, {"weight": "w"}, "w: -0.5, but weights are finite and at least 0"),
    ({"q": numbers(None)}, {"query_id": "q"}, "q: a null, but query ids are integers"),
    ({"k": numbers(2**64 - 1, pa.uint64())}, {"keep": "k"}, "k: cannot be kept as int64"),
    ({"k": pa.array([0, 1000, 2000, 2001], pa.timestamp("ns"))}, {"keep": "k"}, "k: cannot be kept as timestamp"),
]


@pytest.mark.fault("I-10", "I-34")
@pytest.mark.parametrize(("columns", "options", "message"), VALUES, ids=range(len(VALUES)))
def test_features__wrong_values(tmp_path, columns, options, message):
    path = write(tmp_path / "bad.parquet", {"label": [1, 2, 3, 1], **columns}, row_group_size=2)
    if pa.types.is_list(pa.array(columns["x"]).type):
        options = {**options, "n_features": 2}
    with pytest.raises(ParquetError, match=f"^{path}: {PLACE}{message}"):
        pieces(ParquetSource(path, **{"features": "x", **options}))


@pytest.mark.fault("I-01", "I-02", "I-06", "I-07", "I-34")
@pytest.mark.parametrize("form", ["pairs", "struct"])
@pytest.mark.parametrize(("indices", "values", "message"), PAIRS)
def test_pairs__wrong_lists(tmp_path, form, indices, values, message):
    columns = {
        "i": pa.array(lists(indices), pa.list_(pa.int64())),
        "v": pa.array([[1.0, 1.0], [1.0], [], values], pa.list_(pa.float64())),
    }
    options = {"features": ["i", "v"], "n_features": 5}
    if form == "struct":
        columns = {"s": pa.StructArray.from_arrays(list(columns.values()), names=["indices", "values"])}
        options["features"] = "s"
        message = message.replace("i: ", "s.indices: ", 1) if message[0] == "i" else "s.values: " + message[3:]
    path = write(tmp_path / "bad.parquet", {**columns, "label": [1, 2, 3, 1]}, row_group_size=2)
    with pytest.raises(ParquetError, match=f"^{path}: {PLACE}{message}"):
        pieces(ParquetSource(path, **options))


@pytest.mark.fault("I-03", "I-08")
def test_pairs__index_zero_of_a_source_from_one(tmp_path):
    path = write(tmp_path / "a.parquet", {"indices": [[0]], "values": [[1.0]], "label": [1]})
    with pytest.raises(ParquetError, match="0, but indices are numbered from 1; pass zero_based=True"):
        pieces(ParquetSource(path, zero_based=False, n_features=2))
    columns = {"indices": pa.array([[2**63]], pa.list_(pa.uint64())), "values": [[1.0]], "label": [1]}
    with pytest.raises(ParquetError, match="9223372036854775808, but integers are at most 2\\^63 - 1"):
        pieces(ParquetSource(write(tmp_path / "b.parquet", columns), n_features=2))


@pytest.mark.fault("I-16", "I-17", "I-34")
@pytest.mark.parametrize(("columns", "options", "message"), BESIDE, ids=range(len(BESIDE)))
def test_beside__wrong_values(tmp_path, columns, options, message):
    path = write(
        tmp_path / "bad.parquet", {"x": [1.0, 2.0, 3.0, 4.0], "label": [1, 2, 3, 1], **columns}, row_group_size=2
    )
    with pytest.raises(ParquetError, match=f"^{path}: {PLACE}{message}"):
        pieces(ParquetSource(path, features="x", **options))


# ---- schemas: told before a row is read

TEXT = ["a", "b"]
X = {"x": [1.0, 2.0]}
# columns beside the label [1, 2], None: no such column; options; message
SCHEMAS = [
    (X | {"label": None}, {}, "column label: there is no such column: the file has x; pass label=, or label=None"),
    ({}, {}, "column features: no column of numbers is left"),
    ({"": [1, 2], "x": [1, 2]}, {}, "column '': a column without a name; .* by features="),
    ({}, {"features": "y"}, "column y: .*: the file has label; pass features=$"),
    (X, {"label": "labels"}, "column labels: there is no such column: the file has x, label; did you mean 'label'.$"),
    (X, {"query_id": "session"}, "column session: .*; pass query_id=$"),
    ({"x": TEXT}, {"features": "x"}, "column x: is string, but feature columns are numbers"),
    (X, {"labels": TEXT}, "column label: is int64, but labels are the words a, b"),
    (X | {"label": pa.array([b"a", b"b"])}, {}, "column label: is binary, but labels are numbers"),
    (X, {"multilabel": True}, "column label: is int64, but with multilabel=True"),
    (X | {"label": [[1], [2]]}, {"multilabel": False}, "column label: .*; pass multilabel=True"),
    ({"x": [TEXT, TEXT]}, {"features": "x"}, "column x: is list<element: string>, but"),
    (X, {"features": "x", "features_as": "vector"}, "column x: is double, but a vector"),
    ({"x": [[1.0], [2.0]]}, {"features": "x", "features_as": "sparse"}, "column x: .*lists of integers"),
    ({"x": [{"a": 1}, {"a": 2}]}, {"features": "x"}, "column x: is a struct of a, but"),
    (X | {"w": TEXT}, {"weight": "w"}, "column w: is string, but weights are numbers"),
    (X | {"q": [1.0, 2.0]}, {"query_id": "q"}, "column q: is double, but query ids"),
    (X | {"k": [[1], [2]]}, {"keep": "k"}, "column k: is list<.*>, which cannot be kept"),
    ({"x": [[1.0]] * 2}, {"features": "x", "n_features": 3}, "row group 0, row 0, column x: 1 values"),
]


@pytest.mark.fault("I-34")
@pytest.mark.parametrize(("columns", "options", "message"), SCHEMAS, ids=range(len(SCHEMAS)))
def test_schema__of_the_first_file(tmp_path, columns, options, message):
    columns = {name: values for name, values in ({"label": [1, 2]} | columns).items() if values is not None}
    path = write(tmp_path / "bad.parquet", {name: columns[name] for name in sorted(columns, key="label".__eq__)})
    with pytest.raises(ParquetError, match=f"^{path}: {message}"):
        pieces(ParquetSource(path, **options))


def test_schema__of_a_width_that_is_not_asked(tmp_path):
    path = write(tmp_path / "a.parquet", {"x": [1.0], "y": [2.0], "label": [1]})
    with pytest.raises(ConfigError, match="features are 2 columns, but n_features=3"):
        pieces(ParquetSource(path, n_features=3))
    columns = {"x": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)), "label": [1]}
    with pytest.raises(ParquetError, match="holds vectors of 2 values, but n_features=3"):
        pieces(ParquetSource(write(tmp_path / "b.parquet", columns), features="x", n_features=3))


@pytest.mark.fault("I-34")
@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": [1.0], "label": [1]}, "column y: there is no such column"),
        ({"x": [1.0], "y": ["a"], "label": [1]}, "column y: is string, but"),
        (
            {"x": [1.0], "y": [1.0], "k": ["a"], "label": [1]},
            "column k: is kept as string, but as int64 in the source's first",
        ),
        ({"x": [1.0], "y": [1.0], "k": [1], "label": ["a"]}, "column label: is string, but labels are numbers"),
    ],
)
def test_schema__of_another_file(tmp_path, second, message):
    write(tmp_path / "a.parquet", {"x": [1.0], "y": [1.0], "k": [1], "label": [1]})
    other = write(tmp_path / "b.parquet", second)
    source = ParquetSource(str(tmp_path / "*.parquet"), keep="k")
    with pytest.raises(ParquetError, match=f"^{other}: {message}"):
        source.splits()


def test_schema__column_of_a_partition(tmp_path):
    (tmp_path / "day=1").mkdir()
    write(tmp_path / "day=1" / "a.parquet", {"x": [1.0], "label": [1]})
    with pytest.raises(ParquetError, match="names of folders are not read: write them into the files"):
        resolved(ParquetSource(str(tmp_path), keep="day"))


def test_schema__names_twice(tmp_path):
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0]), pa.array([1])], names=["x", "x", "label"])
    with pytest.raises(ParquetError, match="column x: the file has several columns of this name"):
        pieces(ParquetSource(write(tmp_path / "a.parquet", table), features="x"))


def test_place__counts_rows_that_filters_pass_over(tmp_path):
    columns = {"x": pa.array([1.0, 2.0, None, 4.0]), "label": [1, 2, 2, 2]}
    path = write(tmp_path / "a.parquet", columns)
    with pytest.raises(ParquetError, match="row group 0, row 2, column x"):
        pieces(ParquetSource(path, features="x", filters=[("label", "==", 2)]))


def test_place__escapes_names(tmp_path):
    path = write(tmp_path / "a.parquet", {"red \x1b[31m": [None, 1.0], "label": [1, 2]})
    with pytest.raises(ParquetError, match=r"column red \\x1b\[31m: a null") as caught:
        pieces(ParquetSource(path))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.row_group, again.row, again.exit_code, str(again)) == (0, 0, 2, str(caught.value))


def test_batches__bad_row_far_into_a_row_group(tmp_path):
    values = np.ones(200_000)
    values[150_001] = np.nan
    path = write(tmp_path / "a.parquet", {"x": values, "label": np.ones(200_000, int)})
    with pytest.raises(ParquetError, match="row group 0, row 150001, column x: nan"):
        pieces(ParquetSource(path))
