"""Memory and time of runs by block size, threads and processes, and least memory of workers, for the page on sizing.

    python benchmarks/sizing.py [memory|minimum|time] [--quick] [--folder DIR] [--mib 512]

Each measurement runs in a new process, after the compiled loops are loaded. Memory is the peak minus the memory before
the run, and does not depend on other load of the machine; measure times on a quiet machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time as clock
from bisect import bisect
from pathlib import Path

from marks import Report
from text_workload import N_FEATURES, write_rcv1_like

PARTS = ("memory", "minimum", "time")
ROOT = Path(__file__).parent.parent
COMPONENTS = 512
BASE_BYTES = 4 << 20
"""Size of the random text; larger files repeat it."""

CHILD = """
import json, sys, threading, time
import psutil, dkfeat
from dkfeat.config import ExecutionConfig

def main():
    small, source, target, asked = sys.argv[1:]
    asked = json.loads(asked)
    settings = dict(n_features=asked["columns"], zero_based=False, label_dtype="int64", blocksize=asked["block"])
    gcws = dkfeat.GCWSFeatures(asked["components"], random_state=0)
    warm = dkfeat.LibsvmSource(small, **settings)
    dkfeat.featurize(warm, target + "-warm", gcws, progress=False, client=ExecutionConfig(scheduler="synchronous"))
    process = psutil.Process()
    idle = peak = process.memory_info().rss
    running = True

    def watch():
        nonlocal peak
        while running:
            peak = max(peak, process.memory_info().rss)
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    rows = dkfeat.LibsvmSource(source, **settings)
    planned = dkfeat.plan(rows, map=gcws)
    manifest = dkfeat.featurize(rows, target, gcws, progress=False, client=ExecutionConfig(**asked["where"]))
    seconds = time.perf_counter() - began
    running = False
    watcher.join()
    size = sum(shard.size for shard in manifest.shards) / len(manifest.shards)
    found = {"tasks": len(planned.tasks), "planned_mib": planned.projected_bytes / 2**20, "rows": manifest.rows}
    found |= {"shards": len(manifest.shards), "shard_mib": size / 2**20}
    found |= {"idle_mib": idle / 2**20, "peak_mib": (peak - idle) / 2**20, "seconds": seconds}
    print(json.dumps(found))

if __name__ == "__main__":
    main()
"""

LIMITED = """
import dask
from dkfeat.cli import main
from dkfeat.engine import plan
from dkfeat.engine.clusters import local

if __name__ == "__main__":  # no check of limits, workers that pause as Dask's do, and any lost worker ends the run
    local.LEAST_MEMORY = 0
    plan.Plan.check = lambda *_: None
    local.SETTINGS["distributed.worker.memory.pause"] = 0.8
    with dask.config.set({"distributed.scheduler.allowed-failures": 0, "dkfeat.no-worker-seconds": 5}):
        main()
