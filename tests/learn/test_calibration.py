"""Probabilities of models with a hinge loss, and the loss that a training states, as scikit-learn computes them."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import SGDClassifier

from dkfeat import load_model
from dkfeat.learn import scores
from tests.learn.fakes import FakeShards, blobs, quiet


def twin_of(model):
    """The linear classifier of scikit-learn with the same weights."""
    twin = SGDClassifier(loss="squared_hinge")
    twin.coef_, twin.intercept_, twin.classes_ = model.coef.astype(float), model.intercept.astype(float), model.classes
    return twin


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_predict_proba__is_that_of_scikit_learns_calibration(tmp_path, loss, n_classes):
    data, held = (FakeShards(*blobs(400, n_classes, seed=seed, spread=0.9)) for seed in (1, 2))
    model = quiet(data, validation=held, loss=loss)
    peer = CalibratedClassifierCV(FrozenEstimator(twin_of(model)), method="sigmoid", ensemble=False)
    expected = peer.fit(held.features, held.y).predict_proba(data.features)
    found = model.predict_proba(data.codes)
    np.testing.assert_allclose(found, expected, atol=2e-4)  # both minimise
    assert np.abs(found - 0.5).max() > 0.3
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict_proba(data.codes), found)


def test_predict_proba__needs_validation_rows_of_which_some_suffice(monkeypatch):
    X, y = blobs(600, 3, seed=1, spread=0.9)
    chosen = quiet(FakeShards(X, y), alpha=[1e-6, 1e-3], refit=True)
    assert chosen.has_probabilities
    assert not quiet(FakeShards(X, y)).has_probabilities
    whole = quiet(FakeShards(X, y), validation=FakeShards(X, y))
    monkeypatch.setattr(scores, "CALIBRATED", 900)  # of 1,800 scores: those of every second row stay
    half = quiet(FakeShards(X, y), validation=FakeShards(X, y))
    assert half.training["calibration"] != whole.training["calibration"]
    assert np.abs(half.predict_proba(X) - whole.predict_proba(X)).mean() < 0.03


def test_calibrate__lists_of_labels_have_a_sigmoid_each():
    rng = np.random.default_rng(0)
    s = rng.standard_normal((500, 2))
    y = (s * [1, 3] + rng.standard_normal((500, 2)) > 0).astype(np.uint8)
    model = SimpleNamespace(classes=np.array([4, 7]), score_features=lambda X: X)
    (one, _), (other, _) = scores.calibrate(model, [(s, scores.csr_matrix(y))])
    assert other < 2 * one < 0  # steeper


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "log_loss", "squared_error"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_history__has_the_mean_loss_and_the_penalty_of_the_model(loss, n_classes):
    X, y = blobs(300, n_classes, seed=1, spread=0.9)
    y = 50 + 10.0 * y if loss == "squared_error" else y
    data, alpha = FakeShards(X, y), 1e-2
    model = quiet(data, loss=loss, alpha=alpha, epochs=3)
    rows, s = data.features / 8, (data.features @ model.coef.T + model.intercept).astype(np.float64)  # k = 64: length 1
    if loss == "squared_error":
        losses = 0.5 * (y[:, None] - s) ** 2  # the half as in scikit-learn
    else:
        margins = np.where(y[:, None] == (model.classes[1:] if n_classes == 2 else model.classes), s, -s)
        of = {"hinge": np.maximum(0, 1 - margins), "squared_hinge": np.maximum(0, 1 - margins) ** 2}
        losses = of.get(loss, np.logaddexp(0, -margins))
    last = model.history[-1]
    assert last["train_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert np.square(rows.toarray()).sum(axis=1) == pytest.approx(np.ones(300))
    assert last["penalty"] == pytest.approx(alpha / 2 * np.square(8 * model.coef).sum(axis=1).mean(), rel=1e-5)
    assert last["train_loss"] < 0.95 * last["loss"] * (1 if loss != "squared_error" else np.var(y))
