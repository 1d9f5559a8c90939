"""Base classes of maps that sample each row for the GMM kernel, and estimates from the codes of the samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat.blocks import PackedCodes
from dkfeat.compiled.jit import owned
from dkfeat.compiled.sampling.codes import in_whole_bytes, keep_best, one_hot_columns, sum_weights
from dkfeat.errors import InputError
from dkfeat.kernels import gmm
from dkfeat.kernels.minmax import gmm_pairs
from dkfeat.maps._base import FeatureMap, Fitted
from dkfeat.maps._kernel_estimates import Codes, EstimatedKernel
from dkfeat.maps._rows import RowPreparation, RowsFrom, check_center, slice_rows
from dkfeat.process_cache import METER
from dkfeat.theory.fourier import gcws_variance
from dkfeat.validation import MAX_POWER, check_choice, check_real

_INT32_MAX = 2**31 - 1
_TRACED, _TRACED_RARE = 2**20, 2**23
"""Number of samples whose coordinates are in memory at a time, and that where few rows share a column.

A table of GCWS then serves more rows, which outweighs that the coordinates leave the caches.
"""


PREPARATION_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "p": partial(check_real, above=0, high=MAX_POWER),
    "center": check_center,
    "normalize": partial(check_choice, choices=(None, "l1", "l2", "max")),
}
"""Checks of the parameters of `WeightedMap` that prepare rows."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedSamples(Fitted):
    """State of a fitted map that samples."""

    bits: int
    """Bits of a code."""
    preparation: RowPreparation
    mode: Any = None
    """Mode of the codes, for maps that have several."""


