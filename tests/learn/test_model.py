import hashlib
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from dkfeat import GCWSFeatures, load_model
from dkfeat.canonical import fingerprint
from dkfeat.engine.open import like_spec
from dkfeat.errors import CommitError, ConfigError, InputError, ShardError, SourceNotFoundError, SpecConflictError
from dkfeat.learn import model as models
from dkfeat.learn.model import LinearModel, check_target
from dkfeat.store.manifest.model_folder import LocalFolder
from tests.conftest import peak_bytes
from tests.test_archives import npy


def make_model(n_classes=3, *, seed=0, **changes):
    gcws = GCWSFeatures(n_components=10, i_bits=4, random_state=seed).fit_width(7)
    rng = np.random.default_rng(seed)
    n_outputs = 1 if n_classes == 2 else n_classes
    given = {
        "map_spec": gcws.to_spec(),
        "input_spec": {"kind": "libsvm", "n_features": 7, "zero_based": True},
        "classes": np.arange(n_classes) - 1,
        "coef": rng.standard_normal((n_outputs, gcws.n_features_out)),
        "intercept": rng.standard_normal(n_outputs),
        "training": {"loss": "hinge", "alpha": 1e-6},
        "history": ({"epoch": 1, "rows": 5, "test_accuracy": 0.75},),
        "manifest_sha256": "0" * 64,
    }
    return LinearModel(**{**given, **changes})


@pytest.fixture
def rows(rng):
    X = rng.lognormal(size=(30, 7)).astype(np.float32)
    X[3] = 0
    return X


@pytest.mark.parametrize("n_classes", [2, 3])
def test_decision_function__is_the_product_of_weights_and_features(rows, n_classes):
    model = make_model(n_classes)
    expected = model.map.transform(rows).toarray() @ model.coef.T + model.intercept
    scores = model.decision_function(rows)
    assert scores.shape == ((30,) if n_classes == 2 else (30, n_classes))
    np.testing.assert_allclose(scores.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
    labels = model.predict(rows[:0])
    assert (labels.shape, labels.dtype) == ((0,), np.int64)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_decision_function__single_and_decoded_rows_have_the_same_bits(rows, n_classes):
    model = make_model(n_classes)
    whole = model.decision_function(rows)
    np.testing.assert_array_equal(np.concatenate([model.decision_function(row[None]) for row in rows]), whole)
    np.testing.assert_array_equal(model.score_features(model.map.transform(rows)), whole)


def test_predict__an_empty_row_has_the_label_of_the_intercept(rows):
    model = make_model(intercept=[0.0, 9.0, 0.0])
    assert model.predict(rows)[3] == model.classes[1]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_predict_proba__is_that_of_sgd_classifier(rows, n_classes):
    model = make_model(n_classes, training={"loss": "log_loss"})
    twin = SGDClassifier(loss="log_loss")
    twin.coef_, twin.intercept_, twin.classes_ = model.coef_.astype(float), model.intercept_, model.classes_
    expected = twin.predict_proba(model.map.transform(rows).toarray())
    np.testing.assert_allclose(model.predict_proba(rows), expected, rtol=1e-5)


def test_predict_proba__scores_far_below_zero_are_divided_too(rows):
    model = make_model(training={"loss": "log_loss"}, coef=np.zeros((3, 160)), intercept=[-2000.0, -2001.0, -3000.0])
    np.testing.assert_allclose(model.predict_proba(rows)[0], [1 / (1 + np.exp(-1)), 1 / (1 + np.e), 0], atol=1e-9)


def test_predict_proba__a_margin_is_no_probability(rows):
    with pytest.raises(ConfigError, match="this one has loss='hinge'"):
        make_model().predict_proba(rows)


def test_score__is_the_share_of_hits(rows):
    model = make_model()
    labels = model.predict(rows)
    assert model.score(rows, labels) == 1
    assert model.score(model.map.encode(rows), np.where(np.arange(30) < 6, 99, labels)) == 0.8
    for y in (labels[:-1], labels[:, None]):
        with pytest.raises(InputError, match=r"predictions have shape \(30,\)"):
            model.score(rows, y)


def test_predict__codes_of_another_map(rows):
    other = GCWSFeatures(n_components=11, i_bits=8, random_state=0).fit(rows).encode(rows)
    with pytest.raises(InputError, match="model's map packs 5 bytes a row"):
        make_model().predict(other)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": np.array([1, 0, 2])}, "ascending"),
        ({"classes": np.array([1])}, "two or more"),
        ({"classes": np.array(["a", "b", "c"])}, "int64 or float64"),
        ({"intercept": np.zeros(2)}, "3 classes need"),
        ({"coef": np.zeros((2, 160))}, "3 classes need"),
        ({"intercept": np.array([0, np.nan, 0])}, "not all finite"),
    ],
)
def test_model__refuses_parts_that_do_not_fit(changes, words):
    with pytest.raises(InputError, match=words):
        make_model(**changes)


