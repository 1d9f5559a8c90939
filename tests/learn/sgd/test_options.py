import numpy as np
import pytest
from sklearn.svm import LinearSVC

from dkfeat import SGD, GCWSFeatures, Liblinear
from dkfeat.config.train import CLASS_LOSSES
from dkfeat.errors import ConfigError, InputError, PlanError, ShardError, SpecConflictError
from dkfeat.learn import checks
from dkfeat.learn import train as sgd
from dkfeat.learn.sgd import descent, epochs
from dkfeat.learn.train import default_epochs
from tests.conftest import peak_bytes
from tests.learn.fakes import FakeShards, blobs, quiet
from tests.reference import descent as reference


def test_options__may_be_of_numpy():
    assert SGD(alpha=np.float32(0.5), epochs=np.array(3)) == SGD(alpha=0.5, epochs=3)
    assert Liblinear(C=np.array(2.0)) == Liblinear(C=2.0)


@pytest.mark.parametrize("loss", CLASS_LOSSES)
@pytest.mark.parametrize("n_classes", [2, 5])
def test_train__comes_near_a_batch_solver(n_classes, loss):
    train, test = FakeShards(*blobs(600, n_classes, seed=1)), FakeShards(*blobs(600, n_classes, seed=2))
    model = quiet(train, test=test, loss=loss)
    best = max(
        LinearSVC(C=C).fit(train.features / 8, train.y).score(test.features / 8, test.y) for C in (0.1, 1.0, 10.0)
    )
    assert model.history[-1]["test_accuracy"] > best - 0.02
    assert best > 0.9  # otherwise the data tell nothing
    assert model.coef.shape == (1 if n_classes == 2 else n_classes, 64 * 64)


@pytest.mark.fault("D-10")
def test_train__same_seed_same_weights_and_another_seed_others():
    data = FakeShards(*blobs(200, 3, seed=1))
    first, second, other = (quiet(data, epochs=2, random_state=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.coef, second.coef)
    np.testing.assert_array_equal(first.intercept, second.intercept)
    assert not np.array_equal(first.coef, other.coef)
    assert len(set(data.seeds)) == 4  # each epoch has an order of its own


def test_train__weights_are_for_features_as_the_map_gives_them():
    data = FakeShards(*blobs(300, 2, seed=1))
    model = quiet(data, epochs=3, loss="hinge")
    orders = []
    for seed in dict.fromkeys(data.seeds):
        order = np.arange(data.n_rows)
        np.random.default_rng(seed).shuffle(order)
        orders.append(order)
    shown = np.concatenate(orders)
    _, _, coef, intercept, _ = reference.fit(
        data.features[shown].toarray().astype(np.float64) / 8,
        np.where(data.y[shown] == 4, 1.0, -1.0),
        np.ones(len(shown)),
        loss="hinge",
        alpha=1e-6,
        step_size=1.0,
        intercept_rate=descent.INTERCEPT_RATE,
    )
    np.testing.assert_allclose(model.coef[0], coef / 8, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.intercept[0], intercept, rtol=1e-4, atol=1e-6)


def test_train__records_what_made_the_model():
    data = FakeShards(*blobs(100, 2, seed=1))
    model = quiet(data, epochs=2, alpha=1e-4, average=False)
    assert model.training == {
        "loss": "squared_hinge",
        "alpha": 1e-4,
        "average": False,
        "random_state": 0,
        "epochs": 2,
        "epoch": 2,
        "shuffle_rows": None,
        "class_weight": None,
        "patience": None,
        "validation_fraction": None,
        "settings": {"solver": "sgd", "random_state": 0, "epochs": 2, "alpha": 1e-4, "average": False},
    }
    assert model.map_spec == data.map.to_spec()
    assert model.manifest_sha256 == data.manifest.sha256
    assert [entry["epoch"] for entry in model.history] == [1, 2]
    assert all(entry["rows"] == 100 and "test_accuracy" not in entry for entry in model.history)


def test_train__a_test_label_unknown_in_training_counts_as_a_miss():
    train, test = FakeShards(*blobs(200, 2, seed=1)), FakeShards(*blobs(200, 3, seed=2))
    model = quiet(train, test=test, epochs=5)
    assert model.history[-1]["test_accuracy"] <= np.mean(test.y < 5)


@pytest.mark.parametrize("progress", ["lines", "callable", "off"])
def test_train__progress(progress, capsys):
    train, test = FakeShards(*blobs(100, 2, seed=1)), FakeShards(*blobs(100, 2, seed=2))
    seen = []
    report = {"lines": True, "callable": seen.append, "off": False}[progress]
    sgd.train(train, SGD(epochs=2), test=test, progress=report)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert [line.split(", ")[0] for line in lines] == (
        ["train: epoch 1 of 2", "train: epoch 2 of 2"] if progress == "lines" else []
    )
    assert [entry["epoch"] for entry in seen] == ([1, 2] if progress == "callable" else [])


def test_epoch_lines__show_the_first_the_last_and_one_every_few_seconds(monkeypatch, capsys):
    seconds = [0.0]
    monkeypatch.setattr(epochs.time, "monotonic", lambda: seconds[0])
    lines = epochs.EpochLines(9)
    for epoch in range(1, 9):  # it stops early
        seconds[0] += 2.0
        lines({"epoch": epoch, "rows": 100, "test_accuracy": 0.5})
    lines.end()
    lines.end()
    shown = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in shown] == ["1", "4", "7", "8"]
    assert shown[0] == "train: epoch 1 of 9, test accuracy 50.00%, 50 rows/s"


