"""The public surface, and that importing it costs nothing."""

import subprocess
import sys

import pytest

import dkfeat

PUBLIC = [
    "FourierFeatures",
    "GCWSFeatures",
    "KernelMachine",
    "LaplaceFeatures",
    "Liblinear",
    "LibsvmSource",
    "MaclaurinFeatures",
    "NystroemFeatures",
    "ParquetSource",
    "SGD",
    "Scan",
    "__version__",
    "abort",
    "break_lock",
    "clean",
    "compare",
    "datasets",
    "errors",
    "evaluate",
    "featurize",
    "from_spec",
    "gram",
    "kernels",
    "load_model",
    "load_pipeline",
    "open_cluster",
    "open_shards",
    "plan",
    "plot",
    "predict",
    "predict_file",
    "read_libsvm",
    "read_parquet",
    "run_report",
    "scan",
    "status",
    "theory",
    "train",
    "verify_inputs",
]


def test_public_names__are_these():
    assert dkfeat.__all__ == PUBLIC
    assert dir(dkfeat) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names__resolve_with_a_docstring(name):
    value = getattr(dkfeat, name)
    assert value.__doc__


def test_public_names__unknown_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'gcws'"):
        _ = dkfeat.gcws


def test_import__loads_nothing_heavy():
    code = (
        "import sys, dkfeat; print(sorted({'dask', 'distributed', 'numba', 'pyarrow', 'sklearn'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"
