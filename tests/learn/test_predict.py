"""Predictions at scale: the same protocol as features, from text, Parquet and shards."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

import dkfeat
from dkfeat import GCWSFeatures
from dkfeat.config import ExecutionConfig
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.learn.model import LinearModel
from tests.invariants import assert_dataset_whole, dataset_state
from tests.learn.fakes import blobs, write_rows
from tests.programs import command, run_killed

BLOCK = 4_000


def predicted(model, source, target, blocksize=None, **options):
    source = source if blocksize is None else dkfeat.LibsvmSource(source, blocksize=blocksize)
    return dkfeat.predict(model, source, target, **ExecutionConfig.gather({"progress": False, **options}))


def fitted(shards, loss="log_loss"):
    """Model of shards that fit in memory."""
    data = dkfeat.open_shards(shards)
    X, y = data.to_scipy()
    line = LogisticRegression(max_iter=50, tol=0.1).fit(X, y)
    return LinearModel(
        map_spec=data.map.to_spec(),
        input_spec=data.spec["input"],
        classes=line.classes_,
        coef=line.coef_,
        intercept=line.intercept_,
        training={"loss": loss},
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two files of rows, shards of them, and models of two and of three classes."""
    folder = tmp_path_factory.mktemp("trained")
    X, y = blobs(240, 3, seed=1)
    (folder / "rows").mkdir()
    write_rows(folder / "rows/a.svm", X[:150], y[:150])
    write_rows(folder / "rows/b.svm", X[150:], y[150:])
    write_rows(folder / "two.svm", X, np.where(y == 3, 3, 4))
    gcws = GCWSFeatures(n_components=64, i_bits=6, random_state=0)
    pattern = str(folder / "rows/*.svm")
    dkfeat.featurize(dkfeat.LibsvmSource(pattern, blocksize=BLOCK), folder / "shards", gcws, progress=False)
    dkfeat.featurize(folder / "two.svm", folder / "two", gcws, progress=False)
    fitted(folder / "shards").save(folder / "model")
    fitted(folder / "two").save(folder / "binary")
    return folder, pattern, X, y


def table_of(target):
    return pq.read_table(target / "data")


@pytest.fixture(scope="module")
def golden(trained, tmp_path_factory):
    folder, pattern, _, _ = trained
    target = tmp_path_factory.mktemp("golden") / "predictions"
    predicted(folder / "model", pattern, target, blocksize=BLOCK)
    return target


