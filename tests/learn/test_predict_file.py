import csv
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat import GCWSFeatures, LibsvmSource
from dkfeat.errors import CommitError, ConfigError, ParseError
from dkfeat.learn.model import LinearModel
from dkfeat.learn.predict import predict_file
from tests.learn.fakes import blobs, write_rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Files, their rows and a model trained from shards of the first file."""
    folder = tmp_path_factory.mktemp("trained")
    train, test = blobs(300, 3, seed=1), blobs(200, 3, seed=2)
    write_rows(folder / "train.svm", *train)
    write_rows(folder / "test.svm", *test)
    gcws = GCWSFeatures(n_components=64, i_bits=6, random_state=0)
    dkfeat.featurize(folder / "train.svm", folder / "train", gcws, progress=False)
    dkfeat.featurize(folder / "test.svm", folder / "test", like=folder / "train", progress=False)
    model = dkfeat.train(folder / "train", dkfeat.SGD(epochs=5), test=folder / "test", progress=False)
    return folder, test, model


def test_predict__files_shards_and_arrays_agree(trained):
    folder, (X, y), model = trained
    out = folder / "labels.txt"
    outcome = predict_file(model, LibsvmSource(str(folder / "test.svm"), blocksize=2000), out)
    labels = np.loadtxt(out, dtype=int)
    np.testing.assert_array_equal(labels, model.predict(X))
    np.testing.assert_array_equal(labels, model.predict(dkfeat.open_shards(folder / "test").codes()))
    assert outcome.n_rows == outcome.n_known == len(y)
    assert outcome.accuracy == model.history[-1]["test_accuracy"] == np.mean(labels == y)
    assert outcome.accuracy > 0.8


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".PARQUET"])
def test_predict__tables_hold_predictions_and_labels(trained, suffix):
    folder, (X, y), model = trained
    out = folder / f"labels{suffix}"
    dkfeat.predict_file(model, LibsvmSource(str(folder / "test.svm"), blocksize=2000), out)
    if suffix != ".csv":
        columns = pq.read_table(out).to_pydict()
    else:
        with out.open(newline="") as file:
            rows = list(csv.DictReader(file))
        columns = {name: [float(row[name]) for row in rows] for name in rows[0]}
    assert columns["prediction"] == model.predict(X).tolist()
    assert columns["label"] == y.tolist()


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst", ".GZ"])
def test_predict__compressed_names_are_refused(trained, tmp_path, suffix):
    folder, _, model = trained
    with pytest.raises(ConfigError, match=r"not compressed; use a name in \.parquet, \.csv or \.txt"):
        predict_file(model, str(folder / "test.svm"), tmp_path / f"labels.csv{suffix}")
    assert not list(tmp_path.iterdir())


def test_predict__folder_of_the_file_is_missing(trained, tmp_path):
    folder, _, model = trained
    with pytest.raises(CommitError, match=r"labels\.txt cannot be written: .*gone is not a folder"):
        predict_file(model, str(folder / "test.svm"), tmp_path / "gone" / "labels.txt")


def test_predict__placeholder_labels_give_no_accuracy(trained, tmp_path):
    _, (X, _), model = trained
    path = write_rows(tmp_path / "new.svm", X, np.zeros(X.shape[0]))
    outcome = predict_file(model, str(path))
    assert outcome.n_rows == X.shape[0]
    assert outcome.accuracy is None


def test_predict__drops_no_row_in_silence(trained, tmp_path):
    _, _, model = trained
    (tmp_path / "new.svm").write_text("3 1:1\nspam\n4 2:1\n")
    settled = {key: model.input_spec[key] for key in ("n_features", "zero_based", "label_dtype")}
    source = LibsvmSource(str(tmp_path / "new.svm"), on_bad_row="quarantine", **settled)
    with pytest.raises(ConfigError, match="has one for each row, so on_bad_row must be 'raise'"):
        predict_file(model, source, tmp_path / "labels.txt")
    assert not (tmp_path / "labels.txt").exists()


def test_predict__a_column_beyond_the_model(trained, tmp_path):
    path = tmp_path / "wide.svm"
    path.write_text("3 1:1\n4 99:1\n")
    out = tmp_path / "labels.txt"
    out.write_text("earlier\n")
    with pytest.raises(ParseError, match=r"wide\.svm:2:3: .*99"):
        predict_file(trained[2], str(path), out, overwrite=True)
    assert out.read_text() == "earlier\n"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["labels.txt", "wide.svm"]


def test_predict__urls_that_can_only_be_read_from(trained):
    folder, _, model = trained
    url = f"simplecache::file://{folder / 'test.svm'}"
    expected = predict_file(model, str(folder / "test.svm"))
    assert predict_file(model, url) == expected
    assert dkfeat.evaluate(model, url, progress=False).summary["accuracy"] == expected.accuracy


def test_predict__a_model_without_input_options_needs_a_source(trained):
    folder, _, model = trained
    bare = LinearModel(**{**{n: getattr(model, n) for n in ("map_spec", "classes", "coef", "intercept")}})
    with pytest.raises(ConfigError, match=r"how its rows were read; give .*zero_based"):
        predict_file(bare, str(folder / "test.svm"))
    source = LibsvmSource(str(folder / "test.svm"), n_features=12, zero_based=False, label_dtype="int64")
    assert predict_file(bare, source) == predict_file(model, str(folder / "test.svm"))


def test_predict__lines_escape_the_line_breaks_of_words():
    rows, words = pa.table({"x": np.arange(60.0)}), np.repeat(["no", "yes\nreally"], 30)
    model = dkfeat.train(rows, y=words, map=dkfeat.DartFeatures(64, random_state=0), progress=False)
    predict_file(model, dkfeat.TableSource(rows), out := io.StringIO())
    assert out.getvalue().split("\n") == [*(word.replace("\n", r"\n") for word in model.predict(rows)), ""]
