"""Accuracy of a model that continues on the rows of each night, against one training on all rows.

    python benchmarks/continued.py [--quick] [--nights 10]

Rows of the data sets in DKFEAT_DATA are shuffled and cut into nights.
"""

import argparse
import lzma
import os
import tempfile
from pathlib import Path

import numpy as np
from marks import Report

import dkfeat

SETS = ("letter", "adult_a9a", "satimage")

emit = Report("continued").emit


def measure(name, folder, count):
    """Train on all rows, on those of the first night, and from there on those of one night after another."""
    given = Path(os.environ["DKFEAT_DATA"]) / name
    lines = lzma.decompress((given / "train.svm.xz").read_bytes()).decode().splitlines(keepends=True)
    np.random.default_rng(0).shuffle(lines)
    (folder / "all.svm").write_text("".join(lines))
    gcws = dkfeat.GCWSFeatures(n_components=256, random_state=0)
    dkfeat.featurize(folder / "all.svm", folder / "all", gcws, progress=False)
    dkfeat.featurize(given / "test.svm.xz", folder / "test", like=folder / "all", progress=False)
    nights = []
    for night, rows in enumerate(np.array_split(lines, count)):
        nights.append(folder / f"night-{night}")
        path = folder / f"night-{night}.svm"
        path.write_text("".join(rows))
        dkfeat.featurize(path, nights[-1], like=folder / "all", progress=False)
    shared = {"test": folder / "test", "progress": False}
    anew, model = (dkfeat.train(shards, **shared) for shards in (folder / "all", nights[0]))
    found = {"first_night": model, "all_rows": anew}
    for shards in nights[1:]:
        model = dkfeat.train(shards, init=model, **shared)
    found["continued"] = model
    accuracies = {key: round(each.history[-1]["test_accuracy"], 4) for key, each in found.items()}
    emit(name, nights=count, ratio=round(accuracies["continued"] / accuracies["all_rows"], 4), **accuracies)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one data set: a check that it runs, not a measurement")
    parser.add_argument("--nights", type=int, default=10)
    args = parser.parse_args()
    for name in SETS[-1:] if args.quick else SETS:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, Path(folder), args.nights)


if __name__ == "__main__":
    main()