def test_predict__columns_tell_label_prediction_scores_and_origin(trained, golden):
    folder, _, X, y = trained
    model = dkfeat.load_model(folder / "model")
    table = table_of(golden)
    names = ["label", "source_file", "source_split", "source_row", "prediction", "scores", "probabilities"]
    assert table.column_names == names
    assert table["prediction"].to_pylist() == model.predict(X).tolist()
    assert table["label"].to_pylist() == y.tolist()
    np.testing.assert_allclose(table["scores"].to_pylist(), model.decision_function(X), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(table["probabilities"].to_pylist(), model.predict_proba(X), rtol=1e-5, atol=1e-6)
    assert table["source_file"].to_pylist() == ["a.svm"] * 150 + ["b.svm"] * 90
    splits = np.array(table["source_split"])
    assert splits.max() > 2
    for split in np.unique(splits):
        np.testing.assert_array_equal(
            np.array(table["source_row"])[splits == split], np.arange((splits == split).sum())
        )
    assert_dataset_whole(golden, committed=True)


def test_predict__two_classes_have_one_score(trained, tmp_path):
    folder, _, X, _ = trained
    predicted(folder / "binary", folder / "two.svm", tmp_path / "out")
    table, model = table_of(tmp_path / "out"), dkfeat.load_model(folder / "binary")
    np.testing.assert_allclose(table["score"], model.decision_function(X), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(table["probability"], model.predict_proba(X)[:, 1], rtol=1e-5, atol=1e-6)
    predicted(folder / "binary", folder / "two.svm", tmp_path / "bare", scores=False)
    assert table_of(tmp_path / "bare").column_names[-1] == "prediction"


def test_predict__shards_give_what_their_source_gives(trained, golden, tmp_path):
    folder, _, _, _ = trained
    manifest = predicted(folder / "model", folder / "shards", tmp_path / "out")
    assert manifest.rows == 240
    ours, theirs = table_of(tmp_path / "out"), table_of(golden)
    assert ours["label"].type == pa.int64()
    for name in ours.column_names[1:]:
        assert ours[name].to_pylist() == theirs[name].to_pylist(), name
    assert_dataset_whole(tmp_path / "out", committed=True)


@pytest.mark.parametrize("layout", ["sparse", "codes"])
def test_predict__shards_of_any_layout_and_of_groups(trained, tmp_path, layout):
    folder, pattern, _, _ = trained
    source = dkfeat.LibsvmSource(pattern, blocksize="1MiB")
    dkfeat.featurize(source, tmp_path / "shards", like=folder / "shards", layout=layout, progress=False)
    data = dkfeat.open_shards(tmp_path / "shards")
    assert data.manifest.shards[0].rows_by_file == (150, 90)
    model = dkfeat.load_model(folder / "model")
    predicted(model, data, tmp_path / "out")
    predicted(model, pattern, tmp_path / "direct", blocksize="1MiB")
    ours, theirs = table_of(tmp_path / "out"), table_of(tmp_path / "direct")
    for name in ("prediction", "source_file", "source_split", "source_row"):
        assert ours[name].to_pylist() == theirs[name].to_pylist(), name


def test_predict__dense_features_and_kept_columns(tmp_path):
    X, y = blobs(60, 2, seed=3)
    columns = {f"x{place}": column for place, column in enumerate(X.toarray().T)}
    train, new = tmp_path / "train.parquet", tmp_path / "new.parquet"
    pq.write_table(pa.table({**columns, "label": y}), train)
    pq.write_table(pa.table({**columns, "name": [f"n{row}" for row in range(60)], "score": y}), new, row_group_size=25)
    fourier = dkfeat.FourierFeatures(n_components=32, random_state=0)
    dkfeat.featurize(train, tmp_path / "shards", fourier, progress=False)
    model = fitted(tmp_path / "shards", loss="hinge")
    predicted(model, dkfeat.ParquetSource(str(new), id="name"), tmp_path / "out")
    table = table_of(tmp_path / "out")
    assert table.column_names == ["id", "source_file", "source_split", "source_row", "prediction", "score"]
    assert table["id"].to_pylist() == [f"n{row}" for row in range(60)]
    assert table["prediction"].to_pylist() == model.predict(X).tolist()
    assert dkfeat.open_shards(tmp_path / "out").manifest.labels == ()
    predicted(model, tmp_path / "shards", tmp_path / "again")
    assert table_of(tmp_path / "again")["prediction"].to_pylist() == model.predict(X).tolist()
    with pytest.raises(ConfigError, match="keeps a column 'score'"):
        predicted(model, dkfeat.ParquetSource(str(new), keep="score"), tmp_path / "taken")


def test_predict__regression_and_lists_of_labels(trained, tmp_path):
    folder, pattern, X, _ = trained
    base = dkfeat.load_model(folder / "model")
    line = replace(base, classes=np.empty(0), coef=base.coef[:1], intercept=base.intercept[:1], task="regression")
    predicted(line, pattern, tmp_path / "line")
    table = table_of(tmp_path / "line")
    assert table.column_names[-1] == "prediction"
    np.testing.assert_allclose(table["prediction"], line.predict(X), rtol=1e-5, atol=1e-5)
    lists = replace(base, intercept=base.intercept + 1, task="multilabel")
    predicted(lists, pattern, tmp_path / "lists")
    expected = [base.classes[row.indices].tolist() for row in lists.predict(X)]
    assert table_of(tmp_path / "lists")["prediction"].to_pylist() == expected


def test_predict__new_files_are_added_and_nothing_is_done_twice(trained, tmp_path):
    folder, _, X, y = trained
    rows = tmp_path / "rows"
    rows.mkdir()
    write_rows(rows / "a.svm", X[:50], y[:50])
    first = predicted(folder / "model", str(rows / "*.svm"), tmp_path / "out")
    assert predicted(folder / "model", str(rows / "*.svm"), tmp_path / "out") == first
    write_rows(rows / "b.svm", X[50:], y[50:])
    second = predicted(folder / "model", str(rows / "*.svm"), tmp_path / "out")
    assert (second.number, second.rows, second.labels) == (2, 240, (3.0, 4.0, 5.0))
    assert_dataset_whole(tmp_path / "out", committed=True)


def test_predict__another_model_is_a_conflict(trained, golden):
    folder, pattern, _, _ = trained
    with pytest.raises(SpecConflictError, match=r"model\.sha256"):
        predicted(folder / "binary", pattern, golden, blocksize=BLOCK)


@pytest.mark.fault("V-08")
def test_predict__shards_of_another_map_are_a_conflict(trained, tmp_path):
    folder, pattern, _, _ = trained
    other = GCWSFeatures(n_components=64, i_bits=6, random_state=1)
    dkfeat.featurize(pattern, tmp_path / "shards", other, progress=False)
    with pytest.raises(SpecConflictError, match=r"another map than the model's, map\.seed"):
        predicted(folder / "model", tmp_path / "shards", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_predict__predictions_are_no_features(trained, golden, tmp_path):
    folder, _, _, _ = trained
    with pytest.raises(ConfigError, match="holds predictions, not features"):
        predicted(folder / "model", golden, tmp_path / "out")
    with pytest.raises(ConfigError, match="holds predictions, not features"):
        dkfeat.open_shards(golden).batches(10)
    assert dkfeat.open_shards(golden).verify().problems == []


def test_predict__bad_rows_are_set_aside(trained, tmp_path):
    folder, _, _, _ = trained
    (tmp_path / "rows.svm").write_text("3 1:1\n4 1:x\n5 2:1\n")
    source = dkfeat.LibsvmSource(tmp_path / "rows.svm", on_bad_row="quarantine", max_bad_rows=1.0)
    manifest = predicted(folder / "model", source, tmp_path / "out")
    assert (manifest.rows, manifest.n_bad_rows) == (2, 1)


@pytest.mark.cluster
def test_predict__a_cluster_gives_the_same_bytes(trained, golden, tmp_path):
    folder, pattern, _, _ = trained
    predicted(folder / "model", pattern, tmp_path / "out", blocksize=BLOCK, scheduler="cluster", n_workers=2)
    assert dataset_state(tmp_path / "out") == dataset_state(golden)


@pytest.mark.slow
@pytest.mark.fault("P-01")
@pytest.mark.parametrize("kill_at", ["after_plan:1", "mid_write:5", "after_publish:4", "before_manifest:1"])
def test_driver_killed__resume_is_identical(trained, golden, tmp_path, kill_at):
    folder, pattern, _, _ = trained
    target = tmp_path / "out"
    run_killed(kill_at, command("predict", folder / "model", pattern, "--blocksize", BLOCK, "--out", target))
    assert_dataset_whole(target, finished=False)
    predicted(folder / "model", pattern, target, blocksize=BLOCK)
    assert dataset_state(target) == dataset_state(golden)
    assert_dataset_whole(target, committed=True)
