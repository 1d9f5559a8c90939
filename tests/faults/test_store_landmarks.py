"""Landmarks in an object store: written, found by readers and by `like`, told when they are gone."""

import numpy as np
import pytest

import dkfeat
from dkfeat.errors import ShardError
from tests.engine.helpers import BLOCK, featurized


def test_landmarks__in_a_bucket(tiny_folder, tiny_rows, bucket, options, tmp_path):
    source = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=BLOCK)
    fitted = dkfeat.NystroemFeatures(20, random_state=3)
    featurized(source, bucket.url(), map=fitted, target_options=options)
    data = dkfeat.open_shards(bucket.url(), storage_options=options)
    assert data.map.fingerprint() == fitted.fit(tiny_rows[0]).fingerprint()
    assert data.verify().problems == []
    featurized(source, tmp_path / "out", map=None, like=bucket.url(), target_options=options)
    local = dkfeat.open_shards(tmp_path / "out")
    assert np.array_equal(local.to_scipy()[0], data.to_scipy()[0])
    keys = bucket.keys()
    (key,) = [key for key in keys if "landmarks-" in key]
    data._reader.storage.remove(key.removeprefix("out/"))
    with pytest.raises(ShardError, match="is missing: it holds the landmarks"):
        _ = dkfeat.open_shards(bucket.url(), storage_options=options).map
