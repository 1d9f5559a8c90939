"""Sources of the runs: text, plain and compressed, and Parquet."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.text_workload import write_rcv1_like


def write_inputs(folder):
    """Write three files of text, one of them compressed, which is one split of several pieces, and two of Parquet."""
    folder.mkdir()
    for number in range(3):
        write_rcv1_like(folder / f"{number}.svm", 1_000_000, seed=number)
    plain = folder / "2.svm"
    (folder / "2.svm.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    rng = np.random.default_rng(0)
    for number in range(2):
        columns = {f"x{place}": rng.lognormal(size=3000) for place in range(30)}
        table = pa.table({**columns, "y": rng.integers(0, 2, 3000)})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=500)
    for path in folder.iterdir():
        os.utime(path, ns=(10**18, 10**18))
