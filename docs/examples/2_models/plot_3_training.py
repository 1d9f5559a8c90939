"""
Training curves
===============

``model.history`` has the loss of each epoch and, given test rows, their accuracy. The
weights of stochastic gradient descent jump from step to step. Their mean, which
`dkfeat.SGD` returns by default, does not.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
from sklearn.datasets import make_gaussian_quantiles

import dkfeat

X, y = make_gaussian_quantiles(
    n_samples=6_000, n_features=10, n_classes=3, random_state=0
)
gcws = dkfeat.GCWSFeatures(n_components=256, random_state=0)

with TemporaryDirectory() as folder:
    train, test = Path(folder) / "train", Path(folder) / "test"
    dkfeat.featurize(
        dkfeat.TableSource(X[:4_000], y[:4_000]), train, gcws, progress=False
    )
    dkfeat.featurize(
        dkfeat.TableSource(X[4_000:], y[4_000:]), test, like=train, progress=False
    )
    for average, label in {True: "mean of the weights", False: "last weights"}.items():
        model = dkfeat.train(
            train, dkfeat.SGD(epochs=20, average=average), test=test, progress=False
        )
        accuracy = [100 * entry["test_accuracy"] for entry in model.history]
        plt.plot(range(1, 21), accuracy, "o-", label=label)

plt.xlabel("epoch")
plt.xticks(range(2, 21, 2))
plt.ylabel("test accuracy (%)")
plt.legend()
