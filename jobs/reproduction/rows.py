"""Data sets of the experiments: training and test rows in memory, read by dkfeat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

import dkfeat

__all__ = ["DataSet", "load_rows"]


@dataclass(frozen=True, slots=True, eq=False)
class DataSet:
    """Unscaled rows of a data set."""

    name: str
    X: csr_matrix
    """Training rows, float64."""
    y: NDArray[Any]
    X_test: csr_matrix
    """Test rows, with the same columns."""
    y_test: NDArray[Any]

    def sample(self, train: int | None, test: int | None = None, seed: int = 0) -> DataSet:
        """Draw at most `train` and `test` rows of each part by seed; None keeps all."""
        random = np.random.default_rng([seed, 7])
        kept = [
            np.sort(random.permutation(len(y))[:most])
            for y, most in ((self.y, train), (self.y_test, test))
        ]  # fmt: skip
        return replace(
            self, X=self.X[kept[0]], y=self.y[kept[0]], X_test=self.X_test[kept[1]], y_test=self.y_test[kept[1]]
        )

    def split_again(self, seed: int) -> DataSet:
        """Draw as many training and test rows as there are from all rows, by seed."""
        X, y = vstack([self.X, self.X_test], format="csr"), np.concatenate([self.y, self.y_test])
        order = np.random.default_rng([seed, 8]).permutation(len(y))
        train, test = order[: len(self.y)], order[len(self.y) :]
        return replace(self, X=X[train], y=y[train], X_test=X[test], y_test=y[test])


@lru_cache(maxsize=2)
def load_rows(data: str | Path, name: str) -> DataSet | None:
    """Read a data set; None if the folder lacks it. The last ones read are cached, so do not change them."""
    files = [Path(data) / name / f"{part}.svm.xz" for part in ("train", "test")]
    if not all(file.is_file() for file in files):
        return None
    read = [dkfeat.read_libsvm(str(file), zero_based=False, dtype="float64") for file in files]
    width = max(X.shape[1] for X, _ in read)
    (X, y), (X_test, y_test) = ((_rows(X, width), labels.compute(scheduler="sync")) for X, labels in read)
    return DataSet(name, X, y, X_test, y_test)


def _rows(X: Any, width: int) -> csr_matrix:
    rows = csr_matrix(X.compute(scheduler="sync"))
    return csr_matrix((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], width))
