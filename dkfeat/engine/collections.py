"""Dask arrays in and out: sources as arrays of sparse blocks, maps applied block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.base import tokenize
from dask.delayed import delayed
from dask.sizeof import sizeof
from numpy.typing import NDArray

from dkfeat.blocks import Split
from dkfeat.engine.dask_blocks import BlockArray, block_arrays
from dkfeat.engine.scan import scan
from dkfeat.errors import InputError
from dkfeat.io.libsvm import LibsvmSource
from dkfeat.io.parquet import ParquetSource
from dkfeat.io.source import Source
from dkfeat.maps import FeatureMap
from dkfeat.validation import check_columns

__all__ = ["read_libsvm", "read_parquet", "transform_blocks"]


@sizeof.register(sp.sparray)
def _sparray_bytes(array: sp.sparray) -> int:
    """Bytes of a sparse array: Dask itself sees 56 in any, and so spills and schedules as if they were free."""
    return sum(sizeof(part) for part in vars(array).values())


def read_libsvm(
    urlpath: str | Sequence[str],
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    blocksize: int | str = "64MiB",
    dtype: Literal["float32", "float64"] = "float32",
    multilabel: bool = False,
    query_id: bool = False,
    *,
    label_dtype: Literal["auto", "int64", "float64"] = "auto",
    labels: Sequence[float] | None = None,
    max_line_bytes: int | str = "256MiB",
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[da.Array, ...]:
    r"""Dask arrays of LIBSVM text, a block for each split of the files; rows are read when they are computed.

    Nothing is written. With `n_features`, `zero_based` and `label_dtype` given, nothing is read here either, and row
    chunks are unknown (NaN) until computed; otherwise one scan over the whole source settles what is open, and row
    chunks are known. Columns, index base and label type are thus the same in every block.

    Parameters
    ----------
    urlpath : str or sequence of str
        Path, glob or fsspec URL, or several. .gz, .bz2, .xz and .zst files are one block each.
    n_features : int or None, default=None
        Columns. None: up to the highest index in the source.
    zero_based : bool or "auto", default="auto"
        Whether index 0 is the first column. "auto": whether any index in the source is 0.
    blocksize : int or str, default="64MiB"
        Bytes of text in a block of a plain file.
    dtype : {"float32", "float64"}, default="float32"
        Type of the values.
    multilabel : bool, default=False
        Labels are lists joined by commas: y then holds a tuple for each row.
    query_id : bool, default=False
        Return the query id of each row too.
    label_dtype : {"auto", "int64", "float64"}, default="auto"
        Type of the labels. "auto": int64 if every label in the source is an integer.
    labels : sequence of float or None, default=None
        Labels allowed. None: all.
    max_line_bytes : int or str, default="256MiB"
        A longer line is an error.
    storage_options : mapping or None, default=None
        For fsspec.

    Returns
    -------
    X : dask.array.Array of shape (n_samples, n_features)
        Blocks are csr_matrix of `dtype`.
    y : dask.array.Array of shape (n_samples,), int64, float64 or, with multilabel, object
    qid : dask.array.Array of shape (n_samples,), int64
        With query_id only.

    Raises
    ------
    dkfeat.errors.SourceNotFoundError
        No file matches.
    dkfeat.errors.ParseError
        Malformed text, with its place: from the scan, or when the block is computed.
    dkfeat.errors.SpecConflictError
        When a block is computed: its file is no longer as it was listed.

    See Also
    --------
    dkfeat.featurize : From a source to shards on disk, in bounded memory whatever a file's size.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.svm"
    >>> _ = path.write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> X, y = read_libsvm(str(path))
    >>> X.shape, X.dtype, y.compute().tolist()
    ((2, 4), dtype('float32'), [1, -1])
    """
    source = LibsvmSource(
        urlpath,
        n_features=n_features,
        zero_based=zero_based,
        blocksize=blocksize,
        dtype=dtype,
        multilabel=multilabel,
        query_id=query_id,
        label_dtype=label_dtype,
        labels=None if labels is None else tuple(labels),
        max_line_bytes=max_line_bytes,
        storage_options=storage_options,
    )
    if source.is_settled:
        splits = source.splits()
        row_chunks: tuple[float, ...] = (np.nan,) * len(splits)
    else:
        found = scan(source)
        source, splits, row_chunks = source.settle(found), found.splits, found.rows_per_split
    return _arrays(source, splits, row_chunks)


def read_parquet(
    urlpath: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    label: str | None = "label",
    *,
    features_as: Literal["auto", "columns", "vector", "sparse"] = "auto",
    weight: str | None = None,
    query_id: str | bool | None = None,
    filters: Any = None,
    n_features: int | None = None,
    zero_based: bool = True,
    blocksize: int | str = "64MiB",
    dtype: Literal["float32", "float64"] = "float32",
    multilabel: bool | Literal["auto"] = "auto",
    labels: Sequence[float] | None = None,
    label_dtype: Literal["auto", "int64", "float64"] = "auto",
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[da.Array, ...]:
    r"""Dask arrays of Parquet files, a block for each run of row groups; rows are read when they are computed.

    Nothing is written. Row chunks are known, from the files' footers. Labels are scanned here where they are floats
    that may all be integers, indices where the number of columns is open, and compared columns where there are filters.

    Parameters
    ----------
    urlpath : str or sequence of str
        File, glob, folder or fsspec URL, or several.
    features : str, sequence of str or None, default=None
        Feature columns. None: ``features``, else ``indices`` and ``values``, else all columns of numbers not used
        otherwise.
    label : str or None, default="label"
        Column of labels. None: rows have none, and y is 0.
    features_as : {"auto", "columns", "vector", "sparse"}, default="auto"
        How features are told; "auto": by the types of their columns.
    weight : str or None, default=None
        Column of weights; they are returned too.
    query_id : str, bool or None, default=None
        Column of query ids, True for ``qid``; they are returned too.
    filters : list or None, default=None
        Comparisons that rows must pass, such as ``[("day", ">=", "2026-11-20")]``.
    n_features : int or None, default=None
        Columns. None: as the types tell, or up to the highest index.
    zero_based : bool, default=True
        Whether index 0 of sparse rows is the first column.
    blocksize : int or str, default="64MiB"
        Bytes of rows in memory in a block; a larger row group is one block all the same.
    dtype : {"float32", "float64"}, default="float32"
        Type of the values.
    multilabel : bool or "auto", default="auto"
        Labels are lists: y then holds a tuple for each row. "auto": by the type of their column.
    labels : sequence of float or None, default=None
        Labels allowed. None: all.
    label_dtype : {"auto", "int64", "float64"}, default="auto"
        Type of the labels. "auto": int64 if every label in the source is an integer.
    storage_options : mapping or None, default=None
        For fsspec.

    Returns
    -------
    X : dask.array.Array of shape (n_samples, n_features)
        Blocks are csr_matrix of `dtype`.
    y : dask.array.Array of shape (n_samples,), int64, float64 or, with several labels a row, object
    qid : dask.array.Array of shape (n_samples,), int64
        With query_id only.
    weight : dask.array.Array of shape (n_samples,), float64
        With weight only.

    Raises
    ------
    dkfeat.errors.SourceNotFoundError
        No file matches.
    dkfeat.errors.ParquetError
        A file is damaged, a column is missing or of another type; when computed also for a wrong value. With its place.
    dkfeat.errors.SpecConflictError
        When a block is computed: its file is no longer as it was listed.

    See Also
    --------
    dkfeat.ParquetSource : The options in full.
    dkfeat.featurize : From a source to shards on disk, in bounded memory.

    Examples
    --------
    >>> import pathlib, tempfile, pyarrow, pyarrow.parquet
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.parquet"
    >>> pyarrow.parquet.write_table(pyarrow.table({"a": [0.5, 0.0], "b": [0, 2], "label": [1, -1]}), path)
    >>> X, y = read_parquet(str(path))
    >>> X.shape, X.chunks, y.compute().tolist()
    ((2, 2), ((2,), (2,)), [1, -1])
    """
    source = ParquetSource(
        urlpath,
        features=features,
        features_as=features_as,
        label=label,
        weight=weight,
        query_id=query_id,
        filters=filters,
        n_features=n_features,
        zero_based=zero_based,
        blocksize=blocksize,
        dtype=dtype,
        multilabel=multilabel,
        labels=None if labels is None else tuple(labels),
        label_dtype=label_dtype,
        storage_options=storage_options,
    )
    files = source.files()
    source = source.inspect(files)
    if not source.is_settled or source.filters is not None:
        found = scan(source)
        return _arrays(source.settle(found), found.splits, found.rows_per_split)
    splits = source.splits(files)
    return _arrays(source, splits, tuple(int(source.rows_of(split) or 0) for split in splits))


def _arrays(source: Source, splits: Sequence[Split], row_chunks: tuple[float, ...]) -> tuple[da.Array, ...]:
    kind = source.kind
    y_meta = np.empty(0, object if source.multilabel else source.label_dtype)
    arrays = [
        BlockArray(0, f"{kind}-X", sp.csr_matrix((0, 0), dtype=source.dtype), (source.n_features,)),
        BlockArray(1, f"{kind}-y", y_meta),
    ]
    if source.query_id:
        arrays.append(BlockArray(2, f"{kind}-qid", np.empty(0, np.int64)))
    if source.has_weights:
        arrays.append(BlockArray(3, f"{kind}-weight", np.empty(0)))
    token = tokenize(source.to_mapping(), [(split.to_mapping(), split.file.url) for split in splits])
    return block_arrays(_read_split, source, splits, row_chunks, arrays, name=kind, token=token)


def _read_split(source: Source, split: Split) -> tuple[Any, ...]:
    """Rows, labels, query ids and weights of a whole split."""
    pieces = [piece.block for piece in source.read(split, checksum=False)]
    X = pieces[0].X if len(pieces) == 1 else sp.vstack([block.X for block in pieces], format="csr")
    y = np.concatenate([_row_labels(block.y, block.label_offsets) for block in pieces])
    qid = np.concatenate([block.qid for block in pieces]) if source.query_id else None
    weight = np.concatenate([block.weight for block in pieces]) if source.has_weights else None
    return X, y, qid, weight


def _row_labels(y: NDArray[Any], offsets: NDArray[np.int64] | None) -> NDArray[Any]:
    """One label a row, or one tuple of labels."""
    if offsets is None:
        return y
    rows = np.empty(len(offsets) - 1, object)
    for row in range(len(rows)):
        rows[row] = tuple(y[offsets[row] : offsets[row + 1]].tolist())
    return rows


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
        X is no two-dimensional Dask array, or its width is not the fitted one. When computed: a value is not finite;
        rows count from the beginning of the block that a note names.

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


def _transform(block: Any, fitted: FeatureMap, block_id: tuple[int, int]) -> Any:
    try:
        return fitted.transform(block)
    except InputError as error:
        error.add_note(f"in row block {block_id[0]} of the Dask array")
        raise
