"""Speed of `Text` and of scikit-learn's HashingVectorizer, and accuracy beside tf-idf, with the same linear machine.

    python benchmarks/ngrams.py [--quick] [--corpus FILE.parquet ...]

The speed is that of documents of 2,400 bytes on average, whose words have Zipf's law; in one of 25, a letter is no
ASCII. Times are those of the processor, in batches of 8 MB as a run reads them. Accuracy is measured on the columns
``body`` and ``label`` of each corpus that is given, a fifth of which is the test. C is chosen for each model on a
fifth of the training rows.
"""

import argparse
import statistics
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from marks import Report
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import dkfeat

LEAST = {("word 5", "binary"): 280, ("word 1", "count"): 120, ("char 3", "binary"): 60}
"""Megabytes a second that each setting is to encode."""
SETTINGS = [*LEAST, ("word 1-2", "sqrt"), ("char 3-5", "sqrt")]
VALUES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def corpus(n_documents):
    """Make documents of words with Zipf's law."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    shares = 1 / np.arange(3, 29)
    words = ["".join(rng.choice(letters, size, p=shares / shares.sum())) for size in rng.integers(1, 10, 50_000)]
    words = np.array([*words, "naïve"], object)
    texts = []
    for number, size in enumerate(np.clip(rng.lognormal(5.7, 0.85, n_documents), 5, 5_000).astype(int)):
        drawn = np.minimum(rng.zipf(1.2, size), len(words) - 1) - 1
        ends = rng.choice([" ", " ", " ", " ", " ", " ", " ", ", ", ". The "], size)
        texts.append("".join(np.char.add(words[drawn].astype(str), ends)) + "é" * (number % 25 == 0))
    return pa.array(texts, pa.large_string())


def seconds(call, batches):
    """Time a call on batches by the clock of the processor."""
    started = time.process_time()
    for batch in batches:
        call(batch)
    return time.process_time() - started


def speed(report, n_documents, repeats):
    texts = corpus(n_documents)
    size = texts.nbytes - 8 * len(texts)
    rows = max(1, len(texts) * (8 << 20) // size)
    batches = [pa.table({"body": texts.slice(at, rows)}) for at in range(0, len(texts), rows)]
    for ngrams, weights in SETTINGS:
        encoder = dkfeat.Text("body", f"{ngrams} {weights}").fit(batches[0])
        unit, _, lengths = ngrams.partition(" ")
        low, _, high = lengths.partition("-")
        peer = HashingVectorizer(
            analyzer=unit, ngram_range=(int(low), int(high or low)), binary=weights == "binary", norm=None
        )
        few = [batch.slice(0, max(1, rows // 20))["body"].to_pylist() for batch in batches[:1]]
        n_few = sum(len(text.encode()) for text in few[0])
        encoder.transform(batches[0])
        ours, theirs = [], []
        for _ in range(repeats):
            ours.append(size / seconds(encoder.transform, batches) / 1e6)
            theirs.append(n_few / seconds(peer.transform, few) / 1e6)
        rate = statistics.median(ours)
        ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
        report.emit("speed", ngrams=ngrams, weights=weights, mb_a_second=rate, ratio=ratio)
        print(f"{ngrams:<9}{weights:<7}{rate:7.0f} MB/s, {ratio:.0f} times HashingVectorizer", flush=True)
        if (ngrams, weights) in LEAST:
            report.mark(f"MB/s, {ngrams} {weights}", rate, least=LEAST[ngrams, weights])


def tfidf(**options):
    return lambda: TfidfVectorizer(sublinear_tf=True, **options)


def darts(k, text):
    def make():
        return make_pipeline(
            dkfeat.TableEncoder(text={"body": text}, random_state=0), dkfeat.DartFeatures(k, random_state=0)
        )

    return make


MODELS = {
    "tf-idf, word 1-2": tfidf(ngram_range=(1, 2)),
    "tf-idf, char 3-5": tfidf(analyzer="char", ngram_range=(3, 5)),
    "darts 1,024, word 1-2": darts(1024, "word 1-2 sqrt"),
    "darts 4,096, word 1-2": darts(4096, "word 1-2 sqrt"),
    "darts 4,096, char 3-5": darts(4096, "char 3-5 sqrt"),
}


def score(features, y, test, held):
    """Accuracy on the test rows with the C that is the best on the held ones."""

    def fitted(rows, C):
        return LinearSVC(C=C, random_state=0).fit(features[rows], y[rows])

    train = ~test & ~held
    values = [C * (1 if features.dtype == np.float64 else 100 / features[0].nnz) for C in VALUES]
    best = max(values, key=lambda C: fitted(train, C).score(features[held], y[held]))
    return fitted(~test, best).score(features[test], y[test])


def accuracy(report, path, n_rows):
    table = pq.read_table(path, columns=["body", "label"])
    rng = np.random.default_rng(0)
    order = rng.permutation(len(table))[:n_rows]
    table, y = table.take(order), np.unique(table["label"].to_numpy()[order], return_inverse=True)[1]
    draw = rng.random(len(y))
    test, held = draw < 0.2, (draw >= 0.2) & (draw < 0.36)
    found = {}
    for name, make in MODELS.items():
        steps, texts = make(), np.array(table["body"].to_pylist(), object)
        if isinstance(steps, TfidfVectorizer):
            X = steps.fit(texts[~test]).transform(texts)
        else:
            X = steps.fit_transform(table.select(["body"]))
        found[name] = 100 * score(X, y, test, held)
        report.emit(
            "accuracy", corpus=str(path), model=name, accuracy=found[name], classes=int(y.max()) + 1, rows=len(y)
        )
    names = list(MODELS)
    report.mark(
        "points of accuracy below tf-idf", max(found[n] for n in names[:2]) - max(found[n] for n in names[2:]), most=1
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few documents: a check that it runs")
    parser.add_argument("--corpus", action="append", default=[], help="Parquet file with the columns body and label")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a corpus that are drawn")
    args = parser.parse_args()
    report = Report("ngrams")
    speed(report, 300 if args.quick else 20_000, 1 if args.quick else 5)
    for path in args.corpus:
        accuracy(report, path, args.rows)
    return report.end(quick=args.quick)


if __name__ == "__main__":
    sys.exit(main())
