"""LIBLINEAR on shards: the same model value, C chosen by seed, a refusal before memory runs out."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sklearn.datasets import dump_svmlight_file, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import dkfeat
from dkfeat import FourierFeatures, GCWSFeatures, LibsvmSource
from dkfeat.cli import cli
from dkfeat.config.train import Liblinear, split_solver_options
from dkfeat.errors import ConfigError, InputError, PlanError
from dkfeat.learn import checks
from dkfeat.learn.liblinear import needed_bytes, split_held_out, train_liblinear
from tests.engine.helpers import featurized


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Opened shards of the digits by layout, and a two-class one."""
    X, y = load_digits(return_X_y=True)
    folder = tmp_path_factory.mktemp("digits")
    opened = {}
    for name, labels, feature_map in (
        ("codes", y, GCWSFeatures(n_components=64, i_bits=8, random_state=0)),
        ("dense", y, FourierFeatures(n_components=128, gamma=8.0, random_state=0)),
        ("binary", y > 4, GCWSFeatures(n_components=64, i_bits=8, random_state=0)),
    ):
        dump_svmlight_file(X, labels.astype(int), str(folder / f"{name}.svm"), zero_based=False)
        featurized(LibsvmSource(str(folder / f"{name}.svm"), n_features=64), folder / name, map=feature_map)
        opened[name] = dkfeat.open_shards(folder / name)
    return opened


@pytest.mark.parametrize("layout", ["codes", "dense", "binary"])
def test_fit__gives_the_optimum_of_scikit_learn(digits, layout):
    data = digits[layout]
    model = train_liblinear(data, Liblinear(C=1.0))
    X, y = data.to_scipy()
    scale = 1.0 if layout == "dense" else 1 / 8
    peer = LinearSVC(C=1.0, dual="auto", random_state=0).fit(X.astype(np.float64) * scale, y)
    np.testing.assert_allclose(model.coef, peer.coef_ * scale, atol=1e-4)
    np.testing.assert_allclose(model.intercept, peer.intercept_, atol=1e-4)
    assert np.mean(model.label(model.score_features(X)) == peer.predict(X.astype(np.float64) * scale)) > 0.999


def test_fit__chooses_c_by_the_held_out_part_and_the_smallest_of_equals(digits):
    model = train_liblinear(digits["codes"], Liblinear(C=[100.0, 0.0001, 1.0]), seed=3)
    grid = model.training["grid"]
    assert [entry["C"] for entry in grid] == [0.0001, 1.0, 100.0]
    best = max(entry["accuracy"] for entry in grid)
    assert model.training["C"] == min(entry["C"] for entry in grid if entry["accuracy"] == best)
    assert grid[0]["accuracy"] < best
    again = train_liblinear(digits["codes"], Liblinear(C=[0.0001, 1.0, 100.0]), seed=3)
    assert again.coef.tobytes() == model.coef.tobytes()
    assert again.training == model.training


@pytest.mark.parametrize("layout", ["binary", "codes"])
def test_fit__log_loss_gives_probabilities_and_survives_saving(digits, layout, tmp_path):
    data = digits[layout]
    model = train_liblinear(data, Liblinear(loss="log_loss", C=1.0))
    model.save(tmp_path / "model")
    loaded = dkfeat.load_model(tmp_path / "model")
    probabilities = loaded.predict_proba(data.codes())
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert loaded.training["solver"] == "liblinear"
    if layout == "binary":
        X, y = data.to_scipy()
        peer = LogisticRegression(solver="liblinear", C=1.0, random_state=0).fit(X.astype(np.float64) / 8, y)
        np.testing.assert_allclose(probabilities, peer.predict_proba(X.astype(np.float64) / 8), atol=1e-3)


def test_fit__refuses_what_does_not_fit_before_reading(digits, monkeypatch):
    data = digits["codes"]
    needed = needed_bytes(data, 10, grid=True)
    assert needed > needed_bytes(data, 10, grid=False)
    monkeypatch.setattr(type(data), "to_scipy", lambda *_, **__: pytest.fail("rows were read"))
    with pytest.raises(ConfigError, match="label 77"):
        train_by_liblinear(data, class_weight={"77": 1.0})
    monkeypatch.setattr(checks, "available_bytes", lambda: needed - 1)
    with pytest.raises(PlanError, match=r"LIBLINEAR needs about .* of memory, .*solver=\"sgd\""):
        train_liblinear(data, Liblinear())


def test_fit__refuses_settings_out_of_range(digits):
    for options, text in (
        ({"C": []}, "C is an empty list"),
        ({"C": [1.0, -1.0]}, "C=-1.0"),
        ({"loss": "huber"}, "loss='huber'"),
        ({"validation_fraction": 1.5}, "validation_fraction=1.5"),
    ):
        with pytest.raises(ConfigError, match=text):
            train_liblinear(digits["codes"], Liblinear(**options))


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("1 1:1\n1 2:1\n", InputError, "two classes"),
        ("", InputError, "no rows"),
        ("1,2 1:1\n1 2:1\n", ConfigError, "list of labels"),
    ],
)
def test_fit__needs_rows_of_two_classes(tmp_path, text, error, words):
    (tmp_path / "rows.svm").write_text(text)
    options = {"n_features": 2, "zero_based": False, "multilabel": "," in text}
    gcws = GCWSFeatures(n_components=4, i_bits=2, random_state=0)
    featurized(LibsvmSource(str(tmp_path / "rows.svm"), **options), tmp_path / "shards", map=gcws)
    with pytest.raises(error, match=words):
        train_liblinear(dkfeat.open_shards(tmp_path / "shards"), Liblinear())


