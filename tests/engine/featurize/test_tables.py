"""Tables with text, dates and nulls, and words as labels, through runs, models and comparisons."""

from __future__ import annotations

import datetime
import json
import shutil

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy.sparse import csr_matrix
from sklearn.base import clone

import dkfeat
from dkfeat.cli import cli
from dkfeat.encoders.table import TableEncoder
from dkfeat.engine.resolve import with_encoder
from dkfeat.errors import ConfigError, DkfeatError, InputError, ParquetError, SpecConflictError
from dkfeat.sources.pieces import RejectedRow
from tests.engine.helpers import featurized

MAP = dkfeat.DartFeatures(32, random_state=5)


def make_table(n_rows=600, seed=0):
    rng = np.random.default_rng(seed)
    age, city = rng.integers(18, 90, n_rows), rng.choice(["Oslo", "Bergen", "Zürich"], n_rows)
    day = datetime.datetime(2024, 1, 1)
    return pa.table({
        "age": age,
        "city": city,
        "income": pa.array(np.exp(8 * rng.normal(size=n_rows)), mask=rng.random(n_rows) < 0.1),
        "seen": [day + datetime.timedelta(hours=int(hours)) for hours in rng.integers(0, 9000, n_rows)],
        "member": rng.random(n_rows) < 0.5,
        "kind": np.where(age > 50, "wide", "narrow"),
    })  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder with the table in two files, its shards, and a model."""
    folder = tmp_path_factory.mktemp("tables")
    table = make_table()
    pq.write_table(table.slice(0, 400), folder / "a.parquet", row_group_size=90)
    pq.write_table(table.slice(400), folder / "b.parquet")
    source = dkfeat.ParquetSource(str(folder / "*.parquet"), label="kind")
    featurized(source, folder / "features", map=MAP)
    dkfeat.train(folder / "features", "liblinear", progress=False).save(folder / "model")
    return folder


def run(*words):
    return CliRunner().invoke(cli, [str(word) for word in words])


def codes(folder):
    return dkfeat.open_shards(folder).codes().codes


def fitted(table=None, **params):
    return TableEncoder(random_state=5, **params).fit((make_table() if table is None else table).drop(["kind"]))


def expected(encoder, table):
    return clone(MAP).fit_width(encoder.n_features_out).encode(encoder.transform(table)).codes


@pytest.mark.filterwarnings("ignore:.*column.*ignored")
def test_featurize__encodes_tables_alike_for_blocks_workers_and_storage(made, tmp_path, cluster_client):
    wanted = expected(fitted(), make_table())
    assert np.array_equal(codes(made / "features"), wanted)
    table = make_table().set_column(0, "age", make_table()["age"].cast(pa.float64()))
    table = table.set_column(1, "city", table["city"].dictionary_encode())
    pq.write_table(table, tmp_path / "c.parquet", row_group_size=50)
    source = dkfeat.ParquetSource(str(tmp_path / "c.parquet"), label="kind", blocksize=7000)
    featurized(source, tmp_path / "features", map=MAP, client=cluster_client)
    assert len(dkfeat.open_shards(tmp_path / "features").manifest.shards) > 5
    assert np.array_equal(codes(tmp_path / "features"), wanted)


def test_featurize__draws_the_rows_that_an_encoder_in_memory_draws(tmp_path):
    table = make_table(11_000, seed=1)
    for part in range(3):
        pq.write_table(table.slice(4000 * part, 4000), tmp_path / f"{part}.parquet", row_group_size=1500)
    featurized(dkfeat.ParquetSource(str(tmp_path / "*.parquet"), label="kind"), tmp_path / "features", map=MAP)
    found = dkfeat.open_shards(tmp_path / "features").encoder
    assert found.to_spec() == fitted(table).to_spec()
    assert found.describe()[0].rows == 10_000


def test_nystroem__landmarks_are_drawn_through_the_encoder(made, tmp_path):
    source = dkfeat.ParquetSource(str(made / "*.parquet"), label="kind")
    map = dkfeat.NystroemFeatures(kernel="gmm", n_components=16, random_state=5)
    featurized(source, tmp_path / "features", map=map, encoder=TableEncoder())
    data = dkfeat.open_shards(tmp_path / "features")
    X = fitted().transform(make_table().drop(["kind"]))
    assert data.map.to_spec() == map.fit(X).to_spec()
    assert data.verify().problems == []


def test_like__and_a_copied_model_encode_as_the_first_run(made, tmp_path):
    shutil.copytree(made / "model", tmp_path / "model")
    test = make_table(200, seed=2)
    pq.write_table(test.select(test.column_names[::-1]), tmp_path / "test.parquet")  # columns are found by name
    source = dkfeat.ParquetSource(str(tmp_path / "test.parquet"), label="kind")
    for like in (made / "features", tmp_path / "model"):
        featurized(source, tmp_path / f"like-{like.name}", map=None, like=like)
        assert np.array_equal(codes(tmp_path / f"like-{like.name}"), expected(fitted(), test.drop(["kind"])))
    model = dkfeat.load_model(tmp_path / "model")
    predicted = model.predict(test.drop(["kind"]))
    assert np.mean(predicted == test["kind"].to_numpy()) > 0.8
    for frame in (test.drop(["kind"]).to_pandas(), pl.from_arrow(test.drop(["kind"]))):
        assert np.array_equal(model.predict(frame), predicted)
    evaluation = dkfeat.evaluate(model, source)
    assert evaluation.summary["accuracy"] == np.mean(predicted == test["kind"].to_numpy())
    for scores in (True, False):
        target = tmp_path / f"predictions-{scores}"
        dkfeat.predict(model, source, target, scores=scores, progress=False)
        table = pq.read_table(target / "data")
        assert table["prediction"].to_pylist() == predicted.tolist()
        assert table["label"].to_pylist() == test["kind"].to_pylist()
        assert dkfeat.evaluate(model, target).confusion == evaluation.confusion
        assert "narrow" in dkfeat.run_report(target).to_html()


def test_verify_inputs__of_predictions__some_words_are_new(made, tmp_path):
    words = pa.array(["wide", "new", "narrow"] * 3)
    pq.write_table(make_table(9).set_column(5, "kind", words), rows := tmp_path / "rows.parquet")
    dkfeat.predict(made / "model", rows, tmp_path / "predictions", progress=False)
    assert dkfeat.verify_inputs(tmp_path / "predictions", rows).problems == ()


def test_predict__lists_of_words(tmp_path):
    tags = [["wide"] if age > 50 else ["narrow", "young"] for age in make_table()["age"].to_pylist()]
    pq.write_table(make_table().set_column(5, "kind", pa.array(tags)), tmp_path / "a.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "a.parquet"), label="kind")
    featurized(source, tmp_path / "features", map=MAP)
    model = dkfeat.train(tmp_path / "features", "sgd", progress=False)
    for scores in (True, False):
        dkfeat.predict(model, tmp_path / "features", target := tmp_path / f"{scores}", scores=scores, progress=False)
        assert pq.read_table(target / "data")["label"].to_pylist() == tags
        stored, made = (dkfeat.evaluate(model, rows).summary for rows in (target, source))
        assert (stored["accuracy"], stored["micro_f1"]) == (made["accuracy"], made["micro_f1"])


def test_neighbors__exact_comparisons_see_encoded_rows(made):
    kernel = dkfeat.kernels.gmm(fitted().transform(make_table().drop(["kind"])))
    source = str(made / "*.parquet")
    found = dkfeat.neighbors.search(made / "features", None, 1, rerank=599, source=source, progress=False)
    np.fill_diagonal(kernel, -1)
    np.testing.assert_allclose(found.similarities[:, 0], kernel.max(axis=1), rtol=1e-5)


@pytest.mark.parametrize("is_file", [True, False])
def test_neighbors__queries_go_through_the_encoder_of_the_shards(made, tmp_path, is_file):
    table = make_table(20, seed=3)
    pq.write_table(table, tmp_path / "queries.parquet")
    queries = dkfeat.ParquetSource(str(tmp_path / "queries.parquet"), label="kind")
    queries = queries if is_file else table.drop(["kind"])
    source = str(made / "*.parquet")
    found = dkfeat.neighbors.search(made / "features", queries, 1, rerank=600, source=source, progress=False)
    kernel = dkfeat.kernels.gmm(*(fitted().transform(rows.drop(["kind"])) for rows in (table, make_table())))
    np.testing.assert_allclose(found.similarities[:, 0], kernel.max(axis=1), rtol=1e-5)


def test_drop_duplicates__copies_the_encoder(made, tmp_path):
    found = dkfeat.neighbors.duplicates(made / "features", progress=False)
    dkfeat.neighbors.drop_duplicates(made / "features", found, tmp_path / "distinct", progress=False)
    data = dkfeat.open_shards(tmp_path / "distinct")
    assert data.encoder.to_spec() == fitted().to_spec()
    assert data.verify().problems == []
    dkfeat.train(data, "liblinear", progress=False).save(tmp_path / "model")
    assert set(dkfeat.load_model(tmp_path / "model").predict(make_table().drop(["kind"]))) == {"narrow", "wide"}


def test_predict__of_shards_copies_the_encoder(made, tmp_path):
    dkfeat.predict(made / "model", made / "features", tmp_path / "predictions", progress=False)
    data = dkfeat.open_shards(tmp_path / "predictions")
    assert data.verify().problems == []
    predicted = dkfeat.load_model(made / "model").predict(make_table().drop(["kind"]))
    assert pq.read_table(tmp_path / "predictions" / "data")["prediction"].to_pylist() == predicted.tolist()


def test_spec__has_a_format_that_version_0_2_refuses_only_if_needed(made, tmp_path):
    assert dkfeat.open_shards(made / "features").spec["format"] == 2
    table = make_table().select(["age"]).append_column("label", pa.array([0, 1] * 300))
    pq.write_table(table, tmp_path / "n.parquet")
    featurized(str(tmp_path / "n.parquet"), tmp_path / "numbers", map=MAP, encoder=None)
    spec = dkfeat.open_shards(tmp_path / "numbers").spec
    assert (spec["format"], {"encoder", "classes"} & {*spec, *spec["input"]}) == (1, set())
    dkfeat.train(tmp_path / "numbers", "liblinear", progress=False).save(tmp_path / "model")
    assert b'"format":1' in (tmp_path / "model" / "model.json").read_bytes()
    assert b'"format":2' in (made / "model" / "model.json").read_bytes()


def test_featurize__again_takes_the_encoder_of_the_target_and_refuses_another(made, tmp_path):
    shutil.copytree(made / "features", tmp_path / "features")
    source = dkfeat.ParquetSource(str(made / "*.parquet"), label="kind")
    for encoder in ("auto", TableEncoder(), fitted()):
        assert featurized(source, tmp_path / "features", map=MAP, encoder=encoder).number == 1
    for encoder in (None, TableEncoder(missing="indicator"), fitted(make_table(seed=3))):
        with pytest.raises(SpecConflictError, match="encoder"):
            featurized(source, tmp_path / "features", map=MAP, encoder=encoder)


WRONG = {
    "retyped": ({"city": pa.array([1, 2])}, "city.*int64.*string"),
    "missing": ({"city": None}, "no column 'city', which was of type string in fit"),
    "null label": ({"kind": pa.array(["wide", None])}, "row 1, column kind: a null, but each row has a label"),
    "unknown word": ({"kind": pa.array(["wide", "flat"])}, "row 1, column kind: flat, but the classes are narrow"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_featurize__names_the_column_of_a_later_file_that_does_not_fit(made, tmp_path, fault):
    shutil.copytree(made / "features", tmp_path / "features")
    columns, text = WRONG[fault]
    table = make_table(2)
    for name, column in columns.items():
        table = table.drop([name]) if column is None else table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, tmp_path / "c.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "c.parquet"), label="kind")
    with pytest.raises(ParquetError, match=text) as caught:
        featurized(source, tmp_path / "new", map=None, like=made / "features")
    assert "c.parquet" in str(caught.value)
    if "row" in text:
        featurized(source, tmp_path / "rest", map=None, like=made / "features", on_bad_row="quarantine", max_bad_rows=1)
        (bad,) = dkfeat.open_shards(tmp_path / "rest").quarantine()
        assert "column kind" in bad.message


def test_labels__that_are_no_utf_8_are_bad_rows(tmp_path):
    words = pa.array([b"wide", b"Z\xfcrich", b"narrow"] * 20)
    text = pa.Array.from_buffers(pa.string(), 60, words.buffers())
    table = make_table(60).set_column(5, "kind", text).set_column(1, "city", text)
    table = table.append_column("tags", pa.ListArray.from_arrays(range(61), text))
    table = table.append_column("note", pa.array(["x", "", "y"] * 20))
    pq.write_table(table, tmp_path / "a.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "a.parquet"), label="kind")
    with pytest.raises(ParquetError, match="row 1, column kind: text that is not valid UTF-8"):
        featurized(source, tmp_path / "features", map=MAP)
    featurized(source, tmp_path / "features", map=MAP, on_bad_row="quarantine", max_bad_rows=20)
    bad = list(dkfeat.open_shards(tmp_path / "features").quarantine())
    assert all("column kind: text that is not valid UTF-8" in row.message for row in bad)
    assert [row.text.count("xfc") for row in bad] == [3] * 20
    assert all("note=''" in row.text for row in bad)
    assert dkfeat.open_shards(tmp_path / "features").spec["input"]["classes"] == ["narrow", "wide"]


def test_featurize__refuses_files_whose_columns_differ_in_kind(tmp_path):
    pq.write_table(make_table(40), tmp_path / "a.parquet")
    pq.write_table(make_table(40).set_column(1, "city", pa.array(range(40))), tmp_path / "b.parquet")
    with pytest.raises(ParquetError, match=r"b\.parquet: column city: is int64, but string in a\.parquet"):
        featurized(dkfeat.ParquetSource(str(tmp_path / "*.parquet"), label="kind"), tmp_path / "features", map=MAP)


def damage(path, name):
    """Overwrite the pages of a column, so that reading it fails."""
    chunk = pq.read_metadata(path).row_group(0).column(pq.read_schema(path).names.index(name))
    with path.open("r+b") as file:
        file.seek(chunk.dictionary_page_offset)
        file.write(b"\xff" * chunk.total_compressed_size)


def test_later_files__need_no_columns_that_the_encoder_leaves_out(tmp_path, caplog):
    table = make_table().append_column("row", pa.array([f"row {number}" for number in range(600)]))
    pq.write_table(table, tmp_path / "a.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "a.parquet"), label="kind")
    featurized(source, tmp_path / "features", map=MAP)
    dkfeat.train(tmp_path / "features", "liblinear", progress=False).save(tmp_path / "model")
    pq.write_table(table, tmp_path / "b.parquet")
    damage(tmp_path / "b.parquet", "row")
    pq.write_table(make_table().append_column("new", table["row"]), tmp_path / "c.parquet")
    later = source.replaced(urlpath=[str(tmp_path / name) for name in ("b.parquet", "c.parquet")])
    text = "1 column that the encoder has not seen, such as new, ignored"
    runs = {
        "features": lambda target: featurized(source.replaced(urlpath=str(tmp_path / "*.parquet")), target, map=MAP),
        "like": lambda target: featurized(later, target, map=None, like=tmp_path / "model"),
        "predictions": lambda target: dkfeat.predict(tmp_path / "model", later, target, progress=False),
    }
    for name, write in runs.items():
        caplog.clear()
        write(tmp_path / name)
        assert sum(text in message for message in caplog.messages) == 1
    wanted = codes(tmp_path / "features")[:600]
    assert np.array_equal(codes(tmp_path / "features"), np.tile(wanted, (3, 1)))
    assert np.array_equal(codes(tmp_path / "like"), np.tile(wanted, (2, 1)))
    predicted = pq.read_table(tmp_path / "predictions" / "data")["prediction"].to_pylist()
    model = dkfeat.load_model(tmp_path / "model")
    assert model.predict(table).tolist() * 2 == predicted  # with the label, of which it does not warn
    with pytest.warns(UserWarning, match="1 column that fit has not seen, such as 'new', is ignored"):
        model.predict(pq.read_table(tmp_path / "c.parquet"))


def test_drift__is_a_warning_of_each_run_that_inherits_the_encoder(made, tmp_path, caplog, cluster_client):
    for name in ("features", "a.parquet", "b.parquet"):
        copy = shutil.copytree if name == "features" else shutil.copy2
        copy(made / name, tmp_path / name)
    night = make_table(600, seed=4)
    night = night.set_column(0, "age", pa.array(np.arange(600)))
    night = night.set_column(1, "city", pa.array(np.where(np.arange(600) % 2, night["city"], None)))
    pq.write_table(night, tmp_path / "n.parquet", row_group_size=50)
    later, client = dkfeat.ParquetSource(str(tmp_path / "n.parquet"), label="kind", blocksize=7000), cluster_client
    every = dkfeat.ParquetSource(str(tmp_path / "*.parquet"), label="kind")
    runs = {
        "features": lambda target: featurized(every, target, map=MAP),
        "like": lambda target: featurized(later, target, map=None, like=made / "model", client=client),
        "predictions": lambda target: dkfeat.predict(made / "model", later, target, client=client, progress=False),
    }
    text = "age: 88% beyond the drawn values (0% when drawn); city: 50% null (0% when drawn)"
    for name, write in runs.items():
        caplog.clear()
        write(tmp_path / name)
        assert sum(text in message for message in caplog.messages) == 1
        report = dkfeat.run_report(tmp_path / name)
        assert "; ".join(report.to_mapping()["runs"][-1]["drift"]) == text
        assert text in report.to_html()


def test_featurize__does_not_read_columns_without_an_encoding(tmp_path):
    table = make_table().append_column("image", pa.array([b"image"] * 600))
    table = table.append_column("pairs", pa.array([[("a", 1)]] * 600, pa.map_(pa.string(), pa.int64())))
    pq.write_table(table, tmp_path / "a.parquet")
    damage(tmp_path / "a.parquet", "image")
    featurized(dkfeat.ParquetSource(str(tmp_path / "a.parquet"), label="kind"), tmp_path / "features", map=MAP)
    left_out = dkfeat.open_shards(tmp_path / "features").encoder.describe().left_out
    assert [column.name for column in left_out] == ["image", "pairs"]
    assert left_out[0].type == "binary"
    assert np.array_equal(codes(tmp_path / "features"), expected(fitted(), make_table().drop(["kind"])))


def test_featurize__refuses_labels_of_words_here_and_numbers_there(tmp_path):
    pq.write_table(make_table(40), tmp_path / "a.parquet")
    numbers = make_table(40).set_column(5, "kind", pa.array([0, 1] * 20))
    pq.write_table(numbers, tmp_path / "b.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "*.parquet"), label="kind")
    with pytest.raises(ParquetError, match=r"b\.parquet: column kind: is int64, but labels are words; convert"):
        featurized(source, tmp_path / "features", map=MAP)
    of_words, of_numbers = (dkfeat.TableSource(table, label="kind") for table in (make_table(40), numbers))
    featurized(of_numbers, tmp_path / "numbers", map=MAP)
    with pytest.raises(SpecConflictError, match=r"labels are words, but those of .*numbers are numbers; convert them"):
        featurized(of_words, tmp_path / "words", map=None, like=tmp_path / "numbers")


def test_other_rows__are_named_as_they_are(tmp_path):
    pq.write_table(pa.table({"x": [1, 2], "y": ["a", "b"]}), tmp_path / "x.parquet")
    target = tmp_path / "features"
    featurized(dkfeat.TableSource(make_table(40), label="kind"), target, map=MAP)
    model = dkfeat.train(target, progress=False)
    for call, words in (
        (lambda: dkfeat.explain(model, tmp_path / "x.parquet"), r"no column 'age', .*; its 2 columns: 'x', 'y'$"),
        (lambda: dkfeat.evaluate(model, tmp_path / "nowhere"), "no file matches .*nowhere"),
        (lambda: featurized(target, tmp_path / "again", map=MAP), "features holds codes, which are no columns"),
    ):
        with pytest.raises(DkfeatError, match=words):
            call()


def test_featurize__takes_an_encoder_for_tables_alone(tiny_folder, tmp_path):
    with pytest.raises(ConfigError, match=r"encoder=.*columns of a table.*libsvm"):
        featurized(str(tiny_folder / "*.svm"), tmp_path / "features", encoder=TableEncoder())
    source = dkfeat.ParquetSource(str(tmp_path / "*.parquet"), label="kind", features_as="columns")
    pq.write_table(make_table(40), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="encoder"):
        featurized(source, tmp_path / "features", encoder=TableEncoder())


@pytest.mark.parametrize("way", [{"encoder": dkfeat.ColumnScale()}, {"encoder": None}])
def test_columns_of_numbers__those_left_out_are_named_once(made, tmp_path, caplog, way):
    source = dkfeat.ParquetSource(str(made / "*.parquet"), label="kind", on_bad_row="quarantine", max_bad_rows=0.5)
    featurized(source, tmp_path / "features", map=MAP, **way)
    (told,) = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert "2 columns are left out, such as city, seen: features are read as numbers" in told


def test_featurize__with_a_map_fitted_to_numbers_reads_numbers(made, tmp_path):
    source = dkfeat.ParquetSource(str(made / "*.parquet"), label="kind", features=("age", "member"))
    featurized(source, tmp_path / "features", map=clone(MAP).fit_width(2))
    assert dkfeat.open_shards(tmp_path / "features").encoder is None


@pytest.mark.parametrize("words", [(), ("wide", "narrow")])
def test_featurize__without_rows_says_what_to_do(made, tmp_path, words):
    filters = [("age", ">", 500)]
    source = dkfeat.ParquetSource(str(made / "*.parquet"), label="kind", labels=words or None, filters=filters)
    text = r"rows first.*encoder=None" if words else r"labels=,.*rows first"
    for target in (dkfeat.plan, featurized):
        with pytest.raises(ConfigError, match=text):
            target(source, tmp_path / "none", map=MAP, **({"scan": True} if target is dkfeat.plan else {}))
    assert featurized(source, tmp_path / "like", map=None, like=made / "features").rows == 0


def test_featurize__reads_the_columns_that_a_given_encoder_knows(made, tmp_path):
    table = make_table().drop(["kind"])
    encoder = fitted(make_table().select(["city", "age", "kind"]).append_column("gone", pa.array(np.ones(600))))
    source = dkfeat.ParquetSource(str(made / "*.parquet"), label="kind")
    featurized(source, tmp_path / "features", map=MAP, encoder=encoder)
    assert np.array_equal(codes(tmp_path / "features"), expected(encoder, table.select(["age", "city"])))
    with pytest.raises(ParquetError, match=r"a\.parquet: the table has no column 'city'"):
        featurized(source.replaced(features=["age"]), tmp_path / "age", map=MAP, encoder=encoder)
    (split, _) = (found := with_encoder(source.replaced(labels=["wide", "narrow"]), source.files(), encoder)).splits()
    error = found.rejected_row_error(split, next(found.read(split)), RejectedRow(1, 1 << 32, "too high"))
    assert "row group 0, row 1, column age: too high" in str(error)  # in fit, not in the file, age is second


def test_tables__cannot_be_read_without_an_encoder(made, tiny_folder, tmp_path):
    path = str(made / "a.parquet")
    with pytest.raises(ConfigError, match=r'features_as="table".*Dask'):
        dkfeat.read_parquet(path, label="kind", features_as="table")
    with pytest.raises(ConfigError, match=r'features_as="table".*encoder=None'):
        featurized(dkfeat.ParquetSource(path, features_as="table"), tmp_path / "none", map=MAP, encoder=None)
    text = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), n_features=300, zero_based=False)
    with pytest.raises(SpecConflictError, match=r"made from the columns of a table.*Parquet"):
        featurized(text, tmp_path / "like", map=None, like=made / "features")
    with pytest.raises(SpecConflictError, match=r"made from the columns of a table.*Parquet"):
        dkfeat.predict(dkfeat.load_model(made / "model"), text, tmp_path / "predictions", progress=False)
    with pytest.raises(ConfigError, match="n_features=5; their encoder makes 21,474,836,480 features; leave it out"):
        featurized(
            dkfeat.ParquetSource(path, label="kind", n_features=5, features_as="table"), tmp_path / "five", map=MAP
        )


def test_labels__name_classes_before_they_occur(tmp_path):
    pq.write_table(make_table(40), tmp_path / "a.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "a.parquet"), label="kind", labels=["wide", "flat", "narrow"])
    featurized(source, tmp_path / "features", map=MAP)
    model = dkfeat.train(tmp_path / "features", "liblinear", progress=False)
    assert dkfeat.open_shards(tmp_path / "features").spec["input"]["classes"] == ["flat", "narrow", "wide"]
    assert set(model.predict(make_table(40).drop(["kind"]))) <= {"wide", "narrow"}


def test_model__says_that_it_takes_tables(made):
    model = dkfeat.load_model(made / "model")
    for rows in (np.zeros((2, 5)), csr_matrix((2, 5))):
        with pytest.raises(InputError, match="an encoder takes a table"):
            model.predict(rows)
    table = make_table(50).drop(["kind"])
    assert np.array_equal(model.predict(model.encoder.transform(table)), model.predict(table))


def test_compare__trains_on_encoded_rows(tmp_path):
    pq.write_table(make_table(400), tmp_path / "a.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "a.parquet"), label="kind")
    with pytest.raises(ConfigError, match="have an encoder; name gcws"):
        dkfeat.compare(source, maps="gcws-rank", progress=False)
    comparison = dkfeat.compare(source, maps=["gcws", "gcws-rank"], n_components=64, baselines="exact", progress=False)
    assert min(result.accuracy for result in comparison.results) > 0.75  # one of two classes is 0.5
    words = ("compare", tmp_path / "a.parquet", "--label", "kind", "--maps", "gcws", "--k", 8, "--no-exact", "--json")
    sizes = [
        json.loads(run(*words, *more).stdout)["results"][0]["row_bytes"]
        for more in ((), ("--categories", "age", "--test", tmp_path / "a.parquet"))
    ]
    assert sizes[0] < sizes[1]  # dense rows take 4 bytes for each coordinate that occurs, of which ages are many now
    columns = run(*words, "--features", "age", "--features-as", "columns", "--categories", "age")
    assert "is for the columns of a table" in columns.stderr


def test_commands__show_and_set_encodings(made, tmp_path, monkeypatch):
    monkeypatch.chdir(made)
    shown = run("plan", "a.parquet", "--label", "kind", "--scan", "--out", tmp_path / "new", "--categories", "age")
    assert shown.exit_code == 0, shown.output
    lines = {line.split()[0]: " ".join(line.split()) for line in shown.output.splitlines() if line.strip()}
    assert lines["age"] == "age int64 category 72 distinct, such as 79"
    assert lines["seen"].startswith("seen timestamp date")
    words = ("featurize", "a.parquet", "--label", "kind", "--n-components", 8, "--out", tmp_path / "new")
    assert run(*words, "--missing", "indicator").exit_code == 0
    assert dkfeat.open_shards(tmp_path / "new").encoder.missing == "indicator"
    assert run(*words[:-1], tmp_path / "numbers", "--features-as", "columns", "--features", "age").exit_code == 0
    assert dkfeat.open_shards(tmp_path / "numbers").encoder is None


@pytest.mark.parametrize("folder", ["features", "model"])
def test_inspect__shows_words_and_the_size_of_the_encoder(made, folder):
    record = json.loads(run("inspect", made / folder, "--json").output)
    assert record["labels"] == ["narrow", "wide"]
    assert record["encoder"] == {
        "encoder": "table",
        "version": 1,
        "seed": 5,
        "columns": 5,
        "left_out": 0,
        "categories": [],
        "missing": "ignore",
    }
    text = run("inspect", made / folder).output
    assert "table version 1: 5 columns, seed=5" in text
    assert "2 (narrow, wide)" in text
    assert "blocksize" not in text


@pytest.mark.parametrize(
    ("encoder", "text"),
    [("{categores: [age]}", "did you mean 'categories'"), ("{missing: nothing}", "missing='nothing'")],
)
def test_job_files__name_a_wrong_parameter_of_the_encoder(tmp_path, encoder, text):
    job = f"featurize: [{{source: {{urlpath: a.parquet}}, out: out, map: {{name: gcws}}, encoder: {encoder}}}]"
    (tmp_path / "job.yaml").write_text(job)
    result = run("run", tmp_path / "job.yaml", "--dry-run")
    assert result.exit_code == 2
    assert "featurize[0].encoder" in result.output
    assert text in result.output


def test_warning__of_new_classes_names_words(tmp_path, caplog):
    table = make_table(60)
    pq.write_table(table.filter(pa.compute.equal(table["kind"], "wide")), tmp_path / "a.parquet")
    source = dkfeat.ParquetSource(str(tmp_path / "*.parquet"), label="kind", labels=["narrow", "wide"])
    featurized(source, tmp_path / "features", map=MAP)
    pq.write_table(table, tmp_path / "b.parquet")
    featurized(source, tmp_path / "features", map=MAP)
    assert "labels that no earlier batch has: narrow" in caplog.text
