"""Speed of `Text` and of scikit-learn's HashingVectorizer, and accuracy beside tf-idf, with the same linear machine.

    python benchmarks/ngrams.py [--quick] [--corpus FILE.parquet ...] [--rows N] [--seeds 0,1,2] [--models "darts;idf"]

The speed is that of documents of 2,400 bytes on average, whose words have Zipf's law; in one of 25, a letter is no
ASCII. Times are those of the processor, in batches of 8 MB as a run reads them.

Accuracy is measured on the columns ``body`` and ``label`` of each corpus that is given, such as those of
``labelled.py``. Each seed draws other rows, as far as there are more, and a fifth of them as the test. C is chosen for
each model on a fifth of the training rows, and so are the models that are compared; idf and the vocabulary are those of
the training rows. The machine is that of LinearSVC, trained in the dual.
"""

import argparse
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from marks import Report
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

import dkfeat
from dkfeat.compiled.sampling.codes import count_matches

LEAST = {("word 5", "binary"): 280, ("word 1", "count"): 120, ("char 3", "binary"): 60}
"""Megabytes a second that each setting is to encode."""
SETTINGS = [*LEAST, ("word 1-2", "sqrt"), ("char 3-5", "sqrt")]
VALUES = (1.0, 3.0, 10.0)


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


@numba.njit(fastmath=True)
def _add(scores, kernel, step):
    for at in range(len(scores)):
        scores[at] += step * (kernel[at] + np.float32(1))


@numba.njit
def _descend(kernel, signs, c, orders, tolerance):
    """Train linear machines with the squared hinge loss in the dual, one for each row of signs."""
    n_classes, n_rows = signs.shape
    alphas, scores = np.zeros((n_classes, n_rows), np.float32), np.zeros((n_classes, n_rows), np.float32)
    diagonal, live = np.float32(0.5 / c), np.arange(n_classes)
    for order in orders:
        worst = np.zeros(n_classes, np.float32)
        for row in order:
            for one in live:
                old, sign = alphas[one, row], signs[one, row]
                gradient = sign * scores[one, row] - np.float32(1) + diagonal * old
                violation = abs(gradient) if old > 0 else max(-gradient, np.float32(0))
                worst[one] = max(worst[one], violation)
                if violation > np.float32(1e-3):
                    alphas[one, row] = max(old - gradient / (kernel[row, row] + 1 + diagonal), np.float32(0))
                    _add(scores[one], kernel[row], (alphas[one, row] - old) * sign)
        live = live[worst[live] > tolerance]
        if not len(live):
            break
    return alphas * signs


class Machine:
    """LinearSVC in the dual, from the inner products of its rows: faster for fewer rows than nonzeros a row."""

    def __init__(self, kernel, y, c):
        self.classes = np.unique(y)
        targets = self.classes if len(self.classes) > 2 else self.classes[1:]
        signs = np.array([np.where(y == target, 1, -1) for target in targets], np.float32)
        rng = np.random.default_rng(0)
        orders = rng.permuted(np.tile(np.arange(len(y)), (100, 1)), axis=1)
        self.coef = _descend(np.ascontiguousarray(kernel), signs, c, orders, np.float32(0.02))

    def score(self, kernel, y):
        scores = kernel @ self.coef.T + self.coef.sum(axis=1)
        best = scores.argmax(axis=1) if len(self.classes) > 2 else (scores[:, 0] > 0).astype(int)
        return float(100 * np.mean(self.classes[best] == y))


def tfidf(texts, train, **options):
    """Cosines of tf-idf rows, whose vocabulary is that of the training texts."""
    rows = TfidfVectorizer(sublinear_tf=True, dtype=np.float32, **options)
    encoded = rows.fit(texts[train]).transform(texts)
    return np.asarray((encoded @ encoded.T).todense())


def encoded(form, texts, train):
    """Rows of n-grams, with idf of the training texts."""
    table = pa.table({"body": pa.array(texts, pa.large_string())})
    encoder = dkfeat.TableEncoder(text={"body": form}, random_state=0).fit(table.filter(pa.array(train)))
    return encoder.transform(table)


def minmax(form):
    """Return the function to the exact kernel, which darts estimate."""

    def kernel(texts, train):
        return dkfeat.kernels.gmm(encoded(form, texts, train)).astype(np.float32)

    return kernel


