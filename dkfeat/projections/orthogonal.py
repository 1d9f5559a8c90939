"""Structured orthogonal random features: random signs between Walsh-Hadamard matrices.

Y. Mukuta, Y. Ushiku, T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018, eq. 6; first
F. Yu, A. Suresh, K. Choromanski, D. Holtmann-Rice, S. Kumar, "Orthogonal Random Features", NeurIPS 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.structured import project_orthogonal
from dkfeat.projections._base import arrays_of, draw_signs
from dkfeat.projections._hadamard import HadamardProjection
from dkfeat.random_streams import STREAM_SIGN

__all__ = ["OrthogonalProjection"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrthogonalProjection(HadamardProjection):
    r"""W of independent blocks :math:`\sqrt n\, H D_1 H D_2 H D_3` (SORF).

    n is the number of columns padded with zeros to a power of two, at least 16. H is orthonormal, with entries
    :math:`\pm 1 / \sqrt n`, and the D have random signs: the rows of a block are orthogonal, each of length
    :math:`\sqrt n`. Features made of it have a small bias, which falls as n grows. The last block is cut.

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
        # sqrt(n) and the three factors 1 / sqrt(n) make 1 / n, a power of two: exact wherever it stands
        diagonals = first.reshape(-1), second.reshape(-1), third.reshape(-1) / np.float32(self.length)
        flat = out.reshape(-1)
        project_orthogonal(*arrays_of(X), self.n_features, *diagonals, self.length, self.n_components, flat)
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
    """Signs of D1, D2 and D3, of shape (3, n_blocks, length)."""
    n_blocks, n = projection.n_blocks, projection.length
    signs = draw_signs(range(3 * n_blocks), n, STREAM_SIGN, projection.seed)
    return np.ascontiguousarray(signs.reshape(n_blocks, 3, n).transpose(1, 0, 2))
