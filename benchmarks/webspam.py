"""Webspam at full width: text to shards to a model, and accuracy on 500 real rows.

    DKFEAT_DATA=DIR python benchmarks/webspam.py [rows|job|accuracy] [--quick] [--rows 35000] [--folder DIR]

`rows` compares drawn rows with real ones (webspam_rows.py). `job` runs the commands `featurize` and `train` on drawn
rows, 35,000 and a tenth of them, and extrapolates to the set's 350,000. Times are of whole processes, with compiled
loops in the cache; memory is the sum over the processes of a command. Scikit-learn's loader and datasketch run on 100
rows, and their time is extrapolated. `accuracy` trains linear machines on features of the real rows. The exit status is
1 if a target is missed; the elapsed time needs two cores without other load. Needs the extra `bench`.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import psutil
from datasketch import WeightedMinHashGenerator
from marks import Report
from paired import cpu_seconds
from scipy.sparse import csr_matrix
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from sklearn.svm import SVC, LinearSVC
from webspam_rows import N_FEATURES, WebspamRows, real_rows, report, write

import dkfeat
from dkfeat.config import ExecutionConfig

PARTS = ("rows", "job", "accuracy")
ALL_ROWS, COMPONENTS, EPOCHS, PEER_ROWS = 350_000, 512, 5, 100
MAPS = {
    "dart": lambda k, bits, seed: dkfeat.DartFeatures(k, bits=bits, random_state=seed),
    "gcws": lambda k, bits, seed: dkfeat.GCWSFeatures(k, i_bits=bits, random_state=seed),
}
OPTIONS = {"dart": ("--map", "dart", "--bits", 8), "gcws": ("--map", "gcws", "--i-bits", 8)}
SOURCE = ("--n-features", N_FEATURES, "--zero-based", "false", "--label-dtype", "int64", "--no-progress")
WAYS = {
    "2 threads": ("--scheduler", "threads", "--n-workers", 2),
    "2 worker processes": ("--scheduler", "cluster", "--n-workers", 2, "--threads-per-worker", 1),
}
RUNS = (("dart", "2 threads"), ("dart", "2 worker processes"), ("gcws", "2 threads"))
TARGETS = {"minutes for all rows": 5.0, "time": 10.5, "memory": 1.05}
"""Most for darts; time and memory as ratios for ten times the rows."""
GRID = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
N_TRAIN, SEEDS, REPEATS = 300, 5, 3
REPORT = Report("webspam")


def measured(*arguments):
    """Run a command of dkfeat, and measure its wall time, processor time and peak memory."""
    command = [sys.executable, "-c", "from dkfeat.cli import main; main()", *map(str, arguments)]
    before, started, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), 0
    with psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            peak = max(peak, memory_of(process))
            time.sleep(0.02)
        if process.returncode:
            sys.exit(f"dkfeat {' '.join(command[3:])} failed:\n{process.stderr.read()}")
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 2), "cpu": round(cpu, 2), "peak_MB": round(peak / 1e6)}


def memory_of(process):
    total = 0
    for each in (process, *process.children(recursive=True)):
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:  # ended since the list was made
            continue
    return total


def run_job(path, n_rows, name, way, folder):
    shards, model = folder / "features", folder / "model"
    for old in (shards, model):
        shutil.rmtree(old, ignore_errors=True)
    options = (*OPTIONS[name], "--n-components", COMPONENTS, *WAYS[way])
    made = measured("featurize", path, *SOURCE, *options, "--out", shards)
    trained = measured("train", shards, "--epochs", EPOCHS, *WAYS[way], "--out", model, "--no-progress")
    whole = {key: round(made[key] + trained[key], 2) for key in ("seconds", "cpu")}
    whole["peak_MB"] = max(made["peak_MB"], trained["peak_MB"])
    return REPORT.emit(f"{name}, {way}", rows=n_rows, featurize=made, train=trained, **whole)


def of_all_rows(small, large, key):
    """Extrapolate seconds to minutes for all rows: the start of processes is not repeated."""
    per_row = (large[key] - small[key]) / (large["rows"] - small["rows"])
    return (large[key] + per_row * (ALL_ROWS - large["rows"])) / 60


def stages(path, n_rows, name, folder):
    """Measure the processor time of each stage of `featurize`, on one thread of this process: the least of repeats."""
    source = dkfeat.LibsvmSource(str(path), n_features=N_FEATURES, zero_based=False, label_dtype="int64")
    fitted = MAPS[name](COMPONENTS, 8, 0).fit(csr_matrix((1, N_FEATURES), dtype=np.float32))

    def read(use=None, *, checksum=False):
        for split in source.splits():
            for piece in source.read(split, checksum=checksum):
                if use is not None:
                    use(piece.block.X)

    def featurize():
        shutil.rmtree(folder / "stages", ignore_errors=True)
        where = ExecutionConfig(scheduler="synchronous")
        dkfeat.featurize(source, folder / "stages", fitted, progress=False, client=where)

    featurize()  # loads the compiled loops
    calls = read, lambda: read(checksum=True), lambda: read(fitted.encode), featurize
    parsed, hashed, encoded, whole = (min(cpu_seconds(call) for _ in range(REPEATS)) for call in calls)
    spent = {"parse": parsed, "SHA-256 of the text": hashed - parsed, "map": encoded - parsed}
    spent["shards and commit"] = whole - sum(spent.values())
    REPORT.emit(
        f"stages of featurize, {name}",
        rows=n_rows,
        parse_MB_per_second=round(path.stat().st_size / 1e6 / parsed),
        microseconds_a_row={stage: round(seconds / n_rows * 1e6, 1) for stage, seconds in spent.items()},
    )


def peer_minutes(path, folder):
    """Extrapolate the processor time of scikit-learn's loader and datasketch from few rows.

    The columns of these rows are numbered without gaps: tables for all columns would take 100 GB. Their time is not
    counted.
    """
    few = folder / "first.svm"
    with path.open() as file, few.open("w") as target:
        target.writelines(line for line, _ in zip(file, range(PEER_ROWS), strict=False))
    X, y = load_svmlight_file(str(few), n_features=N_FEATURES)
    columns, numbers = np.unique(X.indices, return_inverse=True)
    rows = csr_matrix((X.data, numbers, X.indptr))
    generator = WeightedMinHashGenerator(len(columns), sample_size=COMPONENTS, seed=1)
    load = cpu_seconds(lambda: load_svmlight_file(str(few), n_features=N_FEATURES))
    sketch = cpu_seconds(lambda: generator.minhash_many(rows))
    REPORT.emit("scikit-learn, datasketch", rows=len(y), load_cpu=round(load, 2), sketch_cpu=round(sketch, 2))
    return (load + sketch) / len(y) * ALL_ROWS / 60


def job(real, y, quick, n_rows, folder):
    """Measure the job, and mark what darts take."""
    rows, sizes, paths = WebspamRows(real, y), (n_rows // 10, n_rows), []
    for size in sizes:
        paths.append(folder / f"rows-{size}.svm")
        write(paths[-1], rows, size)
        REPORT.emit("text", rows=size, MB=round(paths[-1].stat().st_size / 1e6, 1))
    del rows
    REPORT.emit("machine", cores=os.cpu_count(), load=round(os.getloadavg()[0], 1))
    stages(paths[0], sizes[0], "dart", folder)
    run_job(paths[0], sizes[0], "gcws", "2 threads", folder)  # compiles loops, those of training too
    peer, table = peer_minutes(paths[0], folder), []
    for name, way in RUNS[: 1 if quick else None]:
        small, large = (run_job(*of, name, way, folder) for of in zip(paths, sizes, strict=True))
        minutes, cpu = (of_all_rows(small, large, key) for key in ("seconds", "cpu"))
        ratios = {f"{key}_of_ten_times": round(large[key] / small[key], 3) for key in ("seconds", "cpu", "peak_MB")}
        REPORT.emit(
            f"{name}, {way}, all rows", minutes=round(minutes, 2), cpu=round(cpu, 2), ratio=round(peer / cpu), **ratios
        )
        table.append((f"{name}, {way}", large, minutes, cpu))
        if name == "dart":
            reached = {"minutes for all rows": minutes, "time": ratios["seconds_of_ten_times"]}
            reached["memory"] = ratios["peak_MB_of_ten_times"]
            for what, value in reached.items():
                REPORT.mark(f"darts, {way}, {what}", value, most=TARGETS[what])

    print(f"\nk = {COMPONENTS}, 8 bits{'seconds':>28}{'processor seconds':>24}{'minutes, all rows':>28}")
    heads = f"{n_rows:,} rows", *("featurize", "train") * 2, "MB", "elapsed", "processor", "ratio"
    print("{:<32}{:>10}{:>10}{:>10}{:>10}{:>8}{:>10}{:>10}{:>8}".format(*heads))
    for what, run, minutes, cpu in table:
        cells = (run[part][key] for key in ("seconds", "cpu") for part in ("featurize", "train"))
        print(f"{what:<32}" + "".join(f"{cell:>10.1f}" for cell in cells), end="")
        print(f"{run['peak_MB']:>8,}{minutes:>10.1f}{cpu:>10.1f}{peer / cpu:>8.0f}")
    print(f"{f'scikit-learn, datasketch: {PEER_ROWS} rows':<90}{peer:>10,.0f}{1:>8}")


def best_accuracy(machine, parts, y):
    """Test accuracy in percent at the best C, of the mean over several features."""
    scores = np.zeros(len(GRID))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for train, test in parts:
            scores += [100 * machine(C).fit(train, y[:N_TRAIN]).score(test, y[N_TRAIN:]) for C in GRID]
    return round(float(scores.max()) / len(parts), 2)


def accuracy(real, y, quick):
    """Print the accuracy on the real test rows by map, bits and components, beside linear and exact GMM machines."""

    def linear(C):
        return LinearSVC(C=C, random_state=0)

    def cut(X):
        return X[:N_TRAIN], X[N_TRAIN:]

    references = {
        "linear": best_accuracy(linear, [cut(normalize(real))], y),
        "exact GMM": best_accuracy(
            lambda C: SVC(kernel="precomputed", C=C), [cut(dkfeat.kernels.gmm(real, real[:N_TRAIN]))], y
        ),
    }
    REPORT.emit("accuracy", **references)
    sizes = (64, 128) if quick else (64, 128, 256, 512, 1024, 2048, 4096)
    seeds = range(1 if quick else SEEDS)
    table = {}
    for name, make in MAPS.items():
        for bits in (4, 8):
            for k in sizes:
                parts = [cut(normalize(make(k, bits, seed).fit_transform(real))) for seed in seeds]
                table[name, bits, k] = best_accuracy(linear, parts, y)
            of_sizes = {str(k): table[name, bits, k] for k in sizes}
            REPORT.emit("accuracy", map=name, bits=bits, seeds=len(seeds), **of_sizes)
    print(f"\n{'accuracy, %, by k':<20}" + "".join(f"{k:>8,}" for k in sizes))
    for name in MAPS:
        for bits in (4, 8):
            print(f"{f'{name}, {bits} bits':<20}" + "".join(f"{table[name, bits, k]:>8.2f}" for k in sizes))
    print("".join(f"{name:<20}{value:>8.2f}\n" for name, value in references.items()), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="rows, job, accuracy; default: all")
    parser.add_argument("--quick", action="store_true", help="few rows: a check that it runs, not a measurement")
    parser.add_argument("--rows", type=int, default=35_000)
    parser.add_argument("--folder", type=Path, help="folder for files; the text is kept for the next run")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"PART is one of {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    if "DKFEAT_DATA" not in os.environ:
        print("skipped: DKFEAT_DATA does not name the folder of the papers' data sets")
        return 0
    parts = args.parts or PARTS
    real, y = real_rows(Path(os.environ["DKFEAT_DATA"]))
    if "rows" in parts:
        for record in report(real, y, quick=args.quick):
            REPORT.emit(**record)
    if "job" in parts:
        with tempfile.TemporaryDirectory() as temporary:
            folder = args.folder or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            job(real, y, args.quick, 200 if args.quick else args.rows, folder)
    if "accuracy" in parts:
        accuracy(real, y, args.quick)
    return REPORT.end(quick=args.quick)


if __name__ == "__main__":
    sys.exit(main())
