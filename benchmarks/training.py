"""Training from shards, compared with scikit-learn on the same CSR matrix in memory.

    python benchmarks/training.py [--quick] [--rows 100000] [--folder DIR] [--parts]

Measures the speed of epochs with hinge loss and averaging, in turn in one process: dkfeat's time includes reading,
decoding and shuffling, while the peer has its CSR matrix in memory. Also measures memory for growing numbers of shards
and, with the papers' data sets (DKFEAT_DATA), the time to come within 0.1 points of the accuracy of LinearSVC,
including reading and scoring. Compilation is not counted. The exit status is 1 if a target is missed.

With --parts it prints only the accuracy of training in parts: of RCV1-like rows with noisy labels, of three of the
papers' data sets, and of one of these by other rules of averaging; and how much faster two worker processes are than
one, each on a core of its own.
"""

import argparse
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
from marks import Report
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC
from workloads import rcv1_like

import dkfeat
from dkfeat.engine.clusters.local import local_cluster
from dkfeat.learn.sgd import descent, parallel

COMPONENTS = 512
SETS = ("rcv1", "sector", "adult_a9a")
POINTS = 0.001  # within this distance, the accuracy counts as reached
TARGETS = {2: 1.0, 10: 2.0}  # of processor time, by number of classes
MOST_MEMORY = 1.2
PARTS = {"letter": (2, 4, 8, 15), "rcv1": (2, 8, 20), "w8a": (4, 8, 40)}
RULES = {
    "a mean after each epoch": (1, 0.0, 1.0),
    "a mean after each epoch, steps longer by the root of 15": (1, 0.0, 15**0.5),
    "a mean after each epoch, steps longer by 15": (1, 0.0, 15.0),
    "a mean four times an epoch": (4, 0.0, 1.0),
    "a mean four times an epoch, steps longer by the root of 15": (4, 0.0, 15**0.5),
    "a mean after each epoch, momentum": (1, parallel.MOMENTUM, 1.0),
}
"""Other rules for 15 parts of letter: rounds of an epoch, momentum, and factor of the steps."""
REPORT = Report("training")

