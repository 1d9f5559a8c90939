"""Rows as maps take them: from Dask arrays, centred and normalised in blocks of bounded size, or as float32 with norms.

Dask arrays are recognised by their attributes and Dask's collection protocol, so that this layer does not import Dask.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat import canonical
from dkfeat.compiled.jit import owned
from dkfeat.compiled.products.rows import (
    L1,
    L2,
    MAX,
    normalise_rows,
    squares_of_dense,
    squares_of_sparse,
    sum_magnitudes,
)
from dkfeat.compiled.sampling.gcws import SWEPT_ROWS
from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels._rows import repeated_row
from dkfeat.validation import cell_error, check_columns, check_finite, check_real, rows_as_csr


def is_dask(X: Any) -> bool:
    """Return True for a Dask collection."""
    return hasattr(X, "__dask_graph__")


def dask_width(X: Any) -> int:
    """Return the number of columns of a Dask array, or raise InputError if it is unknown."""
    width = X.shape[1] if len(getattr(X, "shape", ())) == 2 else None
    if width is None or np.isnan(width):
        raise InputError(
            f"a Dask array of shape {X.shape} has no known column count; state it where the array is made, or, for a "
            "map that needs no rows, call fit_width(n_features)"
        )
    return int(width)


def with_whole_rows(X: Any) -> Any:
    """Merge the column chunks of a two-dimensional Dask array, or raise InputError for anything else."""
    is_array = all(hasattr(X, name) for name in ("map_blocks", "chunks", "numblocks"))
    if not is_array or X.ndim != 2:
        got = f"{type(X).__name__} of {getattr(X, 'ndim', '?')} dimensions"
        raise InputError(
            f"X is a {got}, but must be a two-dimensional Dask array; convert it, for instance by to_dask_array"
        )
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


class _OneKey:
    """Dask collection of a single value, which each worker receives once and not with every task."""

    __dask_optimize__ = None

    def __init__(self, value: Any, key: str) -> None:
        self._value, self._key = value, key

    def __dask_graph__(self) -> dict[str, Any]:
        return {self._key: self._value}

    def __dask_keys__(self) -> list[str]:
        return [self._key]

    def __dask_postcompute__(self) -> tuple[Callable[[Any], Any], tuple[()]]:
        return itemgetter(0), ()

    def __dask_tokenize__(self) -> str:
        return self._key


def transform_blocks(fitted: Any, X: Any) -> Any:
    """Transform a Dask array lazily, block by block.

    Parameters
    ----------
    fitted : FeatureMap
        Fitted on the width of X. Each worker receives it once, not with every task.
    X : dask.array.Array of shape (n_samples, n_features)
        Blocks of numpy arrays or scipy sparse matrices or arrays. Row chunks may be unknown; several column
        chunks are merged first.

    Returns
    -------
    features : dask.array.Array of shape (n_samples, n_features_out), float32
        With the row chunks of X. Blocks are numpy arrays for a map of layout "dense", else csr_matrix.

    Raises
    ------
    dkfeat.errors.InputError
        If X is not a two-dimensional Dask array, or its width is not the fitted one. When computed, if a value is not
        finite; row numbers count from the start of the block, whose number is in a note of the exception.

    Examples
    --------
    >>> import dask.array as da
    >>> from dkfeat.maps import GCWSFeatures
    >>> X = da.ones((6, 3), chunks=(2, 3))
    >>> transform_blocks(GCWSFeatures(n_components=4, random_state=0).fit(X), X)
    dask.array<gcws, shape=(6, 1024), dtype=float32, chunksize=(2, 1024), chunktype=scipy.csr_matrix>
    """
    X = with_whole_rows(X)
    check_columns(X.shape[1], fitted.n_features_in_, type(fitted).__name__)
    fingerprint = fitted.fingerprint()
    return X.map_blocks(
        _transform,
        fitted=_OneKey(fitted, f"{fitted.name}-map-{fingerprint}"),
        name=f"{fitted.name}-{canonical.fingerprint([fingerprint, X.name])[:32]}",
        dtype=np.float32,
        chunks=(X.chunks[0], (fitted.n_features_out,)),
        meta=np.empty((0, 0), np.float32) if fitted.layout == "dense" else sp.csr_matrix((0, 0), dtype=np.float32),
    )


def _transform(block: Any, fitted: Any, block_id: tuple[int, int]) -> Any:
    try:
        return fitted.transform(block)
    except InputError as error:
        error.add_note(f"in row block {block_id[0]} of the Dask array")
        raise


def count_rows(X: Any) -> tuple[Any, int]:
    """Return the array with merged column chunks and known row chunks, and the number of its rows.

    Rows of unknown chunks are counted, which computes every block once.
    """
    X = with_whole_rows(X)
    if np.isnan(X.shape[0]):
        X = X.copy().compute_chunk_sizes()  # it changes the array in place
    return X, int(X.shape[0])


def take_rows(X: Any, numbers: NDArray[np.int64]) -> sp.csr_matrix:
    """Take rows by ascending row numbers; only the blocks that contain them are computed.

    Parameters
    ----------
    X : dask.array.Array of shape (n_samples, n_features)
        From `count_rows`.
    numbers : ndarray of shape (n_taken,), int64

    Returns
    -------
    rows : csr_matrix of shape (n_taken, n_features)

    Examples
    --------
    >>> import dask.array as da
    >>> X = da.arange(12, chunks=4).reshape(6, 2)
    >>> take_rows(X, np.array([0, 5])).toarray().tolist()
    [[0, 1], [10, 11]]
    """
    return sp.csr_matrix(X[numbers].compute())


def check_sets(rows: Any, *, first_row: int = 0) -> None:
    """Raise InputError naming the first cell of an array or canonical CSR that is neither 0 nor 1.

    Examples
    --------
    >>> check_sets(np.array([[0.0, 1.0], [3.0, 0.0]]))
    Traceback (most recent call last):
    ...
    dkfeat.errors.InputError: X holds 3 at row 1, column 0 (counted from 0), but a set has zeros and ones alone; ...
    """
    cells = rows.data if sp.issparse(rows) else rows
    step = max(1, _CHECKED_CELLS // max(1, cells[:1].size))
    for start in range(0, len(cells), step):
        part = cells[start : start + step]
        other = part != 1
        if not sp.issparse(rows):
            other &= part != 0
        if other.any():
            remedy = "a set has zeros and ones alone; use DartFeatures (map dart) for other values, or set them to 1"
            at = start * cells[:1].size + int(other.argmax())
            raise cell_error(rows, at, remedy, first_row=first_row)


_CHECKED_CELLS = 2**18
"""Maximum number of values that are checked at a time, to bound the memory of a check."""
_BLOCK_CELLS = 2**23
"""Maximum number of values in a dense or centred block, to bound the memory of a call besides its result."""
_BLOCK_NONZEROS = 2**21
"""Approximate number of nonzeros in a sparse block; sampling needs at most 27 bytes for each."""
_CENTER_LIMIT = 2**24
"""Maximum number of columns with a centre; with more, a row would be a dense vector of more than 128 MiB."""
_NORMS = {"l1": L1, "l2": L2, "max": MAX}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowPreparation:
    """Centre to subtract from rows, and norm to divide them by afterwards, before they are hashed."""

    n_features: int
    center: float | NDArray[np.float64] | None
    """Number subtracted from every value, or row subtracted from every row, including absent entries of sparse rows."""
    normalize: Literal["l1", "l2", "max"] | None
    """Norm by which each row is divided, in float64."""
    takes_sets: bool = False
    """True if rows must be sets, of zeros and ones alone."""

    @classmethod
    def of(cls, n_features: int, center: float | list[float] | None, normalize: Any) -> RowPreparation:
        """Make a preparation from checked parameters, or raise ConfigError if they do not suit the width."""
        columns = np.array(center) if isinstance(center, list) else center
        if isinstance(columns, np.ndarray) and len(columns) != n_features:
            raise ConfigError(
                f"center has {len(columns):,} values, but it must be one number, or one finite number for each of the "
                f"{n_features:,} columns; set center accordingly"
            )
        n_filled = np.count_nonzero(columns) if isinstance(columns, np.ndarray) else n_features * bool(columns)
        if n_filled > _CENTER_LIMIT:
            raise ConfigError(
                f"center fills in {n_filled:,} columns, so that every row becomes a vector of that many values, but at "
                f"most {_CENTER_LIMIT:,} are allowed; centre only the columns that need it, or none"
            )
        return cls(n_features=n_features, center=columns, normalize=normalize)

    def blocks(self, X: Any) -> Iterator[sp.csr_matrix]:
        """Yield prepared rows as canonical CSR blocks, in order; one empty block if there are no rows.

        Parameters
        ----------
        X : ndarray or CSR of shape (n_samples, n_features), float32 or float64
        """
        center = self._center_row()
        for rows in self._cut(X, center):
            block = rows_as_csr(slice_rows(X, rows), first_row=rows.start)
            if self.takes_sets:
                check_sets(block, first_row=rows.start)
            if center is not None:
                block = _subtract(block, center)
                check_finite(block, first_row=rows.start, cause="after the centre was subtracted")
            yield self._normalised(block)

    def _cut(self, X: Any, center: sp.csr_matrix | None) -> Iterator[slice]:
        """Yield equal ranges of rows that bound the memory of a block besides its result."""
        n_samples = X.shape[0]
        if center is None and sp.issparse(X):
            n_blocks = max(-(-n_samples // SWEPT_ROWS), -(-X.nnz // _BLOCK_NONZEROS), 1)
        else:
            cells = center.nnz if center is not None and sp.issparse(X) else self.n_features
            n_blocks = max(-(-n_samples // max(1, _BLOCK_CELLS // cells)), 1)
        for block in range(n_blocks):
            yield slice(n_samples * block // n_blocks, n_samples * (block + 1) // n_blocks)

    def _center_row(self) -> sp.csr_matrix | None:
        if self.center is None or not np.any(self.center):
            return None
        return rows_as_csr(np.broadcast_to(np.asarray(self.center), (1, self.n_features)))

    def _normalised(self, rows: sp.csr_matrix) -> sp.csr_matrix:
        if self.normalize is None:
            return rows
        values = np.empty(rows.nnz, np.float64)
        normalise_rows(rows.indptr.astype(np.int64), rows.data.astype(np.float64), _NORMS[self.normalize], values)
        normalised = sp.csr_matrix((values, rows.indices, rows.indptr), shape=rows.shape)
        if not values.all():  # values far below 1e-308 of the largest became 0
            normalised = normalised.copy()  # the indices may be the caller's
            normalised.eliminate_zeros()
        return normalised


def check_center(center: Any, name: str) -> float | list[float] | None:
    """Return a centre as plain JSON values, or raise ConfigError unless it is a number or a row of finite ones."""
    if center is None or isinstance(center, numbers.Real):
        return None if center is None else check_real(center, name)
    try:
        columns = np.array(center, dtype=np.float64)
    except (TypeError, ValueError):
        columns = np.array(np.nan)
    if columns.ndim != 1 or not np.isfinite(columns).all():
        raise ConfigError(
            f"{name}={center!r:.100}, but it must be one number, or one finite number for each column; set {name} "
            "accordingly"
        )
    values: list[float] = columns.tolist()
    return values


class RowsFrom:
    """Context that makes errors number rows in the whole array, of which a block that begins at a row is processed.

    A class, because a single row takes longer to transform in the context of a generator.
    """

    __slots__ = ("first",)

    def __init__(self, first: int) -> None:
        self.first = first

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self.first and isinstance(error, InputError) and error.row is not None:
            row = self.first + error.row
            message = f"{error}; this row number counts from row {self.first:,} of X: it is row {row:,} of X"
            raise InputError(message, row=row, column=error.column) from error


def slice_rows(X: Any, rows: slice) -> Any:
    """Return some rows, those of a CSR matrix without a copy of their values."""
    if not sp.issparse(X):
        return X[rows]
    if rows == slice(0, X.shape[0]):
        return X
    indptr = X.indptr[rows.start : rows.stop + 1]
    held = slice(indptr[0], indptr[-1])
    parts = X.data[held], X.indices[held], indptr - indptr[0]
    block = sp.csr_matrix(parts, shape=(len(indptr) - 1, X.shape[1]))
    block.has_canonical_format = X.has_canonical_format
    return block


def _subtract(rows: sp.csr_matrix, center: sp.csr_matrix) -> sp.csr_matrix:
    with np.errstate(over="ignore"):  # an overflow is an error of the input, raised with its location
        centred = rows.astype(np.float64) - repeated_row(center, 0, rows.shape[0])  # scipy drops resulting zeros
    centred.has_canonical_format = True
    return centred


_LARGEST = 1e25
"""Largest allowed magnitude of a value; larger ones might overflow float32 in a projection."""
_SHORT, _LONG = 1e-30, 1e30
"""Limits of squared lengths within which rows and their projections fit float32."""


def rows_and_lengths(X: Any) -> tuple[NDArray[np.float32] | sp.csr_matrix, NDArray[np.float64]]:
    """Convert rows to float32 and compute their l2 norms, for values of any scale.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_samples, n_features), float32 or float64

    Returns
    -------
    rows : ndarray in C order or canonical csr_matrix, float32
        Very long and very short rows are scaled by a power of two to a length near 1, which keeps their directions.
        Dense and sparse rows give equal values.
    lengths : ndarray of shape (n_samples,), float64
        Norms of these rows; 0 for all-zero rows.

    Raises
    ------
    dkfeat.errors.InputError
        For NaN or infinity, with row and column.
    """
    wide: Any = rows_as_csr(X) if sp.issparse(X) else _contiguous(X)
    rows = _narrow(wide)
    squares = _squares(rows)
    odd = np.flatnonzero(~((squares > _SHORT) & (squares < _LONG)))  # NaN and infinity too
    odd = odd[np.diff(wide.indptr)[odd] > 0 if sp.issparse(wide) else wide[odd].any(axis=1)]  # all-zero rows are fine
    if len(odd):
        first = int(odd[0])
        rows_as_csr(wide[first:], first_row=first)  # raises an error if a value is not finite
        moderate = wide.astype(np.float64)
        for row in odd:
            values = moderate.data[slice(*moderate.indptr[row : row + 2])] if sp.issparse(wide) else moderate[row]
            largest = np.abs(values).max(initial=0.0)
            np.ldexp(values, -int(np.frexp(largest)[1]), out=values)
        rows = _narrow(moderate)
        squares = _squares(rows)
    return rows, np.sqrt(squares)


def float32_rows(X: Any) -> NDArray[np.float32] | sp.csr_matrix:
    """Round rows to float32.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_samples, n_features), float32 or float64

    Returns
    -------
    rows : ndarray in C order or canonical csr_matrix, float32

    Raises
    ------
    dkfeat.errors.InputError
        For NaN, infinity, or a value beyond 1e25, with row and column.
    """
    rows = rows_as_csr(X) if sp.issparse(X) else _contiguous(X)
    values: Any = rows.data if sp.issparse(rows) else rows
    if values.size and not max(values.max(), -values.min()) <= _LARGEST:
        cells = rows_as_csr(rows)  # raises an error for values that are not finite
        limit = f"this kernel takes values up to {_LARGEST:g}, so that no projection overflows float32"
        raise cell_error(cells, int(np.argmax(np.abs(cells.data) > _LARGEST)), f"{limit}; scale the columns first")
    return _narrow(rows)


def _narrow(rows: Any) -> Any:
    with np.errstate(over="ignore"):  # callers check for infinity
        return rows.astype(np.float32, copy=False)


def _squares(rows: Any) -> NDArray[np.float64]:
    squares = np.empty(rows.shape[0])
    if sp.issparse(rows):
        squares_of_sparse(rows.indptr.astype(np.int64), rows.indices.astype(np.int64), owned(rows.data), squares)
    else:
        squares_of_dense(rows.reshape(-1), rows.shape[1], squares)
    return squares


def _contiguous(X: Any) -> NDArray[Any]:
    return owned(X.astype(X.dtype.newbyteorder("="), copy=False))


_SLACK = 1e-5
"""Relative excess over the radius that a row may have, because normalised rows have length 1 only up to rounding."""


def rows_and_multipliers(
    X: Any, normalize: Literal["l1", "l2"] | None
) -> tuple[NDArray[np.float32] | sp.csr_matrix, NDArray[np.float32]]:
    """Convert rows to float32 and compute the number to multiply each by.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_samples, n_features), float32 or float64
    normalize : {"l1", "l2"} or None

    Returns
    -------
    rows : ndarray in C order or canonical csr_matrix, float32
        If rows are normalised, very long and very short ones are scaled by a power of two to a length near 1.
    multipliers : ndarray of shape (n_samples,), float32
        1, or 1 / norm; 0 for all-zero rows.

    Raises
    ------
    dkfeat.errors.InputError
        For NaN, infinity, or, if rows are not normalised, a value beyond 1e25, with row and column.
    """
    if normalize is None:
        return float32_rows(X), np.ones(X.shape[0], np.float32)
    rows, norms = rows_and_lengths(X)
    if normalize == "l1":
        held = rows_as_csr(rows)
        norms = np.empty(X.shape[0])
        sum_magnitudes(held.indptr.astype(np.int64), owned(held.data), norms)
    return rows, np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0).astype(np.float32)


def check_lengths(rows: Any, scale: float, radius: float) -> None:
    """Raise InputError naming the first row whose l2 norm times `scale` exceeds `radius`."""
    lengths = np.sqrt(_squares(rows)) * scale
    long = ~(lengths <= radius * (1 + _SLACK))
    if long.any():
        row = int(long.argmax())
        times = f" times scale={scale:g}" if scale != 1 else ""
        raise InputError(
            f"row {row:,} (counted from 0) has the l2 norm {lengths[row] / scale:g}{times}, but radius={radius:g} is "
            "the largest allowed; set normalize='l2', a smaller scale or, where the series converges, a larger radius",
            row=row,
        )
