"""Time from a single row to its label or probabilities: `LinearModel.predict` and `predict_proba`, warm.

    python benchmarks/latency.py [--quick]

The peer is a scikit-learn pipeline of RBFSampler and a linear classifier with the same number of components.
"""

import argparse
import statistics
import sys
import time

import numpy as np
from marks import Report
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from workloads import webspam_like

import dkfeat
from dkfeat.learn.model import LinearModel

COMPONENTS = 512
TARGET_MS, PROBABILITIES_MS = 1.0, 0.2


def quantiles(predict, rows, repeats):
    for row in rows[:20]:
        predict(row)  # compiles, and makes tables
    seconds = []
    for at in range(repeats):
        row = rows[at % len(rows)]
        started = time.perf_counter()
        predict(row)
        seconds.append(time.perf_counter() - started)
    ordered = sorted(seconds)
    return 1e3 * statistics.median(ordered), 1e3 * ordered[int(0.99 * len(ordered))]


def served(feature_map, n_classes):
    n_outputs = 1 if n_classes == 2 else n_classes
    coef = np.random.default_rng(0).normal(size=(n_outputs, feature_map.n_features_out))
    return LinearModel(
        map_spec=feature_map.to_spec(),
        classes=np.arange(n_classes),
        coef=coef,
        intercept=np.zeros(n_outputs),
        training={"loss": "log_loss"},
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows: a check that it runs, not a measurement")
    args = parser.parse_args()
    report = Report("latency")
    repeats = 50 if args.quick else 5000
    sparse = webspam_like(200)
    dense = sparse.toarray()
    peer = make_pipeline(
        RBFSampler(n_components=COMPONENTS, random_state=0), SGDClassifier(max_iter=2, tol=None, random_state=0)
    ).fit(dense, np.arange(len(dense)) % 2)
    rows = {"dense": [dense[at : at + 1] for at in range(200)], "CSR": [sparse[at] for at in range(200)]}
    width = dense.shape[1]
    maps = {
        "GCWS": dkfeat.GCWSFeatures(n_components=COMPONENTS, random_state=0).fit_width(width),
        "NRFF": dkfeat.FourierFeatures(n_components=COMPONENTS, random_state=0).fit_width(width),
    }
    print(f"{'a row of webspam-like data':<40}{'median ms':>12}{'99 % ms':>10}{'of 1 ms':>10}")
    for form, given in rows.items():
        peer_median, _ = quantiles(peer.predict, given, repeats)
        for name, feature_map in maps.items():
            for n_classes in (2, 10):
                median, high = quantiles(served(feature_map, n_classes).predict, given, repeats)
                values = {"median_ms": round(median, 4), "p99_ms": round(high, 4), "peer_ms": round(peer_median, 4)}
                what = f"{name} k = {COMPONENTS}, {form} row, {n_classes} classes"
                report.emit(what, **values, ratio=round(TARGET_MS / median, 3))
                report.mark(f"{what}, ms", median, most=TARGET_MS)
                print(f"{what:<40}{median:>12.3f}{high:>10.3f}{median / TARGET_MS:>10.2f}")
    numbers = np.random.default_rng(0).lognormal(size=(200, 64)).astype(np.float32)
    model = served(dkfeat.GCWSFeatures(n_components=COMPONENTS, random_state=0).fit_width(64), 10)
    median, high = quantiles(model.predict_proba, [numbers[at : at + 1] for at in range(200)], repeats)
    what = f"probabilities, GCWS k = {COMPONENTS}, 64 numbers, 10 classes"
    report.emit(what, median_ms=round(median, 4), p99_ms=round(high, 4), ratio=round(PROBABILITIES_MS / median, 3))
    report.mark(f"{what}, ms", median, most=PROBABILITIES_MS)
    print(f"{what:<40}{median:>12.3f}{high:>10.3f}")
    return report.end(quick=args.quick)


if __name__ == "__main__":
    sys.exit(main())
