"""Fastfood: a projection with Gaussian rows, made of diagonals, a permutation and Walsh-Hadamard matrices.

Y. Mukuta, Y. Ushiku, T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018, eq. 3; first
Q. Le, T. Sarlos, A. Smola, "Fastfood", ICML 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.special
from numpy.typing import NDArray

from dkfeat.compiled.normal import normals
from dkfeat.compiled.structured import project_fastfood
from dkfeat.projections._base import arrays_of, draw_signs, random_words
from dkfeat.projections._hadamard import HadamardProjection
from dkfeat.random_streams import STREAM_FASTFOOD, STREAM_LENGTH, STREAM_PERMUTATION, STREAM_SIGN

__all__ = ["FastfoodProjection"]


class _Tables(NamedTuple):
    """Diagonals and permutation of all blocks, each of shape (n_blocks, length)."""

    signs: NDArray[np.float32]
    order: NDArray[np.uint32]
    gaussians: NDArray[np.float32]
    lengths: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class FastfoodProjection(HadamardProjection):
    r"""W of independent blocks :math:`S H G \Pi H B`.

    n is the number of columns padded with zeros to a power of two, at least 16, and H of order n has entries +-1. B
    has random signs, :math:`\Pi` permutes, G is Gaussian, and S gives each row the length of a Gaussian one: its
    entries are chi-distributed with n degrees of freedom over :math:`\sqrt n \lVert G \rVert_F`. So each row of W
    is standard Gaussian (a uniform direction by G, an independent length by S, then a rotation); rows of a block are
    dependent. The last block is cut.

    Time is O(n_components log n_features) a row, memory O(n_components).

    Parameters
    ----------
    n_features, n_components, seed : int

    Examples
    --------
    >>> W = FastfoodProjection(n_features=30, n_components=100, seed=0)
    >>> W.length, W.n_blocks, W.matrix().shape
    (32, 4, (100, 30))
    """

    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Rows times W transposed; see `Projection.project`."""
        signs, order, gaussians, lengths = (table.reshape(-1) for table in _tables(self))
        out = np.empty((X.shape[0], self.n_components), np.float32)
        flat = out.reshape(-1)
        indptr, indices, values = arrays_of(X)
        project_fastfood(
            indptr,
            indices,
            values,
            self.n_features,
            signs,
            order,
            gaussians,
            lengths,
            self.length,
            self.n_components,
            flat,
        )
        return out

    def _matrix(self) -> NDArray[np.float64]:
        hadamard = scipy.linalg.hadamard(self.length).astype(np.float64)
        blocks = [
            lengths[:, None] * (hadamard * gaussians) @ (hadamard * signs)[order]
            for signs, order, gaussians, lengths in zip(*_tables(self), strict=True)
        ]
        return np.concatenate(blocks)[: self.n_components, : self.n_features]


@lru_cache(maxsize=4)
def _tables(projection: FastfoodProjection) -> _Tables:
    n, seed, blocks = projection.length, projection.seed, range(projection.n_blocks)
    gaussians = normals(np.arange(len(blocks)), n, STREAM_FASTFOOD, seed)
    keys = random_words(blocks, n, STREAM_PERMUTATION, seed).astype(np.uint64)
    words = random_words(blocks, n, STREAM_LENGTH, seed).astype(np.uint64)
    # 52 bits and a half keep a uniform inside (0, 1); chi squared with n degrees is twice Gamma(n / 2)
    uniform = (
        ((words[:, :, 0] << np.uint64(20)) | (words[:, :, 1] >> np.uint64(12))).astype(np.float64) + 0.5
    ) * 2.0**-52
    chi = np.sqrt(2 * scipy.special.gammaincinv(n / 2, uniform))
    norms = np.linalg.norm(gaussians.astype(np.float64), axis=1, keepdims=True)
    return _Tables(
        signs=draw_signs(blocks, n, STREAM_SIGN, seed),
        order=np.argsort((keys[:, :, 0] << np.uint64(32)) | keys[:, :, 1], axis=1, kind="stable").astype(np.uint32),
        gaussians=np.ascontiguousarray(gaussians),
        lengths=(chi / (np.sqrt(n) * norms)).astype(np.float32),
    )
