"""Explanations: their speed as a multiple of predictions, and their agreement with permutation importance.

    python benchmarks/explain.py [--quick] [--speed | --agreement]

Speed is elapsed time on one thread: the median of the ratios of pairs of calls, `dkfeat.explain` after
`LinearModel.predict` of the same rows. Agreement is between the most important columns of ``explanation.importances``
and of scikit-learn's ``permutation_importance`` (the loss of area under the ROC curve, or of accuracy for several
classes) on the same test rows, of sets in ``DKFEAT_DATA``.
"""

import argparse
import lzma
import os
import statistics
import sys
import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from marks import Report
from scipy.stats import spearmanr
from sklearn.datasets import load_svmlight_file
from sklearn.inspection import permutation_importance
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits
from workloads import rcv1_like, webspam_like

import dkfeat
from dkfeat.learn.model import LinearModel

MOST_TIMES, MOST_OF_FEW_COLUMNS = 2.0, 3.0
TOP = 20
NUMBERS, TABLES = ("spambase", "satimage", "splice"), ("adult", "flights", "hotel")


def modelled(fitted, n_classes=2, seed=0):
    n_scores = 1 if n_classes == 2 else n_classes
    coef = np.random.default_rng(seed).normal(size=(n_scores, fitted.n_features_out))
    return LinearModel(map_spec=fitted.to_spec(), classes=np.arange(n_classes), coef=coef, intercept=np.zeros(n_scores))


def pairs_of(model, rows, repeats):
    found = []
    for at in range(repeats + 1):
        started = time.perf_counter()
        model.predict(rows)
        between = time.perf_counter()
        dkfeat.explain(model, rows)
        found += [(between - started, time.perf_counter() - between)] * (at > 0)  # the first call compiles
    return found


def speed(report, *, quick):
    n_rows, repeats = (200, 1) if quick else (8000, 9)
    webspam, rcv1 = webspam_like(n_rows), rcv1_like(n_rows)
    few = np.random.default_rng(0).lognormal(size=(n_rows, 16)).astype(np.float32)
    sets = (rcv1 != 0).astype(np.float32)
    cases = {
        "GCWS, 16 columns, dense": (dkfeat.GCWSFeatures(1024, random_state=0), few, 2),
        "GCWS, 16 columns, dense, 10 classes": (dkfeat.GCWSFeatures(1024, random_state=0), few, 10),
        "GCWS, 254 columns, CSR": (dkfeat.GCWSFeatures(1024, random_state=0), webspam, 2),
        "GCWS, 47,236 columns, CSR": (dkfeat.GCWSFeatures(1024, random_state=0), rcv1, 2),
        "darts, 47,236 columns, CSR": (dkfeat.DartFeatures(1024, random_state=0), rcv1, 2),
        "MinHash, 47,236 columns, CSR": (dkfeat.MinHashFeatures(1024, random_state=0), sets, 2),
    }
    rng = np.random.default_rng(0)
    values = {f"number {at}": rng.normal(size=n_rows) for at in range(10)}
    frame = pd.DataFrame(values | {f"word {at}": rng.integers(0, 5 << at, n_rows).astype(str) for at in range(10)})
    encoder = dkfeat.TableEncoder(random_state=0).fit(frame)
    encoded = dkfeat.GCWSFeatures(1024, random_state=0).fit_width(encoder.n_features_out)
    print(f"{'k = 1,024, microseconds a row':<40}{'predict':>10}{'explain':>10}{'times':>8}")
    models = {name: (modelled(each.fit(rows), n_classes), rows) for name, (each, rows, n_classes) in cases.items()}
    models["GCWS, table of 20 columns"] = replace(modelled(encoded), encoder=encoder), frame
    for name, (model, rows) in models.items():
        found = pairs_of(model, rows, repeats)
        times = statistics.median(explain / predict for predict, explain in found)
        predicted, explained = (statistics.median(each) / n_rows * 1e6 for each in zip(*found, strict=True))
        report.emit(name, predict_us=round(predicted, 2), explain_us=round(explained, 2), times=round(times, 2))
        report.mark(f"{name}, times predict", times, most=MOST_TIMES if "CSR" in name else MOST_OF_FEW_COLUMNS)
        print(f"{name:<40}{predicted:>10.2f}{explained:>10.2f}{times:>8.2f}")


