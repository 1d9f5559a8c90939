"""Parquet sources: layouts, types, cuts, filters and what is kept."""

import datetime
import decimal
import itertools
import math
import operator

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.sources.parquet.source import ParquetSource
from tests.sources.parquet.rows import LAYOUTS, feature_columns, pieces, resolved, rows, write
from tests.sources.strategies import csr_blocks


def same(found, X):
    assert found.dtype == X.dtype
    assert found.has_canonical_format
    assert (found.data != 0).all()
    assert np.array_equal(found.toarray(), X.toarray())


@pytest.fixture
def table(tmp_path):
    """Twenty rows of three columns in four row groups."""
    rng = np.random.default_rng(3)
    dense = rng.standard_normal((20, 3)).astype(np.float32)
    dense[rng.random(dense.shape) < 0.3] = 0
    columns = {f"c{column}": dense[:, column] for column in range(3)}
    columns |= {"label": np.arange(20) % 3, "w": np.arange(20) / 4, "name": [f"r{row}" for row in range(20)]}
    columns["day"] = [datetime.date(2026, 1, 1 + row // 5) for row in range(20)]
    return write(tmp_path / "t.parquet", columns, row_group_size=5), dense


# ---- layouts


@given(X=csr_blocks(), layout=st.sampled_from(LAYOUTS), group_rows=st.integers(1, 9), limit=st.integers(1, 200))
def test_layout__any_rows_any_cuts(tmp_path_factory, X, layout, group_rows, limit):
    path = tmp_path_factory.mktemp("any") / "a.parquet"
    write(path, {**feature_columns(X, layout), "label": np.arange(X.shape[0])}, row_group_size=group_rows)
    found = pieces(ParquetSource(str(path), n_features=X.shape[1], blocksize=limit))
    same(sparse.vstack([piece.block.X for piece in found], format="csr"), X)
    labels = np.concatenate([piece.block.y for piece in found])
    assert (labels.dtype, labels.tolist()) == (np.int64, list(range(X.shape[0])))


@pytest.mark.parametrize("writer", ["pandas", "polars", "pyarrow"])
def test_writers__give_the_rows(tmp_path, writer):
    data = {"x": [0.5, 0.0, -2.0], "n": [1, 0, 3], "kind": ["a", "b", "a"], "label": [1, 0, 1]}
    path = tmp_path / "a.parquet"
    if writer == "pandas":
        frame = pd.DataFrame(data)
        frame["kind"] = frame["kind"].astype("category")
        frame.set_index(pd.Index(["p", "q", "r"], name="key")).to_parquet(path)
    elif writer == "polars":
        pl.DataFrame(data).with_columns(pl.col("kind").cast(pl.Categorical)).write_parquet(path)
    else:
        write(path, pa.table({**data, "kind": pa.array(data["kind"]).dictionary_encode()}))
    (piece,) = pieces(ParquetSource(str(path), keep="kind"))
    assert piece.block.X.toarray().tolist() == [[0.5, 1], [0, 0], [-2, 3]]
    assert piece.block.kept["kind"].to_pylist() == ["a", "b", "a"]


def test_sparse__indices_alone_are_ones_and_may_begin_at_one(tmp_path):
    path = write(tmp_path / "a.parquet", {"tags": [[1, 3], [], [2]], "label": [0, 1, 0]})
    X, _ = rows(ParquetSource(path, features="tags", features_as="sparse"))
    assert X.toarray().tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]
    X, _ = rows(ParquetSource(path, features="tags", features_as="sparse", zero_based=False))
    assert X.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]


@pytest.mark.fault("I-09")
def test_sparse__far_columns_take_64_bit_indices(tmp_path):
    columns = {"indices": [[2**40 - 1], [5]], "values": [[1.0], [2.0]], "label": [0, 1]}
    path = write(tmp_path / "a.parquet", columns)
    X, _ = rows(ParquetSource(path))
    assert (X.shape, X.indices.dtype, X.indices.tolist()) == ((2, 2**40), np.int64, [2**40 - 1, 5])
    X, _ = rows(ParquetSource(write(tmp_path / "b.parquet", {**columns, "indices": [[7], [5]]})))
    assert X.indices.dtype == np.int32


