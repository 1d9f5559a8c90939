"""Labels beyond 2^53, which float64 would merge, from text and Parquet to shards, models, predictions and reports."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

import dkfeat
from dkfeat.cli import cli
from dkfeat.cli.commands.run import build_source
from dkfeat.config import SourceConfig
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.learn.checks import class_weights
from dkfeat.learn.model import load_model
from dkfeat.learn.predict import predict_file
from dkfeat.store.manifest.manifest import labels_shown
from tests.engine.helpers import featurized

LARGE = 2**53
pytestmark = pytest.mark.fault("I-41")


def written(path, classes, n_rows=120):
    """Rows whose only column depends on their class."""
    labels = [classes[row % len(classes)] for row in range(n_rows)]
    path.write_text(
        "".join(f"{label} {classes.index(label) + 1}:1 {row % 30 + 10}:1\n" for row, label in enumerate(labels))
    )
    return labels


@pytest.mark.parametrize("solver", ["sgd", "liblinear"])
@pytest.mark.parametrize("classes", [[LARGE, LARGE + 1], [-(2**63), LARGE + 1, LARGE + 2, 2**63 - 1]], ids=len)
def test_exact_labels__text_to_predictions(tmp_path, classes, solver):
    labels = written(tmp_path / "rows.svm", classes)
    gcws = dkfeat.GCWSFeatures(n_components=64, random_state=0)
    manifest = dkfeat.featurize(tmp_path / "rows.svm", tmp_path / "shards", gcws, progress=False)
    assert (manifest.labels, manifest.schema["label"]) == (tuple(classes), "int64")
    assert labels_shown(manifest.labels) == ", ".join(map(str, classes))  # in full
    data = dkfeat.open_shards(tmp_path / "shards")
    assert data.classes.tolist() == classes
    assert np.array_equal(np.unique(data.labels(), return_counts=True)[1], [len(labels) // len(classes)] * len(classes))
    assert data.verify().problems == []
    dkfeat.train(data, solver=solver, test=data, progress=False).save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert model.classes.tolist() == classes
    assert model.history[-1]["test_accuracy"] == 1
    predictions = dkfeat.predict(model, tmp_path / "rows.svm", tmp_path / "predictions", progress=False)
    assert predictions.labels == tuple(classes)
    table = parquet.read_table(tmp_path / "predictions/data")
    assert table["prediction"].to_pylist() == table["label"].to_pylist() == labels
    for source in (tmp_path / "rows.svm", tmp_path / "shards"):
        out = tmp_path / f"{source.stem}.parquet"
        counts = predict_file(model, str(source), out)
        assert counts.n_correct == counts.n_known == len(labels)
        table = parquet.read_table(out)
        assert table["prediction"].to_pylist() == table["label"].to_pylist() == labels
    found = dkfeat.evaluate(model, tmp_path / "rows.svm", progress=False)
    assert [entry["label"] for entry in found.per_class] == classes
    assert found.summary["accuracy"] == 1


def test_exact_labels__lists(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text(
        "".join(
            f"{LARGE + row % 2}{f',{LARGE + 2}' * (row % 3 > 0)} {row % 2 + 1}:1 {row % 3 + 3}:1\n" for row in range(90)
        )
    )
    source = dkfeat.LibsvmSource(str(path), multilabel=True)
    gcws = dkfeat.GCWSFeatures(n_components=64, random_state=0)
    assert dkfeat.featurize(source, tmp_path / "shards", gcws, progress=False).labels == (LARGE, LARGE + 1, LARGE + 2)
    model = dkfeat.train(tmp_path / "shards", test=tmp_path / "shards", progress=False)
    assert model.history[-1]["test_accuracy"] == 1
    dkfeat.predict(model, path, tmp_path / "predictions", progress=False)
    table = parquet.read_table(tmp_path / "predictions/data")
    assert table["prediction"].to_pylist() == table["label"].to_pylist()


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(20, 0), pa.list_(pa.int64())], ids=str)
def test_exact_labels__parquet(tmp_path, kind):
    labels = [LARGE, LARGE + 1, 2**63 - 1]
    column = pa.array([[label] for label in labels] if pa.types.is_list(kind) else labels, kind)
    parquet.write_table(pa.table({"a": [1.0, 2.0, 3.0], "label": column}), tmp_path / "rows.parquet")
    found = dkfeat.scan(tmp_path / "rows.parquet")
    assert (found.label_dtype, found.labels) == ("int64", tuple(labels))
    assert featurized(tmp_path / "rows.parquet", tmp_path / "shards").labels == tuple(labels)


def test_exact_labels__parquet_files_of_two_types(tmp_path):
    for name, labels in (("a", [0.5]), ("b", [LARGE + 1])):
        parquet.write_table(pa.table({"a": [1.0], "label": labels}), tmp_path / f"{name}.parquet")
    with pytest.raises(dkfeat.errors.ParquetError, match=r"b\.parquet: .*label: 9007199254740993, but it is not exact"):
        dkfeat.scan(str(tmp_path / "*.parquet"))


@pytest.mark.parametrize("label", [LARGE + 1, 10**400], ids=["2^53+1", "10^400"])
def test_exact_labels__class_weight_of_an_integer_that_is_no_float64_class(label):
    weights = dkfeat.SGD(class_weight={label: 2}).class_weight
    with pytest.raises(ConfigError, match=f"names the label {label}, but the classes are 0.5"):
        class_weights(weights, [0.5, float(LARGE)], np.ones(2, np.int64))


def test_exact_labels__declared_on_the_command_line_and_in_job_files(tmp_path):
    written(tmp_path / "rows.svm", [LARGE, LARGE + 1])
    arguments = ["featurize", str(tmp_path / "rows.svm"), "--map", "gcws", "--n-components", "8", "--seed", "0"]
    given = ["--quiet", "--labels", f"{LARGE},{LARGE + 1}", "--out", str(tmp_path / "out")]
    outcome = CliRunner().invoke(cli, [*arguments, *given])
    assert outcome.exit_code == 0, outcome.output
    spec = json.loads((tmp_path / "out/_dkfeat/spec.json").read_text())
    assert spec["input"]["labels"] == [LARGE, LARGE + 1]
    assert dkfeat.open_shards(tmp_path / "out").classes.tolist() == [LARGE, LARGE + 1]
    with pytest.raises(ConfigError, match="not exact in float64"):  # as the number that the file has
        build_source(SourceConfig.from_mapping({"urlpath": "x", "labels": [LARGE + 1, 0.5]}))


def test_labels__words_are_not_compared_with_numbers(tmp_path):
    numbers = pa.table({"label": [0, 1] * 20, "x": range(40)})
    words = numbers.set_column(0, "label", pa.array(["zero", "one"] * 20))  # numbered the other way round
    for name, table in (("numbers", numbers), ("words", words)):
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    dart = dkfeat.DartFeatures(n_components=32, random_state=0)
    dkfeat.featurize(tmp_path / "numbers.parquet", tmp_path / "shards", dart, progress=False)
    dkfeat.featurize(tmp_path / "words.parquet", tmp_path / "test", dart, progress=False)
    with pytest.raises(SpecConflictError, match="labels are the words one, zero, the training shards' are numbers"):
        dkfeat.train(tmp_path / "shards", test=tmp_path / "test", progress=False)
    with pytest.raises(ConfigError, match="labels of these shards are words, which are classes"):
        dkfeat.train(tmp_path / "test", dkfeat.SGD(loss="squared_error"), progress=False)
    model = dkfeat.train(tmp_path / "shards", progress=False)
    with pytest.raises(SpecConflictError, match="labels are the words one, zero, the model's are numbers"):
        dkfeat.evaluate(model, tmp_path / "test")
    with pytest.raises(ConfigError, match=r"labels are words, but the model's are numbers; .*label=None"):
        dkfeat.predict(model, tmp_path / "words.parquet", tmp_path / "predictions", progress=False)


def test_labels__words_of_another_format_that_training_rows_lack_are_left_out_as_numbers_are(tmp_path):
    table = pa.table({"kind": ["zero", "one"] * 20, "x": range(40)})
    model = dkfeat.train(
        dkfeat.TableSource(table, label="kind"),
        map=dkfeat.DartFeatures(n_components=32, random_state=0),
        progress=False,
    )
    words = ["new", *["zero", "one"] * 19, "zero"]
    rows = table.set_column(0, "kind", pa.array(words)).to_pylist()
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source, expected = tmp_path / "rows.jsonl", model.predict(table.select(["x"])).tolist()
    counts = dkfeat.predict_file(model, source)
    dkfeat.predict(model, source, tmp_path / "predictions", progress=False)
    found, again = (dkfeat.evaluate(model, rows, progress=False) for rows in (source, tmp_path / "predictions"))
    right = sum(word == other for word, other in zip(words, expected, strict=True))
    assert (found.n_rows, found.n_unknown, round(found.summary["accuracy"] * 39)) == (39, 1, right)
    assert (counts.n_rows, counts.n_known, counts.n_correct) == (40, 39, right)
    assert (again.summary, again.n_unknown) == (found.summary, 1)
    (tmp_path / "default.jsonl").write_text(source.read_text().replace('"kind"', '"label"'))
    assert dkfeat.evaluate(model, tmp_path / "default.jsonl", progress=False).summary == found.summary
    stored = parquet.read_table(tmp_path / "predictions/data")
    assert (stored["label"].to_pylist(), stored["prediction"].to_pylist()) == (words, expected)
    assert dkfeat.open_shards(tmp_path / "predictions").verify().problems == []
    (tmp_path / "rows.svm").write_text("0 1:1\n")
    model = dkfeat.train(np.eye(4), y=["no", "yes"] * 2, map=dkfeat.DartFeatures(8, random_state=0), progress=False)
    for use in (partial(dkfeat.evaluate, progress=False), dkfeat.predict_file):
        with pytest.raises(ConfigError, match="labels of LIBSVM text are numbers, but the model's are words"):
            use(model, dkfeat.LibsvmSource(tmp_path / "rows.svm", zero_based=True))


@pytest.mark.parametrize("solver", [dkfeat.SGD, dkfeat.Liblinear])
def test_labels__class_weights_name_words(solver):
    table = pa.table({"label": ["01", "1=1"] * 20, "x": [*range(20)] * 2})
    numbers = pa.table({"label": [0, 1] * 20, "x": table["x"]})
    fit = partial(dkfeat.train, map=dkfeat.DartFeatures(n_components=32, random_state=0), progress=False)
    by_word, by_number = fit(table, solver(class_weight={"1=1": 3})), fit(numbers, solver(class_weight={1: 3}))
    assert np.array_equal(by_word.coef, by_number.coef)
    with pytest.raises(ConfigError, match="class_weight names the label 1, but the classes are 01, 1=1"):
        fit(table, solver(class_weight={1: 3}))
