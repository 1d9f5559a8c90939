"""The public surface, its former parameters, and that importing it costs nothing."""

import inspect
import subprocess
import sys

import pytest

import dkfeat
from dkfeat.engine.dataset.dataset import ShardDataset
from dkfeat.learn.model import LinearModel
from tests.engine.helpers import gcws
from tests.maps.small import FEATURE_MAPS

RETURNED = (ShardDataset, LinearModel)
"""Classes of results, which users get from public functions."""

PUBLIC = dkfeat.__all__


def test_public_names__have_every_feature_map():
    assert {cls.__name__ for cls in FEATURE_MAPS.values()} < set(PUBLIC)
    assert dir(dkfeat) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names__resolve_with_a_docstring(name):
    value = getattr(dkfeat, name)
    assert value.__doc__


def test_public_names__unknown_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'gcws'"):
        _ = dkfeat.gcws


def public_functions():
    """Public functions, those of public modules, and public methods of public classes."""
    values = {name: getattr(dkfeat, name) for name in PUBLIC} | {kind.__name__: kind for kind in RETURNED}
    for name, value in values.items():
        if inspect.isfunction(value):
            yield name, value
        elif inspect.ismodule(value) or inspect.isclass(value):
            members = inspect.getmembers(value, inspect.isfunction)
            own = [(member, each) for member, each in members if each.__module__.startswith("dkfeat")]
            yield from ((f"{name}.{member}", each) for member, each in own if not member.startswith("_"))


def test_functions__have_at_most_10_parameters():
    """Constructors, whose parameters are settings, are exempt; `self` is not a parameter of a method."""
    counts = {
        name: len([parameter for parameter in inspect.signature(function).parameters if parameter != "self"])
        for name, function in public_functions()
    }
    assert {"train", "plot.code_entropy", "LibsvmSource.read", "kernels.gmm", "ShardDataset.batches"} <= counts.keys()
    assert {name: count for name, count in counts.items() if count > 10} == {}


def test_import__loads_nothing_heavy():
    code = (
        "import sys, dkfeat; print(sorted({'dask', 'distributed', 'numba', 'pyarrow', 'sklearn'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_featurize__former_keywords_move_to_the_source_and_the_target(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:1\n2 1:x\n3 1:1\n")
    old = {"on_bad_row": "quarantine", "max_bad_rows": 1, "resume": False, "on_changed_source": "keep"}
    with pytest.warns(DeprecationWarning, match=r"use target=dkfeat\.Target|option of the source") as caught:
        made = dkfeat.featurize(tmp_path / "rows.svm", tmp_path / "out", gcws(), progress=False, **old)
    assert len(caught) == len(old)
    assert {warning.filename for warning in caught} == {__file__}
    assert (made.rows, made.n_bad_rows) == (2, 1)


def test_featurize__former_keywords_without_a_source():
    with (
        pytest.warns(DeprecationWarning, match="on_bad_row"),
        pytest.raises(TypeError, match="missing a required argument: 'source'"),
    ):
        dkfeat.featurize(target="out", on_bad_row="raise")


def test_predict__former_keywords_of_a_run_that_reads_shards(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:1\n2 2:1\n")
    dkfeat.featurize(tmp_path / "rows.svm", tmp_path / "shards", gcws(), progress=False)
    model = dkfeat.train(tmp_path / "shards", progress=False)
    with pytest.warns(DeprecationWarning, match="use (target=|the option)"):
        dkfeat.predict(model, tmp_path / "shards", tmp_path / "out", progress=False, resume=True, max_bad_rows=0)
    with (
        pytest.warns(DeprecationWarning, match="use the option"),
        pytest.raises(dkfeat.errors.ConfigError, match="not supported for sources of kind 'shards'"),
    ):
        dkfeat.predict(model, tmp_path / "shards", tmp_path / "more", progress=False, on_bad_row="quarantine")


def test_predict__former_keywords_leave_the_options_of_the_model(monkeypatch):
    opened = []

    def load_model(folder, storage_options):
        opened.append((folder, storage_options))
        raise OSError("opened")

    monkeypatch.setattr("dkfeat.learn.predict.load_model", load_model)
    options = {"anon": True}
    with pytest.warns(DeprecationWarning, match="use the option"), pytest.raises(OSError, match="opened"):
        dkfeat.predict("s3://b/model", "https://h/rows.svm", "out", storage_options=options, on_bad_row="quarantine")
    assert opened == [("s3://b/model", options)]


def test_target__is_checked():
    with pytest.raises(dkfeat.errors.ConfigError, match="on_changed_source='replace'"):
        dkfeat.Target("features", on_changed_source="replace")
    with pytest.raises(dkfeat.errors.ConfigError, match="target=5"):
        dkfeat.Target(5)
