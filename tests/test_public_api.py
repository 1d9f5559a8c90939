"""The public surface, its former parameters, and that importing it costs nothing."""

import inspect
import subprocess
import sys

import pytest

import dkfeat
from dkfeat.engine.dataset.dataset import ShardDataset
from dkfeat.learn.model import LinearModel
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
    """Constructors, whose parameters are settings, are exempt, and y, map and encoder of `train`, for rows in memory.

    `self` is not a parameter of a method.
    """
    counts = {
        name: sum(each != "self" for each in inspect.signature(function).parameters)
        for name, function in public_functions()
    }
    counts["train"] -= 3
    assert {
        "train",
        "plot.accuracy_against_k",
        "LibsvmSource.read",
        "kernels.gmm",
        "ShardDataset.batches",
    } <= counts.keys()
    assert {name: count for name, count in counts.items() if count > 10} == {}


def test_import__loads_nothing_heavy():
    code = (
        "import sys, dkfeat; print(sorted({'dask', 'distributed', 'numba', 'pyarrow', 'sklearn'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_target__is_checked():
    with pytest.raises(dkfeat.errors.ConfigError, match="on_changed_source='replace'"):
        dkfeat.Target("features", on_changed_source="replace")
    with pytest.raises(dkfeat.errors.ConfigError, match="target=5"):
        dkfeat.Target(5)
