"""Random Maclaurin features against the same features by products with float32 sign matrices.

    python benchmarks/maclaurin.py [--quick]

float32, one thread. dkfeat and the peer are timed in turn in one process, for about the same time; the table has
medians of CPU time and of the pairs' ratios. dkfeat's time includes all work from input rows to features. The peer
multiplies rows by dense matrices of signs, one for each factor, with NumPy or, for sparse rows, scipy, and multiplies
the products. The time to draw the matrices is not counted.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
from paired import compare, run
from workloads import rcv1_like

from dkfeat.maps import MaclaurinFeatures


def sign_matrices(degrees: np.ndarray, n_features: int) -> list[np.ndarray]:
    """Draw one sign matrix for each factor number, with a column for each component that has this factor."""
    rng = np.random.default_rng(0)
    widths = [int((degrees > j).sum()) for j in range(int(degrees.max()))]
    return [rng.choice(np.array([-1, 1], np.float32), (n_features, width)) for width in widths]


def by_matrices(X: Any, matrices: list[np.ndarray], n_components: int) -> np.ndarray:
    features = np.ones((X.shape[0], n_components), np.float32)
    for signs in matrices:
        features[:, : signs.shape[1]] *= X @ signs
    return features


def dense_features(quick: bool) -> Any:
    rng = np.random.default_rng(1)
    rows = 100 if quick else 2000
    X = rng.random((rows, 784), np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for k in (128,) if quick else (1024, 4096):
        fitted = MaclaurinFeatures(k, random_state=0).fit(X)
        peer = partial(by_matrices, X, sign_matrices(fitted.degrees_, 784), k)
        yield compare(f"cubes, 784 to {k:,}", partial(fitted.transform, X), peer, rows, 9, 1)


def sparse_features(quick: bool) -> Any:
    rows, k = (200, 64) if quick else (20_000, 1024)
    X = rcv1_like(rows)
    fitted = MaclaurinFeatures(k, random_state=0).fit(X)
    peer = partial(by_matrices, X, sign_matrices(fitted.degrees_, X.shape[1]), k)
    yield compare(f"cubes, RCV1-like CSR to {k:,}", partial(fitted.transform, X), peer, rows, 1 if quick else 5, 3)


if __name__ == "__main__":
    sys.exit(run("maclaurin", __doc__, (dense_features, sparse_features), name_width=44))
