"""Parquet sources from end to end: shards, resume, batches, `like`, the command line, Dask arrays."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import dkfeat
from dkfeat.cli.rows import _comparison
from dkfeat.errors import ConfigError, ParquetError, SpecConflictError
from dkfeat.learn.predict import predict_file
from dkfeat.sources.parquet.options import normalize_filters
from tests.cli.test_commands import run
from tests.conftest import libsvm_text
from tests.engine.helpers import featurized, gcws
from tests.invariants import assert_dataset_whole, dataset_state
from tests.sources.parquet.rows import feature_columns, write


@pytest.fixture
def table(tmp_path, tiny_rows):
    """The tiny rows as columns, with weights, names and days, in ten row groups."""
    X, y = tiny_rows
    columns = {**feature_columns(X, "columns"), "label": y, "w": np.arange(400) / 400}
    columns |= {"name": [f"row {row}" if row % 7 else None for row in range(400)], "day": np.arange(400) // 100}
    return write(tmp_path / "rows.parquet", columns, row_group_size=40)


def wide(path, **options):
    features = [f"c{column:03d}" for column in range(300)]
    return dkfeat.ParquetSource(
        path, **{"features": features, "features_as": "columns", "blocksize": 200_000, **options}
    )


def test_kept_columns__come_back_with_their_rows(tmp_path, table):
    manifest = featurized(wide(table, weight="w", id="name", keep=["day"]), tmp_path / "out")
    assert manifest.schema == {
        "label": "int64",
        "weight": "float64",
        "id": "string",
        "day": "int64",
        "codes": "fixed_size_binary[24]",
    }
    assert_dataset_whole(tmp_path / "out")
    data = dkfeat.open_shards(tmp_path / "out")
    X, y, weight, kept = data.to_scipy(weight=True, kept=True)
    assert weight.tolist() == (np.arange(400) / 400).tolist()
    assert kept["id"].to_pylist() == [f"row {row}" if row % 7 else None for row in range(400)]
    for X_batch, y_batch, w_batch, kept_batch in data.batches(64, columns=("weight", "kept"), buffer_rows=150):
        place = np.round(w_batch * 400).astype(int)
        assert (X_batch != X[place]).nnz == 0
        assert np.array_equal(y_batch, y[place])
        assert kept_batch["day"].to_pylist() == (place // 100).tolist()
    arrays = data.to_dask(weight=True)
    assert [array.chunks[0] for array in arrays] == [tuple(entry.rows for entry in data.manifest.shards)] * 3
    assert np.array_equal(arrays[2].compute(scheduler="synchronous"), weight)
    plain = pq.read_table(tmp_path / "out" / "data")
    assert plain.column("day").to_pylist() == kept["day"].to_pylist()
    with pytest.raises(ConfigError, match="query ids are requested"):
        data.batches(3, columns=["query_id"])


@pytest.mark.parametrize("layout", ["sparse", "dense"])
def test_shards__are_a_source_themselves(tmp_path, table, layout):
    """Features of features: the folder is the source, and no column is named."""
    chosen = gcws(4, i_bits=3) if layout == "sparse" else dkfeat.FourierFeatures(8, random_state=1)
    featurized(wide(table), tmp_path / "first", map=chosen, layout=layout)
    first = dkfeat.open_shards(tmp_path / "first")
    width = first.shape[1]
    source = dkfeat.ParquetSource(str(tmp_path / "first" / "data"), n_features=width)
    featurized(source, tmp_path / "second", map=gcws(4))
    X, y = first.to_scipy()
    X = sparse.csr_matrix(X)
    expected = gcws(4).fit(X).encode(X)
    second = dkfeat.open_shards(tmp_path / "second")
    assert np.array_equal(second.codes().codes, expected.codes)
    assert second.labels().tolist() == y.tolist()
    assert featurized(str(tmp_path / "first"), tmp_path / "again", map=gcws(4)).rows == 400


def test_spec__names_columns_and_binds_them(tmp_path, table):
    source = wide(table, weight="w", keep="name", filters=[("day", "<", 3)])
    manifest = featurized(source, tmp_path / "out")
    assert manifest.rows == 300
    spec = json.loads((tmp_path / "out" / "_dkfeat" / "spec.json").read_text())["input"]
    assert (spec["kind"], spec["label"], spec["keep"], spec["kept_types"]) == ("parquet", "label", ["name"], ["string"])
    assert spec["filters"] == [[["day", "<", 3]]]
    again = featurized(table, tmp_path / "out", map=None)  # only a path: the spec has all other settings
    assert again.sha256 == manifest.sha256
    for changed in ({"weight": "day"}, {"keep": "day"}, {"filters": [("day", "<", 2)]}, {"label": "day"}):
        with pytest.raises(SpecConflictError, match=next(iter(changed))):
            featurized(source.replaced(kept_types=None, **changed), tmp_path / "out")


def test_batches__of_new_files_take_the_spec_over(tmp_path, tiny_rows):
    X, y = tiny_rows
    folder = tmp_path / "source"
    folder.mkdir()
    write(folder / "day1.parquet", {**feature_columns(X[:150], "columns"), "label": y[:150]})
    first = featurized(dkfeat.ParquetSource(str(folder), features_as="columns"), tmp_path / "out")
    columns = {**feature_columns(X[150:], "columns"), "label": y[150:].astype(float), "new": np.ones(250)}
    write(folder / "day2.parquet", dict(reversed(columns.items())))  # order and further columns do not matter
    second = featurized(str(folder), tmp_path / "out", map=None)
    assert (first.rows, second.rows, second.number) == (150, 400, 2)
    assert second.shards[: len(first.shards)] == first.shards
    fitted = dkfeat.open_shards(tmp_path / "out")
    assert np.array_equal(fitted.codes().codes, gcws().fit(X).encode(X).codes)
    write(folder / "day1.parquet", {**feature_columns(X[:150], "columns"), "label": y[:150], "more": y[:150]})
    with pytest.raises(SpecConflictError, match=r"day1\.parquet"):
        featurized(str(folder), tmp_path / "out", map=None)


def test_like__takes_columns_and_width_but_not_rows(tmp_path, table, tiny_folder):
    train = wide(table, weight="w", keep="name", filters=[("day", "<", 3)])
    featurized(train, tmp_path / "train")
    test = dkfeat.ParquetSource(table, filters=[("day", "==", 3)])
    manifest = featurized(test, tmp_path / "test", map=None, like=tmp_path / "train")
    assert (manifest.rows, manifest.schema) == (100, {"label": "int64", "codes": "fixed_size_binary[24]"})
    text = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), zero_based=False)
    assert featurized(text, tmp_path / "text", map=None, like=tmp_path / "train").n_features == 300
    with pytest.raises(ConfigError, match="pass zero_based"):
        featurized(str(tiny_folder / "*.svm"), tmp_path / "open", map=None, like=tmp_path / "train")
    with pytest.raises(SpecConflictError, match="another kind of source"):
        featurized(text, tmp_path / "train")


def test_plan__tells_rows_from_footers(table):
    made = dkfeat.plan(wide(table, label_dtype="float64"), map=gcws())
    assert (made.n_rows, made.needs_scan, len(made.tasks)) == (400, False, 5)
    assert sum(task.rows for task in made.tasks) == 400
    assert not dkfeat.plan(wide(table), map=gcws()).needs_scan
    assert dkfeat.plan(wide(table, filters=[("day", "<", 3)]), map=gcws()).n_rows is None


def test_scan__reads_labels_and_counts_rows(table):
    found = dkfeat.scan(table)
    assert (found.n_rows, found.labels, found.label_dtype, found.nnz) == (400, (-1, 1), "int64", None)
    assert found.n_features == 302  # w and day are numbers too
    assert dkfeat.scan(wide(table, filters=[("day", "==", 0)])).n_rows == 100


def test_read_parquet__gives_arrays_with_known_chunks(table, tiny_rows):
    features = [f"c{column:03d}" for column in range(300)]
    X, y = dkfeat.read_parquet(table, features, blocksize=200_000)
    assert X.chunks == ((80,) * 5, (300,))
    assert np.array_equal(X.compute(scheduler="synchronous").toarray(), tiny_rows[0].toarray())
    assert y.compute(scheduler="synchronous").tolist() == tiny_rows[1].tolist()
    X, y, qid, weight = dkfeat.read_parquet(
        table, features, "w", query_id="day", weight="w", filters=[("day", "in", [1])]
    )
    assert (X.shape, y.dtype) == ((100, 300), np.float64)
    assert qid.compute(scheduler="synchronous").tolist() == [1] * 100
    assert np.array_equal(weight.compute(scheduler="synchronous"), y.compute(scheduler="synchronous"))


@pytest.mark.fault("I-20", "I-34")
def test_row_that_the_map_refuses__has_its_place(tmp_path):
    columns = {"x": [1.0, 2.0, -3.0, 4.0], "label": [0, 1, 2, 2]}
    path = write(tmp_path / "a.parquet", columns, row_group_size=2)
    laplace = dkfeat.LaplaceFeatures(4, random_state=0)
    with pytest.raises(ParquetError, match=f"^{path}: row group 1, row 0, column x: Negative values in data"):
        featurized(path, tmp_path / "out", map=laplace)
    source = dkfeat.ParquetSource(path, filters=[("label", ">", 0)])
    with pytest.raises(ParquetError, match="row group 1, row 0, column x: Negative"):
        featurized(source, tmp_path / "filtered", map=laplace)
    columns = {"features": [[1.0, 0.0], [1.0, -1.0]], "label": [0, 1]}
    path = write(tmp_path / "b.parquet", columns)
    with pytest.raises(
        ParquetError, match=r"row group 0, row 1, column features: Negative.* \(column 1 of the features\)"
    ):
        featurized(path, tmp_path / "vector", map=laplace)


def test_predict__reads_columns_as_the_model_was_trained(tmp_path, table, tiny_rows):
    featurized(wide(table, id="name"), tmp_path / "train", map=gcws(64))
    model = dkfeat.train(tmp_path / "train", dkfeat.SGD(epochs=2), progress=False)
    outcome = predict_file(model, table, tmp_path / "all.csv")
    assert (outcome.n_rows, outcome.n_known) == (400, 400)
    (tmp_path / "rows.svm").write_text(libsvm_text(*tiny_rows))
    text = dkfeat.LibsvmSource(tmp_path / "rows.svm", n_features=300, zero_based=False, label_dtype="int64")
    assert predict_file(model, text, tmp_path / "text.csv") == outcome
    assert (tmp_path / "all.csv").read_text() == (tmp_path / "text.csv").read_text()
    unlabelled = write(tmp_path / "new.parquet", pq.read_table(table).drop_columns("label"))
    outcome = predict_file(model, unlabelled, tmp_path / "new.txt")
    assert (outcome.n_rows, outcome.n_known, outcome.accuracy) == (400, 0, None)
    for ending in ("csv", "parquet"):  # no labels are made up
        predict_file(model, unlabelled, tmp_path / f"predicted.{ending}")
    assert (tmp_path / "predicted.csv").read_text().splitlines()[0] == '"prediction"'
    assert pq.read_table(tmp_path / "predicted.parquet").column_names == ["prediction"]


@pytest.mark.cluster
def test_cluster__gives_the_same_shards(tmp_path, table, cluster_client):
    source = wide(table, weight="w", keep="name", filters=[("day", "<", 3)])
    featurized(source, tmp_path / "here")
    featurized(source, tmp_path / "there", client=cluster_client)
    assert dataset_state(tmp_path / "here") == dataset_state(tmp_path / "there")
    # each row group has bad labels; any of them may be reported first
    with pytest.raises(ParquetError, match=r"row group \d+, row [01], column w: 0\.\d+, but the allowed labels are 0"):
        featurized(wide(table, label="w", labels=(0,)), tmp_path / "bad", client=cluster_client)


def test_command_line__names_columns(tmp_path, table):
    options = ["--n-components", 8, "--features", "c000,c001", "--features", "c002", "--label", "day", "--weight", "w"]
    options += [
        "--features-as",
        "columns",
        "--id",
        "name",
        "--filters",
        "day < 3",
        "--filters",
        "c000 >= -9",
        "--no-progress",
    ]
    run("featurize", table, *options, "--out", tmp_path / "out")
    data = dkfeat.open_shards(tmp_path / "out")
    assert (data.n_rows, data.classes.tolist(), data.spec["input"]["n_features"]) == (300, [0, 1, 2], 3)
    assert data.spec["input"]["filters"] == [[["day", "<", 3], ["c000", ">=", -9]]]
    assert list(data.manifest.schema) == ["label", "weight", "id", "codes"]
    run("featurize", table, "--like", tmp_path / "out", "--no-progress", "--out", tmp_path / "more")
    assert dkfeat.open_shards(tmp_path / "more").n_rows == 400
    assert json.loads(run("inspect", tmp_path / "out", "--json").output)["input"]["kind"] == "parquet"


def test_command_line__errors_begin_with_their_place(tmp_path):
    path = write(tmp_path / "rows.parquet", {"label": [0, 1], "x": [1.0, None]})
    result = run("featurize", path, "--features-as", "columns", "--out", tmp_path / "out", status=2)
    assert result.stderr.splitlines()[0].startswith(f"dkfeat: error: {path}: row group 0, row 1, column x: a null, ")


MISSPELT = r"""
s in 'a','b'
s in "a"b
s == [b
s => b
s ==
s in
s =< b
s <> b
s in [a,b]
s in (a)
s in a,,b
s == null
"""


@pytest.mark.parametrize("text", MISSPELT.split("\n")[1:-1])
def test_filters__misspelt_operators_and_lists_are_errors(tmp_path, table, text):
    result = run("featurize", table, "--filters", text, "--out", tmp_path / "out", status=2)
    assert "is no comparison such as" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("s = b", ("s", "==", "b")),
        ("s == a = b, c", ("s", "==", "a = b, c")),
        ('s == "=b"', ("s", "==", "=b")),
        ("s not  in a, 2 ,b c", ("s", "not in", ("a", 2, "b c"))),
        (r's in "a,b","\"",""', ("s", "in", ("a,b", '"', ""))),
        ("x>=-1.5", ("x", ">=", -1.5)),
    ],
)
def test_filters__texts_of_the_command_line(text, filters):
    assert normalize_filters([_comparison(text)]) == ((filters,),)


def test_filters__number_beyond_the_type_of_the_column(tmp_path):
    path = write(tmp_path / "rows.parquet", {"label": [0, 1], "u": [1, 2]})
    result = run("featurize", path, "--filters", "u >= 92233720368547758080", "--out", tmp_path / "out", status=2)
    assert "do not fit the columns" in result.output


def test_filters__that_no_row_passes_are_reported(tmp_path, caplog):
    path = write(tmp_path / "rows.parquet", {"label": [0, 1], "u": [1, 2]})
    source = dkfeat.ParquetSource(path, features_as="columns", filters=[("u", ">", 5)])
    manifest = dkfeat.featurize(source, tmp_path / "out", dkfeat.GCWSFeatures(n_components=8), progress=False)
    assert manifest.rows == 0
    assert "no row of the new files passes filters=" in caplog.text


def test_command_line__errors(tmp_path, table):
    result = run("featurize", table, "--label", "nowhere", "--out", tmp_path / "out", status=2)
    assert "column nowhere: there is no such column" in result.output
    result = run("featurize", "a.svm", "--weight", "w", "--out", tmp_path / "out", status=2)
    assert "is read as libsvm, which has no option --weight" in result.output
    assert not (tmp_path / "out").exists()
