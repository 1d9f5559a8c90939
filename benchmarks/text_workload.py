"""LIBSVM text like that of RCV1: Zipf-distributed columns, log-normal weights, rows of length one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

N_FEATURES = 47_236
MEAN_NONZEROS = 75


def eight_digits(value: float) -> str:
    return f"{value:.8g}"


def write_rcv1_like(path: Path, n_bytes: int, *, form: Callable[[float], str] = eight_digits, seed: int = 3) -> int:
    """Write whole rows until the file has at least `n_bytes`; return the number of rows."""
    rng = np.random.default_rng(seed)
    popularity = np.cumsum(1 / np.arange(1, N_FEATURES + 1))
    popularity /= popularity[-1]
    columns = rng.permutation(N_FEATURES) + 1
    n_rows = size = 0
    with path.open("w") as file:
        while size < n_bytes:
            n = max(5, int(rng.lognormal(np.log(MEAN_NONZEROS) - 0.125, 0.5)))
            drawn = np.searchsorted(popularity, rng.random(2 * n)).clip(0, N_FEATURES - 1)
            row = np.sort(columns[np.unique(drawn)[:n]])
            weights = rng.lognormal(size=len(row))
            weights /= np.linalg.norm(weights)
            tokens = [f"{column}:{form(w)}" for column, w in zip(row.tolist(), weights.tolist(), strict=True)]
            size += file.write(f"{rng.choice((-1, 1))} {' '.join(tokens)}\n")
            n_rows += 1
    return n_rows
