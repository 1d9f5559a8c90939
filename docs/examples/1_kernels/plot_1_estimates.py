"""
Estimates against the exact kernel
==================================

The inner product of the features of two rows estimates the kernel of the rows. Four
times as many components halve the error, and theory gives the band in which about 95 %
of the estimates should lie.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import dkfeat
import dkfeat.plot

X, y = load_digits(return_X_y=True)

figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), sharey=True)
for ax, k in zip(axes, [64, 256, 1024], strict=True):
    gcws = dkfeat.GCWSFeatures(n_components=k, random_state=0).fit(X)
    dkfeat.plot.kernel_estimates(gcws.kernel_pairs(X, n_rows=64), ax=ax)
    ax.set_title(f"{k:,} components")
    ax.label_outer()
