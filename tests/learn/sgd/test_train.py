"""What training does beyond one model of classes: regression, lists of labels, weights, grids, early stopping."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.linear_model import SGDRegressor
from sklearn.svm import LinearSVC

import dkfeat
from dkfeat import MaclaurinFeatures, ParquetSource
from dkfeat.config.train import REAL_LOSSES
from dkfeat.errors import ConfigError, InputError, SpecConflictError
from dkfeat.learn.scores import Moments
from dkfeat.learn.sgd import epochs
from dkfeat.learn.sgd import rows as training_rows
from dkfeat.learn.sgd.rows import TrainingRows, is_held_out
from dkfeat.learn.train import train
from tests.engine.helpers import featurized
from tests.learn.fakes import FakeShards, blobs, quiet, write_rows


def numbers(n_rows, seed, noise=0.05):
    X, _ = blobs(n_rows, 4, seed=seed)
    rng = np.random.default_rng(seed)
    rows = X.toarray()
    return X, 1000 + 50 * (rows[:, 0] - rows[:, 1] + noise * rng.standard_normal(n_rows))


@pytest.mark.parametrize("loss", REAL_LOSSES)
def test_regression__comes_near_scikit_learn(loss):
    train_rows, test_rows = FakeShards(*numbers(2000, 1)), FakeShards(*numbers(1000, 2))
    model = quiet(train_rows, test=test_rows, loss=loss, alpha=[1e-6, 1e-4, 1e-3])
    assert model.task == "regression"
    y = (train_rows.y - 1000) / 10
    best = max(
        SGDRegressor(alpha=alpha, average=True, max_iter=50, tol=None, random_state=0)
        .fit(train_rows.features / 8, y)
        .score(test_rows.features / 8, (test_rows.y - 1000) / 10)
        for alpha in (1e-6, 1e-4, 1e-3)
    )
    assert best > 0.5  # otherwise the data tell nothing
    assert model.history[-1]["test_r2"] > best - 0.02
    assert model.history[-1]["test_r2"] == pytest.approx(
        1 - np.mean((model.score_features(test_rows.features) - test_rows.y) ** 2) / np.var(test_rows.y), rel=1e-6
    )


def test_regression__huber_hardly_heeds_outliers():
    X, y = numbers(2000, 1)
    assert (
        quiet(FakeShards(X, y, classes=None), task="regression", epochs=2).task == "regression"
    )  # too many for classes
    spoilt = y.copy()
    spoilt[::20] += 3000
    test_rows = FakeShards(*numbers(1000, 2))
    robust, plain = (
        quiet(FakeShards(X, spoilt), test=test_rows, loss=loss).history[-1]["test_r2"]
        for loss in ("huber", "squared_error")
    )
    assert robust > 0.5
    assert robust > plain + 0.5


def test_regression__labels_beyond_float32():
    X, y = blobs(20, 2, seed=1)
    for largest in (1e38, 1e300):
        with pytest.raises(InputError, match=r"numbers of at most 1e\+37, because predictions are float32"):
            quiet(FakeShards(X, np.where(y == y[0], -largest, largest)), task="regression")
    moments = Moments()
    for label in (-1e300, 1e300):
        moments.add(np.array([label]))
    assert moments.squared_deviations == np.inf


def test_regression__all_labels_equal():
    X, _ = numbers(50, 1)
    model = quiet(FakeShards(X, np.full(50, 7.0)), task="regression", epochs=2)
    np.testing.assert_allclose(model.score_features(FakeShards(X, np.zeros(50)).features), 7.0, atol=1e-3)


def test_multilabel__each_label_is_learnt_against_the_rest():
    X, y = blobs(600, 4, seed=1)
    member = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]], np.uint8)
    y_lists = sparse.csr_matrix(member[y - 3])
    data = FakeShards(X, y_lists, classes=(2, 5, 9), multilabel=True)
    model = quiet(data, validation_fraction=0.2)
    assert model.task == "multilabel"
    assert model.history[-1]["validation_accuracy"] > 0.95
    # each label by itself gives the same weights
    alone = quiet(FakeShards(X, np.where(member[y - 3][:, 1], 1, 0)), validation_fraction=0.2)
    np.testing.assert_allclose(model.coef[1], alone.coef[0], rtol=1e-3, atol=1e-5)
    for options, words in (({"task": "regression"}, "a list for"), ({"class_weight": "balanced"}, "single class")):
        with pytest.raises(ConfigError, match=words):
            quiet(data, **options)


def test_weights__only_their_relations_count():
    X, y = blobs(300, 3, seed=1, spread=0.6)
    weight = np.random.default_rng(0).integers(1, 4, 300).astype(np.float64)
    plain, first, second = (quiet(FakeShards(X, y, weight=w), epochs=2) for w in (None, weight, 4096 * weight))
    assert first.coef.tobytes() == second.coef.tobytes()
    assert not np.array_equal(plain.coef, first.coef)
    one = quiet(FakeShards(X, y, weight=np.full(300, 8.0)), epochs=2)
    assert one.coef.tobytes() == plain.coef.tobytes()


def test_weights__rows_of_weight_0_teach_nothing():
    X, y = blobs(400, 2, seed=1)
    wrong = np.where(np.arange(400) % 2, y, 7 - y)
    model = quiet(FakeShards(X, wrong, weight=np.arange(400) % 2 + 0.0), test=FakeShards(*blobs(300, 2, seed=2)))
    assert model.history[-1]["test_accuracy"] > 0.97
    with pytest.raises(InputError, match="weights of all 400 rows are 0"):
        quiet(FakeShards(X, y, weight=np.zeros(400)))


def test_weights__of_absurd_size_are_refused_and_others_change_nothing():
    X, y = blobs(300, 2, seed=1)
    plain = quiet(FakeShards(X, y), epochs=2)
    for size in (1e-59, 1e59):
        model = quiet(FakeShards(X, y, weight=np.full(300, size)), epochs=2)
        np.testing.assert_allclose(model.coef, plain.coef, rtol=1e-5, atol=1e-7)
    for size in (1e-200, 1e200):
        with pytest.raises(InputError, match="multiply all of them by one number"):
            quiet(FakeShards(X, y, weight=np.full(300, size)))


def test_class_weight__balanced_is_in_inverse_proportion_to_rows():
    X, y = blobs(600, 2, seed=1)
    keep = (y == 3) | (np.arange(600) % 5 == 0)
    counts = [int((y[keep] == label).sum()) for label in (3, 4)]
    data = FakeShards(X[keep], y[keep])
    by_name = quiet(data, epochs=2, class_weight="balanced")
    by_hand = quiet(data, epochs=2, class_weight={3: sum(counts) / (2 * counts[0]), 4: sum(counts) / (2 * counts[1])})
    assert by_name.coef.tobytes() == by_hand.coef.tobytes()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("even", "class_weight='even'"),
        ({"a": 1}, "names the label a, but the classes are 3, 4"),
        ({3: 0}, "class_weight of 3"),
        ({3: 1e160}, r"class_weight of 3=1e\+160, but it must be from 1e-60 to 1e\+60"),
        ({"3": 1, 3.0: 2}, "class_weight gives the label 3 twice"),
        ({"3": 1, "3.0": 2}, "class_weight gives the label 3 twice"),
        ({8: 1}, "names the label 8, but the classes are 3, 4"),
    ],
)
def test_class_weight__out_of_range(given, words):
    with pytest.raises(ConfigError, match=words):
        quiet(FakeShards(*blobs(20, 2, seed=1)), class_weight=given)


def test_grid__each_model_is_as_if_it_were_trained_alone():
    data = FakeShards(*blobs(400, 3, seed=1, spread=0.6))
    alphas, losses = [1e-6, 1e-4, 1e-3], ["hinge", "log_loss"]
    options = {"validation_fraction": 0.25, "epochs": 3}
    together = quiet(data, alpha=alphas, loss=losses, **options)
    alone = {(loss, alpha): quiet(data, alpha=alpha, loss=loss, **options) for loss in losses for alpha in alphas}
    grid = together.training["grid"]
    assert [(entry["loss"], entry["alpha"]) for entry in grid] == list(alone)
    for entry, model in zip(grid, alone.values(), strict=True):
        assert entry["validation_accuracy"] == model.history[-1]["validation_accuracy"]
        assert entry["mean_loss"] == pytest.approx(model.history[-1]["loss"], rel=1e-12)
    best = max(grid, key=lambda entry: (entry["validation_accuracy"], entry["alpha"]))
    assert (together.training["loss"], together.training["alpha"]) == (best["loss"], best["alpha"])
    assert together.coef.tobytes() == alone[best["loss"], best["alpha"]].coef.tobytes()


def test_grid__costs_one_decode():
    data = FakeShards(*blobs(400, 3, seed=1))
    quiet(data, alpha=[1e-6, 1e-5, 1e-4], epochs=4)
    assert len(set(data.seeds)) == 4


def test_grid__of_equal_models_that_with_the_larger_alpha():
    data = FakeShards(*blobs(300, 2, seed=1, spread=0.05))
    model = quiet(data, alpha=[1e-7, 1e-5, 1e-6])
    assert {entry["validation_accuracy"] for entry in model.training["grid"]} == {1.0}
    assert model.training["alpha"] == 1e-5


def test_validation__shards_of_their_own_choose():
    train_rows, other = FakeShards(*blobs(300, 3, seed=1)), FakeShards(*blobs(300, 3, seed=2))
    model = quiet(train_rows, validation=other, alpha=[1e-6, 1e-2], epochs=2)
    assert [entry["rows"] for entry in model.history] == [300, 300]
    hits = np.mean(model.label(model.score_features(other.features)) == other.y)
    assert model.history[-1]["validation_accuracy"] == hits
    with pytest.raises(ConfigError, match="give only one of them"):
        quiet(train_rows, validation=other, validation_fraction=0.1)


def test_patience__stops_and_returns_the_best_epoch():
    X, y = blobs(300, 2, seed=1, spread=1.5)
    model = quiet(FakeShards(X, y), patience=3, epochs=40, validation_fraction=0.3)
    scores = [entry["validation_accuracy"] for entry in model.history]
    assert 4 <= len(scores) < 40
    assert model.training["epoch"] == int(np.argmax(scores)) + 1 == len(scores) - 3
    shorter = quiet(FakeShards(X, y), epochs=model.training["epoch"], validation_fraction=0.3)
    assert model.coef.tobytes() == shorter.coef.tobytes()


@pytest.mark.parametrize("patience", [None, 2])
def test_refit__trains_what_was_chosen_on_all_rows(patience, tmp_path):
    data = FakeShards(*blobs(400, 3, seed=1, spread=0.8))
    options = {"alpha": [1e-6, 1e-2], "loss": ["hinge", "log_loss"], "epochs": 6, "patience": patience}
    chosen = quiet(data, **options)
    model = quiet(data, **options, refit=True, checkpoint=tmp_path)
    again = quiet(data, **options, refit=True, checkpoint=tmp_path)  # from the checkpoint of either training
    name = {key: chosen.training[key] for key in ("loss", "alpha")}
    alone = quiet(data, **name, epochs=chosen.training["epoch"])
    assert model.coef.tobytes() == alone.coef.tobytes() == again.coef.tobytes()
    assert model.history[-1]["rows"] == 400 > chosen.history[-1]["rows"]
    assert model.training["grid"] == chosen.training["grid"]
    assert model.training["refit"]
    assert model.training["epoch"] == chosen.training["epoch"]


def test_refit__goes_on_where_more_epochs_choose_otherwise(tmp_path):
    data = FakeShards(*blobs(400, 3, seed=2, spread=0.8))
    options = {"alpha": [1e-6, 1e-2], "loss": ["hinge", "log_loss"], "refit": True}
    first = quiet(data, **options, epochs=1, checkpoint=tmp_path)
    model, calm = quiet(data, **options, epochs=6, checkpoint=tmp_path), quiet(data, **options, epochs=6)
    assert first.training["loss"] != model.training["loss"]
    assert model.coef.tobytes() == calm.coef.tobytes()


def test_refit__of_rows_that_were_all_trained_on_is_no_second_training():
    data, other = FakeShards(*blobs(200, 2, seed=1)), FakeShards(*blobs(100, 2, seed=2))
    model = quiet(data, validation=other, alpha=[1e-6, 1e-4], epochs=2, refit=True)
    assert len(set(data.seeds)) == 2
    assert "refit" not in model.training


def test_held_out__rows_are_those_of_the_seed_whatever_their_order():
    data = FakeShards(*blobs(1000, 2, seed=1))
    rows = TrainingRows(data, fraction=0.3, seed=5, shuffle_rows=None)
    found = rows.statistics(np.array(data.classes))
    expected = is_held_out(np.arange(1000), 0.3, 5)
    assert found.n_rows == 1000 - expected.sum()
    np.testing.assert_array_equal(np.concatenate([y for _, y in rows.held_out()]), data.y[expected])
    seen = np.concatenate([y for _, y, _ in rows.epoch(0)])
    assert sorted(seen) == sorted(data.y[~expected])


def test_held_out__more_than_fit_are_read_again(monkeypatch):
    data = FakeShards(*blobs(300, 3, seed=1))
    kept = quiet(data, validation_fraction=0.3, epochs=2)
    monkeypatch.setattr(training_rows, "HELD_OUT_BYTES", 100)
    again = quiet(data, validation_fraction=0.3, epochs=2)
    assert kept.history == again.history


def test_held_out__few_scores_are_held_at_a_time(monkeypatch):
    data = FakeShards(*blobs(300, 3, seed=1))
    whole = quiet(data, validation_fraction=0.3, test=data, epochs=2)
    add, sizes = epochs.Score.add, set()
    monkeypatch.setattr(epochs, "SCORES", 7 * 16)
    monkeypatch.setattr(epochs.Score, "add", lambda *given: sizes.add(len(given[1])) or add(*given))
    cut = quiet(data, validation_fraction=0.3, test=data, epochs=2)
    assert whole.history == cut.history
    assert {7, 37} < sizes  # of all 16 lanes, and of 3 outputs
    assert max(sizes) == 37


def test_held_out__too_few_rows():
    with pytest.raises(InputError, match="holds 0 of 5 rows out"):
        quiet(FakeShards(*blobs(5, 2, seed=2)), validation_fraction=1e-6)


# 100,000 draws at 0.1 have a standard deviation of 0.00095: five of them are left by chance once in 1.7 million seeds
def test_is_held_out__holds_the_share_and_depends_on_the_seed():
    numbers_ = np.arange(100_000)
    first, second = is_held_out(numbers_, 0.1, 0), is_held_out(numbers_, 0.1, 1)
    assert abs(first.mean() - 0.1) < 0.00475
    assert abs((first & second).mean() - 0.01) < 5 * np.sqrt(0.01 * 0.99 / 1e5)
    order = np.random.default_rng(0).permutation(100_000) + 0
    np.testing.assert_array_equal(is_held_out(order, 0.1, 0), first[order])
    assert is_held_out(np.empty(0, np.int64), 0.1, 0).shape == (0,)


@pytest.mark.fault("D-10")
def test_held_out__rows_do_not_depend_on_how_shards_are_cut(folder, tiny_folder, tmp_path):
    featurized(str(tiny_folder / "*.svm"), tmp_path / "other", like=folder, map=None)
    found = []
    for shards in (folder, tmp_path / "other"):
        data = dkfeat.open_shards(shards)
        rows = TrainingRows(data, fraction=0.2, seed=3, shuffle_rows=None)
        found.append(sparse.vstack([X for X, _ in rows.held_out()]))
    assert found[0].shape[0] > 50
    assert (found[0] != found[1]).nnz == 0


def test_train__without_labels(tmp_path):
    pq.write_table(pa.table({"a": [1.0, 2.0], "b": [0.5, 0.0]}), tmp_path / "rows.parquet")
    source = ParquetSource(str(tmp_path / "rows.parquet"), features=["a", "b"], label=None)
    featurized(source, tmp_path / "shards")
    with pytest.raises(InputError, match="rows have no labels; featurize with label=COLUMN"):
        quiet(tmp_path / "shards")


def test_train__features_of_any_length_are_scaled(tmp_path):
    # degree 3 without normalising: rows far longer than 1, on which steps for unit length diverge
    X, y = blobs(400, 3, seed=1)
    maclaurin = MaclaurinFeatures(n_components=256, kernel="polynomial", degree=3, random_state=0)
    featurized(write_rows(tmp_path / "rows.svm", X * 20, y), tmp_path / "shards", map=maclaurin)
    model = quiet(tmp_path / "shards", test=tmp_path / "shards", epochs=10)
    features, labels = dkfeat.open_shards(tmp_path / "shards").to_scipy()
    scale = np.sqrt(np.mean(np.square(features).sum(axis=1)))
    best = LinearSVC(C=10, max_iter=20_000).fit(features / scale, labels).score(features / scale, labels)
    assert model.history[-1]["test_accuracy"] > best - 0.05


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "log_loss"])
@pytest.mark.parametrize("heavy", [10.0, 1000.0])
def test_class_weights__however_large_do_not_diverge(loss, heavy):
    X, y = blobs(600, 2, seed=1, spread=0.6)  # classes that overlap: errors on both sides in every epoch
    model = train(FakeShards(X, y), dkfeat.SGD(loss=loss, epochs=20, class_weight={"3": heavy}), progress=False)
    predicted = model.predict(X)
    assert np.mean(predicted[y == 3] == 3) > 0.95
    assert np.abs(model.coef).max() < 1000


@pytest.mark.parametrize("loss", ["squared_hinge", "squared_error"])
def test_train__some_rows_are_far_longer_than_others(loss, tmp_path):
    X, y = blobs(300, 2, seed=1)
    X = X.multiply(np.where(np.arange(300) % 20 == 7, 30.0, 1.0)[:, None]).tocsr()  # 27,000 times, for degree 3
    maclaurin = MaclaurinFeatures(n_components=32, kernel="polynomial", random_state=0)
    featurized(write_rows(tmp_path / "rows.svm", X, y), tmp_path / "shards", map=maclaurin)
    model = quiet(tmp_path / "shards", loss=loss, epochs=5)
    assert np.isfinite(model.coef).all()
    assert np.isfinite(model.history[-1]["loss"])


def test_class_weight__moves_the_border_as_far_as_a_batch_solver_does():
    # a class counts a hundredfold: recalls are 0.97 and 0.77 here and 0.98 to 0.97 and 0.68 to 0.74 for LinearSVC; were
    # the other class's rows shown too few or too short steps, its recall would be far lower, and 0.92 without weights
    weights = {3: 100.0, 4: 1.0}
    rows, others = (FakeShards(*blobs(n, 2, seed=seed, spread=0.6)) for n, seed in ((2000, 1), (1000, 2)))

    def recalls(predicted):
        return np.array([np.mean(predicted[others.y == label] == label) for label in (3, 4)])

    model = quiet(rows, class_weight=weights)
    found = recalls(model.label(model.score_features(others.features)))
    batch = [LinearSVC(C=C, class_weight=weights, dual=False).fit(rows.features / 8, rows.y) for C in (1, 4)]
    exact = [recalls(solver.predict(others.features / 8)) for solver in batch]
    assert (found > np.min(exact, axis=0) - 0.06).all()
    assert (found < np.max(exact, axis=0) + 0.06).all()


def test_train__checkpoint_of_another_training_is_ignored_if_it_shall_not_resume(tmp_path):
    rows, options = FakeShards(*blobs(60, 2, seed=1)), {"solver": dkfeat.SGD(epochs=1), "progress": False}
    train(rows, checkpoint=tmp_path, random_state=1, **options)
    with pytest.raises(SpecConflictError, match=r"another training .* start again with .*resume=False"):
        train(rows, checkpoint=tmp_path, **options)
    anew = train(rows, checkpoint=dkfeat.Target(tmp_path, resume=False), **options)
    assert anew.coef.tobytes() == train(rows, **options).coef.tobytes()
