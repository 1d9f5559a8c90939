"""Speed in MB/s of reading LIBSVM text with all checks, compared with scikit-learn's loader on the same file.

    python benchmarks/parser.py [--quick]

Times are the minimum of the repeats' CPU times of this process, which are least affected by other load on the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marks import Report
from sklearn.datasets import load_svmlight_file
from text_workload import N_FEATURES, eight_digits, write_rcv1_like

from dkfeat.sources.libsvm.source import LibsvmSource

TARGET = 12.0  # multiple of scikit-learn's speed, for reading rows of 8-digit values
FORMS: dict[str, Callable[[float], str]] = {
    "8 digits": eight_digits,
    "17 digits": repr,
    "exponents": "{:.6e}".format,
    "ones": lambda _: "1",
}
_COLD = """
import resource, sys, time
start = time.perf_counter()
from dkfeat.sources.libsvm.source import LibsvmSource
imported = time.perf_counter()
source = LibsvmSource(sys.argv[1], n_features=47236, zero_based=False, label_dtype="int64")
for piece in source.read(source.splits()[0]): pass
print(imported - start, time.perf_counter() - imported)
"""
_MEMORY = """
import resource, sys
from dkfeat.sources.libsvm.source import LibsvmSource
def high_water():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
tiny, path, blocksize = sys.argv[1:]
options = dict(n_features=47236, zero_based=False, label_dtype="int64", blocksize=blocksize)
def read(path):
    source = LibsvmSource(path, **options)
    for split in source.splits():
        for piece in source.read(split): pass
    return source.blocksize
read(tiny)
open("/proc/self/clear_refs", "w").write("5")
before = high_water()
blocksize = read(path)
print((high_water() - before) / blocksize)
"""


def best(run: Callable[[], Any], repeats: int) -> float:
    """Return the minimum of the CPU seconds of the repeats."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


def child(program: str, *args: object, **environment: str) -> list[float]:
    """Run a program in a new process and return the numbers that it printed."""
    command = [sys.executable, "-c", program, *map(str, args)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def measure(path: Path, repeats: int) -> dict[str, float]:
    """Measure MB/s of scikit-learn and of dkfeat's functions that read one file."""
    source = LibsvmSource(str(path), n_features=N_FEATURES, zero_based=False, label_dtype="int64")
    splits = source.splits()

    def read(*, checksum: bool) -> None:
        for split in splits:
            for _ in source.read(split, checksum=checksum):
                pass

    def scan() -> None:
        for split in splits:
            source.scan_split(split)

    scan()  # compiles
    megabytes = path.stat().st_size / 1e6
    peer = best(lambda: load_svmlight_file(str(path), n_features=N_FEATURES, dtype="float32"), max(2, repeats // 2))
    return {
        "sklearn": megabytes / peer,
        "read": megabytes / best(lambda: read(checksum=False), repeats),
        "read_and_hash": megabytes / best(lambda: read(checksum=True), repeats),
        "scan": megabytes / best(scan, repeats),
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--quick", action="store_true", help="small inputs: a check that it runs, not a measurement")
    quick = arguments.parse_args().quick
    megabytes, repeats = (2, 2) if quick else (64, 6)
    report, table = Report("parser"), []
    with tempfile.TemporaryDirectory() as folder:
        for name, form in FORMS.items():
            path = Path(folder) / "rows.svm"
            write_rcv1_like(path, megabytes * 10**6 // (1 if form is eight_digits else 2), form=form)
            rates = measure(path, repeats)
            values = {key: round(rate, 1) for key, rate in rates.items()}
            for key in ("read", "read_and_hash", "scan"):
                values[f"{key}_ratio"] = round(rates[key] / rates["sklearn"], 1)
            table.append(report.emit(name, **values))
            if form is eight_digits and Path("/proc/self/clear_refs").exists():
                tiny = Path(folder) / "tiny.svm"
                tiny.write_text("1 1:1\n")
                imports, cold = child(_COLD, tiny, DKFEAT_JIT_CACHE="0")
                _, warm = child(_COLD, tiny)
                (memory,) = child(_MEMORY, tiny, path, "1MiB" if quick else "32MiB")
                values = {"import_s": imports, "compile_s": cold, "first_read_warm_cache_s": warm}
                values["peak_over_blocksize"] = memory
                report.emit("first read", **{key: round(value, 2) for key, value in values.items()})
    print(f"\n{'MB/s':12}{'sklearn':>9}{'read':>9}{'':9}{'read, hash':>12}{'':9}{'scan':>7}")
    for record in table:
        print(
            f"{record['what']:12}{record['sklearn']:9.0f}{record['read']:9.0f}{record['read_ratio']:7.1f} x"
            f"{record['read_and_hash']:12.0f}{record['read_and_hash_ratio']:7.1f} x{record['scan']:9.0f}"
        )
    report.mark("reading 8-digit values, against load_svmlight_file", table[0]["read_ratio"], least=TARGET)
    return report.end(quick=quick)


if __name__ == "__main__":
    sys.exit(main())
