"""The public surface, and that importing it costs nothing."""

import inspect
import subprocess
import sys

import pytest

import dkfeat
from dkfeat.maps import FEATURE_MAPS

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
    for name in PUBLIC:
        value = getattr(dkfeat, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.ismodule(value) or inspect.isclass(value):
            members = inspect.getmembers(value, inspect.isfunction)
            yield from ((f"{name}.{member}", each) for member, each in members if not member.startswith("_"))


def test_functions__have_at_most_14_parameters():
    """Constructors of estimators and sources are exempt; see docs/decisions/layers-and-settings.md."""
    counts = {name: len(inspect.signature(function).parameters) for name, function in public_functions()}
    assert {"train", "plot.code_histogram", "LibsvmSource.read", "kernels.gmm"} <= counts.keys()
    assert {name: count for name, count in counts.items() if count > 14} == {}


def test_import__loads_nothing_heavy():
    code = (
        "import sys, dkfeat; print(sorted({'dask', 'distributed', 'numba', 'pyarrow', 'sklearn'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"
