"""The papers' data sets, read as scikit-learn reads them."""

from __future__ import annotations

import lzma

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from dkfeat.sources.base import Scan
from dkfeat.sources.libsvm.source import LibsvmSource


@pytest.mark.data
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["letter", "rcv1"])
def test_data_set__equals_scikit_learn(data_folder, name, dtype):
    path = data_folder / name / "test.svm.xz"
    source = LibsvmSource(str(path), dtype=dtype, blocksize="1MiB")
    files = source.files()
    splits = source.splits(files)
    scan = Scan.merge(source, files, splits, [source.scan_split(split) for split in splits])
    settled = source.resolve(scan)
    blocks = [piece.block for split in splits for piece in settled.read(split)]
    with lzma.open(path) as file:
        X, y = load_svmlight_file(file, n_features=scan.n_features, dtype=dtype, zero_based=False)
    ours = sparse.vstack([block.X for block in blocks]).tocsr()
    assert ours.shape == X.shape == (scan.n_rows, scan.n_features)
    assert len(blocks) > 1 or name == "letter"
    assert (ours.data.tobytes(), ours.indices.tolist(), ours.indptr.tolist()) == (
        X.data.tobytes(),
        X.indices.tolist(),
        X.indptr.tolist(),
    )
    assert np.concatenate([block.y for block in blocks]).tolist() == y.tolist()
