"""Duplicates from the codes of shards: rows per second of one core and recall, beside datasketch's MinHashLSH.

python benchmarks/duplicates.py [--quick]

A tenth of the rows are near copies of others, a twentieth are copies. `dkfeat.neighbors.duplicates` reads shards of
8-bit codes; MinHashLSH gets the same codes and bands in memory, and is asked for each row after all are in it. Recall
counts the planted near copies whose estimated similarity is at least the threshold; the S-curve is its expectation.
Processor time, the median of repeats. The exit status is 1 if a target is missed. Needs the extra `bench`.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import dask
import llvmlite.binding
import numpy as np
import scipy.sparse as sp
from datasketch import MinHash, MinHashLSH
from paired import cpu_seconds
from sklearn.datasets import dump_svmlight_file

import dkfeat
from dkfeat.compiled.sampling.matches import count_pair_matches
from dkfeat.theory.bands import sharing_probability

THRESHOLD, NONZEROS, COLUMNS = 0.8, 10, 100_000
ROWS_PER_SECOND = {128: 0.5e6, 512: 0.3e6}  # targets, for numbers of components
RECALL_LOSS = 0.01


def planted(n_rows: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Make rows of which a tenth are near copies and a twentieth copies; also give the pairs of near copies."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, COLUMNS, (n_rows, NONZEROS)) // NONZEROS * NONZEROS + np.arange(NONZEROS))
    values = rng.lognormal(size=columns.shape)
    order = rng.permutation(n_rows)
    near, copies, originals = order[: n_rows // 10], order[n_rows // 10 : n_rows * 3 // 20], order[n_rows // 2 :]
    of_near, of_copies = (rng.choice(originals, len(some), replace=False) for some in (near, copies))
    columns[near], columns[copies], values[copies] = columns[of_near], columns[of_copies], values[of_copies]
    values[near] = values[of_near] * np.exp(
        rng.uniform(0, 0.3, (len(near), 1)) * rng.standard_normal(values[near].shape)
    )
    bounds = np.arange(n_rows + 1) * NONZEROS
    X = sp.csr_matrix((values.astype(np.float32).ravel(), columns.ravel(), bounds), shape=(n_rows, COLUMNS))
    return X, np.sort(np.column_stack([near, of_near]))


def datasketch_us(codes: np.ndarray, bands: tuple[int, int]) -> float:
    """Measure an insert and a query of a row, in microseconds."""
    sketches = [MinHash(num_perm=codes.shape[1]) for _ in codes]
    for sketch, row in zip(sketches, codes.astype(np.uint64), strict=True):
        sketch.hashvalues = row
    index = MinHashLSH(num_perm=codes.shape[1], params=bands)

    def find() -> None:
        for row, sketch in enumerate(sketches):
            index.insert(row, sketch)
        for sketch in sketches:
            index.query(sketch)

    return cpu_seconds(find) / len(codes) * 1e6


def measure(folder: Path, pairs: np.ndarray, n_components: int, n_peer: int, repeats: int) -> dict:
    source = dkfeat.LibsvmSource(folder / "rows.svm", n_features=COLUMNS, zero_based=True)
    features = dkfeat.DartFeatures(n_components, random_state=0)
    dkfeat.featurize(source, folder / str(n_components), features, progress=False)
    data = dkfeat.open_shards(folder / str(n_components))
    results = []
    seconds = [
        cpu_seconds(lambda: results.append(dkfeat.neighbors.duplicates(data, THRESHOLD, progress=False)))
        for _ in range(1 + repeats)
    ][1:]
    found, codes = results[-1], data.codes().codes
    estimates = data.map.similarity_of_counts(count_pair_matches(codes, *pairs.T.copy(), n_components, 8))
    similar = estimates >= THRESHOLD
    connected = found.groups[pairs[:, 0]] == found.groups[pairs[:, 1]]
    curve = sharing_probability(np.minimum(estimates[similar], 1), *found.bands, 2**-8)
    ours, peer = statistics.median(seconds) / data.n_rows * 1e6, datasketch_us(codes[:n_peer], found.bands)
    record = {
        "bench": "duplicates",
        "rows": data.n_rows,
        "codes": n_components,
        "bands": list(found.bands),
        "rows_per_second": round(1e6 / ours),
        "datasketch_us": round(peer, 1),
        "ratio": round(peer / ours, 1),
        "recall": round(float(connected[similar].mean()), 4),
        "s_curve": round(float(curve.mean()), 4),
        "pairs": len(found.pairs),
    }
    print(json.dumps(record), flush=True)
    return record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows: a check that it runs, not a measurement")
    quick = parser.parse_args().quick
    print(json.dumps({"bench": "machine", "processor": llvmlite.binding.get_host_cpu_name()}), flush=True)
    with tempfile.TemporaryDirectory() as name, dask.config.set(scheduler="synchronous"):
        folder = Path(name)
        X, pairs = planted(2000 if quick else 300_000)
        dump_svmlight_file(X, np.ones(X.shape[0]), str(folder / "rows.svm"), zero_based=True)
        records = [
            measure(folder, pairs, k, 500 if quick else 10_000, 1 if quick else 3)
            for k in list(ROWS_PER_SECOND)[: 1 if quick else None]
        ]
    missed = [
        f"{record['codes']} codes: {record['rows_per_second']:,} rows a second, recall {record['recall']}"
        for record in records
        if record["rows_per_second"] < ROWS_PER_SECOND[record["codes"]]
        or record["recall"] < record["s_curve"] - RECALL_LOSS
    ]
    if missed and not quick:
        print(f"below their targets: {'; '.join(missed)}", file=sys.stderr)
    return bool(missed) and not quick


if __name__ == "__main__":
    sys.exit(main())