PEAK = """
import sys, dkfeat
dkfeat.train(sys.argv[1], dkfeat.SGD(epochs=1, shuffle_rows=1000), progress=False)
# not of getrusage, which has the peak of the process that started this one
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def featurized(X, y, folder, blocksize, copies=1):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    dump_svmlight_file(X, y, str(folder / "rows-0.svm"), zero_based=False)
    for number in range(1, copies):
        os.link(folder / "rows-0.svm", folder / f"rows-{number}.svm")
    source = dkfeat.LibsvmSource(
        str(folder / "rows-*.svm"), n_features=X.shape[1], zero_based=False, label_dtype="int64", blocksize=blocksize
    )
    gcws = dkfeat.GCWSFeatures(n_components=COMPONENTS, random_state=0)
    dkfeat.featurize(source, folder / "shards", gcws, progress=False)
    return dkfeat.open_shards(folder / "shards")


def speed(n_rows, n_classes, folder, epochs):
    """Time epochs of dkfeat and scikit-learn in turn, so that load affects both equally; the first pair is a
    warm-up."""
    X = rcv1_like(n_rows)
    rules = np.random.default_rng(1).normal(size=(X.shape[1], n_classes))
    scores = X @ rules
    y = np.where(scores[:, 0] > scores[:, 1], 1, -1) if n_classes == 2 else scores.argmax(axis=1)
    data = featurized(X, y, folder, "4MiB")
    del X, scores, rules
    features, labels = data.to_scipy()
    features.data /= COMPONENTS**0.5
    peer = SGDClassifier(alpha=1e-6, learning_rate="constant", eta0=1.0, average=True, random_state=0)
    peer.partial_fit(features[:100], labels[:100], classes=np.unique(labels))
    pairs, began = [], clocks()

    def epoch_ended(_):
        nonlocal began
        between = clocks()
        peer.partial_fit(features, labels)
        ended = clocks()
        pairs.append((between - began, ended - between))
        began = clocks()

    dkfeat.train(data, dkfeat.SGD(loss="hinge", epochs=epochs + 1), progress=epoch_ended)
    wall, processor = (
        {
            "rows_per_second": round(n_rows / np.median([ours[clock] for ours, _ in pairs[1:]])),
            "peer_rows_per_second": round(n_rows / np.median([theirs[clock] for _, theirs in pairs[1:]])),
            "ratio": round(float(np.median([theirs[clock] / ours[clock] for ours, theirs in pairs[1:]])), 3),
        }
        for clock in (0, 1)
    )
    what = {"rows": n_rows, "classes": n_classes, "shards": data.n_shards, "pairs": epochs}
    rate = round(wall["rows_per_second"] / n_rows, 3)
    REPORT.emit("epoch from shards", **what, epochs_per_second=rate, **wall, processor_time=processor)
    name = f"epoch of {n_classes} classes from shards, against partial_fit in memory"
    REPORT.mark(name, processor["ratio"], least=TARGETS[n_classes])


def clocks():
    return np.array([time.perf_counter(), time.process_time()])


def memory(n_rows, folder):
    X = rcv1_like(n_rows)
    y = np.where(X @ np.random.default_rng(1).normal(size=X.shape[1]) > 0, 1, -1)
    peaks = []
    for copies in (1, 4, 16):
        shards = featurized(X, y, folder, "256KiB", copies)
        text = subprocess.run(
            [sys.executable, "-c", PEAK, str(folder / "shards")], capture_output=True, text=True, check=True
        ).stdout
        peaks.append(int(text) / 1024)
        REPORT.emit("memory", shards=shards.n_shards, rows=shards.n_rows, peak_MiB=round(peaks[-1], 1))
    REPORT.emit("memory of 16 times the shards", ratio=round(peaks[-1] / peaks[0], 3))
    REPORT.mark("peak memory with 16 times the shards", peaks[-1] / peaks[0], most=MOST_MEMORY)


def reached(name, root, folder):
    """Measure the time until training from shards reaches the accuracy of LinearSVC on the same features."""
    shards = {}
    (folder / name).mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        target = folder / name / part
        shutil.rmtree(target, ignore_errors=True)
        gcws = None if shards else dkfeat.GCWSFeatures(n_components=COMPONENTS, random_state=0)
        like = folder / name / "train" if shards else None
        dkfeat.featurize(root / name / f"{part}.svm.xz", target, gcws, like=like, progress=False)
        shards[part] = dkfeat.open_shards(target)
    X, y = shards["train"].to_scipy()
    X.data /= COMPONENTS**0.5
    X_test, y_test = shards["test"].to_scipy()
    X_test.data /= COMPONENTS**0.5
    started = time.perf_counter()
    aim = LinearSVC(random_state=0).fit(X, y).score(X_test, y_test)
    theirs = time.perf_counter() - started
    del X, X_test
    seen, started = [], 0.0

    def epoch_ended(entry):
        seen.append((time.perf_counter() - started, entry["test_accuracy"]))

    dkfeat.train(shards["train"], dkfeat.SGD(epochs=1), test=shards["test"], progress=False)  # compiles
    started = time.perf_counter()
    dkfeat.train(shards["train"], test=shards["test"], progress=epoch_ended)
    ours = next((seconds for seconds, accuracy in seen if accuracy >= aim - POINTS), None)
    best = max(accuracy for _, accuracy in seen)
    values = {"accuracy": round(aim, 4), "best": round(best, 4), "peer_seconds": round(theirs, 2)}
    if ours is not None:
        values |= {"seconds": round(ours, 2), "ratio": round(theirs / ours, 3)}
    REPORT.emit(f"time to the accuracy of LinearSVC, {name}", **values)
    REPORT.mark(f"{name}, accuracy, that of LinearSVC less 0.1 points", best, least=round(aim - POINTS, 4))


def rcv1_like_files(n_rows, folder):
    """Write training rows and 30,000 test rows, whose labels depend on products of sums of columns, and on chance."""
    X, rng = rcv1_like(n_rows + 30_000), np.random.default_rng(1)
    linear, first, second = (X @ rng.normal(size=(X.shape[1], 3))).T
    noise = rng.normal(size=X.shape[0])
    y = np.where(
        linear / linear.std() + first * second / (2 * first.std() * second.std()) + 0.7 * noise > 0,
        1,
        -1,
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", slice(n_rows)), ("test", slice(n_rows, None))):
        dump_svmlight_file(X[rows], y[rows], str(folder / f"{name}.svm"), zero_based=False)


def accuracy_of_parts(name, counts, folder, epochs):
    """Train on 60 shards of Darts, or four for each of the most parts, in several numbers of parts."""
    for part in ("train", "test"):
        shutil.rmtree(folder / part, ignore_errors=True)
    train = folder / "train.svm"
    source = dkfeat.LibsvmSource(str(train), blocksize=train.stat().st_size // max(60, 41 * counts[-1] // 10))
    darts = dkfeat.DartFeatures(n_components=256, bits=8, random_state=0)
    dkfeat.featurize(source, folder / "train", darts, progress=False)
    dkfeat.featurize(str(folder / "test.svm"), folder / "test", like=folder / "train", progress=False)
    for parts in (None, *counts):
        solver = dkfeat.SGD(parts=parts, epochs=epochs, alpha=1e-6)
        model = dkfeat.train(folder / "train", solver, test=folder / "test", progress=False)
        accuracy = round(100 * model.history[-1]["test_accuracy"], 2)
        REPORT.emit(f"accuracy in parts, {name}", parts=parts or 1, percent=accuracy)


def other_rules(n_parts, folder, epochs):
    """Train on the shards of `accuracy_of_parts` by other rules of averaging; threads run the parts."""
    solver = dkfeat.SGD(parts=n_parts, epochs=epochs, alpha=1e-6)
    for name, (rounds, momentum, factor) in RULES.items():
        losses = {loss: (number, factor * step) for loss, (number, step) in descent.LOSSES.items()}
        with patch.multiple(parallel, ROUNDS=rounds, MOMENTUM=momentum), patch.object(descent, "LOSSES", losses):
            model = dkfeat.train(folder / "train", solver, test=folder / "test", progress=False)
        accuracy = round(100 * model.history[-1]["test_accuracy"], 2)
        REPORT.emit(f"accuracy in parts, letter, {name}", parts=n_parts, percent=accuracy)


def bind(core):
    """Bind all threads of this process to a core."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def cost(client, shards, solver):
    """Return elapsed seconds of a training, and processor seconds of the busiest worker and of this process."""
    before, began = client.run(time.process_time), clocks()
    dkfeat.train(shards, solver, client=client, progress=False)
    elapsed, driver = clocks() - began
    after = client.run(time.process_time)
    return elapsed, max(after[worker] - before[worker] for worker in after), driver


