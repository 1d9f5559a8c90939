"""Similarity sketches of sets: time by elements and components, and against rensa on the same sets.

    python benchmarks/minhash.py [--quick]

CPU time of one thread, from CSR arrays to packed 8-bit codes, of sets on random ones of 2^40 columns. rensa, a library
in Rust that is compared if it is installed, gets 64-bit hashes of the elements: a list for each set, and all in one
buffer.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator

import numpy as np
from machine import vector_bits
from marks import Report
from paired import compare, cpu_seconds
from scipy.sparse import csr_matrix

from dkfeat import MinHashFeatures
from dkfeat.compiled.sampling import minhash

SIZES = ((50, 512), (160, 128), (160, 256), (160, 512), (1000, 512), (10_000, 512))
MOST_US = {512: (4.03, 0.65, 1.33, 2.95, 3.0, 7.25), 256: (5.8, 1.0, 1.9, 4.0, 4.7, 14.0)}
"""Most microseconds of a set in the loops, for each of the sizes, by the bits of a vector."""
PEER_SIZE = 160, 256
LISTS_RATIO, BUFFER_RATIO = 5.0, 2.0
"""Times rensa's sketch of a list of hashes, and of one buffer of all hashes."""


def some_sets(n_rows: int, size: int) -> csr_matrix:
    """Sets of this size, with columns in order."""
    columns = np.sort(np.random.default_rng(size).integers(0, 2**40, (n_rows, size)), axis=1)
    bounds = np.arange(n_rows + 1, dtype=np.int64) * size
    return csr_matrix((np.ones(n_rows * size, np.float32), columns.ravel(), bounds), shape=(n_rows, 2**40))


def microseconds(size: int, k: int, *, quick: bool) -> dict:
    """Measure a set in the loops, and in the map, which checks rows first."""
    X = some_sets(max(10, (10_000 if quick else 1_000_000) // size), size)
    features = MinHashFeatures(k, random_state=0).fit_width(X.shape[1])
    calls = (lambda: minhash.encode(X.indptr, X.indices, k, 0, 8), lambda: features.encode(X))
    features.encode(X[:1])
    loops, whole = (
        statistics.median(cpu_seconds(call) for _ in range(1 if quick else 9)) / X.shape[0] * 1e6 for call in calls
    )
    return {"elements": size, "k": k, "loops_us": round(loops, 3), "map_us": round(whole, 3)}


def against_rensa(*, quick: bool) -> Iterator[dict]:
    """Compare with rensa, if it is installed."""
    try:
        from rensa import RMinHash
    except ImportError:
        print("skipped: rensa is not installed")
        return
    size, k = PEER_SIZE
    n_rows = 100 if quick else 4000
    X = some_sets(n_rows, size)
    hashes = np.random.default_rng(0).integers(0, 2**63, (n_rows, size), dtype=np.uint64)
    lists, flat, bounds = hashes.tolist(), hashes.ravel(), np.arange(n_rows + 1, dtype=np.uint64) * size
    peers = {
        "lists of hashes": (lambda: RMinHash.digest_matrix_from_token_hash_sets(lists, k, 1), LISTS_RATIO),
        "a buffer of hashes": (lambda: RMinHash.digest_matrix_from_flat_token_hashes(flat, bounds, k, 1), BUFFER_RATIO),
    }
    for name, (peer, target) in peers.items():
        yield compare(
            f"rensa, {name}",
            lambda: minhash.encode(X.indptr, X.indices, k, 0, 8),
            peer,
            n_rows,
            1 if quick else 9,
            target,
        )


def main() -> int:
    quick = "--quick" in sys.argv[1:]
    report = Report("minhash")
    limits = MOST_US.get(vector_bits(), MOST_US[256])
    for (size, k), most in zip(SIZES, limits, strict=True):
        measured = report.emit("codes", **microseconds(size, k, quick=quick))
        report.mark(f"{size:,} elements, k = {k}, µs", measured["loops_us"], most=most)
    for record in against_rensa(quick=quick):
        report.emit(**record)
        report.mark(f"160 elements, k = 256, against {record['what']}", record["ratio"], least=record["target"])
    return report.end(quick=quick)


if __name__ == "__main__":
    sys.exit(main())
