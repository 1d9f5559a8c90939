"""
Nearest neighbours
==================

Each line has a handwritten digit that was held out, and the rows of 1,700 others that
are nearest to it under the min-max kernel, with the value of the kernel. Candidates are
found by their codes and then compared exactly.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import dkfeat

X, y = load_digits(return_X_y=True)
queries, rows = X[:6], X[97:]
distances, indices = (
    dkfeat.neighbors.GMMNeighbors(n_neighbors=9).fit(rows).kneighbors(queries)
)

figure, axes = plt.subplots(6, 10, figsize=(9, 6.3))
for line, query, distance, index in zip(axes, queries, distances, indices, strict=True):
    for ax, image in zip(line, [query, *rows[index]], strict=True):
        ax.imshow(image.reshape(8, 8), cmap="Greys")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(True)
    for ax, value in zip(line[1:], 1 - distance, strict=True):
        ax.set_title(f"{value:.2f}", fontsize=9)
    line[0].spines[:].set(color="#D55E00", linewidth=3)