def two_workers(n_parts, shards, epochs, repeats):
    """Train on one worker process and on two, in turn, each bound to a core as if it had no other."""
    solver = dkfeat.SGD(parts=n_parts, epochs=epochs, alpha=1e-6)
    cores = sorted(os.sched_getaffinity(0))
    with local_cluster(1, 1) as one, local_cluster(2, 1) as two:
        for client in (one, two):
            for worker, core in zip(client.nthreads(), cores, strict=False):
                client.run(bind, core, workers=[worker])
            cost(client, shards, solver)
        runs = np.array([[cost(client, shards, solver) for client in (one, two)] for _ in range(repeats)])
    one, two = np.median(runs, axis=0).round(2).tolist()
    REPORT.emit(f"elapsed, busiest worker, driver with scheduler, {n_parts} parts", one=one, two=two)
    for name, seconds in (("elapsed", runs[:, :, 0]), ("processor time", runs[:, :, 1:].sum(axis=2))):
        ratio = np.median(seconds[:, 0] / seconds[:, 1])
        REPORT.mark(f"two worker processes against one, {name}", ratio, least=1.6)


def in_parts(n_rows, root, folder, quick):
    counts = (2,) if quick else (8, 32, 56, 200)[: 4 if n_rows >= 200 * parallel.PART_ROWS else 3]
    rcv1_like_files(n_rows, folder / "like")
    accuracy_of_parts(f"{n_rows:,} RCV1-like rows", counts, folder / "like", 5)
    two_workers(counts[-1], folder / "like" / "train", 5, 1 if quick else 5)
    for name, counts in PARTS.items() if root and not quick else ():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for part in ("train", "test"):
            text = lzma.decompress((Path(root) / name / f"{part}.svm.xz").read_bytes())
            (folder / name / f"{part}.svm").write_bytes(text)
        accuracy_of_parts(name, counts, folder / name, 10)
        if name == "letter":
            other_rules(15, folder / name, 10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows: a check that it runs, not a measurement")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dkfeat-bench-training")
    parser.add_argument("--parts", action="store_true", help="measure only the accuracy of training in parts")
    args = parser.parse_args()
    n_rows = 2000 if args.quick else args.rows
    if args.parts:
        in_parts(n_rows, os.environ.get("DKFEAT_DATA"), args.folder / "parts", args.quick)
        return REPORT.end(quick=args.quick)
    for n_classes in TARGETS:
        speed(n_rows, n_classes, args.folder / "speed", 2 if args.quick else 9)
    memory(500 if args.quick else n_rows // 10, args.folder / "memory")
    root = os.environ.get("DKFEAT_DATA")
    if args.quick or not root:
        why = "--quick" if args.quick else "DKFEAT_DATA does not name the folder of the papers' data sets"
        print(f"time to the accuracy of LinearSVC: skipped, {why}")
    else:
        for name in SETS:
            reached(name, Path(root), args.folder)
    return REPORT.end(quick=args.quick)


if __name__ == "__main__":
    sys.exit(main())
