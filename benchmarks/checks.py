"""Cost of page checksums, SHA-256 and flushes to disk in a featurize run: runs with and without them.

    python benchmarks/checks.py [--quick] [--rows 100000] [--repeats 7] [--folder DIR]

Runs use one thread of this process. Runs with and without the checks alternate, and each pair gives a ratio of
throughputs. Target: all checks together cost at most a tenth. The cost of a flush depends on the disk, so give a folder
on the disk to be measured: the default may be in memory.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from job import COLUMNS, write_rows
from marks import Report

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.sources.libsvm import source as libsvm_source
from dkfeat.store.shards import codec as seal
from dkfeat.store.shards import columns

BLOCK = 16 << 20
MOST_LOST = 0.1


class NoDigest:
    """Hash that reads no data."""

    def __init__(self, data=b""):
        pass

    def update(self, data):
        pass

    def copy(self):
        return self

    def hexdigest(self):
        return "0" * 64


@contextmanager
def without_page_checksums():
    with patch.dict(columns.WRITER_OPTIONS, {"write_page_checksum": False}):
        yield


@contextmanager
def without_sha256():
    nothing = SimpleNamespace(sha256=NoDigest)
    with patch.object(seal, "hashlib", nothing), patch.object(libsvm_source, "hashlib", nothing):
        yield


@contextmanager
def without_flushes():
    with patch.object(os, "fsync", lambda _: None):
        yield


CHECKS = {"page checksums": without_page_checksums, "SHA-256": without_sha256, "flushes": without_flushes}


def run(source, gcws, target, left_out=()):
    """Measure the wall and processor seconds of a run with some of the checks left out."""
    shutil.rmtree(target, ignore_errors=True)
    with ExitStack() as stack:
        for name in left_out:
            stack.enter_context(CHECKS[name]())
        started, used = time.perf_counter(), time.process_time()
        dkfeat.featurize(source, target, gcws, progress=False, client=ExecutionConfig(scheduler="synchronous"))
        return time.perf_counter() - started, time.process_time() - used


def compared(source, gcws, target, left_out, repeats):
    """Measure throughput with all checks over throughput with some left out: medians of pairs in alternating order."""
    wall, cpu = [], []
    for repeat in range(repeats):
        seconds = {}
        for some in ((), left_out)[:: 1 if repeat % 2 else -1]:
            seconds[some] = run(source, gcws, target, some)
        wall.append(seconds[left_out][0] / seconds[()][0])
        cpu.append(seconds[left_out][1] / seconds[()][1])
    return {
        "ratio": round(statistics.median(wall), 4),
        "low": round(min(wall), 4),
        "high": round(max(wall), 4),
        "cpu_ratio": round(statistics.median(cpu), 4),
        "lost": round(1 - statistics.median(wall), 4),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="500 rows: a check that it runs, not a measurement")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dkfeat-bench-checks")
    args = parser.parse_args()
    n_rows, repeats = (500, 1) if args.quick else (args.rows, args.repeats)
    args.folder.mkdir(parents=True, exist_ok=True)
    path, target = args.folder / f"rows-{n_rows}.svm", args.folder / "features"
    write_rows(path, n_rows)
    settled = {"n_features": COLUMNS, "zero_based": False, "label_dtype": "int64"}
    source = dkfeat.LibsvmSource(str(path), blocksize=BLOCK, **settled)
    report, lines = Report("checks"), []
    for n_components in (512, 64):
        gcws = dkfeat.GCWSFeatures(n_components=n_components, i_bits=8, random_state=0)
        run(source, gcws, target)  # compiles, and reads the text into the page cache
        single = [(name,) for name in CHECKS] if n_components == 512 else []
        for left_out in (*single, tuple(CHECKS)):
            name = left_out[0] if len(left_out) == 1 else "all"
            measured = compared(source, gcws, target, left_out, repeats)
            lines.append((n_components, name, measured["ratio"], measured["cpu_ratio"]))
            report.emit(name, n_components=n_components, rows=n_rows, repeats=repeats, **measured)
        report.mark(f"throughput lost to all checks, k = {n_components}", measured["lost"], most=MOST_LOST)
    shutil.rmtree(target)

    print(f"\nof the throughput, and of the processor's time, of {n_rows:,} rows of W2, 8 bits, one thread")
    print(f"{'k':>5}  {'check':<16}{'lost':>8}{'of CPU time':>14}")
    for n_components, name, ratio, cpu in lines:
        print(f"{n_components:>5}  {name:<16}{1 - ratio:>8.1%}{1 - cpu:>14.1%}")
    return report.end(quick=args.quick)


if __name__ == "__main__":
    sys.exit(main())
