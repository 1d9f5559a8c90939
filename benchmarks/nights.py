"""Cost of a long history: nightly batches, and data sets of many shards.

    python benchmarks/nights.py [nights|shards|records] [--quick] [--folder DIR] [--nights 1000]

`nights` adds small batches to a data set and prints the time of the calls and the size of the metadata, for files that
stay in their folder and for files that are moved out of it. `shards` times commands on 10,000 tiny shards. `records`
opens the records of a million shards that do not exist. Times are processor time; elapsed time has waits for the disk.
"""

import argparse
import dataclasses
import gc
import hashlib
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from marks import Report

import dkfeat
from dkfeat.config import ExecutionConfig
from dkfeat.store.manifest.manifest import RecordsEntry
from dkfeat.store.manifest.record_table import Records, Shards, Sources

PARTS = ("nights", "shards", "records")
FILES, SHARDS = 10, 20
"""Files and shards of a night."""
NEAR = 5
"""Nights on each side over which the time of a night is a median."""
SETTINGS = {"n_features": 100, "zero_based": False, "label_dtype": "int64"}
HERE = {"client": ExecutionConfig(scheduler="synchronous"), "progress": False}


emit = Report("nights").emit


def write_file(path, number, rows):
    lines = (f"{row % 2} {1 + row % 50}:{number} {60 + row % 40}:{1 + row % 9}\n" for row in range(rows))
    comment = "#" + "-" * (number * 7919 % 997) + "\n"  # sizes differ, as those of real files do
    path.write_text(comment + "".join(lines))


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def nights(folder, count, way):
    """Add one batch a night, from a folder in which earlier files stay, or out of which they are moved."""
    inputs, target = folder / f"in-{way}", folder / f"features-{way}"
    inputs.mkdir()
    gcws = dkfeat.GCWSFeatures(64, random_state=0)
    source = dkfeat.LibsvmSource(str(inputs / "*.svm"), blocksize=2400, **SETTINGS)
    policy = "keep" if way == "moved" else "raise"
    seconds, elapsed = [], []
    shown = {1, 10, 30, 60, 90, *range(100, count + 1, 100), count}
    for night in range(1, count + 1):
        if way == "moved":
            for path in inputs.iterdir():
                path.unlink()
        for number in range(FILES):
            write_file(
                inputs / f"{night:05d}-{number}.svm", 10_000 + night * FILES + number, 200 + 37 * night % 97 + number
            )
        gc.collect()
        began, cpu = time.perf_counter(), time.process_time()
        manifest = dkfeat.featurize(source, dkfeat.Target(target, on_changed_source=policy), gcws, **HERE)
        seconds.append(time.process_time() - cpu)
        elapsed.append(time.perf_counter() - began)
        if night in shown:
            size, shards = size_of(target / "_dkfeat"), len(manifest.shards)
            near = slice(max(0, night - 2 * NEAR), night)
            emit(
                "night",
                files=way,
                night=night,
                seconds=round(seconds[-1], 4),
                near_seconds=round(statistics.median(seconds[near]), 4),
                elapsed=round(statistics.median(elapsed[near]), 4),
                shards=shards,
                metadata_bytes=size,
                bytes_per_shard=round(size / shards, 1),
            )
    tenth = statistics.median(seconds[min(NEAR, count - 1) : 3 * NEAR])
    last = statistics.median(seconds[-2 * NEAR :])
    values = {"tenth": round(tenth, 4), "last": round(last, 4), "ratio": round(tenth / last, 3)}
    emit("last night against the tenth", files=way, **values)


def command(*words):
    """Run a command of dkfeat; return its processor time with that of its children, and its elapsed time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "dkfeat", *map(str, words)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": round(cpu, 3), "elapsed": round(time.perf_counter() - began, 3)}


def timed(function):
    began, cpu = time.perf_counter(), time.process_time()
    function()
    return {"cpu": round(time.process_time() - cpu, 3), "elapsed": round(time.perf_counter() - began, 3)}


def shards(folder, count):
    """Time calls and commands on many tiny shards."""
    rows, target = folder / "rows.svm", folder / "tiny"
    write_file(rows, 0, 120 * count)
    source = dkfeat.LibsvmSource(str(rows), blocksize=rows.stat().st_size // count, **SETTINGS)
    gcws = dkfeat.GCWSFeatures(64, random_state=0)
    made = timed(lambda: dkfeat.featurize(source, target, gcws, **HERE))
    data = dkfeat.open_shards(target)
    emit("featurize", shards=data.n_shards, **made)
    calls = {
        "open_shards": lambda: dkfeat.open_shards(target),
        "nothing to do": lambda: dkfeat.featurize(source, target, gcws, **HERE),
        "status": lambda: dkfeat.status(target),
        "verify": lambda: dkfeat.open_shards(target).verify(),
    }
    for name, call in calls.items():
        found = min((timed(call) for _ in range(3)), key=lambda each: each["cpu"])
        emit(name, shards=data.n_shards, ratio=round(1 / max(found["cpu"], 1e-3), 3), **found)
    again = ["featurize", rows, "--out", target, "--quiet"]
    for name, words in {"status": ["status", target], "verify": ["verify", target], "featurize": again}.items():
        found = min((command(*words) for _ in range(3)), key=lambda each: each["elapsed"])
        emit(f"dkfeat {name}", shards=data.n_shards, **found)


OPEN = """
import json, sys, time
from pathlib import Path
import dkfeat

