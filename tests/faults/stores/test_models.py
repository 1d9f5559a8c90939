"""Models in an object store, saved, read back, replaced and used by every command, and predictions in one."""

from __future__ import annotations

import json

import dask
import numpy as np
import pytest

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.errors import CommitError, ConfigError, ShardError, SourceNotFoundError, SpecConflictError
from dkfeat.neighbors import drop_duplicates, duplicates
from tests.cli.test_commands import run
from tests.engine.helpers import BLOCK, featurized
from tests.faults.stores.bucket import KEY, SECRET
from tests.invariants import dataset_state
from tests.learn.test_predict import fitted

ROWS = "+1 1:1 3:0.5\n-1 2:1\n" * 60


@pytest.fixture
def features(tmp_path):
    (tmp_path / "rows.svm").write_text(ROWS)
    gcws = dkfeat.GCWSFeatures(16, i_bits=4, random_state=0)
    dkfeat.featurize(
        tmp_path / "rows.svm",
        tmp_path / "features",
        gcws,
        progress=False,
        client=ExecutionConfig(scheduler="synchronous"),
    )
    return tmp_path / "features"


def test_model__is_saved_replaced_and_read_back(features, bucket, options):
    url = bucket.url("model")
    first = dkfeat.train(features, dkfeat.SGD(epochs=1), progress=False)
    first.save(url, storage_options=options)
    kept = set(bucket.keys("model/"))
    second = dkfeat.train(features, dkfeat.SGD(epochs=2), random_state=5, progress=False)
    second.save(url, storage_options=options, overwrite=True)
    loaded = dkfeat.load_model(url, storage_options=options)
    np.testing.assert_array_equal(loaded.coef, second.coef)
    assert len(bucket.keys("model/")) == len(kept)  # the former weights are gone
    for text in map(bucket.get, bucket.keys("model/")):
        assert SECRET.encode() not in text


def test_model__damaged_or_missing_or_something_else(features, bucket, options):
    model = dkfeat.train(features, dkfeat.SGD(epochs=1), progress=False)
    with pytest.raises(SourceNotFoundError, match="holds no model"):
        dkfeat.load_model(bucket.url("model"), storage_options=options)
    bucket.put("model/notes.txt", b"mine")
    with pytest.raises(ConfigError, match="something that is not a dkfeat model"):
        model.save(bucket.url("model"), storage_options=options)
    bucket.put("features/_dkfeat/spec.json", b"{}")  # a data set whose first batch is not finished
    with pytest.raises(ConfigError, match=r"holds (features|a data set|a run)"):
        model.save(bucket.url("features"), storage_options=options)
    with pytest.raises(CommitError, match="check that the bucket exists"):
        model.save("s3://there-is-none/model", storage_options=options)
    model.save(bucket.url("other"), storage_options=options)
    (weights,) = [key for key in bucket.keys("other/") if "coef" in key]
    bucket.put(weights, bytes(len(bucket.get(weights))))
    with pytest.raises(ShardError, match="its SHA-256 is not the one"):
        dkfeat.load_model(bucket.url("other"), storage_options=options)


