"""Predictions from shards in a bucket to a bucket."""

import pytest

import dkfeat
from tests.engine.helpers import BLOCK, featurized
from tests.invariants import dataset_state
from tests.learn.test_predictions import fitted


@pytest.fixture(scope="module")
def made(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    featurized(dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=BLOCK), folder / "shards")
    model = fitted(folder / "shards")
    dkfeat.predict(model, folder / "shards", folder / "predictions", progress=False)
    return folder, model


def test_predict__in_a_bucket_gives_the_same_bytes(made, bucket, options):
    folder, model = made
    given = {"scheduler": "threads", "n_workers": 2, "progress": False}
    dkfeat.predict(model, folder / "shards", bucket.url(), target_options=options, **given)
    assert bucket.state() == dataset_state(folder / "predictions")
    bucket.assert_whole(committed=True)
    found = dkfeat.evaluate(model, bucket.url(), storage_options=options, **given)
    assert found == dkfeat.evaluate(model, folder / "predictions", **given)
    assert dkfeat.open_shards(bucket.url(), storage_options=options).verify().problems == []


def test_predict__shards_of_a_bucket_as_source(made, tiny_folder, bucket, options, tmp_path):
    _, model = made
    source = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=BLOCK)
    featurized(source, bucket.url("shards"), target_options=options)
    manifest = dkfeat.predict(
        model, bucket.url("shards"), tmp_path / "out", storage_options=options, progress=False, scheduler="threads"
    )
    assert manifest.rows == dkfeat.open_shards(bucket.url("shards"), storage_options=options).n_rows


def test_verify__misses_the_weights_beside_predictions(made, tmp_path):
    folder, model = made
    dkfeat.predict(model, folder / "shards", tmp_path / "out", progress=False)
    weights = next((tmp_path / "out" / "_dkfeat").glob("model-*.npz"))
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "damaged" in dkfeat.open_shards(tmp_path / "out").verify().problems[0]
    weights.unlink()
    assert "is missing" in dkfeat.open_shards(tmp_path / "out").verify().problems[0]