# ---- types


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array([3, -1], pa.int8()), [3, -1]),
        (pa.array([2**24 + 1, 1], pa.int32()), [2**24, 1]),  # rounded to float32, as text is
        (pa.array([2**63 - 1, 1], pa.int64()), [2**63, 1]),
        (pa.array([2**64 - 1, 1], pa.uint64()), [2**64, 1]),
        (pa.array([True, False]), [1, 0]),
        (pa.array([0.1, -2.5]), [np.float32(0.1), -2.5]),
        (pa.array(np.array([0.5, 2], np.float16)), [0.5, 2]),
        (pa.array([decimal.Decimal("1.25"), decimal.Decimal("-3")]), [1.25, -3]),
        (pa.array([1.5, 1.5]).dictionary_encode(), [1.5, 1.5]),
        (pa.array([5e-324, -0.0]), [0, 0]),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["column", "vector"])
def test_numbers__are_read_as_float32(tmp_path, array, values, form):
    if form == "vector":
        array = pa.FixedSizeListArray.from_arrays(
            array if not pa.types.is_dictionary(array.type) else array.dictionary_decode(), 1
        )
    X, _ = rows(ParquetSource(write(tmp_path / "a.parquet", {"x": array, "label": [0, 1]}), features="x"))
    assert X.dtype == np.float32
    assert X.toarray().ravel().tolist() == np.array(values, np.float32).tolist()


def test_numbers__of_64_bits_keep_their_digits_on_request(tmp_path):
    path = write(tmp_path / "a.parquet", {"x": [0.1, 1e300], "label": [0, 1]})
    X, _ = rows(ParquetSource(path, dtype="float64"))
    assert X.toarray().ravel().tolist() == [0.1, 1e300]


@pytest.mark.fault("I-34")
def test_files__integers_of_any_width_give_equal_rows(tmp_path):
    for name, kind in (("a", pa.int32()), ("b", pa.int64())):
        columns = {"indices": pa.array([[1, 5]], pa.list_(kind)), "values": [[1.0, 2.0]], "label": pa.array([1], kind)}
        write(tmp_path / f"{name}.parquet", {**columns, "extra": ["x"]} if name == "b" else columns)
    found = pieces(ParquetSource(str(tmp_path)))
    assert [piece.block.X.indices.dtype for piece in found] == [np.int32, np.int32]
    assert found[0].source_sha256 == found[1].source_sha256


# ---- labels, weights, query ids, kept columns


@pytest.mark.parametrize(
    ("labels", "dtype", "found"),
    [
        (pa.array([1.0, 2.0]), np.int64, [1, 2]),
        (pa.array([1.5, 2.0]), np.float64, [1.5, 2]),
        (pa.array([True, False]), np.int64, [1, 0]),
        (pa.array([2**62 + 1, 0]), np.int64, [2**62 + 1, 0]),
    ],
)
def test_labels__are_integers_if_they_can_be(tmp_path, labels, dtype, found):
    _, y = rows(ParquetSource(write(tmp_path / "a.parquet", {"x": [1.0, 2.0], "label": labels})))
    assert (y.dtype, y.tolist()) == (dtype, found)


def test_labels__lists_and_none(tmp_path):
    path = write(tmp_path / "a.parquet", {"x": [1.0, 2.0, 3.0], "label": [[1, 2], [], [3]]})
    (piece,) = pieces(ParquetSource(path))
    assert (piece.block.y.tolist(), piece.block.label_offsets.tolist()) == ([1, 2, 3], [0, 2, 2, 3])
    _, y = rows(ParquetSource(path, features="x", label=None))
    assert (y.dtype, y.tolist()) == (np.int64, [0, 0, 0])


def test_kept__columns_of_all_types(tmp_path):
    moment = datetime.datetime(2026, 11, 20, 12, 30)
    columns = {
        "n": pa.array([1, None], pa.int16()),
        "f": pa.array([0.5, None], pa.float32()),
        "b": [True, None],
        "s": ["ü", None],
        "d": [datetime.date(2026, 1, 2), None],
        "t": [moment, None],
        "z": pa.array([moment, None], pa.timestamp("ns", "Europe/Berlin")),
    }
    path = write(tmp_path / "a.parquet", {"x": [1.0, 2.0], "label": [0, 1], "q": [7, 7], "w": [0.5, 0], **columns})
    source = resolved(
        ParquetSource(path, features="x", weight="w", query_id="q", id="s", keep=[*columns][:3] + [*columns][4:])
    )
    kinds = ("string", "int64", "float64", "bool", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]")
    assert source.kept_types == kinds
    (piece,) = source.read(source.splits()[0])
    block = piece.block
    assert (block.weight.tolist(), block.qid.tolist()) == ([0.5, 0], [7, 7])
    assert list(block.kept) == ["id", "n", "f", "b", "d", "t", "z"]
    assert [column[1].as_py() for column in block.kept.values()] == [None] * 7
    assert (block.kept["id"][0].as_py(), block.kept["t"][0].as_py()) == ("ü", moment)


