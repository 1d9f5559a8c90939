"""Random Maclaurin features against the same features by products with float32 sign matrices.

    python benchmarks/maclaurin.py [--quick]

float32, one thread, both of a pair timed in turn in one process; medians of CPU time. Ours counts all of the work from
the caller's rows to new rows. The peer multiplies rows by dense matrices of signs, one a factor, with NumPy or for
sparse rows scipy, and the products with each other; its matrices, of n_features times factors, are drawn before and
not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from workloads import rcv1_like

from dkfeat.maps import MaclaurinFeatures

COLUMNS = ("name", "ours_us", "peer_us", "ratio", "mark")


def cpu_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def compare(name: str, ours: Callable[[], Any], peer: Callable[[], Any], rows: int, repeats: int, mark: float) -> dict:
    ours()
    peer()
    pairs = [(cpu_seconds(ours), cpu_seconds(peer)) for _ in range(repeats)]
    return {
        "benchmark": "maclaurin",
        "name": name,
        "rows": rows,
        "ours_us": round(statistics.median(o for o, _ in pairs) / rows * 1e6, 3),
        "peer_us": round(statistics.median(p for _, p in pairs) / rows * 1e6, 3),
        "ratio": round(statistics.median(p / o for o, p in pairs), 2),
        "mark": mark,
    }


def sign_matrices(degrees: np.ndarray, n_features: int) -> list[np.ndarray]:
    """One matrix for each factor number, as wide as there are components that have it."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small inputs: a check that it runs, not a measurement")
    quick = parser.parse_args().quick
    records = []
    with threadpool_limits(1):
        for part in (dense_features, sparse_features):
            for record in part(quick):
                print(json.dumps(record), flush=True)
                records.append(record)
    print(f"\n{'microseconds a row':<44}{'ours':>9}{'peer':>9}{'ratio':>8}{'mark':>6}")
    for record in records:
        name, ours, peer, ratio, mark = (record[column] for column in COLUMNS)
        print(f"{name:<44}{ours:>9.2f}{peer:>9.2f}{ratio:>8.2f}{mark or '':>6}")
    missed = [record["name"] for record in records if record["ratio"] < record["mark"]]
    if missed and not quick:
        print(f"below their marks: {'; '.join(missed)}", file=sys.stderr)
    return bool(missed) and not quick


if __name__ == "__main__":
    sys.exit(main())
