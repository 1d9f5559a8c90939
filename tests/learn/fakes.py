"""A data set in memory that looks like opened shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from dkfeat import SGD, GCWSFeatures
from dkfeat.blocks import PackedCodes
from dkfeat.config import ExecutionConfig
from dkfeat.learn.sgd.descent import Descent
from dkfeat.learn.train import train


def by_sgd(train: Any, *arguments: Any, **options: Any) -> Any:
    """Call `dkfeat.train`, with options of `SGD` and settings of where tasks run beside its own."""
    options = ExecutionConfig.gather(options)
    own = {item.name: options.pop(item.name) for item in fields(SGD) if item.name in options}
    return train(arguments[0], SGD(**own), *arguments[1:], **options)


def quiet(*arguments: Any, **options: Any) -> Any:
    """Train by SGD without lines of progress."""
    return by_sgd(train, *arguments, progress=False, **options)


def run_epoch(weights: Any, batches: Any, config: Any) -> Any:
    """Run a descent over batches of rows, labels and weights, from a copy of the initial weights."""
    mean = None if weights.mean_coef is None else weights.mean_coef.copy()
    descent = Descent(replace(weights, coef=weights.coef.copy(), mean_coef=mean), config)
    for batch in batches:
        descent.run_batch(*batch)
    return descent.weights()


def blobs(n_rows: int, n_classes: int, seed: int, *, n_columns: int = 12, spread: float = 0.25) -> tuple[Any, Any]:
    """Positive rows around one centre a class; labels are 3, 4, ..."""
    centres = np.random.default_rng(5).uniform(0.2, 1, (n_classes, n_columns))
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n_rows)
    X = centres[y] * np.exp(spread * rng.standard_normal((n_rows, n_columns)))
    return sparse.csr_matrix(X.astype(np.float32)), y + 3


def write_rows(path: Path, X: Any, y: Any) -> Path:
    """Write rows as text; labels may be text too."""
    lines = []
    for row, label in zip(X, y, strict=True):
        cells = " ".join(f"{c + 1}:{v!r}" for c, v in zip(row.indices.tolist(), row.data.tolist(), strict=True))
        lines.append(f"{label} {cells}\n")
    path.write_text("".join(lines))
    return path


class FakeShards:
    """What training asks of opened shards, without files."""

    def __init__(
        self, X: Any, y: Any, *, seed: int = 0, classes: Any = "from y", weight: Any = None, **input_options: Any
    ) -> None:
        self.map = GCWSFeatures(n_components=64, i_bits=6, random_state=seed).fit_width(X.shape[1])
        self.codes = self.map.encode(X)
        self.features = self.map.transform(X)
        self.y = y if sparse.issparse(y) else np.asarray(y)
        self.weight, self.encoder = weight, None
        self.classes = tuple(np.unique(self.y).tolist()) if isinstance(classes, str) else classes
        self.n_rows = self.y.shape[0]
        schema = {"label": "int64", "codes": "fixed_size_binary[48]"} | (
            {} if weight is None else {"weight": "float64"}
        )
        self.manifest = SimpleNamespace(sha256="ab" * 32, schema=schema)
        self.shards = SimpleNamespace(storage=SimpleNamespace(url="fakes", list=lambda *_, **__: {}))  # without logs
        row_bytes = self.codes.codes.shape[1]
        self.spec = {
            "map": self.map.to_spec(),
            "input": {"kind": "libsvm", "n_features": X.shape[1], "zero_based": False, **input_options},
            "output": {"row_bytes": row_bytes},
        }
        self.seeds: list[int] = []

    def check_features(self) -> None:
        """They are features."""

    def batches(
        self,
        rows: int,
        shuffle: bool = True,
        random_state: int = 0,
        *,
        buffer_rows: int | None = None,
        decode: bool = True,
        columns: tuple[str, ...] = (),
        loaders: int = 1,
        shards: Any = None,
    ) -> Iterator[tuple[Any, ...]]:
        assert buffer_rows is None or shuffle
        weight, number = "weight" in columns, "number" in columns
        assert loaders >= 1
        assert shards is None  # all are one
        order = np.arange(self.n_rows)
        if shuffle:
            self.seeds.append(random_state)
            np.random.default_rng(random_state).shuffle(order)
        for start in range(0, self.n_rows, rows):
            chosen = order[start : start + rows]
            packed = PackedCodes(self.codes.codes[chosen], self.codes.empty[chosen])
            extra = ([self.weight[chosen]] if weight else []) + ([chosen] if number else [])
            yield (self.features[chosen] if decode else packed, self.y[chosen], *extra)