def test_features__left_out_are_the_numbers_without_another_use(table):
    path, dense = table
    source = resolved(ParquetSource(path, weight="w"))
    assert source.features == ("c0", "c1", "c2")
    same(rows(source)[0], sparse.csr_matrix(dense))
    assert resolved(ParquetSource(path)).features == ("c0", "c1", "c2", "w")


# ---- cuts


@pytest.mark.fault("I-25", "D-04")
@pytest.mark.parametrize("group_rows", [1, 3, 5, 20])
@pytest.mark.parametrize("max_rows", [None, 1, 6])
def test_pieces__depend_on_rows_and_not_on_their_storage(tmp_path, table, group_rows, max_rows):
    path, _ = table
    again = write(tmp_path / "again.parquet", pq.read_table(path), row_group_size=group_rows, compression="zstd")
    options = {"weight": "w", "keep": "name", "blocksize": 1 << 20}
    one, other = (pieces(ParquetSource(place, **options), max_piece_rows=max_rows) for place in (path, again))
    assert [(piece.start, piece.stop, piece.source_sha256) for piece in one] == [
        (piece.start, piece.stop, piece.source_sha256) for piece in other
    ]
    assert len(one) == (1 if max_rows is None else -(-20 // max_rows))
    assert [piece.last for piece in one] == [False] * (len(one) - 1) + [True]


def test_splits__are_runs_of_row_groups(table):
    path, _ = table
    sizes = {1: [(0, 1), (1, 2), (2, 3), (3, 4)], 400: [(0, 2), (2, 4)], 1 << 20: [(0, 4)]}
    for blocksize, expected in sizes.items():
        splits = ParquetSource(path, features=("c0", "c1", "c2"), blocksize=blocksize).splits()
        assert [(split.start, split.stop) for split in splits] == expected


def test_splits__a_large_row_group_gives_several_pieces(table):
    path, _ = table
    source = resolved(ParquetSource(path, features=("c0", "c1", "c2"), blocksize=100))
    found = [[(piece.start, piece.stop) for piece in source.read(split)] for split in source.splits()]
    assert found == [[(5 * n, 5 * n + 3), (5 * n + 3, 5 * n + 5)] for n in range(4)]  # a row counts 16 + 3 * 8 bytes


def test_checksum__sees_every_kind_of_value(tmp_path):
    plain = {"x": [1.0, 2.0], "label": [0, 1], "w": [1.0, 1.0], "q": [1, 1], "s": ["a", None]}
    options = {"features": "x", "weight": "w", "query_id": "q", "keep": "s"}
    changed = [
        {**plain, "x": [1.0, 3.0]},
        {**plain, "label": [1, 1]},
        {**plain, "w": [1.0, 0.5]},
        {**plain, "q": [1, 2]},
        {**plain, "s": ["a", ""]},
        {**plain, "s": ["b", None]},
    ]
    hashes = set()
    for columns in (plain, *changed):
        (piece,) = pieces(ParquetSource(write(tmp_path / "a.parquet", columns), **options))
        hashes.add(piece.source_sha256)
    assert len(hashes) == len(changed) + 1
    (piece,) = pieces(ParquetSource(write(tmp_path / "a.parquet", plain), **options), checksum=False)
    assert piece.source_sha256 == ""


@pytest.mark.parametrize("index", [None, "customer"])
def test_features__leave_out_the_index_of_a_table_of_pandas(tmp_path, index):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "label": [0, 1, 1]}, index=pd.Index([7, 9, 4], name=index))
    frame.to_parquet(path := tmp_path / "a.parquet")
    assert resolved(ParquetSource(str(path))).features == ("a",)
    name = index or "__index_level_0__"
    found, _ = rows(ParquetSource(str(path), features=["a", name]))
    assert found.toarray().tolist() == [[1, 7], [2, 9], [3, 4]]