def test_model__refuses_a_map_of_another_width():
    with pytest.raises(InputError, match="160 features, the weights are for 16"):
        make_model(coef=np.zeros((3, 16))).map  # noqa: B018 - the property makes the map


@pytest.mark.parametrize("classes", [np.array([-1, 0, 7]), np.array([-0.5, 1.0, 2.0])])
def test_save__reads_back_equal(tmp_path, rows, classes):
    model = make_model(classes=classes)
    model.save(tmp_path / "a" / "model")
    again = load_model(tmp_path / "a" / "model")
    for name in ("classes", "coef", "intercept"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
        assert getattr(again, name).dtype == getattr(model, name).dtype
    for name in ("map_spec", "input_spec", "training", "history", "manifest_sha256"):
        assert getattr(again, name) == getattr(model, name)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_save__same_model_same_bytes(tmp_path):
    for name in ("one", "two"):
        make_model().save(tmp_path / name)
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two")]
    assert files[0] == files[1]


def test_save__replaces_a_model_and_leaves_nothing_of_it(tmp_path):
    make_model(seed=1).save(tmp_path)
    make_model(seed=2).save(tmp_path)
    assert load_model(tmp_path).map_spec["seed"] == 2
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["coef", "intercept", "model.json"]


def killed_before_the_last_rename(model, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dkfeat.learn.model.seal_model_file", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.save(folder)


def test_save__goes_on_where_a_first_one_was_killed(tmp_path):
    killed_before_the_last_rename(make_model(seed=1), tmp_path)
    with pytest.raises(SourceNotFoundError, match="holds no model"):
        load_model(tmp_path)
    make_model(seed=1).save(f"file://{tmp_path}")
    np.testing.assert_array_equal(load_model(tmp_path).coef, make_model(seed=1).coef)


def test_save__sweeps_what_killed_ones_left(tmp_path):
    make_model(seed=1).save(tmp_path)
    killed_before_the_last_rename(make_model(seed=2), tmp_path)
    np.testing.assert_array_equal(load_model(tmp_path).coef, make_model(seed=1).coef)
    (tmp_path / f".coef-{12 * '0'}.npy.{32 * '0'}.tmp").write_bytes(b"half")
    (tmp_path / f"landmarks-{64 * '0'}.npz").write_bytes(b"of a killed one")
    (tmp_path / "notes.txt").write_text("mine")
    assert len(list(tmp_path.iterdir())) == 8
    make_model(seed=1).save(tmp_path)
    names = sorted(path.name.split("-")[0] for path in tmp_path.iterdir())
    assert names == ["coef", "intercept", "model.json", "notes.txt"]


def test_save__sweeps_no_files_of_another_that_is_under_way(tmp_path):
    make_model(seed=1).save(tmp_path)
    temporary = tmp_path / f".coef-{12 * '0'}.npy.{32 * '0'}.tmp"
    with LocalFolder(str(tmp_path)).saving() as is_alone:
        temporary.write_bytes(b"half")
        make_model(seed=2).save(tmp_path)
        assert temporary.exists()
        assert is_alone()


def test_save__in_another_model_or_a_data_set(tmp_path):
    make_model().save(tmp_path / "model")
    with pytest.raises(ConfigError, match="holds a model"):
        make_model().save(tmp_path / "model" / "inner")
    (tmp_path / "shards" / "_dkfeat" / "tmp").mkdir(parents=True)
    for name in ("shards", "shards/data", "shards/_dkfeat/tmp"):
        with pytest.raises(ConfigError, match=r"holds (features|a data set|a run)"):
            make_model().save(f"file://{tmp_path}/{name}")


def test_check_target__a_checkpoint_inside_of_the_model(tmp_path):
    for checkpoint in ("model", "model/state", "./x/../model"):
        with pytest.raises(ConfigError, match="in the folder of the model"):
            check_target(tmp_path / "model", checkpoint=tmp_path / checkpoint)
    check_target(tmp_path / "model", checkpoint=tmp_path / "state")


def test_save__of_two_at_once_the_last_one_wins_as_a_whole(tmp_path, monkeypatch):
    seal = models.seal_model_file

    def slowly(facts):
        monkeypatch.setattr(models, "seal_model_file", seal)
        make_model(seed=3).save(tmp_path)
        return seal(facts)

    make_model(seed=1).save(tmp_path)
    monkeypatch.setattr(models, "seal_model_file", slowly)
    make_model(seed=2).save(tmp_path)
    np.testing.assert_array_equal(load_model(tmp_path).coef, make_model(seed=2).coef)


def test_load_model__while_another_is_saved(tmp_path, monkeypatch):
    read = models.read_array

    def late(*arguments):
        monkeypatch.setattr(models, "read_array", read)
        make_model(seed=2).save(tmp_path)
        return read(*arguments)

    make_model(seed=1).save(tmp_path)
    monkeypatch.setattr(models, "read_array", late)
    np.testing.assert_array_equal(load_model(tmp_path).coef, make_model(seed=2).coef)


def test_save__will_not_write_into_a_folder_of_something_else(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.json").write_text('{"learner": {}}')
    for name in ("", "notes.txt", "other"):
        with pytest.raises(ConfigError, match="not a dkfeat model"):
            make_model().save(tmp_path / name)


def test_save__will_not_write_where_no_files_can_be_made(tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.store.storage.local.os.access", lambda path, _mode: str(path) != str(tmp_path))
    with pytest.raises(CommitError, match="cannot be written"):
        make_model().save(tmp_path / "a" / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["dangling", "loop", "loop/model", "x" * 300])
def test_check_target__where_no_folder_can_be_made__is_told_before_training(tmp_path, name):
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CommitError, match=r"cannot be (written|read): "):
        check_target(tmp_path / name)


@pytest.mark.fault("X-07")
@pytest.mark.parametrize("name", ["coef", "intercept"])
@pytest.mark.parametrize("damage", ["cut", "flip", "delete", "pickle"])
def test_load_model__damaged_array(tmp_path, name, damage):
    make_model().save(tmp_path)
    path = next(tmp_path.glob(f"{name}-*.npy"))
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "flip":
        data[-3] ^= 1
        path.write_bytes(data)
    elif damage == "pickle":
        np.save(path, np.array([object()]), allow_pickle=True)
    with pytest.raises(ShardError, match="missing" if damage == "delete" else "SHA-256"):
        load_model(tmp_path)


def edited(folder, **changes):
    path = folder / "model.json"
    facts = {**json.loads(path.read_text()), **changes}
    del facts["sha256"]
    path.write_text(json.dumps({**facts, "sha256": fingerprint(facts)}))


def replaced_array(folder, name, data):
    """Replace an array of a model by other bytes, with their hash in model.json."""
    sha256 = hashlib.sha256(data).hexdigest()
    file = f"{name}-{sha256[:12]}.npy"
    (folder / file).write_bytes(data)
    listed = json.loads((folder / "model.json").read_text())["arrays"]
    listed[name] |= {"file": file, "sha256": sha256}
    edited(folder, arrays=listed)


@pytest.mark.fault("X-07")
@pytest.mark.parametrize(
    "data",
    [
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }") + b"cposix\nsystem\n",
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1000000000000), }") + bytes(8),
        b"\x93NUMPY",
    ],
    ids=["object", "huge", "magic"],
)
@pytest.mark.parametrize("name", ["coef", "intercept"])
def test_load_model__crafted_array_of_matching_hash(tmp_path, name, data):
    make_model().save(tmp_path)
    replaced_array(tmp_path, name, data)
    with pytest.raises(ShardError, match=rf"{name}-[0-9a-f]*\.npy: not an array that dkfeat writes"):
        load_model(tmp_path)


