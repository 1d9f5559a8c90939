"""Dask arrays of sources and of data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.base import tokenize
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from dkfeat.blocks import Split
from dkfeat.engine.scan import scan
from dkfeat.errors import ConfigError
from dkfeat.sources.base import Source
from dkfeat.sources.json_lines import JsonLinesSource
from dkfeat.sources.libsvm.source import LibsvmSource
from dkfeat.sources.parquet.source import ParquetSource
from dkfeat.sources.pieces import join_blocks


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


def read_json_lines(urlpath: str | Sequence[str], **options: Any) -> tuple[da.Array, ...]:
    r"""Dask arrays of JSON lines, with one block for each split of the files; rows are read during computation.

    Nothing is written. Row chunks are unknown (NaN), unless a scan must find options, as for float labels that may all
    be integers.

    Parameters
    ----------
    urlpath : str or sequence of str
        Path, glob or fsspec URL, or several. A compressed file is one block.
    **options
        Options of `dkfeat.JsonLinesSource`, such as `features`, `label`, `weight`, `query_id`, `types` or `filters`.
        Weights and query ids are returned too.

    Returns
    -------
    X, y, qid, weight : dask.array.Array
        As from `dkfeat.read_parquet`.

    Raises
    ------
    dkfeat.errors.SourceNotFoundError
        If no file matches.
    dkfeat.errors.ParseError
        If a column is missing or of another type; during computation also for a line that is no object.
    dkfeat.errors.SpecConflictError
        When a block is computed, if its file has changed since it was listed.

    See Also
    --------
    dkfeat.read_parquet : The same rows from Parquet files.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.jsonl"
    >>> _ = path.write_text('{"a": 0.5, "b": 0, "label": 1}\n{"a": 0, "b": 2, "label": -1}\n')
    >>> X, y = read_json_lines(str(path))
    >>> X.compute().toarray().tolist(), y.compute().tolist()
    ([[0.5, 0.0], [0.0, 2.0]], [1, -1])
    """
    return _arrays(_source(JsonLinesSource, urlpath, options))


def _source(cls: type[Source], urlpath: str | Sequence[str], options: dict[str, Any]) -> Source:
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
