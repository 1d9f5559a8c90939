"""
A linear model that bends
=========================

No straight line separates these two classes. On the features of a map, a linear model
draws the boundary that a kernel machine would draw. The titles give the accuracy on
rows held out of training, which are the dots.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import dkfeat

X, y = make_moons(1_000, noise=0.15, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

gcws = dkfeat.GCWSFeatures(n_components=1024, t_bits=1, random_state=0)
fourier = dkfeat.FourierFeatures(
    n_components=1024, kernel="rbf", gamma=2.0, normalize=False, random_state=0
)
models = {
    "the columns": make_pipeline(LinearSVC()),
    "ColumnScale, GCWSFeatures": make_pipeline(
        dkfeat.ColumnScale(), gcws, LinearSVC(C=0.001)
    ),
    "FourierFeatures": make_pipeline(fourier, LinearSVC()),
}

x0, x1 = np.meshgrid(*np.linspace(X.min(axis=0) - 0.3, X.max(axis=0) + 0.3, 150).T)
figure, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(X_train, y_train)
    scores = model.decision_function(np.column_stack([x0.ravel(), x1.ravel()])).reshape(
        x0.shape
    )
    ax.contourf(
        x0,
        x1,
        scores,
        levels=np.linspace(-1.5, 1.5, 13),
        cmap="RdBu",
        alpha=0.6,
        extend="both",
    )
    ax.contour(x0, x1, scores, levels=[0], colors="black", linewidths=1)
    ax.scatter(
        *X_test.T, c=y_test, cmap="RdBu", s=16, edgecolors="black", linewidths=0.5
    )
    ax.set(title=f"{name}: {model.score(X_test, y_test):.0%}", xticks=[], yticks=[])
