"""Projections: linear operators x -> W x determined by a seed, which feature maps combine with a nonlinearity.

The weights of a dense projection are all independent. Structured projections use fast transforms: circulant ones by
Fourier, Fastfood and SORF by Hadamard transforms.

Y. Mukuta, Y. Ushiku, T. Harada, "Alternating Circulant Random Features for Semigroup Kernels", AAAI 2018, §3-4, eq. 3,
6 and 7; Fastfood: Q. Le, T. Sarlos, A. Smola, "Fastfood", ICML 2013.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.fft
import scipy.sparse as sp
import scipy.special
from numpy.typing import NDArray

from dkfeat.compiled.jit import aligned, owned
from dkfeat.compiled.products.convolution import SMALLEST as SMALLEST_PERIOD
from dkfeat.compiled.products.convolution import add_shifted, convolve_rows, spectra_of
from dkfeat.compiled.products.hadamard import SMALLEST, FastfoodTables, FlatRows, project_fastfood, project_orthogonal
from dkfeat.compiled.products.matrix import AHEAD, multiply_dense, multiply_sparse
from dkfeat.compiled.random import (
    STREAM_CIRCULANT,
    STREAM_DENSE,
    STREAM_FASTFOOD,
    STREAM_LENGTH,
    STREAM_MIXTURE,
    STREAM_PERMUTATION,
    STREAM_SIGN,
    TILE,
    Law,
    draw_words,
    normals,
)
from dkfeat.errors import ConfigError
from dkfeat.validation import check_integer

LARGEST_PADDED = 2**24
"""Maximum number of columns of a projection that pads rows; a row then takes 64 MiB of float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection(ABC):
    """Linear operator from n_features to n_components, defined by a few numbers.

    Tables are computed from the seed where they are needed, and kept within a memory budget. A row's projection depends
    on the row alone, and dense and sparse rows give equal values.
    """

    n_features: int
    """Number of columns of the rows, at least 1."""
    n_components: int
    """Number of rows of W, at least 1."""
    seed: int
    """Root of all random numbers, in [0, 2^64)."""

    @abstractmethod
    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Compute rows times W transposed.

        Parameters
        ----------
        X : ndarray in C order or csr_matrix in canonical form, of shape (n_samples, n_features), float32
            Rows with finite values; never changed.

        Returns
        -------
        projected : ndarray of shape (n_samples, n_components), float32, C order
        """

    @property
    def table_bytes(self) -> int:
        """Maximum memory to draw the tables of `project`, in bytes; by default 110 for each row of a padded W."""
        return 110 * (self.n_components + 2 * self.n_features)


def random_words(coordinates: range, n: int, stream: int, seed: int) -> NDArray[np.uint32]:
    """Philox words of components 0 to n - 1 for some coordinates, shape (len(coordinates), n, 4)."""
    words = np.empty((len(coordinates), n, 4), np.uint32)
    for row, coordinate in zip(words, coordinates, strict=True):
        draw_words(np.uint64(coordinate), np.uint64(stream), np.uint64(seed), row)
    return words


def draw_signs(coordinates: range, n: int, stream: int, seed: int) -> NDArray[np.float32]:
    """Draw independent values -1 or 1 with equal probability, shape (len(coordinates), n), float32."""
    bits = random_words(coordinates, n, stream, seed)[:, :, 0] >> 31
    return (1 - 2 * bits.astype(np.float32)).astype(np.float32)


def flat_rows(X: Any) -> FlatRows:
    """Convert rows to the form that compiled loops take."""
    if sp.issparse(X):
        return FlatRows(X.indptr.astype(np.int64), X.indices.astype(np.int64), owned(X.data), X.shape[1])
    nothing = np.empty(0, np.int64)
    return FlatRows(nothing, nothing, owned(X).reshape(-1), X.shape[1])


_WHOLE_BYTES = 16 * 2**20
"""Maximum size in bytes of a W that is kept as a whole; at most four are kept."""
_GROUP_BYTES = 4 * 2**20
"""Bytes of tiles drawn together if W is larger; at least one tile is drawn."""
_MOST_COLUMNS = 2**18
"""Maximum number of columns with weights drawn together, 64 MiB a tile; rows with more are processed in parts."""

Tables: TypeAlias = Iterable[tuple[int, int, NDArray[Any]]]
"""First component, number of components and their weights, of shape (n_tiles, n_columns, 64), flat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseProjection(Projection):
    """Projection with a matrix W of independent entries.

    The number of columns is unbounded: an entry is a function of (seed, column, component), computed when a column
    occurs.

    Parameters
    ----------
    n_features, n_components, seed : int
        Number of columns of the rows, number of rows of W, and root of the random streams.
    draw : Law, default=normals
        Distribution of the entries; standard Gaussian by default.
    stream : int
        Random stream of the entries.

    Examples
    --------
    >>> W = DenseProjection(n_features=2**40, n_components=2, seed=7)
    >>> row = sp.csr_matrix((np.ones(1, np.float32), ([0], [2**39])), shape=(1, 2**40))
    >>> W.project(row).shape
    (1, 2)
    """

    draw: Law = normals
    stream: int = STREAM_DENSE

    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Compute rows times W transposed; see `Projection.project`."""
        out = np.zeros((X.shape[0], self._n_tiles * TILE), np.float32)
        if sp.issparse(X):
            self._add_sparse(X, out)
        elif self._is_whole:
            add_dense(X, self._whole(), out)
        else:
            for first in range(0, self.n_features, _MOST_COLUMNS):
                part = X[:, first : first + _MOST_COLUMNS]
                add_dense(part, self._groups(np.arange(first, first + part.shape[1])), out)
        return np.ascontiguousarray(out[:, : self.n_components])

    @property
    def table_bytes(self) -> int:
        """See `Projection.table_bytes`."""
        if self._is_whole:
            return 4 * self.n_features * self._n_tiles * TILE
        return max(4 * min(self.n_features, _MOST_COLUMNS) * TILE, _GROUP_BYTES)

    @property
    def _n_tiles(self) -> int:
        return -(-self.n_components // TILE)

    @property
    def _is_whole(self) -> bool:
        """True if the table of all columns is kept."""
        return 4 * self.n_features * self._n_tiles * TILE <= _WHOLE_BYTES

    def _add_sparse(self, X: Any, out: NDArray[np.float32]) -> None:
        """Add products with the weights of the columns that occur, a limited number of columns at a time."""
        indptr, indices, values, _ = flat_rows(X)
        if self._is_whole:
            add_listed(indptr, indices, values, self.n_features, self._whole(), out)
            return
        columns, positions = columns_present(indices, self.n_features)
        if len(columns) <= _MOST_COLUMNS:
            add_listed(indptr, positions, values, len(columns), self._groups(columns), out)
        elif X.shape[0] > 1:
            half = X.shape[0] // 2
            self._add_sparse(X[:half], out[:half])
            self._add_sparse(X[half:], out[half:])
        else:
            for first in range(0, len(indices), _MOST_COLUMNS):
                columns = indices[first : first + _MOST_COLUMNS]
                bounds, part = np.array([0, len(columns)]), owned(values[first : first + _MOST_COLUMNS])
                add_listed(bounds, np.arange(len(columns)), part, len(columns), self._groups(columns), out)

    def _whole(self) -> Tables:
        return [(0, self.n_components, _whole_table(self, self._n_tiles))]

    def _groups(self, columns: NDArray[np.int64]) -> Tables:
        """Yield tables of a few tiles at a time, all in one buffer."""
        size = max(1, _GROUP_BYTES // (max(len(columns), 1) * TILE * 4))
        tables = np.empty((min(size, self._n_tiles), len(columns), TILE), np.float32)
        for first in range(0, self._n_tiles, size):
            count = min(size, self._n_tiles - first)
            for tile in range(count):
                self.draw(columns, TILE, self.stream, self.seed, first=(first + tile) * TILE, out=tables[tile])
            yield first * TILE, min(count * TILE, self.n_components - first * TILE), tables.reshape(-1)


def add_dense(X: NDArray[Any], tables: Tables, out: NDArray[Any]) -> None:
    """Add products of dense rows; `out` has the columns of all tiles."""
    values, (n_samples, n_columns) = owned(X).reshape(-1), X.shape
    for first, count, table in tables:
        multiply_dense(values, n_samples, n_columns, table, count, out.reshape(-1), first, out.shape[1])


def add_listed(indptr: Any, positions: Any, values: Any, n_columns: int, tables: Tables, out: Any) -> None:
    """Add products of sparse rows with the columns of a table, given by their positions."""
    padded = np.append(positions, np.zeros(AHEAD, np.int64))
    for first, count, table in tables:
        multiply_sparse(indptr, padded, values, n_columns, table, count, out.reshape(-1), first, out.shape[1])


@lru_cache(maxsize=4)
def _whole_table(projection: DenseProjection, n_tiles: int) -> NDArray[np.float32]:
    columns = np.arange(projection.n_features)
    table = np.empty((n_tiles, len(columns), TILE), np.float32)
    for tile in range(n_tiles):
        projection.draw(columns, TILE, projection.stream, projection.seed, first=tile * TILE, out=table[tile])
    return table.reshape(-1)


def columns_present(indices: NDArray[np.int64], n_features: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the columns that occur, frequent ones first, and the position of each index among them.

    The weights of frequent columns are then adjacent in memory, which uses the caches better.
    """
    if n_features <= 4 * len(indices) + 2**16:  # counting is faster than sorting
        counts = np.bincount(indices, minlength=n_features)
        columns = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        ranks = np.empty(n_features, np.int64)
        ranks[columns] = np.arange(len(columns))
        return columns, ranks[indices]
    columns, positions, counts = np.unique(indices, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    ranks = np.empty(len(columns), np.int64)
    ranks[order] = np.arange(len(columns))
    return columns[order], ranks[positions]


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredProjection(Projection):
    """Base of projections with independent square blocks; the last one is truncated."""

    def __post_init__(self) -> None:
        if self.n_features > LARGEST_PADDED:
            raise ConfigError(
                f"n_features={self.n_features:,}, but a structured projection makes rows dense and takes at most "
                f"{LARGEST_PADDED:,} columns; choose projection='dense', which draws only the columns that occur"
            )

    @property
    def length(self) -> int:
        """Rows and columns of a block: the smallest power of two, at least 16, that is not below n_features."""
        return max(SMALLEST, 1 << (self.n_features - 1).bit_length())

    @property
    def n_blocks(self) -> int:
        """Number of independent blocks, ceil(n_components / length)."""
        return -(-self.n_components // self.length)


_BLOCK_NUMBERS = 2**17
"""Numbers of a transform's input processed at a time; they fit the second-level cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CirculantProjection(StructuredProjection):
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
    draw : Law, default=normals
        Distribution of the weights; standard Gaussian by default.
    double : bool, default=False
        Transform in float64, which takes twice the time.
    heavy : float, default=inf
        Weights above this value are added one by one instead of being transformed. Heavy-tailed distributions need
        this, because the rounding errors of a transform are relative to the largest weight.
    stream, choice_stream : int
        Random streams of the weights and of the choice of a circulant for each column.

    Examples
    --------
    >>> projection = CirculantProjection(n_features=3, n_components=3, seed=0, flips=False)
    >>> W = projection.project(np.eye(3, dtype=np.float32)).T
    >>> bool(np.allclose(W.diagonal(), W[0, 0], atol=1e-6))
    True
    """

    n_mixtures: int = 1
    flips: bool = True
    draw: Law = normals
    double: bool = False
    heavy: float = math.inf
    stream: int = STREAM_CIRCULANT
    choice_stream: int = STREAM_MIXTURE

    @property
    def length(self) -> int:
        """Rows and columns of a block: n_features, padded; a power of two if `double` and n_features > 128."""
        if self.double and self.n_features > SMALLEST_PERIOD // 2:
            return 1 << (self.n_features - 1).bit_length()
        return int(scipy.fft.next_fast_len(self.n_features, real=True))

    @property
    def table_bytes(self) -> int:
        """See `Projection.table_bytes`: measured memory of spectra, masks and the arrays they are made from."""
        return (40 + (28 if self.double else 20) * self.n_mixtures) * self.n_blocks * self.length

    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Compute rows times W transposed; see `Projection.project`."""
        n_samples = X.shape[0]
        out = np.empty((n_samples, self.n_components), np.float32)
        rows_at_once = max(1, _BLOCK_NUMBERS // self.length)
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
        tables, n = _circulant_tables(self), self.length
        if self._uses_compiled_loops:
            for block, spectra in enumerate(tables.spectra):
                signed = rows * tables.signs[block] if self.flips else rows
                to = block * n
                convolve_rows(signed, tables.choice[block], spectra, out, to, min(n, self.n_components - to))
        else:
            self._transform(rows, tables, out)
        flat, sizes = rows.reshape(-1), (*rows.shape, n)
        for block, shifts, weights, mask in tables.heavy:
            to = block * n
            width = min(n, self.n_components - to)
            add_shifted(flat, sizes, mask, shifts, weights, out.reshape(-1), to, width, self.n_components)

    @property
    def _uses_compiled_loops(self) -> bool:
        """True if compiled loops transform the rows, instead of scipy."""
        return self.double and self.length >= SMALLEST_PERIOD

    def _transform(self, dense: NDArray[np.float32], tables: _CirculantTables, out: NDArray[np.float32]) -> None:
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


def check_mixtures(n_mixtures: Any, name: str = "n_mixtures") -> int | Literal["log2"]:
    """Return an estimator's parameter if it is "log2" or an integer from 1 to 65,536, or raise ConfigError."""
    if isinstance(n_mixtures, str):
        if n_mixtures != "log2":
            raise ConfigError(f"{name}={n_mixtures!r}, but it must be 'log2' or an integer from 1 to 65,536")
        return "log2"
    return check_integer(n_mixtures, name, low=1, high=2**16)


def mixtures_of(n_mixtures: int | Literal["log2"], n_features: int) -> int:
    """Return the number of circulant matrices that a projection mixes.

    It is n_mixtures itself; for "log2" the base-2 logarithm of n_features, rounded up, and at least 2.

    Examples
    --------
    >>> mixtures_of("log2", 1000), mixtures_of("log2", 1), mixtures_of(5, 1000)
    (10, 2, 5)
    """
    return max(2, (n_features - 1).bit_length()) if n_mixtures == "log2" else n_mixtures


class _CirculantTables(NamedTuple):
    """Tables of each block for `project_into`."""

    spectra: Any
    """Transforms of the circulants without heavy weights, one array per block."""
    signs: NDArray[np.float32]
    choice: Any
    """Circulant of each column, padded to the length of a block, for compiled loops."""
    masks: Any
    """Sign of each column that takes its weights from a circulant of a block, else 0, for scipy's transforms; None if
    all are 1."""
    heavy: list[tuple[int, NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]]
    """Circulants with weights that are added one by one: number of the block, positions of these weights in the first
    column, the weights, and the circulant's mask."""


@lru_cache(maxsize=4)
def _circulant_tables(projection: CirculantProjection) -> _CirculantTables:
    weights, (signs, choice) = projection._weights(), projection._signs_and_choice()
    shape = projection.n_blocks, projection.n_features
    signs, choice = np.broadcast_to(signs, shape), np.broadcast_to(choice, shape)
    is_heavy = weights > projection.heavy
    heavy = []
    for block, mixture in np.argwhere(is_heavy.any(axis=2)).tolist():
        shifts = np.flatnonzero(is_heavy[block, mixture])
        mask = np.where(choice[block] == mixture, signs[block], np.float32(0))
        heavy.append((block, shifts, weights[block, mixture][shifts], mask))
    light = np.where(is_heavy, np.float32(0), weights)
    if projection._uses_compiled_loops:
        padded = np.zeros((projection.n_blocks, projection.length), np.uint16)
        padded[:, : projection.n_features] = choice
        spectra = [spectra_of(block) for block in light.astype(np.float64)]
        return _CirculantTables(spectra, signs, padded, None, heavy)
    masks = None
    if projection.flips or projection.n_mixtures > 1:
        chosen = choice[:, None, :] == np.arange(projection.n_mixtures)[None, :, None]
        masks = np.where(chosen, signs[:, None, :], np.float32(0))
    spectra = scipy.fft.rfft(light.astype(np.float64) if projection.double else light, axis=2)
    return _CirculantTables(spectra, signs, None, masks, heavy)


@dataclass(frozen=True, slots=True, kw_only=True)
class FastfoodProjection(StructuredProjection):
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
    >>> W.length, W.n_blocks
    (32, 4)
    """

    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Compute rows times W transposed; see `Projection.project`."""
        tables = FastfoodTables._make(table.reshape(-1) for table in _fastfood_tables(self))
        out = aligned(X.shape[0] * self.n_components, np.float32).reshape(X.shape[0], self.n_components)
        project_fastfood(flat_rows(X), tables, self.length, self.n_components, out.reshape(-1))
        return out


@lru_cache(maxsize=4)
def _fastfood_tables(projection: FastfoodProjection) -> FastfoodTables:
    """Diagonals and permutation of all blocks, each of shape (n_blocks, length)."""
    n, seed, blocks = projection.length, projection.seed, range(projection.n_blocks)
    gaussians = normals(np.arange(len(blocks)), n, STREAM_FASTFOOD, seed)
    keys = random_words(blocks, n, STREAM_PERMUTATION, seed).astype(np.uint64)
    words = random_words(blocks, n, STREAM_LENGTH, seed).astype(np.uint64)
    # adding 0.5 to a 52-bit integer keeps a uniform number inside (0, 1); chi squared with n degrees of freedom is
    # twice Gamma(n / 2)
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
class OrthogonalProjection(StructuredProjection):
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
    >>> W = OrthogonalProjection(n_features=16, n_components=16, seed=0).project(np.eye(16, dtype=np.float32)).T
    >>> bool(np.allclose(W @ W.T, 16 * np.eye(16), atol=1e-4))
    True
    """

    def project(self, X: NDArray[np.float32] | sp.csr_matrix) -> NDArray[np.float32]:
        """Compute rows times W transposed; see `Projection.project`."""
        first, second, third = _orthogonal_signs(self)
        out = aligned(X.shape[0] * self.n_components, np.float32).reshape(X.shape[0], self.n_components)
        # sqrt(n) times three factors 1 / sqrt(n) is 1 / n, a power of two, so its position does not change rounding
        diagonals = first.reshape(-1), second.reshape(-1), third.reshape(-1) / np.float32(self.length)
        project_orthogonal(flat_rows(X), diagonals, self.length, self.n_components, out.reshape(-1))
        return out


@lru_cache(maxsize=4)
def _orthogonal_signs(projection: OrthogonalProjection) -> NDArray[np.float32]:
    """Signs of D1, D2 and D3, shape (3, n_blocks, length)."""
    n_blocks, n = projection.n_blocks, projection.length
    signs = draw_signs(range(3 * n_blocks), n, STREAM_SIGN, projection.seed)
    return np.ascontiguousarray(signs.reshape(n_blocks, 3, n).transpose(1, 0, 2))
