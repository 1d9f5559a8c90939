"""
Darts: the same kernel for long rows
====================================

`dkfeat.GCWSFeatures` looks at each pair of a nonzero and a component,
`dkfeat.DartFeatures` only at the pairs that can win. Both estimate the same kernel with
the same error. For rows of thousands of nonzeros over millions of columns, which share
few columns, darts are many times faster.
"""

import timeit
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csr_array

import dkfeat

sizes, n_rows = [30, 100, 300, 1_000, 3_000, 10_000], 10
maps = {
    "GCWSFeatures": dkfeat.GCWSFeatures(n_components=512, random_state=0),
    "DartFeatures": dkfeat.DartFeatures(n_components=512, random_state=0),
}

rng = np.random.default_rng(0)
times = {name: [] for name in maps}
for size in sizes:
    columns = rng.integers(0, 2**24, n_rows * size)
    X = csr_array(
        (rng.random(n_rows * size), columns, size * np.arange(n_rows + 1)),
        shape=(n_rows, 2**24),
    )
    X.sum_duplicates()
    for name, features in maps.items():
        features.fit(X).encode(X)  # compiles what it needs
        runs = timeit.repeat(partial(features.encode, X), number=1, repeat=5)
        times[name].append(1000 * min(runs) / n_rows)

for name, marker in zip(maps, "so", strict=True):
    plt.loglog(sizes, times[name], f"{marker}-", label=name)
plt.xlabel("nonzeros of a row, over 16 million columns")
plt.ylabel("milliseconds a row, k = 512")
plt.legend()
