"""Text to shards in whole processes, compared with a script of scikit-learn and datasketch.

    python benchmarks/job.py [--quick] [--rows 200000] [--folder DIR]

Measures wall times of whole processes, including their start, and CPU seconds, which do not depend on other load of
the machine. The script runs on few rows, and its time per row is extrapolated.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from marks import Report

COLUMNS, NONZEROS, COMPONENTS = 47_236, 75, 512
BLOCK = 16 << 20
CLUSTER_BLOCK = 12 << 20  # more tasks, so that two workers share them evenly
REPEATS = 5
SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

USER_SCRIPT = """
import sys, time
started = time.perf_counter()
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from datasketch import WeightedMinHashGenerator
from sklearn.datasets import load_svmlight_file
path, n_columns, n_components, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
generator = WeightedMinHashGenerator(n_columns, sample_size=n_components, seed=1)
fixed = time.perf_counter() - started
started = time.perf_counter()
X, y = load_svmlight_file(path, n_features=n_columns, dtype=np.float32)
codes = np.empty((X.shape[0], n_components), np.uint8)
for start in range(0, X.shape[0], 1000):
    for row, sketch in enumerate(generator.minhash_many(X[start:start + 1000]), start):
        codes[row] = sketch.hashvalues[:, 0] % 256
table = pa.table({"label": y, "codes": pa.array([row.tobytes() for row in codes], pa.binary(n_components))})
pq.write_table(table, out)
print(fixed, time.perf_counter() - started, X.shape[0])
"""


def write_rows(path, n_rows, seed=7):
    """Write W2 as text, unless the file exists: Zipf(1) columns, log-normal values, unit rows, eight digits."""
    if path.exists():
        return
    rng = np.random.default_rng(seed)
    cumulated = np.cumsum(1 / np.arange(1, COLUMNS + 1))
    cumulated /= cumulated[-1]
    columns = rng.permutation(COLUMNS) + 1
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        for _ in range(n_rows):
            n = max(5, int(rng.lognormal(np.log(NONZEROS) - 0.125, 0.5)))
            drawn = np.empty(0, int)
            while len(drawn) < n:
                more = np.searchsorted(cumulated, rng.random(n)).clip(0, COLUMNS - 1)
                drawn = np.unique(np.concatenate([drawn, more]))
            chosen = np.sort(columns[rng.permutation(drawn)[:n]])
            values = rng.lognormal(0, 1, n)
            values /= np.sqrt(values @ values)
            cells = " ".join(f"{c}:{v:.8g}" for c, v in zip(chosen.tolist(), values.tolist(), strict=True))
            file.write(f"{2 * int(rng.random() < 0.5) - 1} {cells}\n")
    temporary.replace(path)


emit = Report("job").emit


def timed(command, cache=None):
    environment = {**os.environ, **SINGLE, **({"NUMBA_CACHE_DIR": str(cache)} if cache else {})}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, done.stdout


def featurize(path, folder, cache, *options):
    out = folder / "features"
    shutil.rmtree(out, ignore_errors=True)
    program = "from dkfeat.cli import main; main()"
    command = [sys.executable, "-c", program, "featurize", str(path), "--n-components", str(COMPONENTS)]
    command += ["--i-bits", "8", "--blocksize", str(BLOCK), "--out", str(out), "--no-progress", *options]
    seconds, cpu, _ = timed(command, cache)
    return seconds, cpu, out


def user_script(path, folder, n_rows, n_measured):
    few = folder / "few.svm"
    with path.open() as file, few.open("w") as target:
        target.writelines(line for line, _ in zip(file, range(n_measured), strict=False))
    command = [sys.executable, "-c", USER_SCRIPT, str(few), str(COLUMNS), str(COMPONENTS), str(folder / "user.parquet")]
    whole, cpu, text = timed(command)
    fixed, rest, rows = (float(word) for word in text.split())
    start_up = whole - rest
    seconds = start_up + rest * n_rows / rows
    return emit(
        "user's script",
        seconds=round(seconds, 1),
        measured_rows=int(rows),
        measured_seconds=round(whole, 2),
        cpu=round(cpu, 2),
        tables=round(fixed, 2),
        extrapolated=n_rows > rows,
    )


def on_cluster(path, n_rows, folder, n_workers, repeats):
    """Measure the time on warm worker processes, and the increase of their peak memory."""
    import psutil

    import dkfeat
    from dkfeat.engine.clusters.local import local_cluster

    gcws = dkfeat.GCWSFeatures(n_components=COMPONENTS, i_bits=8, random_state=0)
    options = {"n_features": COLUMNS, "zero_based": False, "label_dtype": "int64"}
    few = folder / "few.svm"
    with local_cluster(n_workers, 1) as client:

        def run(source, blocksize):
            target = folder / "on-cluster"
            shutil.rmtree(target, ignore_errors=True)
            source = dkfeat.LibsvmSource(str(source), blocksize=blocksize, **options)
            started = time.perf_counter()
            dkfeat.featurize(source, target, gcws, client=client, progress=False)
            return time.perf_counter() - started

        run(few, few.stat().st_size // (4 * n_workers))  # compiles on every worker
        workers = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        idle = [worker.memory_info().rss for worker in workers]
        above, stop = [0], threading.Event()

        def watch():
            while not stop.wait(0.01):
                now = [worker.memory_info().rss - before for worker, before in zip(workers, idle, strict=True)]
                above[0] = max(above[0], *now)

        thread = threading.Thread(target=watch)
        thread.start()
        seconds = statistics.median(run(path, CLUSTER_BLOCK) for _ in range(repeats))
        stop.set()
        thread.join()
    return emit(
        "warm workers",
        workers=n_workers,
        rows=n_rows,
        seconds=round(seconds, 3),
        idle_MB=round(idle[0] / 1e6, 1),
        above_idle_MB=round(above[0] / 1e6, 1),
        blocksizes=round(above[0] / CLUSTER_BLOCK, 2),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="2,000 rows: a check that it runs, not a measurement")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dkfeat-bench-job")
    args = parser.parse_args()
    n_rows = 2000 if args.quick else args.rows
    args.folder.mkdir(parents=True, exist_ok=True)
    path, tenth = args.folder / f"rows-{n_rows}.svm", args.folder / f"rows-{n_rows // 10}.svm"
    write_rows(path, n_rows)
    write_rows(tenth, n_rows // 10)
    emit("input", rows=n_rows, MB=round(path.stat().st_size / 1e6, 1), cores=os.cpu_count())

    n_measured, repeats = (100, 1) if args.quick else (5000, REPEATS)
    user = user_script(path, args.folder, n_rows, n_measured)["seconds"]
    cache = None if args.quick else args.folder / "cache"
    shutil.rmtree(args.folder / "cache", ignore_errors=True)
    ways = {
        "cold cache, 1 thread": ("--scheduler", "threads", "--n-workers", "1"),
        "1 thread": ("--scheduler", "threads", "--n-workers", "1"),
        "2 threads": ("--scheduler", "threads", "--n-workers", "2"),
        "1 worker process": ("--scheduler", "cluster", "--n-workers", "1", "--threads-per-worker", "1"),
        "2 worker processes": ("--scheduler", "cluster", "--n-workers", "2", "--threads-per-worker", "1"),
    }
    if args.quick:  # nothing is compiled for it, and what only repeats is left out
        ways = {name: ways[name] for name in ("2 threads", "1 worker process")}
    seconds = {}
    for name, options in ways.items():
        seconds[name], cpu, out = featurize(path, args.folder, cache, *options)
        emit(
            f"dkfeat, {name}",
            seconds=round(seconds[name], 2),
            cpu=round(cpu, 2),
            rows_per_second=round(n_rows / seconds[name]),
            ratio=round(user / seconds[name], 1),
        )
    shard_bytes = sum(shard.stat().st_size for shard in (out / "data").iterdir())
    ideal = COMPONENTS + 8  # a byte a code, and an int64 label
    per_row = emit("bytes per row", bytes=round(shard_bytes / n_rows, 2), ratio=round(shard_bytes / n_rows / ideal, 4))
    small, one, two = (
        on_cluster(source, rows, args.folder, workers, repeats)
        for source, rows, workers in ((tenth, n_rows // 10, 1), (path, n_rows, 1), (path, n_rows, 2))
    )
    speed_up = one["seconds"] / two["seconds"]
    emit("two warm worker processes against one", ratio=round(speed_up, 2))

    print(f"\n{n_rows:,} rows of W2, k = {COMPONENTS}, 8 bits{'':<17}seconds  times faster")
    print(f"{f'user script, extrapolated from {n_measured:,} rows':<48}{user:>10.1f}")
    for name, value in seconds.items():
        print(f"{'dkfeat, ' + name:<48}{value:>10.2f}{user / value:>12.1f}")
    print(f"{'two warm worker processes against one':<48}{speed_up:>22.2f}")
    print(f"{'bytes per row, against ' + str(ideal):<48}{per_row['bytes']:>10.2f}{per_row['ratio']:>12.4f}")
    for peak in (small, one):
        label = f"worker's peak above idle, MB, {peak['rows']:,} rows"
        print(f"{label:<48}{peak['above_idle_MB']:>10.1f}{peak['blocksizes']:>12.2f} blocksizes")


if __name__ == "__main__":
    main()
