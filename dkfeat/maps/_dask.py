"""Dask arrays of rows: their width, rows taken from them, and their features, computed block by block.

They are recognised by their attributes and Dask's collection protocol, so that this layer does not import Dask.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkfeat import canonical
from dkfeat.errors import InputError
from dkfeat.validation import check_columns


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
        With the row chunks of X. Blocks are csr_matrix for a map of layout "codes", else numpy arrays.

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
        meta=sp.csr_matrix((0, 0), dtype=np.float32) if fitted.layout == "codes" else np.empty((0, 0), np.float32),
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