@pytest.mark.parametrize(
    ("n_rows", "n_classes", "epochs"), [(100, 2, 40), (30_000, 2, 10), (15_000, 26, 40), (10**8, 2, 5)]
)
def test_default_epochs__show_enough_rows(n_rows, n_classes, epochs):
    assert default_epochs(n_rows, n_classes) == epochs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "squared"}, "loss='squared'"),
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"alpha": "x"}, "alpha='x'"),
        ({"epochs": 2.5}, "epochs=2.5"),
        ({"shuffle_rows": "5"}, "shuffle_rows='5'"),
        ({"random_state": -1}, "random_state=-1"),
        ({"random_state": 2**64}, "random_state=18446744073709551616"),
        ({"random_state": "7"}, "random_state='7'"),
    ],
)
def test_train__settings_out_of_range(options, words):
    with pytest.raises(ConfigError, match=words):
        quiet(FakeShards(*blobs(20, 2, seed=1)), **options)


def test_train__a_solver_that_is_none():
    with pytest.raises(ConfigError, match=r"solver=.*must be dkfeat\.SGD\(\.\.\.\)"):
        sgd.train(FakeShards(*blobs(20, 2, seed=1)), SGD)


def test_train__a_seed_may_have_64_bits():
    data = FakeShards(*blobs(50, 2, seed=1))
    low, high = quiet(data, epochs=1, random_state=5), quiet(data, epochs=1, random_state=5 + 2**63)
    assert high.training["random_state"] == 5 + 2**63
    assert not np.array_equal(low.coef, high.coef)


def test_train__a_drawn_seed_is_recorded_and_gives_the_same_weights_again():
    data = FakeShards(*blobs(50, 2, seed=1))
    drawn = quiet(data, epochs=1, random_state=None)
    again = quiet(data, epochs=1, random_state=drawn.training["random_state"])
    np.testing.assert_array_equal(drawn.coef, again.coef)


def test_train__labels_that_cannot_be_trained():
    X, y = blobs(20, 2, seed=1)
    for data, error, words in (
        (FakeShards(*blobs(20, 1, seed=1)), InputError, "all 20 rows have the label 3"),
        (FakeShards(X[:0], y[:0]), InputError, "no rows"),
        (FakeShards(X, y, classes=None), ConfigError, "task='regression'"),
        (FakeShards(X, y, classes=(4, 5)), ShardError, "label 3, which the manifest does not list"),
    ):
        with pytest.raises(error, match=words):
            quiet(data)


@pytest.mark.fault("V-08")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 9}, r"the test shards: made by another map than .* map\.seed: 9 there, 0 asked; .* like=TRAIN"),
        ({"zero_based": True}, "with zero_based=True, the training shards' with zero_based=False"),
    ],
)
def test_train__test_shards_of_other_features(options, words):
    with pytest.raises(SpecConflictError, match=words):
        quiet(FakeShards(*blobs(20, 2, seed=1)), test=FakeShards(*blobs(20, 2, seed=2), **options))


@pytest.mark.parametrize(("average", "gib"), [(True, 40), (False, 24)])
def test_train__weights_beyond_memory_are_refused_before_they_are_made(monkeypatch, average, gib):
    data = FakeShards(*blobs(20, 2, seed=1))
    monkeypatch.setattr(type(data.map), "n_features_out", 2**31 - 1)
    monkeypatch.setattr(checks, "available_bytes", lambda: 4 << 30)
    with pytest.raises(PlanError, match=rf"needs about {gib}\.0 GiB of memory, 4\.0 GiB may be used"):
        quiet(data, average=average)


@pytest.mark.slow
@pytest.mark.parametrize("average", [True, False])
def test_train__memory_is_as_projected(average):
    data = FakeShards(*blobs(30, 6, seed=1))
    data.map = GCWSFeatures(n_components=64, i_bits=12, random_state=0).fit_width(12)
    data.codes = data.map.encode(blobs(30, 6, seed=1)[0])
    data.features = data.map.transform(blobs(30, 6, seed=1)[0])
    options = {"validation": data, "patience": 9, "average": average}
    quiet(data, epochs=1, **options)  # compiles
    peak = peak_bytes(lambda: quiet(data, epochs=3, **options))
    tables = peak / (4 * 16 * data.map.n_features_out)  # six classes fill up one block of 16 lanes
    assert tables == pytest.approx((3 if average else 1) + 2 * 6 / 16, abs=0.2)


def test_train__more_columns_than_indices_can_tell(monkeypatch):
    data = FakeShards(*blobs(20, 2, seed=1))
    monkeypatch.setattr(type(data.map), "n_features_out", 2**31)
    with pytest.raises(ConfigError, match="lower n_components or the bits of a code"):
        quiet(data)


@pytest.mark.slow
def test_train__weights_that_overflow_name_their_alphas():
    X, y = blobs(300, 2, seed=1)
    data = FakeShards(X, y)  # penalties beyond what float32 weights can be divided by
    with pytest.raises(ConfigError, match=r"no longer finite in epoch .* alpha=1e\+300 \(squared_error\), 1e\+301 "):
        quiet(data, loss="squared_error", alpha=[1e300, 1e301])
    model = quiet(data, loss="squared_error", alpha=[1e300, 1e-6])  # one that stays finite is enough
    assert model.training["alpha"] == 1e-6
    assert [entry["diverged"] for entry in model.training["grid"]] == [True, False]
    assert model.training["grid"][0]["mean_loss"] is model.training["grid"][0]["validation_r2"] is None
