"""Circulant projections, plain and alternating, by the fast Fourier transform.

Y. Mukuta, Y. Ushiku, T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018, §3-4, eq. 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.compiled.random.laws import normals
from dkfeat.compiled.random.philox import STREAM_CIRCULANT, STREAM_MIXTURE, STREAM_SIGN
from dkfeat.compiled.simd.arrays import owned
from dkfeat.compiled.structured.convolution import SMALLEST, add_shifted, convolve_rows, spectra_of
from dkfeat.errors import ConfigError
from dkfeat.projections._base import DrawWeights, Projection, draw_signs, random_words

_CHUNK = 2**17
"""Numbers of a transform's input processed at a time; they fit the second-level cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CirculantProjection(Projection):
    r"""Projection with a matrix W of independent blocks, each circulant or a mixture of circulant matrices.

    A block has n rows, where n is the number of columns padded to a length that is fast for the FFT, and :math:`W_{ij}
    = \sigma_j r^{(s_j)}_{(i - j) \bmod n}`. Column j takes its weights from circulant :math:`s_j`, drawn among
    n_mixtures (eq. 7), and its sign :math:`\sigma_j` if `flips` is set. Each row of W has independent entries of the
    right distribution, whatever the padding. Rows of one block share weights; mixtures and signs make the shared
    weights less correlated. Padding leaves some weights of a row unused, so two rows share fewer. The last block is
    truncated.

    Time is O(n_mixtures n_components log n_features) a row, memory O(n_mixtures n_components).

    Parameters
    ----------
    n_features, n_components, seed : int
        Number of columns of the rows, number of rows of W, and root of the random streams.
    n_mixtures : int, default=1
        Number of circulant matrices in a block (m), at least 1. 1 is the plain circulant projection.
    flips : bool, default=True
        Give columns random signs. Only for a symmetric distribution of weights.
    draw : DrawWeights, default=normals
        Distribution of the weights; standard Gaussian by default.
    double : bool, default=False
        Transform in float64, which takes twice the time.
    heavy : float, default=inf
        Weights above this value are added one by one instead of being transformed. Heavy-tailed distributions need it,
        because the rounding errors of a transform are relative to the largest weight.
    stream, choice_stream : int
        Random streams of the weights and of the choice of a circulant for each column.

    Examples
    --------
    >>> W = CirculantProjection(n_features=3, n_components=3, seed=0, flips=False)
    >>> matrix = W.matrix()
    >>> bool(matrix[0, 0] == matrix[1, 1] == matrix[2, 2])
    True
    """

    n_mixtures: int = 1
    flips: bool = True
    draw: DrawWeights = normals
    double: bool = False
    heavy: float = math.inf
    stream: int = STREAM_CIRCULANT
    choice_stream: int = STREAM_MIXTURE

    def __post_init__(self) -> None:
        self._check_padded()
        if not 1 <= self.n_mixtures <= 2**16:
            raise ConfigError(
                f"n_mixtures={self.n_mixtures}, but it must be from 1 to 65,536; set n_mixtures in that range"
            )

    @property
    def length(self) -> int:
        """Rows and columns of a block: n_features, padded; a power of two if `double` and n_features > 128."""
        if self.double and self.n_features > SMALLEST // 2:
            return 1 << (self.n_features - 1).bit_length()
        return int(scipy.fft.next_fast_len(self.n_features, real=True))

    @property
    def n_blocks(self) -> int:
        """Number of independent blocks, ceil(n_components / length)."""
        return -(-self.n_components // self.length)

    @property
    def table_bytes(self) -> int:
        """See `Projection.table_bytes`: measured memory of spectra, masks and the arrays they are made from."""
        return (40 + (28 if self.double else 20) * self.n_mixtures) * self.n_blocks * self.length

    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Rows times W transposed; see `Projection.project`."""
        n_samples = X.shape[0]
        out = np.empty((n_samples, self.n_components), np.float32)
        rows_at_once = max(1, _CHUNK // self.length)
        for first in range(0, n_samples, rows_at_once):
            dense: Any = X[first : first + rows_at_once]
            dense = dense.toarray() if sp.issparse(dense) else dense
            self.project_into(owned(dense), out[first : first + rows_at_once])
        return out

    def project_into(self, rows: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write rows times W transposed, without dividing the rows into groups that fit the caches as `project` does.

        Parameters
        ----------
        rows : ndarray of shape (n_samples, n_features), float32, C order
        out : ndarray of shape (n_samples, n_components), float32, C order
        """
        tables, n = _tables(self), self.length
        if self._is_own:
            for block, spectra in enumerate(tables.spectra):
                signed = rows * tables.signs[block] if self.flips else rows
                to = block * n
                convolve_rows(signed, tables.choice[block], spectra, out, to, min(n, self.n_components - to))
        else:
            self._transform(rows, tables, out)
        for (block, _), (places, weights, factors) in tables.heavy.items():
            to, sizes = block * n, (*rows.shape, n)
            width = min(n, self.n_components - to)
            add_shifted(
                rows.reshape(-1), sizes, factors, places, weights, out.reshape(-1), to, width, self.n_components
            )

    @property
    def _is_own(self) -> bool:
        """True if our own loops transform the rows."""
        return self.double and self.length >= SMALLEST

    def _transform(self, dense: NDArray[np.float32], tables: _Tables, out: NDArray[np.float32]) -> None:
        """Write the products with the blocks, without heavy weights, by scipy's transforms."""
        n, spectrum = self.length, None
        for block, spectra in enumerate(tables.spectra):
            if tables.masks is None:  # one forward transform serves all blocks
                spectrum = self._spectrum(dense) if spectrum is None else spectrum
                product = spectrum * spectra[0]
            else:
                product = self._spectrum(dense * tables.masks[block, 0]) * spectra[0]
                for mixture in range(1, self.n_mixtures):
                    product += self._spectrum(dense * tables.masks[block, mixture]) * spectra[mixture]
            to = out[:, block * n : (block + 1) * n]
            to[:] = scipy.fft.irfft(product, n)[:, : to.shape[1]]

    def _spectrum(self, rows: NDArray[np.float32]) -> NDArray[np.complexfloating]:
        return scipy.fft.rfft(rows.astype(np.float64) if self.double else rows, self.length)

    def _weights(self) -> NDArray[np.float32]:
        """First columns of the circulants, shape (n_blocks, n_mixtures, length)."""
        count = self.n_blocks * self.n_mixtures
        drawn = self.draw(np.arange(count), self.length, self.stream, self.seed)
        return drawn.reshape(self.n_blocks, self.n_mixtures, self.length)

    def _signs_and_choice(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Sign and circulant of each column in each block, shape (n_blocks, n_features)."""
        shape = range(self.n_blocks), self.n_features
        signs = draw_signs(*shape, STREAM_SIGN, self.seed) if self.flips else np.ones((self.n_blocks, 1), np.float32)
        if self.n_mixtures == 1:
            return signs, np.zeros((self.n_blocks, 1), np.int64)
        words = random_words(*shape, self.choice_stream, self.seed)[:, :, 0].astype(np.uint64)
        return signs, ((words * np.uint64(self.n_mixtures)) >> np.uint64(32)).astype(np.int64)

    def _matrix(self) -> NDArray[np.float64]:
        weights, (signs, choice) = self._weights(), self._signs_and_choice()
        row, column = np.ogrid[: self.n_components, : self.n_features]
        block = row // self.length
        at = np.broadcast_to(column, (self.n_components, self.n_features))
        mixture = np.broadcast_to(choice, (self.n_blocks, self.n_features))[block, at]
        sign = np.broadcast_to(signs, (self.n_blocks, self.n_features))[block, at]
        return weights[block, mixture, (row - column) % self.length].astype(np.float64) * sign


class _Heavy(NamedTuple):
    """Weights of one circulant that are added one by one."""

    places: NDArray[np.int64]
    weights: NDArray[np.float32]
    factors: NDArray[np.float32]
    """For each column: its sign if it takes its weights from this circulant, else 0."""


class _Tables(NamedTuple):
    """Tables of each block for `project_into`."""

    spectra: Any
    """Transforms of the circulants without heavy weights, one array per block."""
    signs: NDArray[np.float32]
    choice: Any
    """Circulant of each column, padded to the length of a block, for our own transforms."""
    masks: Any
    """`factors` of each circulant of each block, for scipy's transforms; None if all are 1."""
    heavy: dict[tuple[int, int], _Heavy]
    """Heavy weights by block and circulant; only circulants that have some."""


@lru_cache(maxsize=4)
def _tables(projection: CirculantProjection) -> _Tables:
    weights, (signs, choice) = projection._weights(), projection._signs_and_choice()
    shape = projection.n_blocks, projection.n_features
    signs, choice = np.broadcast_to(signs, shape), np.broadcast_to(choice, shape)
    is_heavy = weights > projection.heavy
    heavy = {
        (block, mixture): _Heavy(
            np.flatnonzero(is_heavy[block, mixture]),
            weights[block, mixture][is_heavy[block, mixture]],
            np.where(choice[block] == mixture, signs[block], np.float32(0)),
        )
        for block, mixture in np.argwhere(is_heavy.any(axis=2)).tolist()
    }
    light = np.where(is_heavy, np.float32(0), weights)
    if projection._is_own:
        padded = np.zeros((projection.n_blocks, projection.length), np.uint16)
        padded[:, : projection.n_features] = choice
        spectra = [spectra_of(block) for block in light.astype(np.float64)]
        return _Tables(spectra, signs, padded, None, heavy)
    masks = None
    if projection.flips or projection.n_mixtures > 1:
        chosen = choice[:, None, :] == np.arange(projection.n_mixtures)[None, :, None]
        masks = np.where(chosen, signs[:, None, :], np.float32(0))
    spectra = scipy.fft.rfft(light.astype(np.float64) if projection.double else light, axis=2)
    return _Tables(spectra, signs, None, masks, heavy)