@pytest.mark.fault("X-02")
@pytest.mark.parametrize("pattern", ["coef-*.npy", "model.json"])
def test_load_model__a_file_is_a_link(tmp_path, pattern):
    make_model().save(tmp_path / "model")
    path = next((tmp_path / "model").glob(pattern))
    path.rename(tmp_path / path.name)
    path.symlink_to(tmp_path / path.name)
    with pytest.raises(ShardError, match=f"{path.name} cannot be read: a symbolic link"):
        load_model(tmp_path / "model")
    path.unlink()
    path.mkdir()
    with pytest.raises(ShardError, match=f"{path.name} cannot be read: not a regular file"):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_model__an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="is not the path of a folder"):
        make_model().save(path)
    make_model().save(".")
    with pytest.raises(ConfigError, match="is not the path of a folder"):
        load_model(path)


@pytest.mark.fault("X-11")
@pytest.mark.parametrize(
    "change",
    [
        lambda facts: {**facts, "map": {**facts["map"], "seed": 9}},
        lambda facts: {**facts, "training": {"float": 1}},
        lambda facts: {**facts, "training": {"x": json.loads("[" * 600 + "]" * 600)}},
    ],
    ids=["seed", "reserved key", "deep"],
)
def test_load_model__changed_facts(tmp_path, change):
    make_model().save(tmp_path)
    path = tmp_path / "model.json"
    text = path.read_text()
    path.write_text(json.dumps(change(json.loads(text))))
    for read in (load_model, like_spec):
        with pytest.raises(ShardError, match=r"model\.json: it was changed after it was written"):
            read(tmp_path)
    path.write_text(text[:-10])
    with pytest.raises(ShardError, match="strict JSON"):
        load_model(tmp_path)


