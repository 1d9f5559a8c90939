"""Gram matrices of exact kernels as Dask arrays."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.base import tokenize
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from dkfeat.errors import InputError
from dkfeat.kernels import NamedKernel, named_kernel
from dkfeat.kernels._rows import check_widths
from dkfeat.maps._dask import with_whole_rows


def gram(X: Any, Y: Any = None, kernel: str = "gmm", **params: Any) -> da.Array:
    """Exact kernel values of all pairs of rows, as a lazy Dask array.

    A block of the result holds the pairs of one row block of X and one of Y, with 8 bytes for each pair. Each block of
    X and Y is computed once.

    Parameters
    ----------
    X : dask.array.Array of shape (n_x, n_features)
        Its blocks are numpy arrays or scipy sparse matrices or arrays. Row chunks may be unknown; several column chunks
        are merged first.
    Y : like X, of shape (n_y, n_features), default=X
        One of X and Y may be an array or sparse matrix in memory; it forms one block.
    kernel : str, default="gmm"
        Name of a function of `dkfeat.kernels`.
    **params
        Parameters of the kernel, such as ``gamma=0.5``.

    Returns
    -------
    similarities : dask.array.Array of shape (n_x, n_y), float64
        Its chunks are the row chunks of X and of Y.

    Raises
    ------
    dkfeat.errors.ConfigError
        If the kernel or a parameter is unknown, or a value is out of range.
    dkfeat.errors.InputError
        If neither X nor Y is a Dask array, or their widths differ. During computation: if the kernel rejects rows; row
        numbers count from the start of the blocks named in the error's note.

    See Also
    --------
    dkfeat.kernels : Same kernels for rows in memory.
    dkfeat.NystroemFeatures : Feature map for data with too many rows for all pairs.

    Examples
    --------
    >>> X = da.from_array(np.array([[1.0, -2.0], [1.0, 2.0], [2.0, -4.0]]), chunks=(2, 2))
    >>> gram(X)
    dask.array<gram-gmm, shape=(3, 3), dtype=float64, chunksize=(2, 2), chunktype=numpy.ndarray>
    >>> gram(X, kernel="polynomial", degree=2, coef0=0).compute().tolist()
    [[25.0, 9.0, 100.0], [9.0, 25.0, 36.0], [100.0, 36.0, 400.0]]
    """
    chosen = named_kernel(kernel, params)
    if not (isinstance(X, da.Array) or isinstance(Y, da.Array)):
        raise InputError(f"neither X nor Y is a Dask array; for rows in memory call dkfeat.kernels.{chosen.name}")
    left = _blocks(X)
    right = left if Y is None else _blocks(Y)
    if not np.isnan(left.shape[1]) and not np.isnan(right.shape[1]):
        check_widths(left.shape[1], right.shape[1])
    name = f"gram-{chosen.name}-{tokenize(left.name, right.name, chosen.name, chosen.params)}"
    # not a blockwise graph: Dask would fuse it with its inputs and read blocks again for each pair
    layer: dict[Any, Any] = {
        (name, i, j): (_pairs, (left.name, i, 0), (right.name, j, 0), chosen, i, j)
        for i in range(left.numblocks[0])
        for j in range(right.numblocks[0])
    }
    sides: list[Any] = [left, right]
    graph = HighLevelGraph.from_collections(name, layer, dependencies=sides)
    return da.Array(graph, name, (left.chunks[0], right.chunks[0]), meta=np.empty((0, 0)))


def _blocks(rows: Any) -> da.Array:
    """Return a Dask array of whole rows; rows in memory become one block."""
    if isinstance(rows, da.Array):
        return with_whole_rows(rows)
    held = rows if sp.issparse(rows) else np.asarray(rows)
    if held.ndim != 2:
        raise InputError(f"rows have the shape {held.shape}, but an array of rows has two dimensions")
    name = f"rows-{tokenize(held)}"
    return da.from_delayed(delayed(held, name=name, traverse=False), held.shape, dtype=held.dtype, name=f"one-{name}")


def _pairs(x: Any, y: Any, kernel: NamedKernel, i: int, j: int) -> NDArray[np.float64]:
    try:
        return kernel(x, None if y is x else y)  # without y the result is exactly symmetric
    except InputError as error:
        error.add_note(f"in row blocks {i} of X and {j} of Y")
        raise
