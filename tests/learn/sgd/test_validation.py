"""Shards that judge a training or a model may have other labels than it."""

import numpy as np
import pytest

import dkfeat
from dkfeat import LibsvmSource
from dkfeat.config import ExecutionConfig
from tests.engine.helpers import featurized

NAMES = {"some": (1, 3), "as many": (1, 2, 4), "more": (1, 2, 3, 4)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Shards with lists of labels: column j of a row decides on the j-th label, whatever it is called."""
    home = tmp_path_factory.mktemp("lists")
    rng = np.random.default_rng(0)
    for name, labels in {"train": (1, 2, 3), **NAMES}.items():
        with (home / f"{name}.svm").open("w") as file:
            for x in rng.random((300, 4)):
                own = ",".join(str(label) for label, value in zip(labels, x, strict=False) if value > 0.5)
                file.write(f"{own} " + " ".join(f"{column}:{value:.4f}" for column, value in enumerate(x, 1)) + "\n")
        gcws = dkfeat.GCWSFeatures(n_components=32, i_bits=4, random_state=0)
        made = {"map": gcws} if name == "train" else {"map": None, "like": home / "train-shards"}
        featurized(LibsvmSource(str(home / f"{name}.svm"), multilabel=True), home / f"{name}-shards", **made)
    return home


def hits(model, data):
    """Rows of which all labels are right, by sets."""
    predicted = model.predict(data.codes()).toarray()
    own = [{data.classes[column] for column in row.indices} for row in data.to_scipy()[1]]
    return np.array([{*model.classes[row > 0]} == labels for row, labels in zip(predicted, own, strict=True)])


@pytest.mark.parametrize("name", NAMES)
def test_train__lists_of_other_labels_are_judged_by_label(folders, name):
    test = dkfeat.open_shards(folders / f"{name}-shards")
    model = dkfeat.train(folders / "train-shards", dkfeat.SGD(epochs=2), test=test, progress=False)
    assert model.history[-1]["test_accuracy"] == hits(model, test).mean()
    chosen = dkfeat.train(folders / "train-shards", dkfeat.SGD(epochs=2), validation=test, progress=False)
    assert chosen.history[-1]["validation_accuracy"] == hits(chosen, test).mean()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [".svm", "-shards"])
def test_evaluate__rows_with_unknown_labels_in_their_lists_are_left_out_and_counted(folders, name, kind):
    model = dkfeat.train(folders / "train-shards", dkfeat.SGD(epochs=2), progress=False)
    test = dkfeat.open_shards(folders / f"{name}-shards")
    y = test.to_scipy()[1]
    strange = ~np.isin(test.classes, model.classes)
    known = np.asarray(y[:, strange].sum(axis=1)).ravel() == 0
    found = dkfeat.evaluate(
        model, folders / f"{name}{kind}", client=ExecutionConfig(scheduler="synchronous"), progress=False
    )
    assert (found.n_rows, found.n_unknown) == (known.sum(), (~known).sum())
    assert found.summary["accuracy"] == hits(model, test)[known].mean()