class SampledMap(FeatureMap):
    """Base class of maps that sample one coordinate for each component, whose state is a `FittedSamples`.

    A subclass has the parameters `n_components` and `random_state`, and parameters of its own, which it adds to the
    spec.
    """

    layout = "codes"

    def encode(self, X: Any) -> PackedCodes:
        """Compute codes as shards store them.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        encoded : PackedCodes
            ``codes``: ndarray of shape (n_samples, encoded_row_bytes), uint8; components in order, least significant
            bit first. ``empty``: the all-zero rows.

        Examples
        --------
        >>> from dkfeat import GCWSFeatures
        >>> encoded = GCWSFeatures(n_components=4, i_bits=4, random_state=0).fit_width(3).encode(np.eye(2, 3))
        >>> encoded.codes.tolist(), encoded.empty.tolist()
        ([[0, 0], [34, 34]], [False, False])
        """
        return self._encode_rows(self._check_rows(X))

    def decode(self, encoded: PackedCodes) -> sp.csr_matrix:
        """Expand packed codes to one-hot rows: ``decode(encode(X))`` equals ``transform(X)``.

        Parameters
        ----------
        encoded : PackedCodes
            From `encode`, or from a shard.

        Returns
        -------
        features : csr_matrix of shape (n_samples, n_features_out), float32
            Rows of n_components ones, none in an empty row. Indices are int32, or int64 if the width or the number of
            ones exceeds 2^31 - 1.

        Raises
        ------
        dkfeat.errors.InputError
            If the arrays are not codes of this map.
        """
        s = self._fitted
        codes, empty = self._checked_codes(encoded)
        n_samples = len(empty)
        ones = np.where(empty, 0, s.params["n_components"])
        indptr = np.concatenate([[0], np.cumsum(ones)])
        index_dtype = np.int32 if max(self.n_features_out, indptr[-1]) <= _INT32_MAX else np.int64
        columns = np.empty(indptr[-1], index_dtype)
        one_hot_columns(codes, empty, s.params["n_components"], s.bits, columns)
        data = np.ones(len(columns), np.float32)
        features = sp.csr_matrix((data, columns, indptr.astype(index_dtype)), shape=(n_samples, self.n_features_out))
        features.has_canonical_format = True
        return features

    def _weighted_sums(self, encoded: PackedCodes, table: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute ``decode(encoded) @ table``, with the same bits, for a table of shape (n_features_out, n_outputs)."""
        s = self._fitted
        codes, empty = self._checked_codes(encoded)
        sums = np.zeros((len(empty), table.shape[1]), np.float32)
        sum_weights(codes, empty, s.params["n_components"], s.bits, table, sums)
        return sums

    def _checked_codes(self, encoded: PackedCodes) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Return the arrays of packed codes, contiguous, or raise InputError if they are not of this map."""
        if not isinstance(encoded, PackedCodes):
            raise InputError(
                f"got {type(encoded).__name__}, but it must be codes: pass the result of encode(X), or codes of a shard"
            )
        codes, empty = np.asarray(encoded.codes), np.asarray(encoded.empty)
        if codes.shape != (len(empty), self.encoded_row_bytes) or codes.dtype != np.uint8 or empty.dtype != np.bool_:
            raise InputError(
                f"codes have the shape {codes.shape} and dtype {codes.dtype}, and `empty` has {len(empty)} values of "
                f"{empty.dtype}, but this map needs {self.encoded_row_bytes} bytes of uint8 and one bool for each row; "
                "pass codes of this map"
            )
        return owned(codes), owned(empty)

    @property
    def n_features_out(self) -> int:
        """Number of columns of `transform`: n_components * 2^b, for b bits in a code."""
        return self._fitted.params["n_components"] << self._fitted.bits

    @property
    def encoded_row_bytes(self) -> int:
        """Size of a packed row in bytes: ceil(n_components * b / 8), for b bits in a code."""
        return (self._fitted.params["n_components"] * self._fitted.bits + 7) // 8

    @property
    def code_bits(self) -> int:
        """Number of bits of a code."""
        return self._fitted.bits

    def estimate_kernel(self, X: PackedCodes, Y: PackedCodes | None = None) -> NDArray[np.float64]:
        """Estimate the (p)GMM kernel from codes alone.

        The estimate is the fraction of equal codes, corrected for the codes of different samples that are equal by
        chance, as the Notes of the class describe. So chance adds no bias, and the estimate may fall slightly below 0.

        Parameters
        ----------
        X : PackedCodes
            Codes of n_x rows, from this map or one of equal fingerprint.
        Y : PackedCodes, default=X
            Codes of n_y rows.

        Returns
        -------
        similarities : ndarray of shape (n_x, n_y), float64
            Estimates; 0 if either row is empty.

        See Also
        --------
        dkfeat.kernels.gmm : Exact values of the kernel.

        Examples
        --------
        >>> from dkfeat import GCWSFeatures
        >>> X = np.random.default_rng(0).lognormal(size=(2, 100))
        >>> features = GCWSFeatures(n_components=4096, random_state=0).fit(X)
        >>> bool(abs(features.estimate_kernel(features.encode(X)) - gmm(X)).max() < 0.05)
        True
        """
        left = self.decode(X)
        right = left if Y is None else self.decode(Y)
        rates = (left @ right.T).toarray() / np.float64(self._fitted.params["n_components"])
        chance = self._chance(left, right)
        empty_left, empty_right = (np.diff(rows.indptr) == 0 for rows in (left, right))
        return np.where(empty_left[:, None] | empty_right, 0.0, (rates - chance) / (1.0 - chance))

    def exact_pairs(self, X: Any, Y: Any, left: NDArray[np.integer], right: NDArray[np.integer]) -> NDArray[np.float64]:
        """Compute the exact kernel of single pairs of rows: ``exact_kernel(X, Y)[left, right]``, the same bits.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_x, n_features)
        Y : like X, of shape (n_y, n_features)
        left, right : ndarray of shape (n_pairs,), int
            Row of X and row of Y of each pair.

        Returns
        -------
        similarities : ndarray of shape (n_pairs,), float64

        Examples
        --------
        >>> import dkfeat
        >>> X = np.array([[1.0, -2.0], [1.0, 2.0], [2.0, -4.0]])
        >>> dkfeat.DartFeatures(normalize="l1").fit(X).exact_pairs(X, X, np.array([0, 0]), np.array([1, 2]))
        array([0.2, 1. ])
        """
        rows = self._prepared(self._check_rows(X))
        others = rows if Y is X else self._prepared(self._check_rows(Y))
        return gmm_pairs(rows, others, left, right, p=self._power)

    def _keep_most_similar(
        self, X: PackedCodes, Y: PackedCodes, first_row: int, own: NDArray[np.int64], heaps: NDArray[np.int64]
    ) -> None:
        """Compare codes, and keep for each row of X the rows of Y with the most equal codes.

        Parameters
        ----------
        X, Y : PackedCodes
            Codes of n_x and n_y rows.
        first_row, own, heaps
            See `dkfeat.compiled.sampling.codes.keep_best`.
        """
        n, bits = self._fitted.params["n_components"], self._fitted.bits
        (codes, wide), (others, _) = (in_whole_bytes(rows.codes, n, bits) for rows in (X, Y))
        keep_best((codes, X.empty), (others, Y.empty), first_row, own, heaps, n, wide)

    def _similarity_of_counts(self, counts: NDArray[np.integer]) -> NDArray[np.float64]:
        """Estimate the kernel from counts of equal codes, see `Codes.similarity_of_counts`."""
        return Codes.of(self.to_spec()).similarity_of_counts(counts)

    @property
    def chance(self) -> float:
        """Probability that the codes of different samples are equal, at most: 2^-b, or 0 if codes are not mixed."""
        return Codes.of(self.to_spec()).chance

    @abstractmethod
    def _encode_block(
        self, rows: sp.csr_matrix, i_star: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Compute packed codes of prepared rows, and which rows are empty.

        `i_star`, if given, is filled with the coordinates that the codes come from: twice the column, plus 1 for a
        negative value. Empty rows are left as they are.
        """

    def _traced_blocks(self, X: Any) -> Iterator[tuple[sp.csr_matrix, PackedCodes, NDArray[np.int64]]]:
        """Yield prepared rows, in blocks, with their codes and the coordinates that these come from.

        The coordinates are those of rows that are not empty; the next block overwrites them.
        """
        X, n_components = self._check_rows(X), self._fitted.params["n_components"]
        drawn = X.indices[: X.indptr[min(X.shape[0], 100)]] if sp.issparse(X) else ()
        most = _TRACED_RARE if 10 * len(np.unique(drawn)) > len(drawn) else _TRACED
        step = max(1, min(most // n_components, X.shape[0]))
        buffer = np.empty((step, n_components), np.int64)
        for first in range(0, max(X.shape[0], 1), step):
            with RowsFrom(first):
                for rows in self._fitted.preparation.blocks(slice_rows(X, slice(first, min(first + step, X.shape[0])))):
                    i_star = buffer[: rows.shape[0]]
                    yield rows, PackedCodes(*self._encode_block(rows, i_star)), i_star

    def columns_of_codes(self, X: Any) -> sp.csr_matrix:
        """Count, for each column of `transform`, in how many rows it comes from each column of the input.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)
            Rows, such as a sample of the training rows: codes alone do not tell the columns.

        Returns
        -------
        counts : csr_matrix of shape (n_features_out, n_features), int64

        Examples
        --------
        >>> from dkfeat import GCWSFeatures
        >>> X = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 2.0]])
        >>> counts = GCWSFeatures(n_components=2, i_bits=2, random_state=0).fit(X).columns_of_codes(X)
        >>> counts.toarray().tolist()
        [[1, 0], [0, 0], [0, 2], [0, 0], [1, 0], [0, 0], [0, 2], [0, 0]]
        """
        shape = self.n_features_out, self.n_features_in_
        counts = sp.csr_matrix(shape, dtype=np.int64)
        for _, packed, i_star in self._traced_blocks(X):
            codes, columns = self.decode(packed).indices, i_star[~packed.empty].reshape(-1) >> 1
            counts += sp.csr_matrix((np.ones(len(codes), np.int64), (codes, columns)), shape=shape)
        return counts

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002 - scikit-learn's argument
        """Name the columns of `transform` by component and code, such as ``gcwsfeatures3_17``.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        names : ndarray of shape (n_features_out,), object
        """
        name, codes = type(self).__name__.lower(), range(1 << self._fitted.bits)
        components = range(self._fitted.params["n_components"])
        return np.array([f"{name}{component}_{code}" for component in components for code in codes], object)

    def _chance(self, left: sp.csr_matrix, right: sp.csr_matrix) -> float | NDArray[np.float64]:  # noqa: ARG002 - of codes with levels
        """Return the probability that codes of different samples are equal, for pairs of one-hot rows."""
        return self.chance

    def _gmm_kernel(self, chance_bits: int | None, note: str = "") -> EstimatedKernel:
        """Describe the kernel; `chance_bits` are the bits b of codes that are equal with a chance of 2^-b, if any."""
        n_components, p = self._fitted.params["n_components"], self._power

        def exact(X: Any, Y: Any) -> NDArray[np.float64]:
            return gmm(self._prepared(X), None if Y is None else self._prepared(Y), p=p)

        def variance_at(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return gcws_variance(np.clip(values, 0.0, 1.0), chance_bits) / n_components

        name = "GMM" if p == 1 else f"pGMM, p = {p:g}"
        return EstimatedKernel(name=name, exact=exact, variance_at=variance_at, note=note)

    @property
    def _power(self) -> float:
        power: float = self._fitted.params.get("p", 1.0)
        return power

    def _prepared(self, X: Any) -> sp.csr_matrix:
        blocks = list(self._fitted.preparation.blocks(X))
        rows = sp.vstack(blocks, format="csr") if len(blocks) > 1 else blocks[0]
        rows.has_canonical_format = True  # which scipy would check again
        return rows

    def _transform_rows(self, X: Any) -> sp.csr_matrix:
        return self.decode(self._encode_rows(X))

    def _encode_rows(self, X: Any) -> PackedCodes:
        n_samples, first = X.shape[0], 0
        packed = PackedCodes(np.empty((n_samples, self.encoded_row_bytes), np.uint8), np.empty(n_samples, np.bool_))
        for rows in self._fitted.preparation.blocks(X):
            last = first + rows.shape[0]
            packed.codes[first:last], packed.empty[first:last] = self._encode_block(rows)
            METER.processed(last / max(1, n_samples))
            first = last
        return packed


class WeightedMap(SampledMap):
    """Base class of maps that sample a coordinate in proportion to its weight.

    A subclass has the parameters `p`, `center` and `normalize` besides those of `SampledMap`.
    """

    p: float
    center: Any
    normalize: Literal["l1", "l2", "max"] | None

    def sample(self, X: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compute the full samples, of which codes keep a few bits.

        Two rows have the same sample in a component with a probability of their kernel.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        i_star : ndarray of shape (n_samples, n_components), int64
            Sampled coordinates: 2 * column, plus 1 for a negative value. -1 in an all-zero row.
        t_star : ndarray of shape (n_samples, n_components), int64
            The levels of `GCWSFeatures`; the darts of `DartFeatures`, e * 2^32 + n for arrival n, from 0, of weights
            from 2^e to 2^(e + 1). 0 in an all-zero row.

        Examples
        --------
        >>> from dkfeat import DartFeatures, GCWSFeatures
        >>> for kind in (GCWSFeatures, DartFeatures):
        ...     i_star, t_star = kind(n_components=3, random_state=0).fit_width(2).sample(np.array([[0.0, -4.0]]))
        ...     print(i_star)
        [[3 3 3]]
        [[3 3 3]]
        """
        parts = [self._sample_block(rows) for rows in self._fitted.preparation.blocks(self._check_rows(X))]
        i_star, t_star = (
            np.concatenate(arrays) if len(parts) > 1 else arrays[0] for arrays in zip(*parts, strict=True)
        )
        return i_star, t_star

    @property
    def _valid_width(self) -> int:
        """See `FeatureMap._valid_width`."""
        return max(1, len(self.center)) if np.ndim(self.center) == 1 else super()._valid_width

    @abstractmethod
    def _sample_block(self, rows: sp.csr_matrix) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compute the full samples of prepared rows."""
