from __future__ import annotations

from pathlib import Path

import pytest

import dkfeat
from dkfeat import GCWSFeatures, LibsvmSource
from tests.engine.helpers import featurized


@pytest.fixture(scope="session")
def folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight shards or more of the tiny rows."""
    folder = tmp_path_factory.mktemp("parts") / "train"
    gcws = GCWSFeatures(n_components=16, i_bits=6, random_state=0)
    source = LibsvmSource(str(tiny_folder / "*.svm"), blocksize=8192)
    featurized(source, folder, map=gcws, scheduler="synchronous")
    assert dkfeat.open_shards(folder).n_shards >= 8
    return folder
