"""GCWS codes of blocks of rows against datasketch's weighted MinHash: nanoseconds of CPU per (nonzero x component).

    python benchmarks/gcws.py [--quick]

dkfeat's time includes all work from CSR arrays to packed 8-bit codes on one thread: logarithms, the transpose to
feature-major order, parameters and packing. The peer is ``WeightedMinHashGenerator.minhash_many`` on 400 rows (8 of
W3); the time to compute its tables is not counted. Both are timed in turn in one process; the table has medians of CPU
time. Needs the extra `bench`.

On W3, where a coordinate has few uses, dkfeat is timed with and without the comparison that saves tables.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from datasketch import WeightedMinHashGenerator
from marks import Report
from paired import cpu_seconds
from scipy.sparse import csr_matrix
from workloads import rcv1_like, webspam_like, wide

from dkfeat.compiled.sampling import gcws as cws
from dkfeat.compiled.sampling.feature_major import signed_logs

WORKLOADS = {"W1": webspam_like, "W2": rcv1_like, "W3": wide}
ROWS = {"W1": 20_000, "W2": 20_000, "W3": 1000}
COMPONENTS = {"W1": (128, 512, 1024), "W2": (128, 512, 1024), "W3": (64,)}
PEER_ROWS = {"W1": 400, "W2": 400, "W3": 8}  # the peer's tables for W3 alone take 768 MB
TARGETS = {("W1", 512): 0.20, ("W2", 512): 0.40}
RATIO = 120
COLUMNS = ("workload", "k", "rows", "ours_ns", "ours_best_ns", "peer_ns", "ratio", "target_ns")

COLD_START = """
import time
start = time.perf_counter(); cpu = time.process_time()
import numpy as np
from dkfeat.compiled.sampling import gcws as cws
from dkfeat.compiled.sampling.feature_major import signed_logs
logs, negative = signed_logs(np.ones(2, np.float32))
cws.encode(np.array([0, 2]), np.array([0, 1]), logs, negative, 16, 0, 8, 0, "mixed")
print(time.perf_counter() - start, time.process_time() - cpu)
"""


def encode(X: csr_matrix, n_components: int) -> None:
    logs, negative = signed_logs(X.data)
    cws.encode(X.indptr, X.indices, logs, negative, n_components, 1, 8, 0, "mixed")


def compare(name: str, X: csr_matrix, n_components: int, repeats: int) -> dict:
    few = X[: PEER_ROWS[name]]
    peer = WeightedMinHashGenerator(X.shape[1], sample_size=n_components, seed=1)
    encode(few, n_components)
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(cpu_seconds(lambda: encode(X, n_components)) / X.nnz / n_components * 1e9)
        theirs.append(cpu_seconds(lambda: peer.minhash_many(few)) / few.nnz / n_components * 1e9)
    return {
        "workload": name,
        "k": n_components,
        "rows": X.shape[0],
        "nnz_per_row": round(X.nnz / X.shape[0], 1),
        "ours_ns": round(statistics.median(ours), 3),
        "ours_best_ns": round(min(ours), 3),
        "peer": "datasketch minhash_many",
        "peer_ns": round(statistics.median(theirs), 1),
        "ratio": round(statistics.median(t / o for t, o in zip(theirs, ours, strict=True)), 1),
        "target_ns": TARGETS.get((name, n_components)),
    }


def compare_first(rows: int, repeats: int) -> dict:
    """Measure W3 with and without the comparison of coordinates of few uses, in turn."""
    X = wide(rows)

    def encode_all() -> None:
        with mock.patch.object(cws, "_ENTRIES_A_USE", 10**9):
            encode(X, 64)

    encode(X, 64)
    encode_all()
    pairs = [(cpu_seconds(lambda: encode(X, 64)), cpu_seconds(encode_all)) for _ in range(repeats)]
    first, everywhere = ([seconds / X.nnz / 64 * 1e9 for seconds in times] for times in zip(*pairs, strict=True))
    return {
        "workload": "W3",
        "k": 64,
        "rows": rows,
        "uses": round(X.nnz / len(set(X.indices.tolist())), 2),
        "after_comparison_ns": round(statistics.median(first), 3),
        "everywhere_ns": round(statistics.median(everywhere), 3),
        "ratio": round(statistics.median(e / f for f, e in zip(first, everywhere, strict=True)), 2),
    }


def cold_start(program: str) -> dict:
    """Run a program that prints wall and CPU seconds, with an empty compile cache and once more."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONPATH": str(Path(__file__).parents[1])}
        seconds = []
        for _ in range(2):
            command = [sys.executable, "-c", program]
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            seconds.append([round(float(value), 2) for value in run.stdout.split()])
    (cold, cold_cpu), (warm, warm_cpu) = seconds
    return {
        "cold_seconds": cold,
        "cold_cpu_seconds": cold_cpu,
        "warm_seconds": warm,
        "warm_cpu_seconds": warm_cpu,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small blocks, few repeats: a check that it runs")
    quick = parser.parse_args().quick
    repeats = 1 if quick else 7
    report, records = Report("gcws"), []
    start = report.emit("start", **cold_start(COLD_START))
    for name, make in WORKLOADS.items():
        if quick and name == "W3":
            continue
        X = make(500 if quick else ROWS[name])
        for n_components in COMPONENTS[name][: 1 if quick else None]:
            measured = compare(name, X, n_components, repeats)
            records.append(report.emit("codes", **measured))
    for rows in (4,) if quick else (200, 1000):
        report.emit("tables", **compare_first(rows, repeats))
    print(" ".join(f"{column:>12}" for column in COLUMNS))
    for record in records:
        print(" ".join(f"{'' if record[column] is None else record[column]:>12}" for column in COLUMNS))
    cold, warm = start["cold_seconds"], start["warm_seconds"]
    print(f"import and first block: {cold} s with an empty compile cache, {warm} s after")
    for record in records:
        if record["target_ns"] is not None:
            name = f"{record['workload']}, k = {record['k']}"
            report.mark(f"{name}, ns a nonzero and component", record["ours_ns"], most=record["target_ns"])
            report.mark(f"{name}, against datasketch", record["ratio"], least=RATIO)
    return report.end(quick=quick)


if __name__ == "__main__":
    sys.exit(main())
