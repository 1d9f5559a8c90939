"""
Scale of the columns
====================

The min-max kernel compares sums over columns, so a column in large units decides alone.
Here the class depends on a weight in grams and on a distance in kilometres. Taken as
they are, all codes come from the grams. `dkfeat.ColumnScale` replaces each value by its
rank among the training rows, so that both columns count. Tables are scaled so by
default; arrays and LIBSVM text are not.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import dkfeat

rng = np.random.default_rng(0)
X = rng.lognormal([11, 3], 0.8, (800, 2))
y = (X[:, 0] > 60_000) == (X[:, 1] > 20)
train, test = slice(400), slice(400, None)

gcws = dkfeat.GCWSFeatures(n_components=512, random_state=0)
models = {
    "as they are": make_pipeline(gcws, LinearSVC(C=0.01)),
    "ranks, by ColumnScale": make_pipeline(
        dkfeat.ColumnScale(), gcws, LinearSVC(C=0.01)
    ),
}

grams, km = np.meshgrid(*np.geomspace(X.min(axis=0), X.max(axis=0), 150).T)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(X[train], y[train])
    scores = model.decision_function(
        np.column_stack([grams.ravel(), km.ravel()])
    ).reshape(grams.shape)
    ax.contourf(
        grams,
        km,
        scores,
        levels=np.linspace(-1.5, 1.5, 13),
        cmap="RdBu",
        alpha=0.6,
        extend="both",
    )
    ax.scatter(
        *X[test].T, c=y[test], cmap="RdBu", s=16, edgecolors="black", linewidths=0.5
    )
    ax.set(
        title=f"{name}: {model.score(X[test], y[test]):.0%}",
        xlabel="grams",
        xscale="log",
        yscale="log",
    )
axes[0].set_ylabel("km")
