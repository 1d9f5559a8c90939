"""Commands do not replace inputs, parts of data sets and models, or files of others."""

from __future__ import annotations

import hashlib
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import dkfeat
from dkfeat.cli import cli
from dkfeat.errors import SpecConflictError

ROWS = "".join(f"{'+-'[n % 2]}1 {1 + n % 2}:{1 + n % 5} {3 + n % 7}:1\n" for n in range(60))
COMPARE = "compare rows.svm --maps gcws --k 8 --C 1 --no-linear --no-exact"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder with rows, and a folder of each kind that dkfeat makes."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "rows.svm").write_text(ROWS)
    gcws = dkfeat.GCWSFeatures(16, random_state=0)
    dkfeat.featurize(folder / "rows.svm", folder / "shards", gcws, progress=False)
    sgd = dkfeat.SGD(epochs=1)
    dkfeat.train(folder / "shards", sgd, checkpoint=folder / "checkpoint", progress=False).save(folder / "model")
    dkfeat.predict(folder / "model", folder / "rows.svm", folder / "predictions", progress=False)
    dkfeat.neighbors.search(folder / "shards", n_neighbors=2, target=folder / "graph", progress=False)
    dkfeat.neighbors.duplicates(folder / "shards", target=folder / "duplicates", progress=False)
    shutil.copytree(folder / "duplicates", folder / "begun")  # as if its search had been killed
    (folder / "begun" / "duplicates.json").rename(folder / "begun" / "work")
    dkfeat.evaluate(folder / "model", folder / "rows.svm", progress=False).save(folder / "evaluation")
    compared = dkfeat.compare(str(folder / "rows.svm"), maps="gcws", n_components=8, baselines=(), progress=False)
    compared.save(folder / "comparison")
    return folder


def run(*arguments):
    return CliRunner().invoke(cli, [str(each) for each in arguments])


def contents(folder):
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.mark.fault("S-19")
@pytest.mark.parametrize(
    "command",
    [
        "predict model rows.svm --out rows.svm",
        "predict model rows.svm --out rows.svm --overwrite",
        "predict model shards --out shards/_dkfeat/spec.json --overwrite",
        "predict model rows.svm --out shards/data/labels.parquet",
        "predict model rows.svm --out model/labels.txt",
        "predict model rows.svm --out model",
        "predict model rows.svm --out shards/data",
        "predict model rows.svm --out model/predictions",
        "report shards --out rows.svm",
        "report shards --out rows.svm --overwrite",
        "report shards rows.svm --out rows.svm --overwrite",
        "report shards --out shards/_dkfeat/spec.json --overwrite",
        "evaluate model rows.svm --out shards",
        "evaluate model rows.svm --out model/report --overwrite",
        "compare rows.svm --maps gcws --k 8 --out shards/data",
        "train shards --out shards",
        "train shards --out shards/model",
        "train shards --checkpoint shards/state",
        "train shards --out model --checkpoint model/state",
        "featurize rows.svm --map gcws --out shards/data",
        "demo --out shards/demo",
    ],
)
def test_commands__leave_inputs_data_sets_and_models_alone(made, monkeypatch, command):
    monkeypatch.chdir(made)
    before = contents(made)
    result = run(*command.split())
    assert result.exit_code == 2, result.output
    assert re.search(
        "is an input of this command|may hold no other files|the output of this command is|an earlier result"
        "|in the folder of the model",
        result.output,
    )
    assert contents(made) == before


KINDS = {
    "shards": "features",
    "model": "a model",
    "checkpoint": "a checkpoint",
    "predictions": "predictions",
    "graph": "neighbours",
    "duplicates": "duplicates",
    "begun": "duplicates",
    "duplicates/groups": "groups of duplicates",
    "evaluation": "an evaluation",
    "comparison": "a comparison",
}
WRITERS = {
    "featurize rows.svm --map gcws --out": "features",
    "drop-duplicates shards duplicates --out": "features",
    "train shards --out": "a model",
    "train shards --checkpoint": "a checkpoint",
    "predict model rows.svm --out": "predictions",
    "neighbors shards --out": "neighbours",
    "duplicates shards --out": "duplicates",
    "evaluate model rows.svm --out": "an evaluation",
    "compare rows.svm --maps gcws --k 8 --out": "a comparison",
}


@pytest.mark.fault("S-20")
@pytest.mark.parametrize("command", WRITERS)
def test_commands__write_into_no_folder_of_another_kind(made, monkeypatch, command):
    monkeypatch.chdir(made)
    before = contents(made)
    for folder, kind in KINDS.items():
        if kind == WRITERS[command]:
            continue
        result = run(*command.split(), folder)
        assert result.exit_code == 2, (folder, result.output)
        wanted = f"holds {kind}, but the output of this command is {WRITERS[command]}; choose another"
        assert wanted in result.output.replace("\n", " "), (folder, result.output)
        if kind not in ("a checkpoint", "an evaluation", "a comparison"):  # which may hold other folders and files
            for words in (command, "report shards --out", "predict model rows.svm --out"):
                result = run(*words.split(), f"{folder}/new.csv")
                assert (result.exit_code, "may hold no other files" in result.output) == (2, True), result.output
    assert contents(made) == before