def numbers(folder, name):
    parts = [
        load_svmlight_file(BytesIO(lzma.decompress((folder / name / f"{part}.svm.xz").read_bytes())))
        for part in ("train", "test")
    ]
    width = max(X.shape[1] for X, _ in parts)
    for X, _ in parts:
        X.resize(X.shape[0], width)
    return [X.toarray() for X, _ in parts], [y for _, y in parts]


def table(folder, name):
    frame = pd.read_parquet(folder / "tables" / f"{name}.parquet", dtype_backend="pyarrow")
    y = frame.pop("y").to_numpy(int)
    parts = slice(6000, 10_000), slice(0, 2000)
    return [frame.iloc[part].reset_index(drop=True) for part in parts], [y[part] for part in parts]


class Held:
    """Estimator for ``permutation_importance``, which asks for `fit` but does not call it."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        raise NotImplementedError


def scored(held, X, y):
    model = held.model
    if len(model.classes) == 2:
        return roc_auc_score(y == model.classes[1], model.decision_function(X))
    return np.mean(model.predict(X) == y)


def agreement(report, *, quick):
    folder = Path(os.environ.get("DKFEAT_DATA", "../shared/data"))
    print(f"{'set':<12}{'columns':>9}{'score':>9}{'common':>9}{'of top':>8}{'by chance':>11}{'rank corr.':>12}")
    for name in (*NUMBERS, *TABLES)[:: 3 if quick else 1]:
        is_table = name in TABLES
        (train, test), (y, y_test) = (table if is_table else numbers)(folder, name)
        test, y_test = test[: 200 if quick else 2000], y_test[: 200 if quick else 2000]
        encoder = dkfeat.TableEncoder(random_state=0) if is_table else dkfeat.ColumnScale(random_state=0)
        rows = encoder.fit_transform(train)
        features = dkfeat.GCWSFeatures(64 if quick else 512, random_state=0).fit_width(rows.shape[1])
        line = LinearSVC(C=0.01, random_state=0).fit(features.transform(rows), y)
        weights = {"coef": line.coef_, "intercept": line.intercept_}
        model = LinearModel(map_spec=features.to_spec(), classes=line.classes_.astype(int), encoder=encoder, **weights)
        found = dkfeat.explain(model, test)
        columns = [list(test.columns).index(column) for column in found.columns] if is_table else found.columns.tolist()
        by_permutation = permutation_importance(
            Held(model), test, y_test, scoring=scored, n_repeats=1 if quick else 5, random_state=0
        ).importances_mean[columns]
        top = min(TOP, len(columns) // 2)
        best = [{*np.argsort(-each, kind="stable")[:top].tolist()} for each in (found.importances, by_permutation)]
        common, chance = len(best[0] & best[1]), top * top / len(columns)
        correlation = float(spearmanr(found.importances, by_permutation)[0])
        score = scored(Held(model), test, y_test)
        values = {"columns": len(columns), "score": round(score, 4), "common": common, "top": top}
        report.emit(name, **values, by_chance=round(chance, 1), rank_correlation=round(correlation, 2))
        print(f"{name:<12}{len(columns):>9}{score:>9.3f}{common:>9}{top:>8}{chance:>11.1f}{correlation:>12.2f}")
        for label, order in (("contributions", found.importances), ("permutation", by_permutation)):
            names = [str(found.columns[at]) for at in np.argsort(-order, kind="stable")[:8]]
            print(f"    {label:<15}{', '.join(names)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small inputs: a check that it runs, not a measurement")
    parser.add_argument("--speed", action="store_true", help="only the speed")
    parser.add_argument("--agreement", action="store_true", help="only the agreement, which reads data")
    args = parser.parse_args()
    report = Report("explain")
    with threadpool_limits(1):
        if not args.agreement:
            speed(report, quick=args.quick)
        if not args.speed:
            agreement(report, quick=args.quick)
    return report.end(quick=args.quick)


if __name__ == "__main__":
    sys.exit(main())
