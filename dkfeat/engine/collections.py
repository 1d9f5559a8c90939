"""Dask arrays in and out: sources as arrays of sparse blocks, maps applied block by block."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.base import tokenize
from dask.delayed import delayed
from dask.sizeof import sizeof

from dkfeat.errors import InputError
from dkfeat.maps import FeatureMap
from dkfeat.validation import check_columns

__all__ = ["transform_blocks"]


@sizeof.register(sp.sparray)
def _sparray_bytes(array: sp.sparray) -> int:
    """Bytes of a sparse array: Dask itself sees 56 in any, and so spills and schedules as if they were free."""
    return sum(sizeof(part) for part in vars(array).values())


def transform_blocks(fitted: FeatureMap, X: da.Array) -> da.Array:
    """Features of a Dask array, block by block; nothing is computed yet.

    Parameters
    ----------
    fitted : FeatureMap
        Fitted on the width of X. It travels once to each worker, as its few settings.
    X : dask.array.Array of shape (n_samples, n_features)
        Blocks of numpy arrays or scipy sparse matrices or arrays. Row chunks may be unknown; several column
        chunks are joined first.

    Returns
    -------
    features : dask.array.Array of shape (n_samples, n_features_out), float32
        With the row chunks of X. Blocks are csr_matrix for a map of layout "codes", else numpy arrays.

    Raises
    ------
    dkfeat.errors.InputError
        X is no two-dimensional Dask array, or its width is not the fitted one.

    Examples
    --------
    >>> from dkfeat.maps import GCWSFeatures
    >>> X = da.ones((6, 3), chunks=(2, 3))
    >>> transform_blocks(GCWSFeatures(n_components=4, random_state=0).fit(X), X)
    dask.array<gcws, shape=(6, 1024), dtype=float32, chunksize=(2, 1024), chunktype=scipy.csr_matrix>
    """
    if not isinstance(X, da.Array) or X.ndim != 2:
        got = f"{type(X).__name__} of {getattr(X, 'ndim', '?')} dimensions"
        message = (
            f"a {got} came where a two-dimensional Dask array is needed; convert it, for instance by to_dask_array"
        )
        raise InputError(message)
    check_columns(X.shape[1], fitted.n_features_in_, type(fitted).__name__)
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    fingerprint = fitted.fingerprint()
    return da.map_blocks(
        _transform,
        X,
        fitted=delayed(fitted, name=f"{fitted.name}-map-{fingerprint}", traverse=False),
        name=f"{fitted.name}-{tokenize(fingerprint, X.name)}",
        dtype=np.float32,
        chunks=(X.chunks[0], (fitted.n_features_out,)),
        meta=sp.csr_matrix((0, 0), dtype=np.float32) if fitted.layout == "codes" else np.empty((0, 0), np.float32),
    )


def _transform(block: Any, fitted: FeatureMap) -> Any:
    return fitted.transform(block)