@pytest.mark.fault("S-20")
def test_readers__name_what_a_folder_is(made, monkeypatch):
    monkeypatch.chdir(made)
    for command, text in {
        "inspect nope": "nope: there is no such folder",
        "status nope": "nope: there is no such folder",
        "train nope": "nope: there is no such folder",
        "train model": "model holds a model, not a data set",
        "inspect checkpoint": "checkpoint holds a checkpoint, not a data set",
        "status duplicates": "duplicates holds duplicates, not a data set",
        "train duplicates/groups": "groups holds groups, not features",
        "predict shards rows.svm": "shards holds features, not a model",
    }.items():
        result = run(*command.split())
        assert result.exit_code in (2, 3)
        assert text in result.output, result.output


@pytest.mark.fault("S-19")
@pytest.mark.parametrize("out", ["rows.svm", "."])
@pytest.mark.parametrize("command", ["neighbors shards rows.svm", "neighbors shards --rerank 9 --source rows.svm"])
def test_neighbors__write_into_no_source(made, monkeypatch, command, out):
    monkeypatch.chdir(made)
    before = contents(made)
    result = run(*command.split(), "--n-neighbors", 2, "--out", out)
    assert (result.exit_code, "the target" in result.output) == (2, True), result.output
    assert contents(made) == before


@pytest.mark.fault("S-19")
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("labels.csv", "predict model rows.svm"),
        ("page.html", "report shards"),
        ("evaluation.html", "evaluate model rows.svm"),
        pytest.param("roc.png", "evaluate model rows.svm", marks=pytest.mark.slow),
        pytest.param("comparison.json", COMPARE, marks=pytest.mark.slow),
    ],
)
def test_commands__replace_a_file_of_others_on_request_alone(made, tmp_path, monkeypatch, name, command):
    monkeypatch.chdir(made)
    file = tmp_path / name
    file.write_text("mine")
    out = file if name in ("labels.csv", "page.html") else tmp_path
    result = run(*command.split(), "--out", out)
    assert result.exit_code == 2
    assert "--overwrite" in result.output
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]
    assert run(*command.split(), "--out", out, "--overwrite").exit_code == 0
    assert file.read_bytes() != b"mine"
    if name != "labels.csv":  # a page, and what is beside it, is known as an earlier result
        assert run(*command.split(), "--out", out).exit_code == 0


def test_predict__overwrite_is_for_files(made, tmp_path):
    for out in ([], ["--out", tmp_path / "folder"]):
        result = run("predict", made / "model", made / "rows.svm", *out, "--overwrite")
        assert result.exit_code == 2
        assert "--overwrite is for --out FILE" in result.output


def test_train__checkpoint_beside_other_files_refuses_no_outputs_there(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    assert run("train", made / "shards", "--epochs", "1", "--checkpoint", ".", "--out", "model").exit_code == 0
    assert run("predict", "model", made / "rows.svm", "--out", "labels.csv").exit_code == 0


def test_train__replaces_a_model_of_other_settings_only_if_told_to(made, tmp_path, monkeypatch):
    monkeypatch.chdir(made)
    out = tmp_path / "model"
    train = ("train", "shards", "--epochs", 1, "--out", out)
    assert run(*train).exit_code == run(*train).exit_code == 0
    before = contents(out)
    monkeypatch.setattr("dkfeat.learn.train._train_once", lambda *_: pytest.fail("it is told after the training"))
    refused = run(*train, "--alpha", "1e-3")
    assert refused.exit_code == 4
    assert f'{out} was made with other settings, alpha: "the default" there, 0.001 asked' in refused.output
    assert "pass --overwrite, or choose another folder" in refused.output
    assert contents(out) == before
    monkeypatch.undo()
    monkeypatch.chdir(made)
    assert run("train", "shards", "--init", "model", "--out", out).exit_code == 0
    first = run("train", "shards", "--out", out)  # the settings of the continuation, but not its start
    assert (first.exit_code, 'init: "a model" there, "the default" asked' in first.output) == (4, True)
    assert run(*train, "--alpha", "1e-3", "--overwrite").exit_code == 0
    model = dkfeat.load_model(out)
    with pytest.raises(SpecConflictError, match=r"random_state: 0 there, 1 asked.*pass overwrite=True, or choose"):
        dkfeat.train("shards", dkfeat.SGD(epochs=1, alpha=1e-3), random_state=1, progress=False).save(out)
    weighted = dkfeat.Liblinear(class_weight={np.int64(1): np.float64(2)})
    dkfeat.train("shards", weighted, progress=False).save(out, overwrite=True)
    assert dkfeat.load_model(out).training != model.training
