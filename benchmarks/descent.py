"""Epochs of gradient descent on GCWS features in memory, compared with scikit-learn's.

    DKFEAT_DATA=DIR python benchmarks/descent.py [--quick]

Both train on one thread, with averaging. After one untimed epoch of each, pairs of epochs are timed in turn by
processor time.
"""

import lzma
import os
import sys
from pathlib import Path

import numpy as np
from paired import compare, run
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import SGDClassifier

from dkfeat import GCWSFeatures
from dkfeat.learn.sgd.descent import Descent, DescentConfig, Variant, Weights

COMPONENTS, ALPHA = 512, 1e-6
SETS = ("rcv1", "spambase", "satimage", "letter")
TARGET = 1.0


def epochs(name, loss, quick):
    with lzma.open(Path(os.environ["DKFEAT_DATA"]) / name / "train.svm.xz") as file:
        X, y = load_svmlight_file(file)
    rows = np.random.default_rng(0).permutation(len(y))[: 500 if quick else None]
    gcws, y = GCWSFeatures(n_components=COMPONENTS, i_bits=8, random_state=0).fit(X), y[rows]
    codes = gcws.encode(X[rows])
    classes = np.unique(y)
    settings = DescentConfig(
        task="binary" if len(classes) == 2 else "multiclass",
        classes=classes,
        variants=(Variant(loss, ALPHA),),
        code_bits=8,
        scale=COMPONENTS**-0.5,
    )
    descent = Descent(Weights.zeros(settings, gcws.n_features_out), settings)
    scaled = gcws.decode(codes) * np.float32(COMPONENTS**-0.5)
    peer = SGDClassifier(loss=loss, alpha=ALPHA, learning_rate="constant", eta0=1.0, average=True, shuffle=False)
    peer.partial_fit(scaled[:1], y[:1], classes=classes)
    return compare(
        f"{name}, {len(classes)} classes, {loss}",
        lambda: descent.run_batch(codes, y),
        lambda: peer.partial_fit(scaled, y),
        len(y),
        1 if quick else 5,
        TARGET,
    )


def tables(quick):
    if "DKFEAT_DATA" not in os.environ:
        print("skipped: DKFEAT_DATA does not name the folder of the papers' data sets")
        return
    for name in SETS:
        for loss in ("hinge", "log_loss"):
            yield epochs(name, loss, quick)


if __name__ == "__main__":
    sys.exit(run("descent", __doc__, [tables], name_width=44))