def peak_mib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10

idle = peak_mib()
began, cpu = time.perf_counter(), time.process_time()
data = dkfeat.open_shards(sys.argv[1])
found = {"cpu": round(time.process_time() - cpu, 3), "elapsed": round(time.perf_counter() - began, 3)}
found |= {"shards": data.n_shards, "rows": data.n_rows, "idle_mib": idle, "peak_mib": peak_mib()}
print(json.dumps(found))
"""


def digests(rng, size, count):
    return pa.Array.from_buffers(pa.binary(size), count, [None, pa.py_buffer(rng.bytes(size * count))])


def records(folder, count):
    """Write, read and open the records of a data set with many shards of 10 MB that do not exist."""
    rows, target = folder / "few.svm", folder / "many"
    write_file(rows, 0, 100)
    made = dkfeat.featurize(dkfeat.LibsvmSource(str(rows), **SETTINGS), target, dkfeat.GCWSFeatures(64), **HERE)
    rng, n_files, at = np.random.default_rng(0), max(1, count // 100), np.arange(count)
    none = [None] * n_files
    sources = {"name": [f"day-{number:07d}.svm" for number in range(n_files)], "size": np.full(n_files, 6 << 30)}
    sources |= {"mtime_ns": [10**18 + number for number in range(n_files)], "etag": none, "compression": none}
    sources |= {"rows": np.full(n_files, 4_000_000), "final_newline": [True] * n_files, "bad_rows": [[]] * n_files}
    splits = {"source": np.minimum(at // 100, n_files - 1), "n_files": np.ones(count, np.int64)}
    splits |= {"start": at % 100 << 26, "stop": (at % 100 + 1) << 26, "pieces": np.ones(count, np.int64)}
    shards = {key: digests(rng, size, count) for key, size in (("name", 6), ("sha256", 32), ("source_sha256", 32))}
    shards |= {"size": 10**7 + at % 99_991, "nnz": 4_000_000 + at % 997}
    shards |= {"rows": np.full(count, 40_000), "n_empty": np.zeros(count, np.int64), "rows_by_file": [[]] * count}
    shards |= {"start": splits["start"], "stop": splits["stop"], "bad_rows": [[]] * count, "lines": [None] * count}
    table = Records.of_columns(sources, splits, shards)
    began = time.perf_counter()
    data = table.to_parquet()
    written = time.perf_counter() - began
    counts = {"sources": n_files, "splits": count, "shards": count}
    entry = RecordsEntry(sha256=hashlib.sha256(data).hexdigest(), size=len(data), **counts)
    head = dataclasses.replace(made, records_file=entry, **table.sums(), shards=Shards(table), sources=Sources(table))
    (target / "_dkfeat" / head.records_name).write_bytes(data)
    (target / "_dkfeat/manifest-000001.json").write_bytes(head.to_json())
    began = time.perf_counter()
    Records.from_parquet(data, "records", n_sources=n_files)
    found = {"write_s": round(written, 4), "read_s": round(time.perf_counter() - began, 4), "mib": len(data) / 2**20}
    emit("records", **found)
    (target / "_SUCCESS").unlink()
    calls = ([sys.executable, "-c", OPEN, target] for _ in range(3))
    found = [json.loads(subprocess.run(words, check=True, capture_output=True).stdout) for words in calls]
    best = min(found, key=lambda each: each["cpu"])
    emit("open the records", bytes_per_shard=round(len(data) / count, 1), ratio=round(5 / best["cpu"], 3), **best)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="?", choices=PARTS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="small counts: a check that it runs, not a measurement")
    parser.add_argument("--folder", help="folder for the data; a temporary one by default")
    parser.add_argument("--nights", type=int, default=1000)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    count = 4 if args.quick else args.nights
    calls = {
        "nights": lambda: [nights(folder, count, way) for way in ("moved", "stay")],
        "shards": lambda: shards(folder, 50 if args.quick else 10_000),
        "records": lambda: records(folder, 1000 if args.quick else 1_000_000),
    }
    try:
        for part, call in calls.items():
            if args.part in (None, part):
                call()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