@pytest.mark.parametrize(
    "metadata", [b"5", b"{}", b"\xff", b'{"index_columns": 3}', b'{"index_columns": [{}]}', b"[" * 10**5]
)
def test_features__of_any_metadata_in_place_of_that_of_pandas(tmp_path, metadata):
    table = pa.table({"a": [1.0], "label": [0]}).replace_schema_metadata({b"pandas": metadata})
    pq.write_table(table, path := tmp_path / "a.parquet")
    assert resolved(ParquetSource(str(path))).features == ("a",)


def test_vectors__of_a_fixed_length_in_some_files(tmp_path):
    for name, kind in {
        "a": pa.list_(pa.float32()),
        "b": pa.list_(pa.float32(), 2),
        "c": pa.large_list(pa.int8()),
    }.items():
        write(tmp_path / f"{name}.parquet", {"features": pa.array([[1, 2]], kind), "label": [0]})
    assert rows(ParquetSource(str(tmp_path)))[0].toarray().tolist() == [[1, 2]] * 3


# ---- filters


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([("label", "==", 1)], [row for row in range(20) if row % 3 == 1]),
        ([("day", ">=", "2026-01-03"), ("w", "<", 4)], list(range(10, 16))),
        ([("day", ">", datetime.date(2026, 1, 3))], list(range(15, 20))),
        ([[("name", "in", ["r1", "r7"])], [("label", "not in", {0, 1, 2})]], [1, 7]),
        ([("w", "<", 0)], []),
        ([("label", ">", 0), ("label", "<", 2)], [row for row in range(20) if row % 3 == 1]),
        ([[("label", "<", 1)], [("label", ">", 1)]], [row for row in range(20) if row % 3 != 1]),
        ([("day", "==", np.datetime64("2026-01-03"))], list(range(10, 15))),
    ],
)
def test_filters__choose_rows(table, filters, kept):
    path, dense = table
    source = ParquetSource(path, features=("c0", "c1", "c2"), keep="name", filters=filters)
    blocks = [piece.block for piece in pieces(source)]
    assert [name for block in blocks for name in block.kept["name"].to_pylist()] == [f"r{row}" for row in kept]
    assert np.array_equal(np.concatenate([block.X.toarray() for block in blocks]), dense[kept])
    assert (
        resolved(source).to_mapping()["filters"]
        == ParquetSource("-", **{"filters": source.to_mapping()["filters"]}).to_mapping()["filters"]
    )


EXACT = {
    "uint64": pa.array([0, 7, 2**63 + 1, 2**64 - 1], pa.uint64()),
    "int64": pa.array([-(2**63), 7, 2**53 + 1, 2**63 - 1], pa.int64()),
    "int8": pa.array([-128, 7, 0, 127], pa.int8()),
    "decimal": pa.array(
        [decimal.Decimal(text) for text in ("-0.25", "7.00", "7.50", "99999999.99")], pa.decimal128(10, 2)
    ),
}


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("value", [-1, 7, 7.5, 1e6, 2**53, 2**63 + 1, 1e30])
def test_filters__compare_integers_and_decimals_exactly(tmp_path, kind, value):
    path = write(tmp_path / "a.parquet", {"x": [1.0, 2.0, 3.0, 4.0], "c": EXACT[kind], "label": [0] * 4})
    compare = {"<": operator.lt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}
    chosen = {name: [test(item, value) for item in EXACT[kind].to_pylist()] for name, test in compare.items()}
    chosen |= {"in": chosen["=="], "not in": chosen["!="]}
    for name, expected in chosen.items():
        filters = [("c", name, [value] if name.endswith("in") else value)]
        found = rows(ParquetSource(path, features="x", filters=filters))[0].toarray().ravel().tolist()
        assert found == [place + 1 for place, is_chosen in enumerate(expected) if is_chosen], name