def test_save__a_folder_whose_name_begins_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_model().save("~/model")
    assert (tmp_path / "~" / "model" / "model.json").exists()
    np.testing.assert_array_equal(load_model("~/model").coef, make_model().coef)


def test_load_model__of_version_0_1_without_a_hash_of_its_facts(tmp_path):
    make_model().save(tmp_path)
    path = tmp_path / "model.json"
    facts = json.loads(path.read_text())
    del facts["sha256"]
    path.write_text(json.dumps(facts))
    assert load_model(tmp_path).task == make_model().task


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"format": 3}, SpecConflictError, "newer dkfeat"),
        ({"format": "1"}, ShardError, "not a model of format 1"),
        ({"classes": None}, ShardError, "classes"),
        ({"classes": [1, 2]}, ShardError, "2 classes need"),
        ({"classes": ["a", "b", "c"]}, ShardError, r"at `\$\.classes"),
        ({"classes": [1, 2, 2**63]}, ShardError, "not a model that dkfeat saved"),
        ({"arrays": {}}, ShardError, "coef is not listed"),
        (
            {"arrays": {"coef": {"file": "../coef-000000000000.npy", "sha256": "", "shape": []}}},
            ShardError,
            "coef is not listed",
        ),
    ],
)
def test_load_model__edited_facts(tmp_path, changes, error, words):
    make_model().save(tmp_path)
    edited(tmp_path, **changes)
    with pytest.raises(error, match=words):
        load_model(tmp_path)


def test_task__regression_predicts_numbers_and_scores_by_r2(tmp_path, rows):
    model = replace(make_model(2), classes=np.array([]), task="regression")
    predicted = model.predict(rows)
    assert predicted.dtype == np.float32
    np.testing.assert_array_equal(predicted, model.decision_function(rows))
    own = predicted + np.where(np.arange(30) % 2, 0.1, -0.1)
    expected = 1 - np.square(own - predicted).sum() / np.square(own - own.mean()).sum()
    assert model.score(rows, own) == pytest.approx(expected, rel=1e-12)
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").task == "regression"
    with pytest.raises(ConfigError, match="probabilities"):
        model.predict_proba(rows)


def test_task__multilabel_predicts_an_indicator_matrix(tmp_path, rows):
    binary = make_model(2)
    parts = {"classes": np.array([3, 5]), "coef": np.concatenate([binary.coef, -binary.coef]), "intercept": np.zeros(2)}
    model = replace(binary, **parts, task="multilabel", training={"loss": "log_loss"})
    predicted = model.predict(rows)
    assert predicted.shape == (30, 2)
    assert predicted.dtype == np.uint8
    np.testing.assert_array_equal(predicted.toarray(), model.decision_function(rows) > 0)
    # here one score is minus the other
    np.testing.assert_allclose(model.predict_proba(rows).sum(axis=1), 1, rtol=1e-6)
    wrong = predicted.toarray()
    wrong[:3, 0] ^= 1
    assert model.score(rows, predicted) == 1
    assert model.score(rows, wrong) == 0.9
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").predict(rows).toarray().tolist() == predicted.toarray().tolist()


@pytest.mark.parametrize(
    ("task", "classes"),
    [("regression", [1, 2]), ("binary", [1, 2, 3]), ("multilabel", []), ("multiclass", [1]), ("ranking", [1, 2])],
)
def test_task__refuses_classes_that_do_not_fit(task, classes):
    with pytest.raises(InputError, match=task):
        replace(make_model(), task=task, classes=np.array(classes, np.int64))


@pytest.mark.fault("X-11")
def test_load_model__facts_of_gigabytes_are_refused_unread(tmp_path):
    make_model().save(tmp_path)
    os.truncate(tmp_path / "model.json", 2 << 30)

    def load():
        with pytest.raises(ShardError, match=r"model\.json: 2,147,483,648 bytes, but at most 536,870,912 are read"):
            load_model(tmp_path)

    assert peak_bytes(load) < 16 << 20