"""
MAPS = ("gcws", "dart", "fourier", "laplace", "maclaurin", "nystroem")
LIMITS = range(304, 560, 16)
"""Memory limits of a worker that are tried, in MiB."""


def text_of(folder, n_bytes):
    """Write a file of about this many bytes, unless it exists."""
    base = folder / "base.svm"
    if not base.exists():
        write_rcv1_like(base, min(BASE_BYTES, n_bytes))
    path = folder / f"{n_bytes}.svm"
    if not path.exists():
        block = base.read_bytes()
        with path.open("wb") as file:
            for _ in range(max(1, round(n_bytes / len(block)))):
                file.write(block)
    return path


def measured(folder, source, block, **where):
    """Measure a new process that featurizes a file."""
    target = folder / "features"
    script = folder / "child.py"
    script.write_text(CHILD)
    asked = {"columns": N_FEATURES, "components": COMPONENTS, "block": block, "where": where}
    arguments = [folder / "base.svm", source, target, json.dumps(asked)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)], env=variables, capture_output=True, text=True, check=False
    )
    for path in (target, folder / "features-warm"):
        shutil.rmtree(path, ignore_errors=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


emit = Report("sizing").emit


def memory(folder, quick):
    """Measure the memory of one task by block size, and of several tasks in one process by threads."""
    for mib in (1,) if quick else (4, 16, 64, 128):
        source = text_of(folder, 2 * mib << 20)
        found = measured(folder, source, mib << 20, scheduler="synchronous")
        emit("memory by blocksize", blocksize_mib=mib, ratio=found["peak_mib"] / found["planned_mib"], **found)
    block = 1 if quick else 16
    for threads in (2,) if quick else (1, 2, 4):
        source = text_of(folder, 8 * block << 20)
        found = measured(folder, source, block << 20, scheduler="threads", n_workers=threads)
        emit("memory by threads", blocksize_mib=block, threads=threads, **found)


def minimum(folder, quick):
    """Find the least memory limit of one worker with which each command completes, by bisection."""
    block = 1 if quick else 4
    text, few = str(text_of(folder, 8 * block << 20)), str(text_of(folder, 1 << 20))
    shards, model, copies, out = (str(folder / name) for name in ("shards", "model", "copies", "out"))
    rows = [text, "--blocksize", f"{block}MiB", "--n-components", str(COMPONENTS), "--out"]
    succeeds(folder, ["featurize", *rows, shards], 600)
    succeeds(folder, ["train", shards, "--out", model], 600)
    succeeds(folder, ["duplicates", shards, "--out", copies], 600)
    commands = {f"featurize --map {name}": ["featurize", *rows, out, "--map", name] for name in MAPS}
    commands |= {
        "train": ["train", shards, "--out", out],
        "predict": ["predict", model, text, "--out", out],
        "evaluate": ["evaluate", model, shards],
        "neighbors": ["neighbors", shards, few, "--out", out],
        "duplicates": ["duplicates", shards, "--out", out],
        "drop-duplicates": ["drop-duplicates", shards, copies, "--out", out],
    }
    for name, words in list(commands.items())[:: 6 if quick else 1]:
        limited = [*words, "--n-workers", "1", "--memory-limit"]
        began = clock.monotonic()
        if not succeeds(folder, [*limited, f"{LIMITS[-1]}MiB"], 600):
            raise SystemExit(f"{name} fails with {LIMITS[-1]} MiB")
        most = 20 + 3 * (clock.monotonic() - began)
        limits = LIMITS[7::8] if quick else LIMITS
        found = bisect(limits, False, key=lambda mib: succeeds(folder, [*limited, f"{mib}MiB"], most))
        emit("minimum", command=name, blocksize_mib=block, limit_mib=limits[found])


def succeeds(folder, words, seconds):
    """Run a command of dkfeat and remove its results; return True if it succeeds within this time."""
    script = folder / "limited.py"
    script.write_text(LIMITED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "limited.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, script, *words], env=environment, stdout=log, stderr=log)
        try:
            done = process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            done = False
            process.terminate()  # it stops its workers
            process.wait(60)
    for path in folder.glob("out*"):
        shutil.rmtree(path, ignore_errors=True)
    return done


def time(folder, quick, total):
    """Measure the time for one file by block size, threads and processes."""
    cores = os.cpu_count() or 1
    source = text_of(folder, (8 if quick else total) << 20)
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= cores]
    repeats = 1 if quick else 3

    def best(what, block, **where):
        runs = [measured(folder, source, block << 20, **where) for _ in range(repeats)]
        found = min(runs, key=lambda run: run["seconds"])
        emit(what, blocksize_mib=block, **where, rows_per_second=found["rows"] / found["seconds"], **found)

    for block in (1,) if quick else (1, 4, 16, 64, 128):
        best("time by blocksize", block, scheduler="threads", n_workers=cores)
    block = 1 if quick else 16
    for count in counts[:1] if quick else counts:
        best("time by threads", block, scheduler="threads", n_workers=count)
    for count in counts[-1:] if quick else counts:
        best("time by processes", block, scheduler="cluster", n_workers=count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="memory, minimum, time; default: memory and time")
    parser.add_argument("--quick", action="store_true", help="small files: a check that it runs, not a measurement")
    parser.add_argument("--folder", type=Path, help="folder for files; the text is kept for the next run")
    parser.add_argument("--mib", type=int, default=512, help="text that is timed, in MiB (default: 512)")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"PART is one of {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        parts = args.parts or ("memory", "time")
        if "memory" in parts:
            memory(folder, args.quick)
        if "minimum" in parts:
            minimum(folder, args.quick)
        if "time" in parts:
            time(folder, args.quick, args.mib)


if __name__ == "__main__":
    main()
