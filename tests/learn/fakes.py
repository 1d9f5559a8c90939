"""A data set in memory that looks like opened shards."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from dkfeat import GCWSFeatures


def blobs(n_rows: int, n_classes: int, seed: int, *, n_columns: int = 12, spread: float = 0.25) -> tuple[Any, Any]:
    """Positive rows around one centre a class; labels are 3, 4, ..."""
    centres = np.random.default_rng(5).uniform(0.2, 1, (n_classes, n_columns))
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_rows)
    X = centres[y] * np.exp(spread * rng.standard_normal((n_rows, n_columns)))
    return sparse.csr_matrix(X.astype(np.float32)), y + 3


class FakeShards:
    """What training asks of opened shards, without files."""

    def __init__(self, X: Any, y: Any, *, seed: int = 0, classes: Any = "from y", **input_options: Any) -> None:
        self.map = GCWSFeatures(n_components=64, i_bits=6, random_state=seed).fit_width(X.shape[1])
        self.features = self.map.transform(X)
        self.y = np.asarray(y)
        self.classes = tuple(np.unique(self.y).tolist()) if isinstance(classes, str) else classes
        self.n_rows = len(self.y)
        self.manifest = SimpleNamespace(sha256="ab" * 32)
        self.spec = {"input": {"kind": "libsvm", "n_features": X.shape[1], "zero_based": False, **input_options}}
        self.seeds: list[int] = []

    def batches(
        self, rows: int, shuffle: bool = True, random_state: int = 0, buffer_rows: int | None = None
    ) -> Iterator[tuple[Any, Any]]:
        assert buffer_rows is None or shuffle
        order = np.arange(self.n_rows)
        if shuffle:
            self.seeds.append(random_state)
            np.random.default_rng(random_state).shuffle(order)
        for start in range(0, self.n_rows, rows):
            chosen = order[start : start + rows]
            yield self.features[chosen], self.y[chosen]
