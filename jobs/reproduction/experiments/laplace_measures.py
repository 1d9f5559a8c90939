"""Measurements of `laplace_gram`: its histograms, errors of Gram matrices, covariances of components, and times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from dkfeat import LaplaceFeatures
from dkfeat.kernels import exponential_semigroup, reciprocal_semigroup

from ..experiment import Context
from ..sampling import mean_squares, seeds
from ..theory import circulant

__all__ = [
    "BATCH",
    "BLOCKS",
    "KERNELS",
    "METHODS",
    "SHOWN",
    "WIDTHS",
    "gram_errors",
    "histograms",
    "neighbours",
    "seconds_a_row",
]

METHODS: dict[str, dict[str, Any]] = {
    "random": {"projection": "dense"},
    "alternating, m = log₂ d": {"projection": "alternating_circulant", "n_mixtures": "log2"},
    "alternating, m = 2": {"projection": "alternating_circulant", "n_mixtures": 2},
    "circulant": {"projection": "circulant"},
}
KERNELS: dict[str, Any] = {
    "exponential": (exponential_semigroup, circulant.exponential_log_factor, "beta"),
    "reciprocal": (reciprocal_semigroup, circulant.reciprocal_log_factor, "rate"),
}
WIDTHS = (64, 256, 1024, 4096)
"""Columns of synthetic histograms."""
BLOCKS = (0.25, 0.5, 1, 2, 4)
"""Numbers of components in units of d."""
PAIRS = 20
"""Number of pairs of rows whose covariances are measured."""
SHOWN = ("mnist10k", "news20", "synthetic-1024")
"""Histograms whose Gram matrices are compared."""
BATCH, SINGLE = 128, 8


def histograms(context: Context, n_rows: int, n_words: int) -> dict[str, Any]:
    """Make rows of sum 1 and a power of two columns, by name; None for missing data."""
    random = np.random.default_rng([context.seed, 1])
    found: dict[str, Any] = {}
    for name, width in (("mnist10k", 1024), ("news20", n_words)):
        data = context.rows(name)
        found[name] = None
        if data is not None:
            by_use = np.argsort(-data.X.getnnz(axis=0), kind="stable")[:width]  # the words that occur in most texts
            rows = data.sample(2 * n_rows, seed=context.seed).X[:, np.sort(by_use)]
            rows = normalize(rows[rows.getnnz(axis=1) > 0][:n_rows], norm="l1")
            rows.resize(rows.shape[0], width)
            found[name] = rows
    for width in WIDTHS:
        found[f"synthetic-{width}"] = random.dirichlet(np.full(width, 0.1), size=n_rows)
    return found


def fitting_parameter(X: Any, kernel: str) -> float:
    """Return the parameter for which the median of the kernel over pairs of rows is 1/e."""
    exact, _, name = KERNELS[kernel]
    upper = np.triu_indices(min(X.shape[0], 40), 1)

    def excess(log_parameter: float) -> float:
        gram = exact(X[:40], **{name: np.exp(log_parameter)})[upper]
        return float(np.log(np.median(gram) + 1e-300)) + 1

    return float(np.exp(brentq(excess, -8, 8, xtol=1e-3)))


def gram_errors(X: Any, *, kernel: str, method: str, blocks: Sequence[float], repeats: int, seed: int) -> Any:
    """Compute squared relative errors of Gram matrices in the Frobenius norm, by number of components in units of d."""
    exact, _, name = KERNELS[kernel]
    parameter = {name: fitting_parameter(X, kernel)}
    gram, sizes = exact(X, **parameter), [int(times * X.shape[1]) for times in blocks]
    errors = np.empty((repeats, len(sizes)))
    for i, state in enumerate(seeds(seed, repeats)):
        for j, size in enumerate(sizes):
            features = LaplaceFeatures(size, kernel=kernel, random_state=state, **parameter, **METHODS[method])
            Z = features.fit_transform(X)
            errors[i, j] = np.linalg.norm(Z @ Z.T - gram) / np.linalg.norm(gram)
    doubled = exact(2 * X, **parameter)  # of Theorem 1: z is the sum of two rows
    theory = (doubled - gram**2).sum() / (gram**2).sum() / np.array(sizes)
    return {"sizes": sizes, "theory": theory, **mean_squares(errors)}


def neighbours(X: Any, *, kernel: str, method: str, repeats: int, seed: int) -> Any:
    """Compute the covariance of neighbouring components over the variance, both summed over pairs, and by theory."""
    exact, log_factor, name = KERNELS[kernel]
    parameter, d = {name: fitting_parameter(X, kernel)}, X.shape[1]
    X = X[: 2 * PAIRS]
    values = np.diag(exact(X[::2], X[1::2], **parameter))[:, None]
    moments = np.empty((repeats, 2))
    for i, state in enumerate(seeds(seed, repeats)):
        Z = LaplaceFeatures(d, kernel=kernel, random_state=state, **parameter, **METHODS[method]).fit_transform(X)
        estimates = d * (Z[::2] * Z[1::2]).astype(float) - values
        moments[i] = (estimates * np.roll(estimates, -1, axis=1)).mean(), (estimates**2).mean()
    ratio = moments[:, 0].sum() / moments[:, 1].sum()
    spread = (moments[:, 0] - ratio * moments[:, 1]).std(ddof=1) / np.sqrt(repeats) / moments[:, 1].mean()
    factor = partial(log_factor, **parameter)
    m = {"circulant": 1, "alternating, m = 2": 2}.get(method, round(np.log2(d)))
    sums = X[::2] + X[1::2]
    sums = sums.toarray() if sp.issparse(sums) else sums
    covariance = sum(circulant.alternating_covariance(z, factor, n_mixtures=m) for z in sums)
    variance = sum(circulant.laplace_variance(z, factor) for z in sums)
    return {"ratio": ratio, "error": spread, "theory": covariance / variance}


def seconds_a_row(d: int, seed: int) -> dict[str, list[float]]:
    """Measure the processor time for a row in a batch and for a single row, with d columns and components, by method.

    Random features are computed by NumPy as a product with weights in memory, the baseline of the paper's speed-ups.
    """
    random = np.random.default_rng(seed)
    X, weights = random.dirichlet(np.full(d, 0.1), size=BATCH).astype(np.float32), random.random((d, d), np.float32)

    def dense(block: NDArray[np.float32]) -> None:
        product = block @ weights.T
        np.exp(np.negative(product, out=product), out=product)
        product *= np.float32(1 / np.sqrt(d))

    calls: dict[str, Callable[[Any], Any]] = {"random": dense}
    for name, options in list(METHODS.items())[1:]:
        calls[name] = LaplaceFeatures(d, random_state=seed, **options).fit(X).transform
    found = {}
    with threadpool_limits(1):
        for name, call in calls.items():
            call(X)  # tables are drawn, loops compiled
            batch = statistics.median(_seconds(call, X) for _ in range(3)) / BATCH
            single = statistics.median(_seconds(call, X[i : i + 1]) for i in range(SINGLE))
            found[name] = [batch, single]
    return found


def _seconds(call: Callable[[Any], Any], X: Any) -> float:
    began = time.process_time()
    call(X)
    return time.process_time() - began
