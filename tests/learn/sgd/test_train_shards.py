"""Training on shards that featurize wrote."""

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_digits

import dkfeat
from dkfeat import FourierFeatures, GCWSFeatures, LibsvmSource
from dkfeat.config import ExecutionConfig
from tests.conftest import ROWS
from tests.learn.fakes import by_sgd


@pytest.fixture(scope="module")
def folder(tiny_folder, tmp_path_factory):
    """Several shards of the tiny rows."""
    folder = tmp_path_factory.mktemp("shards") / "train"
    gcws = GCWSFeatures(n_components=16, i_bits=6, random_state=0)
    source = LibsvmSource(str(tiny_folder / "*.svm"), blocksize=8192)
    dkfeat.featurize(source, folder, gcws, progress=False, client=ExecutionConfig(scheduler="synchronous"))
    assert dkfeat.open_shards(folder).n_shards > 4
    return folder


def trained(shards, **options):
    return by_sgd(dkfeat.train, shards, epochs=2, shuffle_rows=ROWS // 5, progress=False, **options)


@pytest.mark.fault("D-10")
def test_train__a_small_buffer_gives_the_same_weights_twice(folder):
    first, other = (trained(folder, random_state=seed) for seed in (3, 4))
    second = trained(dkfeat.open_shards(folder), random_state=3)
    for name in ("coef", "intercept"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    assert first.coef.tobytes() != other.coef.tobytes()
    assert [entry["rows"] for entry in first.history] == [ROWS] * 2


@pytest.mark.fault("D-10")
def test_train__weights_do_not_depend_on_the_number_of_loaders(folder):
    options = {"alpha": [1e-6, 1e-4], "validation_fraction": 0.2}
    models = [trained(folder, loaders=loaders, **options) for loaders in (1, 2, 3)]
    for model in models[1:]:
        assert model.coef.tobytes() == models[0].coef.tobytes()
        assert model.intercept.tobytes() == models[0].intercept.tobytes()
        assert model.history == models[0].history


def test_train__dense_features_are_learnt_saved_and_served(tmp_path):
    digits = load_digits()
    path = tmp_path / "digits.svm"
    dump_svmlight_file(digits.data, digits.target, str(path), zero_based=False)
    shards, model_folder = tmp_path / "shards", tmp_path / "model"
    fourier = FourierFeatures(n_components=512, gamma=8.0, random_state=0)
    source = LibsvmSource(str(path), n_features=64, zero_based=False)
    dkfeat.featurize(source, shards, fourier, progress=False, client=ExecutionConfig(scheduler="synchronous"))
    model = dkfeat.train(shards, dkfeat.SGD(epochs=5), progress=False)
    model.save(model_folder)
    served = dkfeat.load_model(model_folder).predict(digits.data)
    direct = model.classes[(dkfeat.open_shards(shards).to_scipy()[0] @ model.coef.T + model.intercept).argmax(axis=1)]
    assert np.mean(served == digits.target) > 0.97
    np.testing.assert_array_equal(served, direct)
