"""The encoder of text: equal to its plain form in all settings and storage, alone and in a table; what it refuses."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
import unicodedata

import dask.dataframe as dd
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.base import clone

from dkfeat import TableEncoder, Text, kernels
from dkfeat.compiled.text import GRAM_BITS
from dkfeat.encoders import _ngrams
from dkfeat.errors import ConfigError, InputError
from tests.encoders.test_table import assert_same
from tests.reference import text as plain

TEXTS = [
    "The quick brown fox, the QUICK brown fox!",
    "",
    None,
    "naïve_1 ﬁne ΣΑΣ İstanbul longerthaneight straße日本語のテスト ไทย x\u0301",
    "a b\tc\nd  — “e” …",
    "exactly8 exactly16letters 12345678é é12345678",
]
KINDS = [
    *(pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())),
    pa.dictionary(pa.uint32(), pa.string_view()),  # of polars
]
ANY = st.characters(codec="utf-8", exclude_categories=["Cn"])
WRITING = st.one_of(
    st.text(ANY, max_size=30), st.text("aAbB zZ09_,\u00c9\u00e9\u201c\u0301\u65e5\u0e01\ufb01", max_size=60)
)


def table_of(texts, kind=KINDS[0]):
    if kind != KINDS[-1]:
        return pa.table({"body": pa.array(texts, kind)})
    codes = pa.array(texts, pa.string()).dictionary_encode()
    views = pa.array(codes.dictionary.to_pylist(), kind.value_type)  # Arrow makes no such column itself
    return pa.table({"body": pa.DictionaryArray.from_arrays(codes.indices.cast(kind.index_type), views)})


def encoded(texts, kind=KINDS[0], **params):
    table = table_of(texts, kind)
    return Text("body", **params).fit(table).transform(table)


def rows_of(matrix):
    return [dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in matrix]


def test_classes__are_those_of_python_for_the_characters_that_it_knows():
    known = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) != "Cn"]
    found = _ngrams.classes()[known].tolist()
    assert [hex(code) for code, kind in zip(known, found, strict=True) if kind != plain.kind(chr(code))] == []


@given(
    texts=st.lists(st.none() | WRITING, min_size=1, max_size=4),
    unit=st.sampled_from(["word", "char"]),
    lengths=st.tuples(st.integers(1, 16), st.integers(1, 16)),
    weights=st.sampled_from(["binary", "count", "log", "sqrt"]),
    cased=st.booleans(),
    kind=st.sampled_from(KINDS),
)
@example(TEXTS, "word", (1, 2), "count", False, KINDS[0])
@example(TEXTS, "word", (5, 5), "binary", True, KINDS[2])
@example(TEXTS, "char", (3, 5), "log", False, KINDS[3])
@example(TEXTS, "char", (1, 1), "sqrt", True, KINDS[4])
def test_rows__are_those_of_the_plain_form(texts, unit, lengths, weights, cased, kind):
    low, high = sorted(lengths)
    found = encoded(texts, kind, ngrams=f"{unit} {low}-{high} {weights}{' cased' * cased}")
    wanted = [plain.row(text, unit, low, high, weights, lower=not cased) for text in texts]
    assert [row == pytest.approx(one, rel=1e-6) for row, one in zip(rows_of(found), wanted, strict=True)] == [
        True
    ] * len(texts)
    assert all((np.diff(row.indices) > 0).all() for row in found)
    assert found.shape == (len(texts), 2**40)


def test_rows__have_these_coordinates_for_ever():
    found = [encoded(TEXTS, ngrams=f"{ngrams} sqrt") for ngrams in ("word 1-2", "char 3", "word 5")]
    digest = hashlib.sha256(b"".join(x.indices.tobytes() + x.data.tobytes() for x in found)).hexdigest()
    assert digest == "8414844884189ae07115f71d555bea09194f9f27bd298d4bfa64c5ef907df4ee"


def test_long_texts__are_sorted_and_counted_as_short_ones():
    text = " ".join(["the of and", *(f"w{i % 977}" for i in range(20_000))] * 2)
    (found,) = rows_of(encoded([text], ngrams="word 1-2 count"))
    assert found == plain.row(text, "word", 1, 2, "count")


@pytest.mark.parametrize("most", [1, 100])
def test_rows__do_not_depend_on_blocks_and_splits(most, monkeypatch):
    table = pa.concat_tables([table_of(TEXTS), table_of(TEXTS[::-1]).slice(1), table_of(TEXTS[:0])])
    encoder = Text("body", "char 2-3").fit(table)
    whole = encoder.transform(table)
    monkeypatch.setattr(_ngrams, "_BLOCK_GRAMS", most)
    assert_same(encoder.transform(table.combine_chunks()), whole)
    assert_same(encoder.transform(table.slice(3, 5)), whole[3:8])


@pytest.mark.parametrize("frame", [pa.Table.to_pandas, pl.from_arrow, lambda table: table.to_batches()[0]])
def test_frames__are_equal(frame):
    table = table_of(TEXTS)
    encoder = Text("body", "word 2").fit(frame(table))
    assert_same(encoder.transform(frame(table)), encoder.transform(table))
    if frame is pa.Table.to_pandas:
        lazy = dd.from_pandas(frame(table), npartitions=2)
        assert_same(Text("body", "word 2").fit(lazy).transform(lazy).compute(), encoder.transform(table))


def test_table__has_the_similarities_of_its_text_alone():
    texts = [*TEXTS, *TEXTS]
    table = pa.table({"title": texts, "age": [float(i) for i in range(12)], "body": texts[::-1], "x": [b"0"] * 12})
    options = {"title": "word 1-2 count", "body": "char 3"}
    encoder = TableEncoder(text=options, random_state=0).fit(table)
    found, others = encoder.transform(table), TableEncoder(random_state=0).fit(table.select(["age", "x"]))
    ends = np.cumsum([0, others.n_features_out, 2**40, 2**40])
    assert ends[-1] == encoder.n_features_out == found.shape[1]
    assert_same(found[:, : ends[1]], others.transform(table.select(["age", "x"])))
    for name, start in zip(options, ends[1:], strict=False):
        alone = Text(name, options[name]).fit(table).transform(table)
        inside = found[:, start : start + 2**40]
        assert (inside != alone).nnz == 0
        assert np.array_equal(kernels.gmm(inside), kernels.gmm(alone))
    only = TableEncoder(text={"title": "word 1-2 count"}, random_state=0).fit(table.select(["title"]))
    assert_same(only.transform(table), Text("title", "word 1-2 count").fit(table).transform(table))


def test_name_of__finds_the_grams_in_rows():
    table = pa.table({"n": [1.0, 2.0], "body": ["The Quick—brown fox ﬁn日本", "fox"]})
    encoder = TableEncoder(text={"body": "word 2"}, random_state=0).fit(table)
    names = encoder.name_of(encoder.transform(table)[0].indices, table)
    assert {name.value for name in names if name.part == "n-gram"} == {
        *("the quick", "quick brown", "brown fox", "fox fin", "fin 日", "日 本")
    }
    assert encoder.name_of(encoder.transform(table)[1].indices[-1:], table)[0] == ("body", "n-gram", "fox")
    assert encoder.name_of(encoder.transform(table)[1].indices[-1:])[0].value is None


@pytest.mark.parametrize("encoder", [Text("body", "char 2 cased"), TableEncoder(text={"body": "word 1 log"})])
def test_spec__is_json_and_reads_back(encoder):
    fitted = clone(encoder).fit(table_of(TEXTS))
    spec = json.loads(json.dumps(fitted.to_spec()))
    again = type(encoder).from_spec(spec, fitted._fitted_arrays())
    assert again.fingerprint() == fitted.fingerprint() == pickle.loads(pickle.dumps(fitted)).fingerprint()
    assert_same(again.transform(table_of(TEXTS)), fitted.transform(table_of(TEXTS)))
    assert (
        fitted.fingerprint()
        != clone(encoder)
        .set_params(**{"ngrams": "char 2"} if isinstance(encoder, Text) else {"text": {"body": "word 1"}})
        .fit(table_of(TEXTS))
        .fingerprint()
    )


@pytest.mark.parametrize("frame", [pa.Table.to_pandas, lambda table: dd.from_pandas(table.to_pandas(), npartitions=2)])
def test_idf__weighs_grams_by_the_rows_of_fit_that_hold_them(frame, monkeypatch):
    monkeypatch.setattr(_ngrams, "_COUNTED_ROWS", 2)
    texts = ["x a b", "x a c", "x a b b", "x d", "x b a", "x e", None]
    table = table_of(texts).append_column("title", pa.array(["t"] * 7))
    encoder = TableEncoder(text={"body": "word 1 count idf", "title": "word 1"}, random_state=0).fit(frame(table))
    again = TableEncoder.from_spec(json.loads(json.dumps(encoder.to_spec())), encoder._fitted_arrays())
    for fitted in (encoder, again, pickle.loads(pickle.dumps(encoder))):
        rows = fitted.transform(table_of(["b c z b", "a", None]).append_column("title", pa.array(["u", None, None])))
        assert [fitted.name_of(row.indices, table)[0].value for row in rows[:2]] == ["b", "a"]
        assert np.allclose([row.data[0] for row in rows[:2]], [2 * (1 + np.log(7 / 3)), 1 + np.log(7 / 4)])
        assert np.diff(rows.indptr).tolist() == [2, 1, 0]
    alone = Text("body", "word 1 count idf").fit(frame(table))
    assert_same(alone.transform(table), encoder.transform(table)[:, : 1 << GRAM_BITS])
    assert alone.transform(table[:0]).shape == (0, alone.n_features_out)
    assert encoder.weighted == alone.weighted == ["body"]


def test_null__is_like_no_text_and_a_column_of_nulls_has_empty_rows():
    table = pa.table({"body": pa.nulls(3)})
    assert Text("body").fit(table).transform(table).nnz == 0
    assert encoded([None, "", " - "]).nnz == 0


def latin_1():
    data = pa.array([b"fine", b"na\xefve", None], pa.binary())
    return pa.table({"body": data.view(pa.string())})


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: Text("body").fit(latin_1()).transform(latin_1()),
            r"^row 1 of column 'body' is text that is not valid UTF-8",
        ),
        (
            lambda: encoded(["a" * (2**24 + 1)], ngrams="char 3"),
            "row 0 .* 16,777,217 bytes, .* at most 16,777,216; cut it",
        ),
        (lambda: Text("no").fit(table_of(TEXTS)), "no column 'no', for n-grams 'word 5 binary'; its 1 column: 'body'"),
        (lambda: Text("n").fit(pa.table({"n": [1]})), "of type int64, but n-grams are made of text; convert it"),
        (lambda: TableEncoder(text={"n": "word 1"}).fit(pa.table({"n": [1]})), "of type int64, but n-grams"),
    ],
)
def test_transform__names_what_is_wrong(make, match):
    with pytest.raises(InputError, match=match):
        make()


@pytest.mark.parametrize(
    ("encoder", "match"),
    [
        (Text("body", "word 17"), "ngrams='word 17', but .* from 1 to 16 words or characters"),
        (Text("body", "word 3-2"), "ngrams='word 3-2'"),
        (Text("body", "words 5"), "'word 5', 'word 1-2 sqrt' or 'char 3-5 cased'"),
        (Text("body", "word 5 tf"), r"ngrams='word 5 tf', .* weights \(binary, count, log, sqrt\)"),
        (Text("body", "word 5 cased sqrt"), "ngrams='word 5 cased sqrt'"),
        (Text("body", "word 5 idf"), "fewer than 3 of the rows of fit hold, .* 'body' in 6 rows; leave idf out"),
        (Text(3), "column=3"),
        (TableEncoder(text={"body": "word 0"}), r"text\['body'\]='word 0'"),
        (TableEncoder(text={1: "word 1"}), "text={1: 'word 1'}, but it must be a mapping of names"),
        (TableEncoder(text={"body": 5}), r"text\['body'\]=5"),
        (TableEncoder(text="word 5"), "text='word 5', but it must be a mapping"),
        (TableEncoder(text={"bdy": "word 5"}), "text names 'bdy', .* did you mean 'body'"),
        (TableEncoder(text={"body": "word 5"}, categories=["body"]), "categories and text both name 'body'"),
    ],
)
def test_fit__names_what_is_wrong(encoder, match):
    with pytest.raises(ConfigError, match=match):
        encoder.fit(table_of(TEXTS))
