"""
Calibration
===========

Of the rows with a predicted probability of 0.8, eight of ten should belong to the
class. With a small penalty ``alpha`` the model is too sure of itself, as labels are
noisy here, and with a large one it is not sure enough.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import make_gaussian_quantiles

import dkfeat

X, y = make_gaussian_quantiles(
    n_samples=20_000, n_features=6, n_classes=2, random_state=0
)
y = np.where(
    np.random.default_rng(0).random(len(y)) < 0.15, 1 - y, y
)  # some labels are wrong
gcws = dkfeat.GCWSFeatures(n_components=256, random_state=0)

ax = plt.gca()
for marker, alpha in zip("so^", [1e-6, 5e-6, 1e-4], strict=True):
    solver = dkfeat.SGD(loss="log_loss", alpha=alpha)
    model = dkfeat.train(X[:10_000], solver, y=y[:10_000], map=gcws, progress=False)
    probabilities = model.predict_proba(X[10_000:])[:, 1]
    CalibrationDisplay.from_predictions(
        y[10_000:],
        probabilities,
        n_bins=10,
        ax=ax,
        name=f"alpha = {alpha:g}",
        marker=marker,
    )
ax.set(xlabel="mean predicted probability", ylabel="share of rows of the class")
