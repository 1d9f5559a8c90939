"""Darts against GCWS on the same rows, and against datasketch: time by nonzeros, components and recurring columns.

    python benchmarks/darts.py [--quick]

Three parts, all CPU time of one thread, from CSR arrays to packed 8-bit codes: rows whose columns no other row has, and
W3, against `GCWSFeatures` and datasketch's ``minhash_many`` in turn, as medians; the table of the page "Which map", of
rows whose columns recur more or less; the constants of `map_costs.py` that fit these times. The peer
gets few rows, with only the columns that they have; the time to compute its tables is not counted. Needs the extra
`bench`.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import numpy as np
from datasketch import WeightedMinHashGenerator
from gcws import cold_start
from machine import vector_bits
from map_costs import dart_work, gcws_work
from marks import Report
from numpy.typing import NDArray
from paired import cpu_seconds
from scipy.sparse import csr_matrix
from workloads import recurring, wide

from dkfeat import DartFeatures, GCWSFeatures
from dkfeat.compiled.sampling.gcws import SWEPT_ROWS

NONZEROS, COMPONENTS = (85, 500, 4000), (64, 512, 4096)
TABLE_NONZEROS, TABLE_USES, TABLE_COMPONENTS = (10, 30, 100, 300, 1000, 3000, 10_000), (1, 4, 100), 512
OURS, PEERS, TABLES = 4e7, 4e6, 1 << 20
"""Pairs of a nonzero and a component that a call has for dkfeat and for datasketch, and nonzeros for the table."""
TARGETS = {512: 0.07, 256: 0.12}
"""Nanoseconds for each nonzero and component of W3, by the bits of a vector."""
GCWS_RATIO, PEER_RATIO, SHORT_ROW_US = 5, 200, 90
"""Times the peers on W3, where four rows have a column, so that GCWS makes its parameters for four uses."""
COLUMNS = ("workload", "nonzeros", "k", "dart_us", "dart_ns", "gcws_ns", "peer_ns", "gcws_ratio", "peer_ratio")

COLD_START = """
import time
start = time.perf_counter(); cpu = time.process_time()
import numpy as np
from dkfeat.compiled.sampling import darts
darts.encode(np.array([0, 2]), np.array([0, 1]), *darts.signed_octaves(np.ones(2, np.float32)), 16, 0, 8)
print(time.perf_counter() - start, time.process_time() - cpu)
"""


def compare(workload: str, X: csr_matrix, n_components: int, repeats: int) -> dict:
    nonzeros = X.nnz // X.shape[0]
    few = X[: max(1, int(PEERS / nonzeros / n_components))]
    columns, places = np.unique(few.indices, return_inverse=True)
    few = csr_matrix((few.data, places, few.indptr), shape=(few.shape[0], len(columns)))
    dart, gcws = (of(n_components, random_state=1).fit_width(X.shape[1]) for of in (DartFeatures, GCWSFeatures))
    peer = WeightedMinHashGenerator(len(columns), sample_size=n_components, seed=1)
    sides = (
        (lambda: dart.encode(X), X.nnz),
        (lambda: gcws.encode(X), X.nnz),
        (lambda: peer.minhash_many(few), few.nnz),
    )
    dart.encode(X[:1]), gcws.encode(X[:1])
    pairs = [[cpu_seconds(call) / nnz / n_components * 1e9 for call, nnz in sides] for _ in range(repeats)]
    dart_ns, gcws_ns, peer_ns = map(statistics.median, zip(*pairs, strict=True))
    return {
        "workload": workload,
        "nonzeros": nonzeros,
        "k": n_components,
        "rows": X.shape[0],
        "dart_us": round(dart_ns * nonzeros * n_components / 1000, 1),
        "dart_ns": round(dart_ns, 4),
        "gcws_ns": round(gcws_ns, 3),
        "peer_ns": round(peer_ns, 1),
        "gcws_ratio": round(statistics.median(gcws / dart for dart, gcws, _ in pairs), 2),
        "peer_ratio": round(statistics.median(peer / dart for dart, _, peer in pairs), 1),
    }


def time_by_nonzeros(nonzeros: int, quick: bool) -> dict:
    """Measure a row of darts, and of GCWS where columns recur more and more."""
    k, repeats = TABLE_COMPONENTS, 1 if quick else 5
    record = {"nonzeros": nonzeros, "k": k}
    for uses in TABLE_USES[: 1 if quick else None]:
        n_rows = max(1, min(SWEPT_ROWS, (1 << 12 if quick else TABLES) // nonzeros) // uses) * uses
        X = recurring(n_rows, nonzeros, uses)
        sides = {f"gcws_{uses}_us": (GCWSFeatures, X)}
        if uses == 1:
            sides["dart_us"] = DartFeatures, X[:: max(1, n_rows // 200)]
        for name, (of, rows) in sides.items():
            features = of(k, random_state=1).fit_width(X.shape[1])
            features.encode(rows[:1])
            seconds = [cpu_seconds(lambda: features.encode(rows)) for _ in range(repeats)]  # noqa: B023 - called here
            record[name] = round(statistics.median(seconds) / rows.shape[0] * 1e6, 2)
    return record


def fit(work: list[NDArray[np.float64]], microseconds: list[float]) -> tuple[NDArray[np.float64], float]:
    """Fit nanoseconds for each unit of work by relative least squares; also give the largest factor it is off by."""
    relative = np.array(work) / np.array(microseconds)[:, None] / 1000
    constants = np.linalg.lstsq(relative, np.ones(len(relative)))[0]
    return constants, float(np.exp(np.abs(np.log(relative @ constants)).max()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small blocks, few repeats: a check that it runs")
    quick = parser.parse_args().quick
    report, records = Report("darts"), []
    start = report.emit("start", **cold_start(COLD_START))
    for nonzeros in NONZEROS[: 1 if quick else None]:
        for k in COMPONENTS[: 1 if quick else None]:
            n_rows = max(16, int(OURS / nonzeros / k) // (100 if quick else 1))
            measured = compare("distinct", recurring(n_rows, nonzeros, 1), k, 1 if quick else 5)
            records.append(report.emit("codes", **measured))
    if not quick:
        X = wide(250)
        for k in (64, 512):
            measured = compare("W3", X, k, 5)
            records.append(report.emit("codes", **measured))
    table = [
        report.emit("by nonzeros", **time_by_nonzeros(nonzeros, quick))
        for nonzeros in TABLE_NONZEROS[: 2 if quick else None]
    ]
    print("\n" + " ".join(f"{column:>11}" for column in COLUMNS))
    for record in records:
        print(" ".join(f"{record[column]:>11}" for column in COLUMNS))
    cold, warm = start["cold_seconds"], start["warm_seconds"]
    print(f"import and first block: {cold} s with an empty compile cache, {warm} s after\n")
    if not quick:
        print_table(table)
        print_constants(records, table)
    for record in records:
        if (record["workload"], record["k"]) == ("W3", 512):
            most = TARGETS.get(vector_bits(), max(TARGETS.values()))
            report.mark("W3, k = 512, ns a nonzero and component", record["dart_ns"], most=most)
            report.mark("W3, k = 512, against GCWS", record["gcws_ratio"], least=GCWS_RATIO)
            report.mark("W3, k = 512, against datasketch", record["peer_ratio"], least=PEER_RATIO)
        if (record["nonzeros"], record["k"]) == (85, 512):
            report.mark("a row of 85 nonzeros, k = 512, µs", record["dart_us"], most=SHORT_ROW_US)
    return report.end(quick=quick)


def print_table(table: list[dict]) -> None:
    heads = [f"gcws, {uses} use{'s' * (uses > 1)}" for uses in TABLE_USES]
    print("| nonzeros | " + " | ".join([*heads, "dart"]) + " |")
    print("|---:" * (len(heads) + 2) + "|")
    for record in table:
        cells = [record[f"gcws_{uses}_us"] for uses in TABLE_USES] + [record["dart_us"]]
        print(f"| {record['nonzeros']:,} | " + " | ".join(f"{float(f'{cell:.2g}'):,g}" for cell in cells) + " |")


def print_constants(records: list[dict], table: list[dict]) -> None:
    rows = [(record["nonzeros"], record["k"], record["dart_us"]) for record in (*records, *table)]
    constants, factor = fit([dart_work(n, k) for n, k, _ in rows], [us for *_, us in rows])
    print("\nDART_ARRIVAL, DART_NONZERO: {:.3g}, {:.3g} ns".format(*constants), f"(off by at most {factor:.2f} times)")
    rows = [(record["nonzeros"], uses, record[f"gcws_{uses}_us"]) for record in table for uses in TABLE_USES]
    constants, factor = fit([gcws_work(n, n / uses, TABLE_COMPONENTS) for n, uses, _ in rows], [us for *_, us in rows])
    print("GCWS_USE, GCWS_COORDINATE: {:.3g}, {:.3g} ns".format(*constants), f"(off by at most {factor:.2f} times)")


if __name__ == "__main__":
    sys.exit(main())