def test_train__dispatches_and_scores_the_test_shards(digits):
    data = digits["codes"]
    seen = []
    model = dkfeat.train(data, dkfeat.Liblinear(C=[0.01, 1.0]), test=data, random_state=5, progress=seen.append)
    assert model.coef.tobytes() == train_liblinear(data, Liblinear(C=[0.01, 1.0]), seed=5).coef.tobytes()
    X, y = data.to_scipy()
    accuracy = np.mean(model.label(model.score_features(X)) == y)
    assert seen == list(model.history) == [{"epoch": 1, "rows": data.n_rows, "test_accuracy": accuracy}]


@pytest.mark.parametrize("loss", ["squared_hinge", "log_loss"])
def test_train__class_weights_are_those_of_scikit_learn(digits, loss):
    data = digits["binary"]
    model = dkfeat.train(data, dkfeat.Liblinear(C=1.0, loss=loss, class_weight={"1": 3.0}), progress=False)
    X, y = data.to_scipy()
    kind = LinearSVC(class_weight={1: 3.0}, random_state=0)
    if loss == "log_loss":
        kind = LogisticRegression(solver="liblinear", class_weight={1: 3.0})
    np.testing.assert_allclose(model.coef, kind.fit(X.astype(np.float64) / 8, y).coef_ / 8, atol=2e-3)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "log_loss"])
def test_train__row_weights_count_by_their_mean(tmp_path, loss):
    rng = np.random.default_rng(0)
    table = pa.table({"a": rng.random(90), "b": rng.random(90)})
    table = table.append_column("label", pa.array((table["a"].to_numpy() + 0.3 * rng.random(90) > 0.6).astype(int)))
    weights = rng.integers(1, 5, 90)
    models = []
    for name, factor in (("one", 1.0), ("thousand", 1024.0), ("none", 0.0), ("huge", 1e200)):
        pq.write_table(table.append_column("w", pa.array(weights * factor)), tmp_path / f"{name}.parquet")
        source = dkfeat.ParquetSource(str(tmp_path / f"{name}.parquet"), weight="w")
        dkfeat.featurize(source, tmp_path / name, GCWSFeatures(n_components=16, random_state=0), progress=False)
        if name in ("one", "thousand"):
            models.append(dkfeat.train(tmp_path / name, dkfeat.Liblinear(C=1.0, loss=loss), progress=False))
            continue
        with pytest.raises(InputError, match=r"the weights of all 90 rows are 0|a row has the weight \d\.?\d*e\+200"):
            dkfeat.train(tmp_path / name, "liblinear", progress=False)
    assert models[0].coef.tobytes() == models[1].coef.tobytes()
    X, y = dkfeat.open_shards(tmp_path / "one").to_scipy()
    kind = LogisticRegression(solver="liblinear") if loss == "log_loss" else LinearSVC(loss=loss, random_state=0)
    peer = kind.fit(X.astype(np.float64) / 4, y, sample_weight=weights / weights.mean())
    np.testing.assert_allclose(models[0].coef, peer.coef_ / 4, atol=2e-3)


def test_train__balanced_weights_of_held_out_rows_do_not_choose_c(tmp_path):
    random = np.random.default_rng(1)
    y = (random.random(60) < 0.1).astype(np.int64)
    dump_svmlight_file(random.random((60, 5)) + 0.3 * y[:, None], y, str(tmp_path / "rows.svm"), zero_based=False)
    source = LibsvmSource(str(tmp_path / "rows.svm"), n_features=5, zero_based=False)
    fourier = FourierFeatures(n_components=16, random_state=0)
    featurized(source, tmp_path / "shards", map=fourier)
    data = dkfeat.open_shards(tmp_path / "shards")
    X, y = data.to_scipy()
    held = split_held_out(y, 0.3, seed=0)
    solver = Liblinear(C=(0.1, 1.0, 10.0), validation_fraction=0.3, class_weight="balanced")
    model = dkfeat.train(data, solver, progress=False)
    for entry in model.training["grid"]:
        peer = LinearSVC(C=entry["C"], dual="auto", class_weight="balanced", random_state=0)
        assert entry["accuracy"] == peer.fit(X[~held].astype(np.float64), y[~held]).score(X[held], y[held])


def train_by_liblinear(data, **options):
    kind, own = split_solver_options("liblinear", options)
    return dkfeat.train(data, kind(**own), progress=False)


def test_train__says_what_liblinear_does_not_take(digits):
    for options, text in (
        ({"epochs": 3, "alpha": 0.1}, "alpha, epochs cannot be given"),
        ({"average": False}, "average cannot be given"),
        ({"parts": 2}, "parts cannot be given"),
        ({"loss": ["hinge", "log_loss"]}, "several losses"),
        ({"task": "regression"}, "task='regression' cannot be given"),
        ({"class_weight": {"77": 1.0}}, "label 77, but the classes are 0, 1, 2"),
        ({"class_weight": "even"}, "class_weight='even'"),
    ):
        with pytest.raises(ConfigError, match=text):
            train_by_liblinear(digits["codes"], **options)
    with pytest.raises(ConfigError, match="give alpha"):
        split_solver_options("sgd", {"C": 1.0})
    with pytest.raises(ConfigError, match="checkpoint cannot be given"):
        dkfeat.train(digits["codes"], "liblinear", checkpoint="state", progress=False)


def test_command__trains_by_liblinear(digits, tmp_path):
    shards = digits["codes"].shards.storage.url
    arguments = ["train", shards, "--test", shards, "--solver", "liblinear", "--C", "0.01,1"]
    done = CliRunner().invoke(cli, [*arguments, "--out", str(tmp_path / "m")])
    assert done.exit_code == 0, done.output
    assert "squared_hinge, C 1" in done.stdout
    assert "train: C 0.01, held-out accuracy" in done.stderr
    assert dkfeat.load_model(tmp_path / "m").training["solver"] == "liblinear"