@pytest.mark.parametrize("name", ["==", "!=", "<", ">=", "in", "not in"])
def test_filters__compare_zeros_and_nan_alike_in_row_groups_of_any_size(tmp_path, name):
    column = [0.0, -0.0, 1.0, math.nan, 1.0, None, 2.0, 0.0]
    compare = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge}
    compare |= {"in": operator.eq, "not in": operator.ne}
    for value, size in itertools.product((0, 1, 1.5), (1, 2, 3, 8)):
        columns = {"x": np.arange(1.0, 9.0), "c": column, "label": [0] * 8}
        path = write(tmp_path / "a.parquet", columns, row_group_size=size)
        filters = [("c", name, [value] if name.endswith("in") else value)]
        found = rows(ParquetSource(path, features="x", filters=filters))[0].toarray().ravel().tolist()
        passes = [compare[name](item, value) if item is not None else name == "not in" for item in column]
        expected = list(itertools.compress(range(1, 9), passes))
        assert found == expected, (value, size)


def test_filters__leave_row_groups_out_and_hide_bad_rows(tmp_path):
    columns = {"x": pa.array([1.0, None, 3.0, 4.0]), "label": [0, 1, 1, 0]}
    path = write(tmp_path / "a.parquet", columns, row_group_size=1)
    source = resolved(ParquetSource(path, filters=[("x", ">", 2)]))
    assert [(split.start, split.stop) for split in source.splits()] == [(2, 4)]
    assert rows(source)[0].toarray().tolist() == [[3], [4]]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ("label > 3", "filters are comparisons such as"),
        ([("label",)], "filters are comparisons such as"),
        ([("label", "~", 1)], "'~' is not an operator"),
        ([("label", "in", 1)], "takes a list of values"),
        ([("label", "==", None)], "but a value is text, a finite number or a date"),
        ([("label", "<", float("nan"))], "but a value is text, a finite number or a date"),
        ([("label", "<", "high")], "do not fit the columns"),
        ([("label", "<", 1e300)], "do not fit the columns"),
        ([("label", "<", 2**70)], "do not fit the columns"),
    ],
)
def test_filters__refused(table, filters, message):
    with pytest.raises(ConfigError, match=message):
        pieces(ParquetSource(table[0], features="c0", filters=filters))


# ---- files and options


@pytest.mark.fault("I-35")
@pytest.mark.parametrize("groups", [0, 1])
def test_no_rows__is_one_empty_piece(tmp_path, groups):
    empty = pa.table({"x": pa.array([], pa.float32()), "label": pa.array([], pa.int64())})
    with pq.ParquetWriter(tmp_path / "a.parquet", empty.schema) as writer:
        for _ in range(groups):
            writer.write_table(empty, row_group_size=1)
    (piece,) = pieces(ParquetSource(str(tmp_path / "a.parquet")))
    assert (piece.block.X.shape, piece.last, piece.start, piece.stop) == ((0, 1), True, 0, 0)


@pytest.mark.fault("V-03")
def test_file__that_changes_is_refused(table, tmp_path):
    path, _ = table
    source = resolved(ParquetSource(path, features="c0"))
    (split,) = source.splits()
    write(tmp_path / "t.parquet", {"c0": [1.0], "label": [0]})
    with pytest.raises(SpecConflictError, match="has changed since the source was listed"):
        list(source.read(split))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ()}, "features is empty"),
        ({"features": ("a", "a")}, "features has 'a' twice"),
        ({"features": ("a", "label")}, "features has 'label', which is the label"),
        ({"features": (1,)}, "must be the name of a column"),
        ({"keep": ("label",)}, "shards use this name for another column"),
        ({"keep": ("id",), "id": "key"}, "would both be the shards' column id"),
        ({"weight": ""}, "weight='' *, but it must be the name"),
        ({"features_as": "wide"}, "features_as='wide', but it must be one of"),
        ({"zero_based": False, "features_as": "vector"}, "zero_based=False is for indices"),
        ({"kept_types": ("int64",)}, "kept_types="),
    ],
)
def test_options__refused(options, message):
    with pytest.raises(ConfigError, match=message):
        ParquetSource("a.parquet", **options)


def test_options__have_the_order_of_released_specs():
    keys = "kind n_features blocksize dtype labels label_dtype features features_as label weight query_id id keep"
    assert list(ParquetSource.defaults()) == [*keys.split(), "filters", "zero_based", "multilabel", "kept_types"]


def test_options__plain_values_make_the_source_again(table):
    source = resolved(
        ParquetSource(table[0], weight="w", id="name", keep=["day"], filters=[("w", "in", [1, 2])], labels=(0, 1, 2))
    )
    mapping = source.to_mapping()
    assert mapping.pop("kind") == "parquet"
    assert ParquetSource(source.urlpath, **mapping) == source
    assert source.is_resolved
