"""The tiny source in some twenty splits, and the data set of a run that nothing disturbed."""

from __future__ import annotations

import pytest

import dkfeat
from tests.engine.helpers import BLOCK, featurized
from tests.invariants import dataset_state


@pytest.fixture(scope="session")
def source(tiny_folder):
    return dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=BLOCK)


@pytest.fixture(scope="session")
def golden(source, tmp_path_factory):
    """State of the data set of `source`, made with the map of `featurized`."""
    folder = tmp_path_factory.mktemp("golden") / "features"
    featurized(source, folder)
    return dataset_state(folder)
