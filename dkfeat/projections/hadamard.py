"""Projections made of diagonals and Walsh-Hadamard matrices: Fastfood and SORF.

Y. Mukuta, Y. Ushiku, T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018, eq. 3; first
Q. Le, T. Sarlos, A. Smola, "Fastfood", ICML 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.special
from numpy.typing import NDArray

from dkfeat.compiled.random.laws import normals
from dkfeat.compiled.random.philox import STREAM_FASTFOOD, STREAM_LENGTH, STREAM_PERMUTATION, STREAM_SIGN
from dkfeat.compiled.structured.hadamard import FastfoodTables, project_fastfood, project_orthogonal
from dkfeat.projections._base import HadamardProjection, draw_signs, flat_rows, random_words


@dataclass(frozen=True, slots=True, kw_only=True)
class FastfoodProjection(HadamardProjection):
    r"""Projection with a matrix W of independent blocks :math:`S H G \Pi H B` (Fastfood).

    n is the number of columns padded with zeros to a power of two, at least 16. H has order n and entries +-1, B has
    random signs, :math:`\Pi` is a permutation, and G is Gaussian. S gives each row the length of a Gaussian one: its
    entries are chi-distributed with n degrees of freedom, divided by :math:`\sqrt n \lVert G \rVert_F`. So each row of
    W is standard Gaussian (a uniform direction by G, an independent length by S, then a rotation). The rows of a block
    are dependent. The last block is truncated.

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
        tables = FastfoodTables._make(table.reshape(-1) for table in _tables(self))
        out = np.empty((X.shape[0], self.n_components), np.float32)
        project_fastfood(flat_rows(X), tables, self.length, self.n_components, out.reshape(-1))
        return out

    def _matrix(self) -> NDArray[np.float64]:
        hadamard = scipy.linalg.hadamard(self.length).astype(np.float64)
        blocks = [
            lengths[:, None] * (hadamard * gaussians) @ (hadamard * signs)[order]
            for signs, order, gaussians, lengths in zip(*_tables(self), strict=True)
        ]
        return np.concatenate(blocks)[: self.n_components, : self.n_features]


@lru_cache(maxsize=4)
def _tables(projection: FastfoodProjection) -> FastfoodTables:
    """Diagonals and permutation of all blocks, each of shape (n_blocks, length)."""
    n, seed, blocks = projection.length, projection.seed, range(projection.n_blocks)
    gaussians = normals(np.arange(len(blocks)), n, STREAM_FASTFOOD, seed)
    keys = random_words(blocks, n, STREAM_PERMUTATION, seed).astype(np.uint64)
    words = random_words(blocks, n, STREAM_LENGTH, seed).astype(np.uint64)
    # adding a half to 52 bits keeps a uniform inside (0, 1); chi squared with n degrees is twice Gamma(n / 2)
    uniform = (
        ((words[:, :, 0] << np.uint64(20)) | (words[:, :, 1] >> np.uint64(12))).astype(np.float64) + 0.5
    ) * 2.0**-52
    chi = np.sqrt(2 * scipy.special.gammaincinv(n / 2, uniform))
    norms = np.linalg.norm(gaussians.astype(np.float64), axis=1, keepdims=True)
    return FastfoodTables(
        signs=draw_signs(blocks, n, STREAM_SIGN, seed),
        order=np.argsort((keys[:, :, 0] << np.uint64(32)) | keys[:, :, 1], axis=1, kind="stable").astype(np.uint32),
        gaussians=np.ascontiguousarray(gaussians),
        lengths=(chi / (np.sqrt(n) * norms)).astype(np.float32),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OrthogonalProjection(HadamardProjection):
    r"""Projection with a matrix W of independent blocks :math:`\sqrt n\, H D_1 H D_2 H D_3` (SORF).

    n is the number of columns padded with zeros to a power of two, at least 16. H is orthonormal, with entries
    :math:`\pm 1 / \sqrt n`, and the diagonal matrices D have random signs. The rows of a block are orthogonal, each of
    length :math:`\sqrt n`. Features made with it have a small bias, which falls as n grows. The last block is
    truncated.

    Time is O(n_components log n_features) a row, memory O(n_components).

    Parameters
    ----------
    n_features, n_components, seed : int

    Examples
    --------
    >>> W = OrthogonalProjection(n_features=16, n_components=16, seed=0).matrix()
    >>> bool(np.allclose(W @ W.T, 16 * np.eye(16)))
    True
    """

    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Rows times W transposed; see `Projection.project`."""
        first, second, third = _signs(self)
        out = np.empty((X.shape[0], self.n_components), np.float32)
        # sqrt(n) times three factors 1 / sqrt(n) is 1 / n, a power of two, so its position does not change rounding
        diagonals = first.reshape(-1), second.reshape(-1), third.reshape(-1) / np.float32(self.length)
        project_orthogonal(flat_rows(X), diagonals, self.length, self.n_components, out.reshape(-1))
        return out

    def _matrix(self) -> NDArray[np.float64]:
        n = self.length
        hadamard = scipy.linalg.hadamard(n) / np.sqrt(n)
        blocks = [
            np.sqrt(n) * (hadamard * first) @ (hadamard * second) @ (hadamard * third)
            for first, second, third in zip(*_signs(self), strict=True)
        ]
        return np.concatenate(blocks)[: self.n_components, : self.n_features]


@lru_cache(maxsize=4)
def _signs(projection: OrthogonalProjection) -> NDArray[np.float32]:
    """Signs of D1, D2 and D3, shape (3, n_blocks, length)."""
    n_blocks, n = projection.n_blocks, projection.length
    signs = draw_signs(range(3 * n_blocks), n, STREAM_SIGN, projection.seed)
    return np.ascontiguousarray(signs.reshape(n_blocks, 3, n).transpose(1, 0, 2))
