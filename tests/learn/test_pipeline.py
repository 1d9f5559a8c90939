"""Trained models as scikit-learn pipelines."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import is_classifier, is_regressor

from dkfeat import FourierFeatures, GCWSFeatures, NystroemFeatures
from dkfeat.errors import ConfigError, InputError, SourceNotFoundError
from dkfeat.learn.estimators import load_pipeline
from dkfeat.learn.model import LinearModel

WIDTH = 9


def made(feature_map, n_classes, **options):
    """Model of random weights; the landmarks of a Nyström map are of random rows."""
    rng = np.random.default_rng(n_classes)
    if isinstance(feature_map, NystroemFeatures):
        feature_map = feature_map.fit(np.abs(rng.normal(size=(50, WIDTH))))
    else:
        feature_map = feature_map.fit_width(WIDTH)
    rows = n_classes if n_classes > 2 else 1
    return LinearModel(
        map_spec=feature_map.to_spec(),
        map_arrays=feature_map._fitted_arrays(),
        classes=np.arange(n_classes) * 2,
        coef=rng.normal(size=(rows, feature_map.n_features_out)),
        intercept=rng.normal(size=rows),
        **options,
    )


@pytest.mark.parametrize(
    "feature_map",
    [GCWSFeatures(32, i_bits=4, random_state=0), FourierFeatures(32, random_state=0), NystroemFeatures(8)],
    ids=["codes", "dense", "landmarks"],
)
@pytest.mark.parametrize("n_classes", [2, 5])
def test_pipeline__gives_what_the_model_gives(feature_map, n_classes, tmp_path):
    model = made(feature_map, n_classes, training={"loss": "log_loss"})
    model.save(tmp_path / "model")
    X = np.random.default_rng(0).normal(size=(40, WIDTH))
    X[7] = 0
    for pipeline in (
        load_pipeline(model),
        load_pipeline(tmp_path / "model"),
        pickle.loads(pickle.dumps(load_pipeline(model))),
    ):
        for rows in (X, csr_matrix(X), X[:1], X[7:8], X[3:4].tolist()):
            for method in ("predict", "decision_function", "predict_proba"):
                np.testing.assert_array_equal(getattr(pipeline, method)(rows), getattr(model, method)(rows))
        np.testing.assert_array_equal(pipeline[-1].coef_, model.coef)
        np.testing.assert_array_equal(pipeline.classes_, model.classes)
        assert pipeline[-1].intercept_.shape == (len(model.coef),)
        assert pipeline.score(X, model.predict(X)) == 1


@pytest.mark.parametrize("task", ["binary", "multilabel", "regression"])
def test_pipeline__is_what_its_task_is(task):
    n_classes, rng = {"binary": 2, "multilabel": 3, "regression": 0}[task], np.random.default_rng(0)
    model = made(GCWSFeatures(n_components=16, i_bits=4, random_state=0), n_classes, task=task)
    pipeline, X = load_pipeline(model), rng.normal(size=(40, WIDTH))
    assert (is_classifier(pipeline), is_regressor(pipeline)) == (task != "regression", task == "regression")
    predicted = pipeline.predict(X)
    y = predicted[rng.permutation(40)]  # right by chance alone
    expected = {
        "binary": lambda: np.mean(y == predicted),
        "multilabel": lambda: np.mean((y != predicted).sum(axis=1) == 0),
        "regression": lambda: 1 - np.square(y - predicted).sum() / np.square(y - y.mean()).sum(),
    }[task]()
    assert pipeline.score(X, y) == pytest.approx(expected)
    assert pipeline.score(X, predicted) == 1


def test_pipeline__of_a_store_is_read_with_its_options(monkeypatch):
    model = made(GCWSFeatures(n_components=8, i_bits=2, random_state=0), 2)
    stored = {("s3://bucket/model", "anon"): model}
    read = lambda folder, *, storage_options: stored[folder, *storage_options]  # noqa: E731
    monkeypatch.setattr("dkfeat.learn.estimators.load_model", read)
    assert load_pipeline("s3://bucket/model", storage_options={"anon": True})["linear"].model is model


def test_pipeline__keeps_its_checks():
    model = made(GCWSFeatures(n_components=8, i_bits=2, random_state=0), 2)
    pipeline = load_pipeline(model)
    with pytest.raises(InputError, match="expecting 9 features"):
        pipeline.predict(np.ones((1, WIDTH + 1)))
    with pytest.raises(InputError, match="holds NaN at row 0, column 2"):
        pipeline.predict(np.array([[0, 1, np.nan, *range(WIDTH - 3)]]))
    with pytest.raises(ConfigError, match="loss='log_loss'"):
        pipeline.predict_proba(np.ones((1, WIDTH)))
    with pytest.raises(ConfigError, match="cannot be fitted"):
        pipeline.fit(np.ones((2, WIDTH)), [0, 1])
    with pytest.raises(InputError, match="rows and columns"):
        pipeline[-1].predict([1, 2])
    with pytest.raises(InputError, match="expecting 32 features"):
        pipeline[-1].predict(np.ones((1, 3)))
    with pytest.raises(SourceNotFoundError):
        load_pipeline("nowhere")
