"""
Errors against theory
=====================

The error of an estimate depends on the value of the kernel and on the number of
components alone, so it is known before a run. The curves are theory. Each dot is
measured: the root mean square error of one pair of rows over 100 seeds.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import dkfeat
from dkfeat.kernels import gmm

rows = load_digits().data[:30]
pairs = np.triu_indices(30, 1)
exact = gmm(rows)[pairs]

for k in [64, 256, 1024]:
    errors = []
    for seed in range(100):
        codes = (
            dkfeat.GCWSFeatures(n_components=k, random_state=seed)
            .fit(rows)
            .encode(rows)
            .codes
        )
        estimates = (codes[:, None] == codes[None]).mean(
            axis=2
        )  # the share of equal codes
        errors.append(estimates[pairs] - exact)
    dots = plt.scatter(
        exact, np.sqrt(np.mean(np.square(errors), axis=0)), s=8, alpha=0.5
    )
    values = np.linspace(0.01, 0.99, 99)
    theory = dkfeat.GCWSFeatures(n_components=k).expected_error_at(values)
    plt.plot(
        values, theory, color=dots.get_facecolor()[0, :3], label=f"{k:,} components"
    )

plt.xlabel("exact GMM kernel")
plt.ylabel("standard error of an estimate")
plt.ylim(bottom=0)
plt.legend()