def darts(k, form):
    """Return the function to the inner products of features of darts, of which a row has the length 1."""

    def kernel(texts, train):
        rows = encoded(form, texts, train)
        codes, empty = dkfeat.DartFeatures(k, random_state=0).fit(rows).encode(rows)
        products = (count_matches(codes, codes, k, 8) / k).astype(np.float32)
        products[empty] = products[:, empty] = 0
        return products

    return kernel


MODELS = {
    "tf-idf, word 1-2": partial(tfidf, ngram_range=(1, 2)),
    "tf-idf, char 3-5": partial(tfidf, analyzer="char", ngram_range=(3, 5)),
    "kernel, word 1-2 sqrt": minmax("word 1-2 sqrt"),
    "kernel, word 1-2 sqrt idf": minmax("word 1-2 sqrt idf"),
    "darts 1,024, word 1-2 sqrt": darts(1024, "word 1-2 sqrt"),
    "darts 4,096, word 1-2 sqrt": darts(4096, "word 1-2 sqrt"),
    "darts 1,024, word 1-2 sqrt idf": darts(1024, "word 1-2 sqrt idf"),
    "darts 4,096, word 1-2 sqrt idf": darts(4096, "word 1-2 sqrt idf"),
    "darts 16,384, word 1-2 sqrt idf": darts(16384, "word 1-2 sqrt idf"),
    "darts 4,096, char 3-5 sqrt idf": darts(4096, "char 3-5 sqrt idf"),
}


def accuracies(table, seed, kernel):
    """Accuracy on held training rows of the best C, and then on the test rows."""
    texts, y = np.array(table["body"].to_pylist(), object), np.unique(table["label"].to_numpy(), return_inverse=True)[1]
    draw = np.random.default_rng(seed).random(len(y))
    test, held = draw < 0.2, (draw >= 0.2) & (draw < 0.36)
    products = kernel(texts, ~test)

    def fitted(train, rows, c):
        return Machine(products[np.ix_(train, train)], y[train], c).score(products[np.ix_(rows, train)], y[rows])

    found = {c: fitted(~test & ~held, held, c) for c in VALUES}
    best = max(found, key=found.__getitem__)
    return found[best], fitted(~test, test, best), best


def accuracy(report, path, n_rows, seeds, words):
    whole = pq.read_table(path, columns=["body", "label"])
    order, found = np.random.default_rng(0).permutation(len(whole)), {}
    for name, kernel in MODELS.items():
        if not all(word in name for word in words):
            continue
        for seed in seeds:
            table = whole.take(np.roll(order, -seed * n_rows)[:n_rows])
            held, test, c = accuracies(table, seed, kernel)
            found.setdefault(name, []).append((held, test))
            report.emit("accuracy", corpus=Path(path).stem, model=name, seed=seed, C=c, held=held, accuracy=test)
        mean, error = summary([test for _, test in found[name]])
        print(f"{Path(path).stem:<12}{name:<34}{mean:6.2f} ± {error:.2f}", flush=True)
    groups = [[name for name in found if name.startswith(kind)] for kind in ("tf-idf", "darts")]
    if all(groups):
        theirs, ours = (max(names, key=lambda name: np.mean([held for held, _ in found[name]])) for names in groups)
        below, error = summary([a - b for (_, a), (_, b) in zip(found[theirs], found[ours], strict=True)])
        print(f"{Path(path).stem}: {ours} is {below:.2f} ± {error:.2f} below {theirs}; both were chosen on held rows")
        report.mark(f"points of accuracy below tf-idf, {Path(path).stem}", below, most=1)


def summary(values):
    """Mean, and its standard error; 0 of one value."""
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few documents: a check that it runs")
    parser.add_argument("--corpus", action="append", default=[], help="Parquet file with the columns body and label")
    parser.add_argument("--rows", type=int, default=5_000, help="rows of a corpus that are drawn")
    parser.add_argument("--seeds", default="0,1,2", help="seeds of the draws")
    parser.add_argument("--models", default="", help="words that the names of models have")
    args = parser.parse_args()
    report = Report("ngrams")
    if not args.corpus:
        speed(report, 300 if args.quick else 20_000, 1 if args.quick else 5)
    for path in args.corpus:
        accuracy(report, path, args.rows, [int(seed) for seed in args.seeds.split(",")], args.models.split(";"))
    return report.end(quick=args.quick)


if __name__ == "__main__":
    sys.exit(main())
