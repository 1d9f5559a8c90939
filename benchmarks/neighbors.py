"""Near neighbours by codes against what people install for them: recall of the ten nearest rows, and time.

    DKFEAT_DATA=DIR python benchmarks/neighbors.py [--quick] [--graph ROWS ...]

The nearest rows are those of the exact min-max (GMM) kernel, found by brute force. `GMMNeighbors` compares 512 codes of
8 bits, then 100 rows exactly. The others:

- scikit-learn gets the exact kernel of queries and rows as a precomputed distance; on dense sets also the kernel as a
  compiled Python callable.
- datasketch's MinHashLSH gets the same codes as signatures, in 128 bands of 4; the rows that share a band with a query
  are compared by the exact kernel.
- FAISS gets the same codes as bits: its flat index and its graph (HNSW) know only the Hamming distance of bits.
- PyNNDescent gets the kernel as a compiled distance, on dense sets.

With --graph it makes only the approximate graph of so many sums of two rows of RCV1 drawn at random, and prints the
processor time of all threads, the estimated recall, and the exponent of the growth.

Processor time of one thread, the median of repeats. Then the rate at which packed codes are compared, and the bytes of
an index of shards. The exit status is 1 if a target is missed. Needs the extra `bench`.
"""

import argparse
import lzma
import os
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import faiss
import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from datasketch import MinHash, MinHashLSH
from marks import Report
from paired import cpu_seconds
from pynndescent import NNDescent
from sklearn.datasets import load_svmlight_file
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

import dkfeat
from dkfeat.compiled.sampling.codes import count_matches
from dkfeat.kernels import gmm
from dkfeat.neighbors import GMMNeighbors, search

GRAPH_COMPONENTS = 256
SETS = ("letter", "mnist10k", "rcv1", "news20")
N_QUERIES, N_NEIGHBORS, N_COMPONENTS, N_CANDIDATES = 150, 10, 512, 100
DENSE = 1000  # columns up to which a peer gets dense rows
BANDS = (128, 4)  # of MinHashLSH
RECALL, ONE_QUERY, BATCH = 0.98, 15e6, 80e6


REPORT = Report("neighbors")


@numba.njit(fastmath=True)
def gmm_distance(x, y):
    low, high = np.float32(0), np.float32(1e-30)
    for i in range(x.shape[0]):
        if x[i] * y[i] > 0:
            a, b = abs(x[i]), abs(y[i])
            low += min(a, b)
            high += max(a, b)
        else:
            high += abs(x[i]) + abs(y[i])
    return 1 - low / high


def recall(found, nearest):
    return round(float(np.mean([len(set(a) & set(b)) / N_NEIGHBORS for a, b in zip(found, nearest, strict=True)])), 4)


def timed(call, repeats):
    results = []
    seconds = statistics.median(cpu_seconds(lambda: results.append(call())) for _ in range(repeats))
    return results[-1], seconds / N_QUERIES * 1e6


def signatures(codes):
    found = [MinHash(num_perm=N_COMPONENTS) for _ in codes]
    for signature, row in zip(found, codes.astype(np.uint64), strict=True):
        signature.hashvalues = row
    return found


class BandsOfCodes:
    """datasketch's MinHashLSH over codes; the exact kernel orders the rows that it gives."""

    def __init__(self, rows, signatures):
        self.rows, self.index = rows, MinHashLSH(num_perm=N_COMPONENTS, params=BANDS)
        for row, signature in enumerate(signatures):
            self.index.insert(row, signature)

    def nearest(self, queries, signatures):
        found = []
        for query, signature in zip(queries, signatures, strict=True):
            candidates = np.sort(np.array(self.index.query(signature), np.int64))
            kernel = gmm(query, self.rows[candidates])[0]
            found.append(candidates[np.argsort(-kernel, kind="stable")[:N_NEIGHBORS]])
        return found


def measure(name, folder, n_rows, repeats, quick):
    with lzma.open(folder / name / "train.svm.xz") as file:
        X = load_svmlight_file(file, dtype=np.float32)[0][: n_rows + N_QUERIES]
    queries, rows = X[:N_QUERIES], X[N_QUERIES:]
    gmm(queries[:1], rows[:1])  # compiles
    kernel, exact_us = timed(lambda: gmm(queries, rows), repeats)
    nearest = np.argsort(-kernel, axis=1, kind="stable")[:, :N_NEIGHBORS]
    table = [
        REPORT.emit("recall", set=name, rows=rows.shape[0], way="exact kernel", recall=1.0, query_us=round(exact_us))
    ]

    def add(way, build, query, is_slow=False):
        index = []
        seconds = cpu_seconds(lambda: index.append(build()))
        if not is_slow:
            query(index[0])  # compiles
        found, query_us = timed(lambda: query(index[0]), 1 if is_slow else repeats)
        values = {"recall": recall(found, nearest), "build_s": round(seconds, 2), "query_us": round(query_us)}
        table.append(REPORT.emit("recall", set=name, rows=rows.shape[0], way=way, **values))

    for features in (
        dkfeat.GCWSFeatures(N_COMPONENTS, random_state=0),
        dkfeat.DartFeatures(N_COMPONENTS, random_state=0),
    ):
        for n_candidates in (N_CANDIDATES, 0):
            way = f"GMMNeighbors, {features.name}, " + (f"{n_candidates} exact" if n_candidates else "codes alone")
            estimator = GMMNeighbors(N_NEIGHBORS, features=features, n_candidates=n_candidates)
            add(way, lambda e=estimator: e.fit(rows), lambda fitted: fitted.kneighbors(queries, return_distance=False))
    add(  # fit wants distances among the rows, which these queries do not read
        "scikit-learn, brute, exact kernel precomputed",
        lambda: NearestNeighbors(algorithm="brute", metric="precomputed").fit(sp.eye(rows.shape[0], format="csr")),
        lambda index: index.kneighbors(1 - gmm(queries, rows), N_NEIGHBORS, return_distance=False),
    )
    codes = dkfeat.GCWSFeatures(N_COMPONENTS, random_state=0).fit(rows)
    packed, asked = codes.encode(rows).codes, codes.encode(queries).codes
    for way, make in (
        ("FAISS, flat, bits of codes", lambda: faiss.IndexBinaryFlat(8 * N_COMPONENTS)),
        ("FAISS, HNSW, bits of codes", lambda: faiss.IndexBinaryHNSW(8 * N_COMPONENTS, 32)),
    ):

        def build(make=make):
            index = make()
            index.add(packed)
            return index

        add(way, build, lambda index: index.search(asked, N_NEIGHBORS)[1])
    of_rows, of_queries = signatures(packed), signatures(asked)
    add(
        "datasketch, MinHashLSH, candidates exact",
        lambda: BandsOfCodes(rows, of_rows),
        lambda index: index.nearest(queries, of_queries),
        is_slow=True,
    )
    if X.shape[1] <= DENSE:
        dense = rows.toarray()
        add(
            "scikit-learn, brute, kernel as callable",
            lambda: NearestNeighbors(algorithm="brute", metric=gmm_distance).fit(dense),
            lambda index: index.kneighbors(queries.toarray(), N_NEIGHBORS, return_distance=False),
            is_slow=True,
        )
    if X.shape[1] <= DENSE and not quick:  # it compiles for a minute
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            add(
                "PyNNDescent, kernel as distance",
                lambda: NNDescent(dense, metric=gmm_distance, n_neighbors=30, random_state=0, n_jobs=1),
                lambda index: index.query(queries.toarray(), k=N_NEIGHBORS)[0],
            )
    return table


