"""Transforms against rfft, Fourier and Nyström features against scikit-learn, dense products and Laplace against BLAS.

    python benchmarks/projections.py [--quick]

float32, one thread. dkfeat and the peer are timed in turn in one process, for about the same time; the table has
medians of CPU time and of the pairs' ratios. dkfeat's time includes all work from input rows to features: norms,
projection, phases and cosines. Drawing the peer's weights is not counted; dkfeat's weights are cached if they are
small, and otherwise drawn in the call. Laplace features with circulant projections are compared with a BLAS product
with all weights in memory and NumPy's exponential, in batches and row by row. Nyström features for the GMM kernel are
compared with the product of kernel values and normalization alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.fft
from paired import compare, run
from scipy.sparse import csr_matrix
from sklearn.kernel_approximation import Nystroem, RBFSampler
from workloads import rcv1_like

from dkfeat.compiled import jit
from dkfeat.compiled.products.hadamard import transform_at
from dkfeat.maps import FourierFeatures, LaplaceFeatures, NystroemFeatures
from dkfeat.projections import DenseProjection


@jit.kernel
def hadamard(x, ones, n, out):
    for at in range(0, x.shape[0], n):
        transform_at(x, at, ones, 0, out, at, n, n)


def transforms(quick: bool) -> Any:
    rng = np.random.default_rng(0)
    for n in (1024,) if quick else (1024, 2048, 4096, 8192, 16384):
        rows = (2**14 if quick else 2**21) // n
        X, ones = rng.standard_normal((rows, n), np.float32), np.ones(n, np.float32)
        calls = (
            partial(hadamard, X.reshape(-1), ones, n, np.empty(X.size, np.float32)),
            partial(scipy.fft.rfft, X, axis=1),
        )
        yield compare(f"Walsh-Hadamard, n = {n:,}, against rfft", *calls, rows, 15, 3)


def dense_features(quick: bool) -> Any:
    rng = np.random.default_rng(1)
    rows = 100 if quick else 2000
    X = rng.random((rows, 784), np.float32)
    for k in (128,) if quick else (256, 1024, 4096):
        product = DenseProjection(n_features=784, n_components=k, seed=0)
        weights = rng.random((784, k), np.float32)
        yield compare(
            f"product, 784 to {k:,}", partial(product.project, X), partial(np.matmul, X, weights), rows, 9, 0.9
        )
        peer = RBFSampler(gamma=0.5, n_components=k, random_state=0).fit(X)
        for projection, target in (
            ("dense", 1),
            ("fastfood", 8),
            ("orthogonal", 8),
            ("circulant", 0),
            ("alternating_circulant", 0),
        ):
            fitted = FourierFeatures(n_components=k, projection=projection, n_mixtures=2, random_state=0).fit(X)
            calls = partial(fitted.transform, X), partial(peer.transform, X)
            yield compare(f"{projection}, 784 to {k:,}", *calls, rows, 9, target)


def sparse_features(quick: bool) -> Any:
    rows, k = (200, 64) if quick else (20_000, 1024)
    X = rcv1_like(rows)
    peer = RBFSampler(gamma=0.5, n_components=k, random_state=0).fit(X)
    fitted = FourierFeatures(n_components=k, random_state=0).fit(X)
    calls = partial(fitted.transform, X), partial(peer.transform, X)
    yield compare(f"dense, RCV1-like CSR to {k:,}", *calls, rows, 1 if quick else 5, 1.5)


def nystroem_features(quick: bool) -> Any:
    rng = np.random.default_rng(3)
    rows = 300 if quick else 4000
    dense = rng.standard_normal((rows, 36), np.float32)
    half = csr_matrix(dense * (rng.random((rows, 36)) < 0.5))
    sizes = (32,) if quick else (32, 256, 1024)
    for kernel, gamma in (("rbf", 1 / 36), ("polynomial", 1.0), ("gmm", 0.0)):
        for form, X in (("dense", dense), ("CSR", csr_matrix(dense)), ("CSR, half zeros", half)):
            for k in sizes:
                yield of_kernel(kernel, gamma, X, f"{form}, 36 columns", k)
        sparse, wide = rcv1_like(rows), rng.random((rows // 2, 784), np.float32)
        for k in sizes:
            yield of_kernel(kernel, 1.0, sparse, "RCV1-like CSR", k)
            if kernel != "gmm":  # for many values a row its minima take longer than the product
                yield of_kernel(kernel, 1.0, wide, "dense, 784 columns", k)


def of_kernel(kernel: str, gamma: float, X: Any, name: str, k: int) -> dict:
    """Compare with scikit-learn's map, or for the GMM kernel with the product by the normalization."""
    polynomial = {"degree": 3, "coef0": 1.0}
    params, theirs = {
        "rbf": ({"gamma": gamma}, {"kernel": "rbf", "gamma": gamma}),
        "polynomial": (polynomial, {"kernel": "poly", "gamma": 1.0, **polynomial}),
        "gmm": ({}, None),
    }[kernel]
    fitted = NystroemFeatures(k, kernel=kernel, kernel_params=params, random_state=0).fit(X)
    if theirs:
        peer = partial(Nystroem(n_components=k, random_state=0, **theirs).fit(X).transform, X)
    else:
        rng = np.random.default_rng(4)
        values, weights = rng.random((X.shape[0], k), np.float32), rng.random((k, k), np.float32)
        peer = partial(np.matmul, values, weights)
    target = 1 if theirs else 0.5 * (k == 1024)
    return compare(f"Nyström, {kernel}, {name}, k = {k:,}", partial(fitted.transform, X), peer, X.shape[0], 9, target)


def each(call: Callable[[Any], object], blocks: list) -> None:
    for block in blocks:
        call(block)


def laplace_features(quick: bool) -> Any:
    rng = np.random.default_rng(2)
    for d in (64,) if quick else (256, 512, 1024, 4096, 16384):
        X, weights = rng.random((256, d), np.float32) / d**2, rng.random((d, d), np.float32)

        def peer(X: Any, weights: Any = weights, d: int = d) -> Any:
            products = X @ weights.T
            np.exp(np.negative(products, out=products), out=products)
            products *= np.float32(1 / np.sqrt(d))
            return products

        marked = d == 16384
        for projection, m, batch_target, single_target in (
            ("circulant", 2, 0, 0),
            ("alternating_circulant", 2, 40 * marked, 100 * marked),
            ("alternating_circulant", "log2", 8 * marked, 25 * marked),
        ):
            fitted = LaplaceFeatures(n_components=d, projection=projection, n_mixtures=m, random_state=0).fit(X)
            label = projection if projection == "circulant" else f"alternating, m = {m}"
            for rows, step, target in ((256, 256, batch_target), (8, 1, single_target)):
                blocks = [X[first : first + step] for first in range(0, rows, step)]
                ours, theirs = partial(each, fitted.transform, blocks), partial(each, peer, blocks)
                words = "batch" if step > 1 else "row by row"
                yield compare(f"Laplace, {label}, d = {d:,}, {words}", ours, theirs, rows, 9, target)


if __name__ == "__main__":
    parts = (transforms, dense_features, sparse_features, nystroem_features, laplace_features)
    sys.exit(run("projections", __doc__, parts, name_width=60))