@pytest.mark.slow
def test_commands__take_a_model_at_a_url(features, bucket, proxy, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store = ("--storage-option", f"endpoint_url={proxy.url}")
    url, rows = bucket.url("model"), tmp_path / "rows.svm"
    run("train", features, "--epochs", 1, "--out", url, *store, "--no-progress")
    assert json.loads(run("inspect", url, "--json", *store).stdout)["kind"] == "model"
    assert "all as saved" in run("verify", url, *store).stdout
    assert len(run("predict", url, rows, *store).stdout.splitlines()) == 120
    report = json.loads(run("evaluate", url, features, "--json", *store, "--no-progress").stdout)
    assert (report["rows"], report["accuracy"]) == (120, 1)
    like = ("--like", url, "--target-option", f"endpoint_url={proxy.url}")
    run("featurize", rows, *like, "--out", tmp_path / "again", "--no-progress")
    mine, again = (next((folder / "data").iterdir()) for folder in (features, tmp_path / "again"))
    assert mine.read_bytes() == again.read_bytes()


@pytest.fixture(scope="module")
def made(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    featurized(dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=BLOCK), folder / "shards")
    model = fitted(folder / "shards")
    dkfeat.predict(model, folder / "shards", folder / "predictions", progress=False)
    return folder, model


@pytest.mark.slow
def test_predict__in_a_bucket_gives_the_same_bytes(made, bucket, options):
    folder, model = made
    given = {"client": ExecutionConfig(scheduler="threads", n_workers=2), "progress": False}
    dkfeat.predict(model, folder / "shards", dkfeat.Target(bucket.url(), storage_options=options), **given)
    assert bucket.state() == dataset_state(folder / "predictions")
    bucket.assert_whole(committed=True)
    found = dkfeat.evaluate(model, bucket.url(), storage_options=options, **given)
    assert found == dkfeat.evaluate(model, folder / "predictions", **given)
    assert dkfeat.open_shards(bucket.url(), storage_options=options).verify().problems == []


@pytest.mark.slow
def test_predict__of_shards_of_two_batches_in_a_bucket(made, tiny_folder, bucket, options, tmp_path):
    kept = {"n_features": dkfeat.scan(str(tiny_folder / "*.svm")).n_features, "zero_based": False, "blocksize": BLOCK}
    for number, names in enumerate((["a.svm"], ["a.svm", "b.svm"]), 1):
        source = dkfeat.LibsvmSource([str(tiny_folder / name) for name in names], label_dtype="int64", **kept)
        manifest = featurized(source, bucket.url("shards"), target_options=options)
        assert manifest.number == number
    given = {"storage_options": options, "progress": False, "client": ExecutionConfig(scheduler="threads")}
    assert dkfeat.predict(made[1], bucket.url("shards"), tmp_path / "out", **given).rows == manifest.rows


def test_verify__misses_the_weights_beside_predictions(made, tmp_path):
    folder, model = made
    dkfeat.predict(model, folder / "shards", tmp_path / "out", progress=False)
    weights = next((tmp_path / "out" / "_dkfeat").glob("model-*.npz"))
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "damaged" in dkfeat.open_shards(tmp_path / "out").verify().problems[0]
    weights.unlink()
    assert "is missing" in dkfeat.open_shards(tmp_path / "out").verify().problems[0]


@pytest.mark.slow
def test_duplicates__in_a_bucket_are_those_in_a_folder(features, bucket, options, tmp_path):
    shards, out, target = features, tmp_path / "out", dkfeat.Target(bucket.url(), storage_options=options)
    expected = duplicates(shards, 0.5, target=out, progress=False)
    assert expected.n_pairs
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        found = duplicates(shards, 0.5, target=target, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features", "out", "rows.svm"]
    for table in ("pairs", "groups"):
        assert bucket.state(f"out/{table}") == dataset_state(out / table)
    assert bucket.get("out/duplicates.json") == (out / "duplicates.json").read_bytes()
    assert {key.split("/")[1] for key in bucket.keys("out/")} == {"duplicates.json", "pairs", "groups"}
    assert np.array_equal(found.pairs, expected.pairs)
    stages = []
    duplicates(shards, 0.5, target=target, progress=stages.append)
    assert stages == []
    left = drop_duplicates(shards, bucket.url(), tmp_path / "left", storage_options=options, progress=False)
    assert left.rows == expected.n_kept
    with pytest.raises(SpecConflictError, match=r"threshold: 0\.5 there, 0\.6 asked"):
        duplicates(shards, 0.6, target=target, progress=False)
    bucket.put("notes/a.txt", b"text")
    with pytest.raises(ConfigError, match="holds other files than duplicates"):
        duplicates(shards, target=dkfeat.Target(bucket.url("notes"), storage_options=options), progress=False)