def graphs(sizes, path):
    """Time approximate graphs of sums of two rows of RCV1, the second of a random weight."""
    with lzma.open(path) as file:
        X, _ = load_svmlight_file(file, dtype=np.float32)
    seconds = []
    for n_rows in (1000, *sizes):  # the first compiles
        rng = np.random.default_rng(0)
        weights = sp.diags(rng.random(n_rows, np.float32))
        rows = sp.csr_matrix(X[rng.integers(0, X.shape[0], n_rows)] + weights @ X[rng.integers(0, X.shape[0], n_rows)])
        rows.sort_indices()
        columns = [pa.LargeListArray.from_arrays(rows.indptr, pa.array(each)) for each in (rows.indices, rows.data)]
        with tempfile.TemporaryDirectory() as folder:
            table = pa.table([*columns, pa.array(np.zeros(n_rows, np.int64))], ["indices", "values", "label"])
            pq.write_table(table, f"{folder}/rows.parquet", row_group_size=20_000)
            source = dkfeat.ParquetSource(f"{folder}/rows.parquet", n_features=X.shape[1])
            darts = dkfeat.DartFeatures(GRAPH_COMPONENTS, random_state=0)
            dkfeat.featurize(source, f"{folder}/features", darts, progress=False)
            began, elapsed = time.process_time(), time.perf_counter()
            found = search(f"{folder}/features", target=f"{folder}/neighbors", method="graph", progress=False)
            seconds.append(time.process_time() - began)
            elapsed = time.perf_counter() - elapsed
        values = {"cpu_seconds": round(seconds[-1], 1), "seconds": round(elapsed, 1), "recall": round(found.recall, 3)}
        REPORT.emit("approximate graph", rows=n_rows, **values)
    if len(sizes) > 1:
        exponent = np.polyfit(np.log(sizes), np.log(seconds[1:]), 1)[0]
        REPORT.mark("approximate graph, exponent of its growth", exponent, most=1.2)


def rates(n_rows, repeats):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (n_rows, N_COMPONENTS), np.uint8)
    found = {}
    for n_queries in (1, 64):
        seconds = [
            cpu_seconds(lambda n=n_queries: count_matches(rows[:n], rows, N_COMPONENTS, 8)) for _ in range(repeats)
        ]
        found[n_queries] = n_queries * n_rows / statistics.median(seconds)
        REPORT.emit("compare", queries=n_queries, million_rows_per_second=round(found[n_queries] / 1e6, 1))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows: a check that it runs, not a measurement")
    parser.add_argument(
        "--graph", type=int, nargs="+", metavar="ROWS", help="time only approximate graphs of so many rows"
    )
    args = parser.parse_args()
    quick = args.quick
    folder = Path(os.environ.get("DKFEAT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    sets = [name for name in (SETS[:1] if quick else SETS) if (folder / name).is_dir()]
    if not sets:
        print(f"neighbors: no data sets in {folder}; set DKFEAT_DATA", file=sys.stderr)
    if args.graph:
        graphs(args.graph, folder / "rcv1" / "train.svm.xz")
        return REPORT.end(quick=quick)
    numba.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        tables = {name: measure(name, folder, 1000 if quick else 20_000, 1 if quick else 3, quick) for name in sets}
        found = rates(10_000 if quick else 200_000, 1 if quick else 5)
    for row in (row for table in tables.values() for row in table):
        if row["way"].startswith("GMMNeighbors") and "exact" in row["way"]:
            REPORT.mark(f"{row['set']}, {row['way']}, recall", row["recall"], least=RECALL)
    for n_queries, least in ((1, ONE_QUERY), (64, BATCH)):
        name = f"million codes compared a second, queries at a time: {n_queries}"
        REPORT.mark(name, found[n_queries] / 1e6, least=least / 1e6)
    return REPORT.end(quick=quick)


if __name__ == "__main__":
    sys.exit(main())
