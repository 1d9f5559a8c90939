"""The encoder of tables: its laws, equal bits for all frames and storage, golden values, and what it refuses."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import itertools
import json
import pickle

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils import estimator_checks

import dkfeat
from dkfeat import TableEncoder, kernels
from dkfeat.compiled.tables import hash_bytes
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from tests.reference.tables import circles, gower, scaled_ranks, signed_ranks, slot, xxh64

NUMBERS = st.integers(-(2**31), 2**31 - 1)
WORDS = st.text(st.characters(codec="utf-8"), max_size=40)
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))


def some_table(n_rows=300):
    rng = np.random.default_rng(0)
    words = np.array(["Oslo", "Bergen", "a name of more than twelve bytes, for string views", "", None], object)
    tags = [["red", "blue", "red"], [], None, ["green", None]]
    return pa.table(
        {
            "number": rng.normal(size=n_rows),
            "integer": pa.array([None if i % 11 == 0 else i * 7 % 31 for i in range(n_rows)], pa.int32()),
            "rare": np.where(rng.random(n_rows) < 0.7, 0, rng.integers(-9, 10, n_rows)),
            "text": pa.array(words[rng.integers(0, 5, n_rows)], pa.string()),
            "flag": rng.random(n_rows) < 0.5,
            "moment": pa.array(rng.integers(-(10**9), 10**9, n_rows), pa.timestamp("s")),
            "tags": pa.array([tags[i % 4] for i in range(n_rows)], pa.list_(pa.string())),
            "zip": rng.integers(0, 9, n_rows),
        }
    )


def fitted(table, **params):
    return TableEncoder(**{"random_state": 0, **params}).fit(table)


def assert_same(left, right):
    assert left.shape == right.shape
    for name in ("indptr", "indices", "data"):
        one, other = getattr(left, name), getattr(right, name)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other), name


def values_of(table, column):
    """Weights of one column, by slot, a mapping for each row."""
    encoded, number = fitted(table).transform(table), table.schema.names.index(column)
    rows = (zip(row.indices.tolist(), row.data.tolist(), strict=True) for row in encoded)
    return [{at & 0xFFFFFFFF: value for at, value in row if at >> 32 == number} for row in rows]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"abc", 0x44BC2CF5AD770999),
        (b"The quick brown fox jumps over the lazy dog", 0x0B242D361FDA71BC),
    ],
)
def test_hash__is_xxh64(text, known):
    held = np.frombuffer(text + b"!", np.uint8)
    assert int(hash_bytes(held.ctypes.data, len(text))) == xxh64(text) == known


@given(st.lists(WORDS, min_size=2, max_size=5, unique=True))
def test_categories__are_hashes_of_their_text(words):
    assert [list(row) for row in values_of(pa.table({"x": words}), "x")] == [[slot(word)] for word in words]


def test_flags_and_integers__are_hashed_as_text():
    table = pa.table({"flag": [True, False], "zip": pa.array([0, 2**64 - 1], pa.uint64())})
    encoded = fitted(table, categories=["zip"]).transform(table)
    wanted = [[slot("true"), 1 << 32 | slot("0")], [slot("false"), 1 << 32 | slot(str(2**64 - 1))]]
    assert encoded.indices.reshape(2, 2).tolist() == wanted


def test_table__has_these_coordinates_for_ever():
    moments = [dt.datetime(2024, 2, 29, 7), None, dt.datetime(1969, 12, 31, 23, 59), dt.datetime(2024, 3, 1)]
    table = pa.table(
        {
            "number": [0.5, 2.0, -1.0, None],
            "rare": [0, 0, 3, -3],
            "text": ["Oslo", "", None, "a name of more than 32 bytes: Bergen"],
            "flag": [True, False, True, True],
            "moment": moments,
            "tags": [["red", "blue", "red"], [], ["blue"], None],
            "zip": [1, 2, 1, 3],
            "id": [b"x"] * 4,
        }
    )
    encoder = fitted(table, categories=["zip"], missing="indicator")
    encoded = encoder.transform(table)
    assert encoder.fingerprint() == "bc4706e4e72245d123336fa3c3c794678eab83cbba52147c8f935ab54e5db7c1"
    assert encoded.indptr.tolist() == [0, 15, 20, 33, 45]
    of_first = zip(encoded.indices[:15].tolist(), encoded.data[:15].tolist(), strict=True)
    assert [(at >> 32, at & 0xFFFFFFFF, round(value, 6)) for at, value in of_first] == [
        *[(0, 0, 0.5), (0, 1, 0.5), (2, 2665339704, 1.0), (3, 3299854010, 1.0), (4, 0, 0.5), (4, 1, 0.5)],
        *[(4, 3, 0.833333), (4, 4, 0.166667), (4, 7, 0.285714), (4, 8, 0.714286), (4, 10, 0.666667), (4, 11, 0.333333)],
        *[(5, 811381242, 1.0), (5, 4027006103, 1.0), (6, 2974190836, 1.0)],
    ]
    digest = hashlib.sha256(encoded.indices.tobytes() + encoded.data.tobytes()).hexdigest()
    assert digest == "c8cbc69095b2cbdc66dcd13e6137efaab0faa853522880c9bd84f08e825994a1"


@given(cuts=st.lists(st.integers(0, 300), max_size=6))
def test_rows__do_not_depend_on_blocks(cuts):
    table = some_table()
    encoder = fitted(table)
    whole = encoder.transform(table)
    bounds = [0, *sorted(cuts), 300]
    blocks = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    assert_same(encoder.transform(pa.concat_tables(blocks)), whole)
    for block, (a, b) in zip(blocks, itertools.pairwise(bounds), strict=True):
        assert_same(encoder.transform(block.combine_chunks()), whole[a:b])
    assert fitted(pa.concat_tables(blocks)).fingerprint() == encoder.fingerprint()


def with_types(table, types):
    return table.cast(
        pa.schema([(name, types.get(name, table.schema.field(name).type)) for name in table.schema.names])
    )


@pytest.mark.parametrize("text", [pa.large_string(), pa.string_view(), pa.dictionary(pa.uint8(), pa.large_string())])
def test_text__is_equal_in_all_storage(text):
    table = some_table()
    tags = table["tags"].to_pylist()
    other = with_types(table, {"text": text})
    lists = [pa.large_list(pa.large_string()), pa.list_(pa.dictionary(pa.int8(), pa.string()))]
    for kind in lists:
        changed = other.set_column(6, "tags", pa.array(tags, kind))
        assert_same(fitted(table).transform(changed), fitted(table).transform(table))
        assert fitted(changed).fingerprint() == fitted(table).fingerprint()
    one_row = changed.slice(7, 1)  # its dictionary is larger than the batch
    assert_same(fitted(table).transform(one_row), fitted(table).transform(table)[7])


@pytest.mark.parametrize(
    "frame", [pl.from_arrow, pa.Table.to_pandas, lambda table: table.combine_chunks().to_batches()[0]]
)
def test_frames__are_equal(frame):
    table = some_table()
    assert_same(fitted(table).transform(frame(table)), fitted(table).transform(table))
    assert_same(fitted(frame(table)).transform(table), fitted(table).transform(table))


@given(st.lists(st.none() | NUMBERS, min_size=3, max_size=30))
def test_numbers__of_equal_value_are_equal_in_all_types(numbers):
    assume(len(set(numbers)) > 1)
    table = pa.table({"x": pa.array(numbers, pa.int64()), "y": [i % 2 == 0 for i in range(len(numbers))]})
    encoder = fitted(table)
    wanted = encoder.transform(table)
    for kind in (pa.int32(), pa.float64(), pa.decimal128(22, 1), pa.dictionary(pa.int32(), pa.int64())):
        column = table["x"].dictionary_encode() if pa.types.is_dictionary(kind) else table["x"].cast(kind)
        assert_same(encoder.transform(table.set_column(0, "x", column)), wanted)
    cents = [None if x is None else decimal.Decimal(x).scaleb(-2) for x in numbers]
    floats = pa.array([None if x is None else x / 100 for x in numbers], pa.float64())
    encoder = fitted(table.set_column(0, "x", floats))
    exact = table.set_column(0, "x", pa.array(cents, pa.decimal128(24, 2)))
    assert_same(encoder.transform(exact), encoder.transform(table.set_column(0, "x", floats)))
    for low, kind in ((-128, pa.int8()), (0, pa.uint16()), (0, pa.uint64()), (0, pa.float32())):
        few = pa.table({"x": pa.array([None if x is None else x % 128 + min(low, 0) for x in numbers], pa.int64())})
        few = few.append_column("y", table["y"])
        assert_same(encoder.transform(with_types(few, {"x": kind})), encoder.transform(few))


@given(st.integers(0, 99), st.sampled_from([lambda x: x * 3, np.cbrt, np.sinh, lambda x: np.exp(x) - 1]))
def test_increasing_functions__change_no_bit(seed, function):
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=1500), 3 + seed % 2 * 9)  # more distinct values than knots, with ties or without
    x[: 500 * (seed % 3)] = 0
    y = np.array([function(v) for v in x.tolist()])
    assert len(np.unique(x)) == len(np.unique(y))
    tables = [pa.table({"x": column, "flag": x > 0.3}) for column in (x, y)]
    encoders = [fitted(table.slice(0, 1400)) for table in tables]
    assert_same(*(encoder.transform(table) for encoder, table in zip(encoders, tables, strict=True)))


@given(st.data())
def test_kernel__is_that_of_gower(data):
    n = data.draw(st.integers(4, 40))
    numbers = data.draw(st.lists(st.lists(st.integers(1, 50), min_size=n, max_size=n), min_size=1, max_size=3))
    words = data.draw(st.lists(st.lists(st.sampled_from("abc"), min_size=n, max_size=n), max_size=3))
    columns = [np.array(x, float) for x in numbers] + [np.array(x) for x in words]
    assume(all(len(set(column.tolist())) > 1 for column in columns))
    table = pa.table({str(i): column for i, column in enumerate(columns)})
    s = gower(columns)
    assert np.allclose(kernels.gmm(fitted(table).transform(table)), s / (2 - s), atol=1e-6)


@given(st.lists(st.integers(-4, 4), min_size=4, max_size=40))
def test_ranks__are_those_of_the_drawn_rows(numbers):
    x = np.array(numbers, float)
    assume(len(set(numbers)) > 1)
    rows = values_of(pa.table({"x": x}), "x")
    if 2 * np.count_nonzero(x == 0) >= len(x):
        ranks = signed_ranks(x)
        wanted = [{int(r < 0): np.float32(abs(r))} if r else {} for r in ranks]
    else:
        pairs = np.stack([scaled_ranks(x), 1 - scaled_ranks(x)], axis=1).astype(np.float32)
        wanted = [{k: w for k, w in enumerate(pair) if w} for pair in pairs]
    assert rows == [pytest.approx(row) for row in wanted]


def test_numbers__outside_the_knots_are_clipped():
    table = pa.table({"x": [1.0, 2.0, 3.0], "z": [0.0, 0.0, 5.0]})
    other = pa.table({"x": [-np.inf, 0.5, 9.0, np.inf, np.nan], "z": [-1.0, 0.1, 5.0, np.inf, None]})
    rows = fitted(table).transform(other)
    assert [row.indices.tolist() for row in rows] == [[1], [1, 1 << 32], [0, 1 << 32], [0, 1 << 32], []]
    assert set(rows.data.tolist()) == {1.0}


@pytest.mark.parametrize("missing", ["ignore", "indicator"])
def test_odd_values__are_counted_by_column(missing):
    encoder, later = fitted(some_table(), missing=missing), some_table(700).slice(300)
    beyond = {"number": [9.0, -9.0], "integer": [31, -1], "rare": [10, -10], "moment": [2 * 10**9, -2 * 10**9]}
    for column, values in beyond.items():
        kept = later[column].to_pylist()
        kept[:3] = [*values, None]
        later = later.set_column(later.schema.names.index(column), column, pa.array(kept, later[column].type))
    odd, one_by_one = np.zeros((2, 8, 2), np.int64)
    encoder.rows_for_map(later, odd=odd)
    for row in range(later.num_rows):
        encoder.rows_for_map(later.slice(row, 1), odd=one_by_one)
    assert np.array_equal(odd, one_by_one)
    assert odd[:, 0].tolist() == [column.null_count for column in later.columns]
    for number, name in enumerate(later.column_names):
        wanted = 0
        if name in beyond:
            drawn = pc.min_max(some_table()[name]).as_py()
            wanted = pc.sum(pc.or_(pc.less(later[name], drawn["min"]), pc.greater(later[name], drawn["max"]))).as_py()
        assert odd[number, 1] == wanted >= 2 * (name in beyond)


def test_drift__is_odd_values_that_were_seldom_when_drawn():
    columns = fitted(pa.table({"few": [1, 2, None, *range(97)], "often": [None] * 30 + [*range(70)]})).describe()
    assert columns.drift(np.array([[20, 20], [90, 0]]), 100) == []
    text = ["few: 21% null (1% when drawn)", "few: 50% beyond the drawn values (0% when drawn)"]
    assert columns.drift(np.array([[21, 50], [90, 0]]), 100) == text
    assert columns.drift(np.array([[50, 50], [0, 0]]), 99) == []


@given(st.lists(MOMENTS, min_size=3, max_size=20))
def test_dates__have_a_rank_and_places_on_circles(moments):
    assume(
        all(len({part(x) for x in moments}) > 1 for part in (dt.datetime.time, dt.datetime.weekday, lambda x: x.month))
    )
    table = pa.table({"x": pa.array(moments, pa.timestamp("us"))})
    for row, moment in zip(values_of(table, "x"), moments, strict=True):
        assert sum(row.values()) == pytest.approx(4)
        assert {at: value for at, value in row.items() if at >= 2} == pytest.approx(circles(moment), abs=1e-6)
    encoder = fitted(table)
    for kind in (pa.timestamp("ns"), pa.timestamp("us", "Europe/Oslo")):
        assert_same(encoder.transform(with_types(table, {"x": kind})), encoder.transform(table))
    days = pa.table({"x": table["x"].cast(pa.date32(), safe=False)})
    assert_same(encoder.transform(days), encoder.transform(with_types(days, {"x": pa.timestamp("ms")})))


def test_dates__beyond_the_range_of_pandas():
    seconds = [-(10**14), 0, 253402300800, 10**15]
    table = pa.table({"x": pa.array(seconds, pa.timestamp("s")), "y": pa.array([0, 1, 2, 9], pa.time32("s"))})
    encoder = fitted(table)
    assert [column.parts for column in encoder.describe()] == [("hour", "weekday", "month"), ("hour",)]
    assert encoder.transform(table).data.min() > 0


def test_tags__count_once():
    rows = values_of(some_table(4), "tags")
    assert rows == [{slot("blue"): 1, slot("red"): 1}, {}, {}, {slot("green"): 1}]
    assert all(list(row) == sorted(row) for row in rows)


def test_missing__has_a_coordinate_if_asked():
    table = some_table(40)
    n_missing = sum(column.null_count for column in table.columns)
    plain, marked = (fitted(table, missing=missing).transform(table) for missing in ("ignore", "indicator"))
    marks = marked.indices & 0xFFFFFFFF == 15
    assert marks.sum() == n_missing > 0
    assert np.array_equal(marked.indices[~marks], plain.indices)
    assert marked.has_canonical_format
    empty = pa.table({name: pa.nulls(2) for name in table.schema.names})
    assert fitted(table).transform(empty).nnz == 0
    nothing = dict.fromkeys(empty.column_names, np.nan)  # as pandas has missing values
    assert fitted(table).transform(nothing).nnz == fitted(table).transform(pd.DataFrame([nothing])).nnz == 0
    assert fitted(table, missing="indicator").transform(empty).nnz == 2 * table.num_columns


@given(st.lists(st.sampled_from(["a", "b", "new", "newer"]), min_size=2, max_size=6))
def test_categories__that_fit_has_not_seen_never_raise_a_similarity(words):
    table = pa.table({str(i): ["a", "b"] for i in range(len(words))})
    encoder = fitted(table)
    row = {str(i): word for i, word in enumerate(words)}
    seen = row | {name: "b" for name, word in row.items() if word.startswith("new")}
    held = encoder.transform(pa.Table.from_pylist([dict.fromkeys(row, "a"), dict.fromkeys(row, "b")]))
    assert (kernels.gmm(encoder.transform(row), held) <= kernels.gmm(encoder.transform(seen), held)).all()


DESCRIBED = """\
number  int64                     rank                every value distinct, such as 7
age     int64                     rank                73 distinct, such as 1
gain    int64                     rank, zeros absent  90% zeros, such as 10
job     string                    category            14 distinct, such as 'job 1'; 5.0% null
row_id  string                    left out            every value distinct, such as 'id 0'
kept    string                    category            200 distinct, such as 'id 0'
price   string                    left out            every value distinct, such as '$1,000.50'
note    string                    left out            every value distinct, such as 'a long text with num…'
day     date                      date                200 distinct, such as 1970-01-01; rank, weekday, month
same    int64                     left out            the same in all rows, such as 5
flag    bool                      category            1 distinct, such as True; 50.0% null
empty   null                      left out            no values
blob    binary                    left out            binary and nested types have no encoding
pair    struct<a: int64>          left out            binary and nested types have no encoding
lists   dictionary<list<string>>  left out            binary and nested types have no encoding"""


def test_describe__shows_the_reasons():
    n = 200
    table = pa.table(
        {
            "number": range(7, 7 + n),
            "age": [i % 73 for i in range(n)],
            "gain": [0 if i % 10 else i for i in range(n)],
            "job": [None if i % 20 == 0 else f"job {i % 14}" for i in range(n)],
            "row_id": [f"id {i}" for i in range(n)],
            "kept": [f"id {i}" for i in range(n)],
            "price": [f"${i:,}.50" for i in range(1000, 1000 + n)],
            "note": [f"a long text with number {i}" for i in range(n)],
            "day": pa.array(range(n), pa.date32()),
            "same": [5] * n,
            "flag": [None if i % 2 else True for i in range(n)],
            "empty": pa.nulls(n),
            "blob": [b"x"] * n,
            "pair": [{"a": 1}] * n,
            "lists": pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), pa.array([["a"]])),
        }
    )
    encoder = fitted(table, categories=["kept"])
    columns = encoder.describe()
    assert repr(columns) == DESCRIBED
    assert [hint.split()[0] for hint in columns.hints] == ["categories", "'number'"]
    assert "$1,0" not in json.dumps(encoder.to_spec())


def test_name_of__finds_columns_and_categories():
    table = some_table(40)
    encoder = fitted(table, categories=["zip"], missing="indicator")
    encoded = encoder.transform(table)
    names = encoder.name_of(encoded.indices, table)
    assert {name.part for name in names} == {"rank", "1 - rank", "positive", "negative", "hour", "weekday", "month"} | {
        "missing",
        "category",
    }
    held = {(name.column, name.value) for name in names if name.part == "category"}
    assert {("text", "Oslo"), ("flag", "true"), ("tags", "red"), ("zip", "3")} < held
    assert not any(value is None for _, value in held)
    assert {name.value for name in encoder.name_of(encoded.indices)} == {None}
    with pytest.raises(InputError, match="from 0 to 34,359,738,367"):
        encoder.name_of([8 << 32])


def test_spec__is_json_and_reads_back():
    table = some_table()
    encoder = fitted(table, categories=["zip"], missing="indicator")
    spec, arrays = json.loads(json.dumps(encoder.to_spec())), encoder._fitted_arrays()
    for again in (TableEncoder.from_spec(spec, arrays), pickle.loads(pickle.dumps(encoder))):
        assert again.fingerprint() == encoder.fingerprint()
        assert_same(again.transform(table), encoder.transform(table))
        assert again.describe() == encoder.describe()
    assert clone(encoder).get_params() == encoder.get_params()
    lists = {"columns": [{**spec["columns"][0], "encoding": "category"}, *spec["columns"][1:]]}
    for change, error, match in (
        ({"version": 2}, SpecConflictError, "version 2"),
        ({"columns": None}, ConfigError, "incomplete"),
        (lists, ConfigError, "cannot be 'category'"),
        ({"more": 1}, SpecConflictError, "do not read back"),
    ):
        with pytest.raises(error, match=match):
            TableEncoder.from_spec(spec | change, arrays)
    with pytest.raises(SpecConflictError, match="its knots do not read back"):
        TableEncoder.from_spec(spec, {"knots": arrays["knots"] + 1})
    with pytest.raises(ConfigError, match="a file beside it"):
        TableEncoder.from_spec(spec)


@pytest.mark.parametrize(
    "frame", [lambda t: t, pa.Table.to_pandas, pl.from_arrow, lambda t: dd.from_pandas(t.to_pandas(), npartitions=3)]
)
def test_fit__draws_the_same_rows_of_all_frames(frame):
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=20_000), "word": rng.choice(["a", "b"], 20_000)})
    encoder = fitted(table)
    assert fitted(frame(table)).fingerprint() == encoder.fingerprint() != fitted(table, random_state=1).fingerprint()
    assert encoder.describe()[0].rows == 10_000


def test_dask__is_encoded_by_partition():
    table = some_table().to_pandas().drop(columns="tags")
    encoder = fitted(table)
    frame = dd.from_pandas(table, npartitions=4)
    encoded = encoder.transform(frame)
    assert encoded.shape[1] == encoder.n_features_out
    assert_same(encoded.compute(), encoder.transform(table))
    features = dkfeat.DartFeatures(64, random_state=0).fit(encoded).transform(encoded)
    assert features.compute().shape == (300, 64 * 256)
    with pytest.raises(InputError, match="no column 'number'"):
        encoder.transform(frame.drop(columns="number"))
    with pytest.raises(InputError, match="X is a Array"):
        encoder.fit(encoded)


@pytest.mark.parametrize("frame", [pa.Table.to_pandas, pl.from_arrow, lambda table: table])
def test_pipeline__learns_from_frames(frame):
    table = frame(some_table())
    y = (np.asarray(table["number"]) > 0) ^ np.asarray(table["flag"], bool)
    model = make_pipeline(TableEncoder(random_state=0), dkfeat.DartFeatures(512, random_state=0), LinearSVC())
    assert model.fit(table, y).score(table, y) > 0.95


def test_maps__take_encoded_rows_or_name_the_remedy():
    table = some_table(30)
    encoded = fitted(table).transform(table)
    for features in (dkfeat.GCWSFeatures(8), dkfeat.FourierFeatures(8), dkfeat.LaplaceFeatures(8)):
        assert features.fit(encoded).transform(encoded).shape[0] == 30
    with pytest.raises(ConfigError, match="projection='dense'"):
        dkfeat.FourierFeatures(8, projection="fastfood").fit(encoded)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda t: t.drop_columns("text"),
            r"no column 'text', which was of type string in fit; its 7 columns: 'number'",
        ),
        (lambda t: with_types(t, {"zip": pa.string()}), "'zip' is of type string, but it was int64 in fit"),
        (lambda t: t.append_column("zip", t["zip"]), "two columns 'zip'"),
        (lambda _: np.ones((2, 8)), "X is a ndarray, but an encoder takes a table"),
        (lambda t: t.to_pandas()["text"], r"X is a Series, .* a Series becomes a table by to_frame\(\)"),
        (lambda _: pd.DataFrame({"x": ["a", 1]}), "cannot be read as a table of Arrow: .*column x"),
        (lambda _: pd.DataFrame({"x": [2**70]}), "cannot be read as a table of Arrow: .*too large"),
    ],
)
def test_transform__names_what_is_wrong(change, match):
    table = some_table()
    with pytest.raises(InputError, match=match):
        fitted(table).transform(change(table))


def test_transform__says_once_that_new_columns_are_ignored():
    table = some_table()
    encoder, more = fitted(table), table.append_column("more", table["zip"])
    with pytest.warns(UserWarning, match="1 column that fit has not seen, such as 'more', is ignored") as caught:
        wanted = encoder.transform(more.select(more.schema.names[::-1]))
    assert caught[0].filename == __file__
    encoder.transform(more.select(more.schema.names[::-1]))
    assert_same(wanted, encoder.transform(table))


@pytest.mark.parametrize(
    ("params", "table", "error", "match"),
    [
        ({"categories": ["zap"]}, {"zip": [1, 2]}, ConfigError, "names 'zap', but .* did you mean 'zip'"),
        ({"categories": "zip"}, {"zip": [1, 2]}, ConfigError, "a list of names"),
        ({"missing": "mean"}, {"zip": [1, 2]}, ConfigError, "missing='mean'"),
        ({"categories": ["x"]}, {"x": [1.0, 2.5]}, InputError, "'x' has a number that is no integer"),
        ({"categories": ["x"]}, {"x": [b"1", b"2"]}, ConfigError, "'x', a column of type binary"),
        ({}, {"x": [1, 1]}, InputError, "(?s)no column of the table can be encoded.*:\nx .*the same in all rows"),
        ({}, {"x": pa.array([], pa.int8())}, InputError, "no rows"),
    ],
)
def test_fit__names_what_is_wrong(params, table, error, match):
    encoder = TableEncoder(**params)
    with pytest.raises(error, match=match):
        encoder.fit(pa.table(table))
    with pytest.raises(NotFittedError):
        encoder.transform(pa.table(table))


def test_outputs__that_hold_all_columns_are_refused():
    encoder = fitted(some_table())
    with pytest.raises(InputError, match="34,359,738,368 coordinates"):
        encoder.get_feature_names_out()
    with pytest.raises(ConfigError, match="transform='pandas'"):
        encoder.set_output(transform="pandas")
    assert encoder.set_output(transform="default") is encoder


def test_encoder__keeps_scikit_learns_rules_that_need_no_array():
    for check in (
        "no_attributes_set_in_init",
        "parameters_default_constructible",
        "get_params_invariance",
        "set_params",
    ):
        getattr(estimator_checks, f"check_{check}")("TableEncoder", TableEncoder())
    encoder = fitted(some_table())
    assert encoder.n_features_in_ == len(encoder.feature_names_in_) == 8


def test_categories__may_be_many():
    many = pa.table(
        {"x": pa.array(range(200_000)).cast(pa.string()), "y": [decimal.Decimal(i) for i in range(200_000)]}
    )
    encoded = fitted(many, categories=["x"]).transform(many)
    assert len(np.unique(encoded.indices[encoded.indices < 1 << 32])) > 199_900
