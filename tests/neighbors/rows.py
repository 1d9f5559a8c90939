"""Rows as text, their shards, and comparison of results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client
from sklearn.datasets import dump_svmlight_file

import dkfeat

FEATURES = {
    "gcws": dkfeat.GCWSFeatures(n_components=96, i_bits=7, random_state=1),
    "dart": dkfeat.DartFeatures(n_components=128, bits=8, random_state=1),
    "bits": dkfeat.DartFeatures(n_components=192, bits=1, random_state=1),
}


def write(X: Any, path: Path) -> Path:
    dump_svmlight_file(X.astype(np.float32), np.ones(X.shape[0]), str(path), zero_based=True)
    return path


def featurized(files: Any, folder: Path, features: Any, n_features: int = 60, blocksize: Any = "64MiB") -> Any:
    source = dkfeat.LibsvmSource(str(files), n_features=n_features, zero_based=True, blocksize=blocksize)
    dkfeat.featurize(source, folder, features, progress=False)
    return dkfeat.open_shards(folder)


def assert_same(
    found: Any, expected: Any, names: tuple[str, ...] = ("rows", "similarities", "errors", "n_rows")
) -> None:
    for name in names:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


@contextmanager
def running(where: str) -> Iterator[Client | None]:
    """A client of a small cluster, or none and tasks on a scheduler of Dask's own."""
    if where == "distributed":
        with Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as client:
            yield client
    else:
        with dask.config.set(scheduler=where):
            yield None
