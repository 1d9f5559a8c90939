"""Every feature map on the command line: its flags, and the whole way from text to predictions."""

import inspect
import json

import numpy as np
import pytest

import dkfeat
from dkfeat import open_shards
from dkfeat.cli.declared import declarations
from dkfeat.maps import CLASSES
from tests.cli.test_commands import run
from tests.maps.small import FEATURE_MAPS, has, text_for

SETTINGS = {
    "gcws": ("--i-bits", 6, "--t-bits", 1, "--p", 0.5, "--center", -1, "--normalize", "l2", "--code", "lowest"),
    "dart": ("--bits", 6, "--p", 0.5, "--center", -1, "--normalize", "l2"),
    "minhash": ("--bits", 6),
    "fourier": ("--gamma", 2, "--kernel", "rbf", "--normalize", "false", "--projection", "alternating_circulant"),
    "laplace": ("--kernel", "reciprocal", "--rate", 3, "--projection", "alternating_circulant", "--n-mixtures", 2),
    "maclaurin": ("--kernel", "polynomial", "--degree", 2, "--coef0", 0.5, "--h01", "--normalize", "l2"),
    "nystroem": ("--kernel", "egmm", "--kernel-param", "gamma=0.5", "--kernel-param", "p=2"),
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Two classes that only a curved boundary parts."""
    path = tmp_path_factory.mktemp("rows") / "rows.svm"
    rng = np.random.default_rng(0)
    rows = rng.random((400, 2)).round(3) + 0.001
    labels = np.where((rows[:, 0] > 0.5) == (rows[:, 1] > 0.5), 1, -1)
    path.write_text("".join(f"{y} 1:{a} 2:{b}\n" for y, (a, b) in zip(labels, rows, strict=True)))
    return path


def written(folder, text):
    (folder / "own.svm").write_text(text)
    return folder / "own.svm"


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_declarations__are_the_parameters_of_the_map(name):
    """All are read from the source code: none is undocumented, and defaults are those of the class."""
    found = {key: one.default for key, one in declarations(CLASSES[name]).items()}
    assert found == {key: one.default for key, one in inspect.signature(FEATURE_MAPS[name]).parameters.items()}


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_featurize__takes_what_each_map_takes(name, text, tmp_path):
    text = written(tmp_path, text_for(FEATURE_MAPS[name], text.read_text()))
    shards, model = tmp_path / "shards", tmp_path / "model"
    settings = SETTINGS.get(name, ())
    settings += ("--n-components", 32) if has(FEATURE_MAPS[name], "n_components") else ()
    settings += ("--seed", 5) if has(FEATURE_MAPS[name], "random_state") else ()
    run("featurize", text, "--map", name, *settings, "--out", shards)
    fitted = open_shards(shards).map
    assert fitted.to_spec()["map"] == name
    assert fitted.to_spec().get("seed", 5) == 5
    asked = json.dumps(fitted.to_spec()["params"])
    for value in SETTINGS.get(name, ())[1::2]:
        if not str(value).startswith("--"):
            assert str(value).rpartition("=")[2] in asked, (value, asked)
    run("train", shards, "--seed", 2**64 - 1, "--out", model)
    labels = run("predict", model, text).stdout.split()
    assert len(labels) == 400
    again = run("featurize", text, "--like", shards, "--out", tmp_path / "again")
    assert "400" in again.stdout
    assert open_shards(tmp_path / "again").map.fingerprint() == fitted.fingerprint()


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_featurize__leaves_what_is_not_given_to_the_map(name, text, tmp_path):
    text = written(tmp_path, text_for(FEATURE_MAPS[name], text.read_text()))
    run("featurize", text, "--map", name, "--out", tmp_path / "shards", "--no-progress")
    found, usual = open_shards(tmp_path / "shards").map.get_params(), FEATURE_MAPS[name]().get_params()
    in_force = {"kernel_params": {"p": 1.0}} if name == "nystroem" else {}  # as a spec has them
    seed = {"random_state": 0} if "random_state" in usual else {}
    assert found == usual | in_force | seed


@pytest.mark.parametrize("inner", ["gcws", "dart", "fourier", "laplace", '{"map": "laplace", "params": {"beta": 0.5}}'])
def test_featurize__composes_kernels(inner, text, tmp_path):
    out = tmp_path / "shards"
    run("featurize", text, "--map", "maclaurin", "--n-components", 8, "--inner", inner, "--out", out)
    kept = open_shards(out).map.to_spec()["params"]["inner"]
    assert kept["map"] == (inner if inner.isalpha() else "laplace")
    assert kept["params"].get("beta", 0.5) == (1.0 if inner == "laplace" else 0.5)


@pytest.mark.parametrize(
    ("options", "name", "kept"),
    [
        (("--map", "maclaurin", "--coefficients", "0,1,0.5", "--normalize", "l2"), "coefficients", [0, 1, 0.5]),
        (
            ("--map", "nystroem", "--kernel-param", "coefficients=0,1,0.5"),
            "kernel_params",
            {"coefficients": [0, 1, 0.5]},
        ),
    ],
)
def test_featurize__takes_coefficients(text, tmp_path, options, name, kept):
    run("featurize", text, *options, "--kernel", "maclaurin", "--n-components", 8, "--out", tmp_path / "shards")
    assert open_shards(tmp_path / "shards").map.get_params()[name] == kept


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--map", "gcws", "--beta", 2), "map gcws has no parameter --beta; it has --n-components"),
        (("--map", "nystroem", "--gamma", 2), "--kernel-param"),
        (("--map", "laplace", "--kernel", "rbf"), "'exponential'"),
        (("--map", "fourier", "--gamma", 0), "gamma"),
        (("--map", "gcws", "--normalize", "l3"), "none of l1, l2, max, true and false"),
        (("--map", "gcws", "--normalize", "true"), "normalize=True"),
        (("--map", "laplace", "--n-mixtures", "many"), "neither a whole number nor log2"),
        (("--map", "maclaurin", "--coefficients", "1;2"), "not a list of numbers"),
        (("--map", "maclaurin", "--coefficients", "lambda n: 1"), "functions are for Python only"),
        (("--map", "maclaurin", "--inner", "rbf"), "neither a map such as gcws nor a mapping"),
        (("--map", "maclaurin", "--inner", "nystroem"), "a name among 'fourier', 'laplace', 'gcws', 'dart'"),
        (("--map", "nystroem", "--kernel-param", "gamma"), "not a parameter such as gamma=0.5"),
        (("--map", "nystroem", "--kernel-param", "gama=1"), "gama"),
    ],
)
def test_featurize__wrong_setting_is_refused(options, message, text, tmp_path):
    outcome = run("featurize", text, *options, "--out", tmp_path / "shards", status=2)
    assert message in outcome.stderr
    assert not (tmp_path / "shards").exists()


def test_new_files__get_the_map_of_the_target_without_being_told(text, tmp_path):
    shards, first, more = tmp_path / "shards", tmp_path / "first.svm", tmp_path / "more.svm"
    first.write_bytes(text.read_bytes())
    more.write_text("1 1:0.25 2:0.5\n")
    run("featurize", first, "--map", "fourier", "--n-components", 16, "--gamma", 3, "--seed", 7, "--out", shards)
    made = open_shards(shards).map.fingerprint()
    run("plan", first, more, "--out", shards)
    run("featurize", first, more, "--out", shards)
    grown = open_shards(shards)
    assert (grown.map.fingerprint(), grown.n_rows) == (made, 401)
    asked = run("featurize", first, more, "--seed", 0, "--out", shards, status=4)  # what is asked must still agree
    assert "gcws" in asked.stderr


def test_featurize__a_parameter_that_is_given_counts_even_at_its_default(text, tmp_path, caplog):
    command = ("featurize", text, "--out", tmp_path / "out", "--map", "gcws")
    run(*command, "--n-components", 16, "--seed", 7)
    assert "kept" not in run(*command).stderr  # with the seed of the target
    told = run(*command, "--n-components", 256, status=4).stderr  # the default
    assert "--n-components: 16 there, 256 asked" in told
    assert dkfeat.featurize(text, tmp_path / "out", dkfeat.GCWSFeatures(), progress=False).rows == 400
    assert "out has n_components=16, which is kept: a parameter at its default" in caplog.text
