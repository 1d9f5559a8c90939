"""Dask arrays of sources and of data sets, and of exact kernel values of pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeVar

import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.base import tokenize
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph
from dask.sizeof import sizeof
from numpy.typing import NDArray

from dkfeat.blocks import Split
from dkfeat.engine.scan import scan
from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels import NamedKernel, named_kernel
from dkfeat.kernels._rows import check_widths
from dkfeat.maps._rows import with_whole_rows
from dkfeat.sources.base import Source
from dkfeat.sources.libsvm.source import LibsvmSource
from dkfeat.sources.parquet.source import ParquetSource
from dkfeat.sources.pieces import join_blocks

S = TypeVar("S", LibsvmSource, ParquetSource)


def block_arrays(
    load: Callable[[Any, Any], tuple[Any, ...]],
    shared: Any,
    task_inputs: Sequence[Any],
    row_chunks: Sequence[float],
    metas: Mapping[str, Any],
    *,
    name: str,
    token: str,
) -> tuple[da.Array, ...]:
    """Make lazy arrays that share one reading task for each block of rows.

    Parameters
    ----------
    load : callable
        ``load(shared, task_input)`` returns a tuple of blocks, one for each array.
    shared
        Common data of all tasks, sent once to each worker.
    task_inputs : sequence
        Input of each task; small.
    row_chunks : sequence of float
        Number of rows of each block; NaN if unknown.
    metas : mapping of str to array
        For each array, the prefix of its keys, and an array without rows of its type, dtype and width.
    name, token : str
        Keys begin with the name and contain the token; equal tokens mean equal contents.

    Returns
    -------
    arrays : tuple of dask.array.Array
        Arrays; each has one further small task for each block.
    """
    holder = delayed(shared, name=f"{name}-source-{token}", traverse=False)
    blocks = f"read-{name}-{token}"
    reading: dict[Any, Any] = {
        (blocks, number): (load, holder.key, task_input) for number, task_input in enumerate(task_inputs)
    }
    graph = HighLevelGraph.from_collections(blocks, reading, dependencies=[holder])
    found = []
    for part, (prefix, meta) in enumerate(metas.items()):
        key, width = f"{prefix}-{token}", meta.shape[1:]
        layer: dict[Any, Any] = {
            (key, number, *(0 for _ in width)): (itemgetter(part), (blocks, number))
            for number in range(len(task_inputs))
        }
        whole = HighLevelGraph({**graph.layers, key: layer}, {**graph.dependencies, key: {blocks}})
        found.append(da.Array(whole, key, (tuple(row_chunks), *((length,) for length in width)), meta=meta))
    return tuple(found)


@sizeof.register(sp.sparray)
def _sparray_bytes(array: sp.sparray) -> int:
    """Return the size of a sparse array, for spilling and scheduling; Dask itself counts 56 bytes for any."""
    return sum(sizeof(part) for part in vars(array).values())


def read_libsvm(urlpath: str | Sequence[str], **options: Any) -> tuple[da.Array, ...]:
    r"""Dask arrays of LIBSVM text, with one block for each split of the files; rows are read during computation.

    Nothing is written. If `n_features`, `zero_based` and `label_dtype` are given, this call reads nothing, and row
    chunks are unknown (NaN). Otherwise one scan over the whole source finds the missing options, and row chunks are
    known. In both cases, columns, index base and label type are the same in every block.

    Parameters
    ----------
    urlpath : str or sequence of str
        Path, glob or fsspec URL, or several. A .gz, .bz2, .xz or .zst file is never cut, and neighbouring
        tiny files share a block.
    **options
        Options of `dkfeat.LibsvmSource`, such as `n_features`, `zero_based`, `dtype`, `blocksize` or `query_id`.

    Returns
    -------
    X : dask.array.Array of shape (n_samples, n_features)
        Blocks are csr_matrix of `dtype`.
    y : dask.array.Array of shape (n_samples,), int64, float64 or, with multilabel, object
    qid : dask.array.Array of shape (n_samples,), int64
        Only with query_id.

    Raises
    ------
    dkfeat.errors.SourceNotFoundError
        If no file matches.
    dkfeat.errors.ParseError
        If text is malformed, with its position: from the scan, or when the block is computed.
    dkfeat.errors.SpecConflictError
        When a block is computed, if its file has changed since it was listed.

    See Also
    --------
    dkfeat.featurize : Features as shards on disk, computed in bounded memory for files of any size.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.svm"
    >>> _ = path.write_text("+1 1:0.5 4:2\n-1 2:1\n")
    >>> X, y = read_libsvm(str(path))
    >>> X.shape, X.dtype, y.compute().tolist()
    ((2, 4), dtype('float32'), [1, -1])
    """
    return _arrays(_source(LibsvmSource, urlpath, options))


def read_parquet(
    urlpath: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    label: str | None = "label",
    **options: Any,
) -> tuple[da.Array, ...]:
    r"""Dask arrays of Parquet files, with blocks of consecutive row groups; rows are read during computation.

    Nothing is written. Row chunks are known. This call reads rows only if float labels may all be integers, the number
    of columns is unknown, or there are filters: the labels, the indices if needed, and the columns that filters
    compare.

    Parameters
    ----------
    urlpath : str or sequence of str
        File, glob, folder or fsspec URL, or several.
    features : str, sequence of str or None, default=None
        Feature columns. None: ``features``, else ``indices`` and ``values``, else all columns of numbers that no
        other option names.
    label : str or None, default="label"
        Column of labels. None: there are no labels, and y is 0.
    **options
        Options of `dkfeat.ParquetSource`, such as `weight`, `query_id`, `filters`, `n_features` or `blocksize`.
        Weights and query ids are returned too.

    Returns
    -------
    X : dask.array.Array of shape (n_samples, n_features)
        Blocks are csr_matrix of `dtype`.
    y : dask.array.Array of shape (n_samples,), int64, float64 or, with several labels for each row, object
    qid : dask.array.Array of shape (n_samples,), int64
        Only with query_id.
    weight : dask.array.Array of shape (n_samples,), float64
        Only with weight.

    Raises
    ------
    dkfeat.errors.SourceNotFoundError
        If no file matches.
    dkfeat.errors.ParquetError
        If a file is damaged or a column is missing or of another type; during computation also for a wrong value.
    dkfeat.errors.SpecConflictError
        When a block is computed, if its file has changed since it was listed.

    See Also
    --------
    dkfeat.ParquetSource : All options.
    dkfeat.featurize : Features as shards on disk, computed in bounded memory.

    Examples
    --------
    >>> import pathlib, tempfile, pyarrow, pyarrow.parquet
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.parquet"
    >>> pyarrow.parquet.write_table(pyarrow.table({"a": [0.5, 0.0], "b": [0, 2], "label": [1, -1]}), path)
    >>> X, y = read_parquet(str(path))
    >>> X.shape, X.chunks, y.compute().tolist()
    ((2, 2), ((2,), (2,)), [1, -1])
    """
    return _arrays(_source(ParquetSource, urlpath, {**options, "features": features, "label": label}))


def _source(cls: type[S], urlpath: str | Sequence[str], options: dict[str, Any]) -> S:
    """Make the source of the arrays; options that leave rows out or keep further columns are errors."""
    for name in ("on_bad_row", "max_bad_rows", "keep", "id"):
        if name in options:
            raise ConfigError(f"{name} is an option for runs that write shards; Dask arrays hold every row")
    labels = options.get("labels")
    return cls(urlpath, **{**options, "labels": None if labels is None else tuple(labels)})


def _arrays(source: Source) -> tuple[da.Array, ...]:
    files = source.files()
    source = source.inspect(files)
    if source.is_table:
        raise ConfigError(
            'features_as="table" reads columns for an encoder in a run, but blocks of Dask arrays hold numbers; leave '
            "it and encoder= out to read columns of numbers, or encode a Dask DataFrame by dkfeat.TableEncoder"
        )
    row_chunks: Sequence[float]
    if source.is_resolved and getattr(source, "filters", None) is None:
        splits = source.splits(files)
        row_chunks = [np.nan if (rows := source.rows_of(split)) is None else rows for split in splits]
    else:
        found = scan(source)
        source, splits, row_chunks = source.resolve(found), found.splits, found.rows_per_split
    kind = source.kind
    metas = {
        f"{kind}-X": sp.csr_matrix((0, source.n_features), dtype=source.dtype),
        f"{kind}-y": np.empty(0, object if source.multilabel else source.label_dtype),
    }
    if source.query_id:
        metas[f"{kind}-qid"] = np.empty(0, np.int64)
    if source.has_weights:
        metas[f"{kind}-weight"] = np.empty(0)
    token = tokenize(source.to_mapping(), [(split.to_mapping(), split.file.url) for split in splits])
    return block_arrays(_read_split, source, splits, row_chunks, metas, name=kind, token=token)


def _read_split(source: Source, split: Split) -> tuple[Any, ...]:
    """Read rows, labels and, if the source has them, query ids and weights of a whole split."""
    blocks = [piece.block for piece in source.read(split, checksum=False)]
    plain = [
        replace(block, y=_row_labels(block.y, block.label_offsets), label_offsets=None, kept={}) for block in blocks
    ]
    rows = join_blocks(plain)
    return tuple(part for part in (rows.X, rows.y, rows.qid, rows.weight) if part is not None)


def _row_labels(y: NDArray[Any], offsets: NDArray[np.int64] | None) -> NDArray[Any]:
    """Return one label, or one tuple of labels, for each row."""
    if offsets is None:
        return y
    rows = np.empty(len(offsets) - 1, object)
    for row in range(len(rows)):
        rows[row] = tuple(y[offsets[row] : offsets[row + 1]].tolist())
    return rows


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
    left = _as_blocks(X)
    right = left if Y is None else _as_blocks(Y)
    if not np.isnan(left.shape[1]) and not np.isnan(right.shape[1]):
        check_widths(left.shape[1], right.shape[1])
    name = f"gram-{chosen.name}-{tokenize(left.name, right.name, chosen.name, chosen.params)}"
    # not a blockwise graph: Dask would fuse it with its inputs and read blocks again for each pair
    layer: dict[Any, Any] = {
        (name, i, j): (_kernel_of_pairs, (left.name, i, 0), (right.name, j, 0), chosen, i, j)
        for i in range(left.numblocks[0])
        for j in range(right.numblocks[0])
    }
    sides: list[Any] = [left, right]
    graph = HighLevelGraph.from_collections(name, layer, dependencies=sides)
    return da.Array(graph, name, (left.chunks[0], right.chunks[0]), meta=np.empty((0, 0)))


def _as_blocks(rows: Any) -> da.Array:
    """Return a Dask array of whole rows; rows in memory become one block."""
    if isinstance(rows, da.Array):
        return with_whole_rows(rows)
    held = rows if sp.issparse(rows) else np.asarray(rows)
    if held.ndim != 2:
        raise InputError(f"rows have the shape {held.shape}, but an array of rows has two dimensions")
    name = f"rows-{tokenize(held)}"
    return da.from_delayed(delayed(held, name=name, traverse=False), held.shape, dtype=held.dtype, name=f"one-{name}")


def _kernel_of_pairs(x: Any, y: Any, kernel: NamedKernel, i: int, j: int) -> NDArray[np.float64]:
    try:
        return kernel(x, None if y is x else y)  # without y the result is exactly symmetric
    except InputError as error:
        error.add_note(f"in row blocks {i} of X and {j} of Y")
        raise
