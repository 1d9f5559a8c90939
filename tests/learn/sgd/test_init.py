"""Training that continues from a model."""

import numpy as np
import pytest
from click.testing import CliRunner

import dkfeat
from dkfeat.cli import cli
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.learn.model import LinearModel
from tests.engine.helpers import featurized, gcws
from tests.learn.fakes import FakeShards, blobs, quiet, write_rows


def far(data, task, n_classes):
    """A model of all rows of a data set that is far from zero, and for each class or number right without a loss."""
    features = data.features.toarray().astype(np.float64)
    y = np.asarray(data.y, dtype=np.float64)
    wanted = y[:, None] if task == "regression" else np.where(y[:, None] == np.arange(n_classes) + 3, 9.0, -9.0)
    wanted = wanted[:, 1:] if task == "binary" else wanted
    coef = np.linalg.lstsq(features, wanted - 0.5, rcond=None)[0].T
    return LinearModel.of_shards(
        data,
        classes=np.arange(n_classes) + 3,
        coef=coef,
        intercept=np.full(len(coef), 0.5),
        task=task,
        training={"loss": "squared_error" if task == "regression" else "hinge"},
    )


@pytest.mark.parametrize(("task", "n_classes"), [("binary", 2), ("multiclass", 3), ("regression", 0)])
@pytest.mark.parametrize("average", [True, False])
def test_init__a_model_without_loss_stays_as_it_is(task, n_classes, average):
    X, y = blobs(60, max(2, n_classes), seed=1)
    rng = np.random.default_rng(0)
    data = FakeShards(X, 1000 + 50 * rng.standard_normal(60) if task == "regression" else y)
    given = far(data, task, n_classes)
    model = quiet(data, init=given, alpha=1e-12, average=average)
    assert (model.task, model.training["loss"], len(model.history)) == (task, given.training["loss"], 5)
    np.testing.assert_allclose(model.score_features(data.features), given.score_features(data.features), rtol=1e-4)
    np.testing.assert_allclose(model.coef, given.coef, atol=1e-4 * np.abs(given.coef).max())
    anew = quiet(data, epochs=1, task="regression" if task == "regression" else "auto")
    assert model.history[0]["loss"] < 1e-6 < anew.history[0]["loss"]


def test_init__the_rows_of_each_night_teach():
    gains = []
    for seed in range(3):
        first, test = (FakeShards(*blobs(n, 3, seed=at, spread=0.9)) for n, at in ((60, seed), (2000, 99)))
        model = quiet(first, test=test)
        began = model.history[-1]["test_accuracy"]
        for night in range(10):
            model = quiet(FakeShards(*blobs(60, 3, seed=100 + 10 * seed + night, spread=0.9)), init=model, test=test)
        gains.append(model.history[-1]["test_accuracy"] - began)
    assert np.mean(gains) > 0.05  # 0.05 to 0.1 each
    X, y = blobs(60, 3, seed=7)
    assert quiet(FakeShards(X[y == 4], y[y == 4]), init=model).classes.tolist() == [3, 4, 5]  # of one class


@pytest.mark.parametrize("parts", [None, 2])
def test_init__parts_start_from_it_too(folder, parts):
    first = dkfeat.train(folder, progress=False)
    again = dkfeat.train(folder, dkfeat.SGD(epochs=1, parts=parts), init=first, progress=False)
    anew = dkfeat.train(folder, dkfeat.SGD(epochs=1, parts=parts), progress=False)
    assert again.history[0]["loss"] < 0.7 * anew.history[0]["loss"]
    assert again.training["init"]


def test_init__another_checkpoint_or_model_is_refused(folder, tmp_path):
    first, other = (dkfeat.train(folder, dkfeat.SGD(epochs=2, alpha=alpha), progress=False) for alpha in (1e-6, 1e-3))
    dkfeat.train(folder, init=first, checkpoint=tmp_path / "state", progress=False)
    with pytest.raises(SpecConflictError, match="belongs to another training \\(init"):
        dkfeat.train(folder, init=other, checkpoint=tmp_path / "state", progress=False)
    with pytest.raises(ConfigError, match="init cannot be given with solver"):
        dkfeat.train(folder, "liblinear", init=first, progress=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 9}, "another map than the model's, map.seed: 0 asked|map.seed: 9 there, 0 asked"),
        ({"columns": 11}, "map.n_features: 11 there, 12 asked"),
        ({"labels": 5}, "the model has no class for 2 labels, such as 6"),
        ({"task": "regression"}, "a model of multiclass cannot continue as a regression"),
        ({"loss": "huber"}, "a multiclass model cannot continue as a regression"),
    ],
)
def test_init__shards_that_do_not_fit_are_refused(options, words):
    model = quiet(FakeShards(*blobs(60, 3, seed=1)), epochs=1)
    X, y = blobs(60, options.pop("labels", 3), seed=2)
    data = FakeShards(X[:, : options.pop("columns", 12)], y, seed=options.pop("seed", 0))
    with pytest.raises((SpecConflictError, ConfigError), match=words):
        quiet(data, init=model, **options)


def test_init__the_encoder_must_be_the_models(tmp_path):
    rows = blobs(200, 2, seed=1)
    write_rows(tmp_path / "a.svm", *rows)
    for name, seed in (("one", 0), ("two", 1)):
        scale = dkfeat.ColumnScale("rank", random_state=seed)
        featurized(tmp_path / "a.svm", tmp_path / name, map=gcws(), encoder=scale)
    model = dkfeat.train(tmp_path / "one", progress=False)
    assert dkfeat.train(tmp_path / "one", init=model, progress=False).encoder is not None
    for call in (
        lambda: dkfeat.train(tmp_path / "two", init=model, progress=False),
        lambda: dkfeat.predict(model, tmp_path / "two", tmp_path / "predictions", progress=False),
        lambda: dkfeat.train(tmp_path / "one", test=tmp_path / "two", progress=False),
    ):
        with pytest.raises(SpecConflictError, match=r"another encoder than the (model|training shards)'s?"):
            call()


def test_command__continues_a_model_in_place(folder, tmp_path):
    model = str(tmp_path / "model")
    for more in ([], ["--init", model]):
        done = CliRunner().invoke(cli, ["train", str(folder), "--epochs", "1", "--out", model, *more])
        assert done.exit_code == 0, done.output
    assert "init" in dkfeat.load_model(model).training
    done = CliRunner().invoke(cli, ["train", str(folder), "--init", str(tmp_path)])
    assert (done.exit_code, "model.json is missing" in done.output) == (2, True), done.output
