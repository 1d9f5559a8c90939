"""Rows for the samplers, given as pairs of columns and values."""

import numpy as np

KNOWN = [
    ([0, 1, 7], [1.0, -1.0, 0.5]),
    ([0, 3, 7, 100], [1e-30, -2.5, 3.25, 1e30]),
    ([5, 2**20, 2**39], [-1e300, 1e-300, 5e-324]),
    (list(range(0, 120, 3)), [(-1) ** f * (f + 1) / 7 for f in range(40)]),
]


def csr(rows, prepare, power=1.0):
    """Rows as the arguments of a sampler, whose values are prepared by `signed_logs` or `signed_octaves`."""
    indptr = np.concatenate([[0], np.cumsum([len(columns) for columns, _ in rows], dtype=np.int64)])
    columns = np.concatenate([np.asarray(columns, np.int64) for columns, _ in rows])
    return indptr, columns, *prepare(np.concatenate([np.asarray(values, np.float64) for _, values in rows]), power)


def random_rows(n_rows, n_features, nnz, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_rows):
        columns = np.unique(rng.integers(0, n_features, nnz))
        rows.append((columns, rng.normal(size=len(columns)) * np.exp(3 * rng.normal(size=len(columns)))))
    return rows
