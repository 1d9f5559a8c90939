"""Random sparse rows that resemble the papers' data sets, from fixed seeds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_matrix


def webspam_like(n_rows: int, seed: int = 7) -> csr_matrix:
    """W1: 254 columns, about 85 nonzeros a row, columns of uneven frequency, unit rows of log-normal values."""
    rng = np.random.default_rng(seed)
    frequency = rng.beta(0.6, 1.2, 254)
    frequency = np.clip(frequency * 85 / frequency.sum(), 0.01, 0.999)
    rows = []
    for _ in range(n_rows):
        columns = np.flatnonzero(rng.random(254) < frequency)
        rows.append((columns, rng.lognormal(0, 1.2, len(columns))))
    return _normalised(rows, 254)


def rcv1_like(n_rows: int, seed: int = 7) -> csr_matrix:
    """W2: 47,236 columns of Zipf frequency, about 75 nonzeros a row, unit rows of log-normal values."""
    return _zipf_rows(n_rows, 47_236, lambda rng: max(5, int(rng.lognormal(np.log(75) - 0.125, 0.5))), 1.0, seed)


def wide(n_rows: int, seed: int = 7) -> csr_matrix:
    """W3: 1,000,000 columns of Zipf(0.9) frequency, 4,000 nonzeros a row, unit rows of log-normal values."""
    return _zipf_rows(n_rows, 1_000_000, lambda rng: 4000, 0.9, seed)  # noqa: ARG005 - a constant draws nothing


def recurring(n_rows: int, nonzeros: int, uses: int, seed: int = 7) -> csr_matrix:
    """Rows of so many nonzeros, log-normal; each column is in `uses` of the rows, of which `n_rows` is a multiple."""
    rng = np.random.default_rng(seed)
    n_columns = n_rows // uses * nonzeros
    columns = np.concatenate([rng.permutation(n_columns) for _ in range(uses)]).reshape(n_rows, nonzeros)
    columns.sort(axis=1)
    values = rng.lognormal(size=columns.size).astype(np.float32)
    return csr_matrix((values, columns.ravel(), np.arange(n_rows + 1) * nonzeros), shape=(n_rows, n_columns))


def _zipf_rows(
    n_rows: int, n_features: int, draw_nnz: Callable[[np.random.Generator], int], exponent: float, seed: int
) -> csr_matrix:
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(1 / np.arange(1, n_features + 1) ** exponent)
    cumulative /= cumulative[-1]
    order = rng.permutation(n_features)
    rows = []
    for _ in range(n_rows):
        nnz = draw_nnz(rng)
        drawn = np.empty(0, int)
        while len(drawn) < nnz:
            more = np.searchsorted(cumulative, rng.random(nnz)).clip(0, n_features - 1)
            drawn = np.unique(np.concatenate([drawn, more]))
        columns = np.sort(order[rng.permutation(drawn)[:nnz]])
        rows.append((columns, rng.lognormal(0, 1.0, nnz)))
    return _normalised(rows, n_features)


def _normalised(rows: list[tuple[np.ndarray, np.ndarray]], n_features: int) -> csr_matrix:
    indptr = np.concatenate([[0], np.cumsum([len(columns) for columns, _ in rows])])
    values = np.concatenate([weights / np.sqrt((weights**2).sum()) for _, weights in rows]).astype(np.float32)
    columns = np.concatenate([columns for columns, _ in rows])
    return csr_matrix((values, columns, indptr), shape=(len(rows), n_features))
