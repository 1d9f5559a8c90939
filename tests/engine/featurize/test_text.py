"""N-grams of text in runs: equal codes for all splits, bad rows, commands, and settings taken from a target."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.encoders import _ngrams
from dkfeat.errors import ParquetError, SpecConflictError
from tests.engine.featurize.test_tables import codes, run
from tests.engine.helpers import featurized

MAP = dkfeat.DartFeatures(32, random_state=5)
LETTERS = [*"abcdefgh", "é", "日"]


def make_table(n_rows=300):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(LETTERS, size)) for size in rng.integers(0, 40, n_rows)]
    body = pa.array([None if i % 50 == 7 else text for i, text in enumerate(texts)])
    return pa.table(
        {"id": range(n_rows), "body": body, "age": rng.integers(0, 90, n_rows), "label": np.arange(n_rows) % 2}
    )


@pytest.fixture
def folder(tmp_path):
    table = make_table()
    pq.write_table(table.slice(0, 200), tmp_path / "a.parquet", row_group_size=70)
    pq.write_table(table.slice(200), tmp_path / "b.parquet", use_dictionary=False)
    return tmp_path


def source_of(folder, **options):
    return dkfeat.ParquetSource(str(folder / "*.parquet"), label=None, id="id", **options)


@pytest.mark.parametrize("ngrams", ["word 2", "word 2 idf"])
@pytest.mark.parametrize("blocksize", [2_000, 1 << 26])
def test_text__has_the_codes_of_its_ngrams_for_all_splits(folder, blocksize, ngrams, cluster_client):
    encoder = dkfeat.Text("body", ngrams)
    featurized(source_of(folder, blocksize=blocksize), folder / "out", map=MAP, encoder=encoder, client=cluster_client)
    rows = encoder.fit(make_table()).transform(make_table())
    wanted = dkfeat.DartFeatures(32, random_state=5).fit(rows).encode(rows)
    found = dkfeat.open_shards(folder / "out").codes()
    assert np.array_equal(found.codes, wanted.codes)
    assert np.array_equal(found.empty, wanted.empty)
    assert found.empty[7]
    shards = dkfeat.open_shards(folder / "out")
    assert (len(shards.manifest.shards) > 10) == (blocksize == 2_000)
    assert shards.encoder.fingerprint() == encoder.fingerprint()


def test_text__of_another_corpus_has_the_same_spec(folder, tmp_path):
    featurized(source_of(folder), folder / "one", map=MAP, encoder=dkfeat.Text("body"))
    (tmp_path / "more").mkdir()
    pq.write_table(make_table().slice(0, 0), tmp_path / "more" / "c.parquet")
    featurized(source_of(tmp_path / "more"), folder / "two", map=MAP, encoder=dkfeat.Text("body"))
    specs = [dkfeat.open_shards(folder / name).spec for name in ("one", "two")]
    assert specs[0] == specs[1]
    assert dkfeat.open_shards(folder / "two").n_rows == 0


def test_text__of_another_setting_is_refused_and_an_unset_one_is_taken(folder):
    featurized(source_of(folder), folder / "out", map=MAP, encoder=dkfeat.Text("body", "word 3 sqrt"))
    featurized(source_of(folder), folder / "out", map=MAP, encoder=dkfeat.Text("body"))
    with pytest.raises(SpecConflictError, match=r'params\.ngrams: "word 3 sqrt" there, "word 3 binary" asked'):
        featurized(source_of(folder), folder / "out", map=MAP, encoder=dkfeat.Text("body", "word 3"))


def with_bad_text(folder, text):
    table = make_table(20)
    body = pa.array([*table["body"].cast(pa.binary()).to_pylist()[:13], text, *[b"a b"] * 6], pa.binary())
    table = table.set_column(1, "body", body.view(pa.string()))
    pq.write_table(table, folder / "c.parquet", row_group_size=10)


@pytest.mark.parametrize("encoder", [dkfeat.Text("body"), dkfeat.TableEncoder(text={"body": "word 5"})])
@pytest.mark.parametrize(
    ("text", "match"), [(b"na\xefve", "text that is not valid UTF-8"), (b"a" * 101, "a text of 101 bytes")]
)
def test_bad_texts__are_bad_rows_with_their_location(folder, encoder, text, match, monkeypatch):
    with_bad_text(folder, text)
    monkeypatch.setattr(_ngrams, "_MOST_GRAMS", 50)
    with pytest.raises(ParquetError, match=rf"c.parquet: row group 1, row 3, column body: {match}"):
        featurized(source_of(folder), folder / "out", map=MAP, encoder=encoder)
    source = source_of(folder, on_bad_row="quarantine", max_bad_rows=1)
    featurized(source, folder / "out", map=MAP, encoder=encoder)
    assert dkfeat.open_shards(folder / "out").n_rows == 319


def test_long_texts__end_batches_and_pieces(folder):
    table = pa.table({"id": range(40), "body": ["word " * 2_000] * 40, "age": range(40), "label": [0] * 40})
    pq.write_table(table, folder / "c.parquet", use_dictionary=False, compression=None)
    source = source_of(folder, blocksize=200_000)
    featurized(source, folder / "out", map=MAP, encoder=dkfeat.Text("body", "word 1-4"))
    n_rows = [entry.rows for entry in dkfeat.open_shards(folder / "out").manifest.shards]
    assert max(n_rows[-20:]) == 2  # of 10 kB, with 160 kB of coordinates


def test_commands__encode_text_beside_columns_or_alone(folder):
    words = (
        folder / "*.parquet",
        "--no-label",
        "--text",
        "body=word 2",
        "--map",
        "dart",
        "--n-components",
        32,
        "--seed",
        5,
    )
    shown = json.loads(run("plan", *words, "--scan", "--json").stdout)
    assert [(each["column"], each["encoding"], each["reason"]) for each in shown["columns"]][-1] == (
        "body",
        "n-grams",
        "word 2 binary",
    )
    assert run("featurize", *words, "--features", "body", "--out", folder / "text").exit_code == 0
    featurized(source_of(folder), folder / "alone", map=MAP, encoder=dkfeat.Text("body", "word 2"))
    assert np.array_equal(codes(folder / "text"), codes(folder / "alone"))
    assert run("featurize", *words, "--out", folder / "table").exit_code == 0
    assert dkfeat.open_shards(folder / "table").map.n_features_in_ == (3 << 32) + (1 << 40)
    again = run("featurize", folder / "*.parquet", "--like", folder / "text", "--no-label", "--out", folder / "again")
    assert (again.exit_code, "ignored" in again.stderr) == (0, False)
    assert np.array_equal(codes(folder / "again"), codes(folder / "text"))


def test_sets__are_those_of_text_alone(folder):
    words = (folder / "*.parquet", "--no-label", "--text", "body=word 2", "--map", "minhash", "--seed", 5)
    assert run("featurize", *words, "--out", folder / "sets").exit_code == 0
    assert dkfeat.open_shards(folder / "sets").encoder.feature_names_in_.tolist() == ["body"]
    assert run("featurize", *words, "--categories", "id", "--out", folder / "both").exit_code == 0
    assert dkfeat.open_shards(folder / "both").encoder.feature_names_in_.tolist() == ["id", "body"]


OF_SETS = ("--map", "minhash", "--text", "body=word 2")


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ((*OF_SETS, "--categories", "agee"), "column agee: there is no such column: .*did you mean 'age'"),
        (
            ("--features", "body", "--text", "body=word 2", "--categories", "age"),
            "categories names 'age', .*among the features",
        ),
        ((*OF_SETS, "--features", "age"), r"column body: is not in --features, but in --text"),
        ((*OF_SETS, "--text", "a=b=word 1"), "column a=b: there is no such column"),
        ((*OF_SETS, "--features", "body,age"), "map minhash takes sets, but column 'age' is encoded with weights"),
        (("--map", "minhash", "--text", "body=char 2 sqrt"), "'body' is encoded with weights, .*--map dart"),
        (("--map", "minhash", "--text", "body=char 2 idf"), "'body' is encoded with weights, .* or idf of n-grams"),
        ((*OF_SETS, "--text", "body=word 3"), "--text: a name is given twice; .*'word 3-5'"),
    ],
)
def test_commands__name_what_is_wrong_before_rows_are_encoded(folder, words, match, monkeypatch):
    monkeypatch.setattr("dkfeat.engine.tasks.job.Job.__call__", None)
    refused = run("featurize", folder / "*.parquet", "--no-label", *words, "--out", folder / "out")
    assert refused.exit_code == 2
    assert re.search(match, " ".join(refused.stderr.split()))
    assert not (folder / "out").exists()


def test_job_files__take_the_text(folder):
    job = f"{{source: {{urlpath: {folder}/*.parquet, label: null}}, out: {folder}/out, map: {{name: dart}}"
    (folder / "job.yaml").write_text(f"featurize: [{job}, encoder: {{text: {{body: word 5}}}}}}]")
    assert run("run", folder / "job.yaml").exit_code == 0
    assert dkfeat.open_shards(folder / "out").encoder.texts["body"].form == "word 5"


@pytest.mark.parametrize(
    ("encoder", "match"),
    [
        (dkfeat.Text("bdy"), "a.parquet: column bdy: there is no such column: .* did you mean 'body'"),
        (dkfeat.Text("other"), r"there is no such column: the file has id, body, age, label; pass text="),
        (dkfeat.TableEncoder(text={"age": "word 1"}), "column age: is int64, but n-grams are made of text"),
    ],
)
def test_text__names_a_column_that_is_none(folder, encoder, match):
    with pytest.raises(ParquetError, match=match):
        featurized(source_of(folder), folder / "out", map=MAP, encoder=encoder)
