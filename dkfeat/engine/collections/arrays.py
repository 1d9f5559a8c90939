"""Dask arrays of sources and of data sets, from tasks that each read a block of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.base import tokenize
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph
from dask.sizeof import sizeof
from numpy.typing import NDArray

from dkfeat.blocks import Split
from dkfeat.engine.dataset.batches import DatasetRows
from dkfeat.engine.dataset.rows import join_blocks
from dkfeat.engine.scan import scan
from dkfeat.errors import ConfigError
from dkfeat.io.libsvm.source import LibsvmSource
from dkfeat.io.parquet.source import ParquetSource
from dkfeat.io.shards.reader import ShardReader
from dkfeat.io.sources.base import Source

if TYPE_CHECKING:
    from dkfeat.io.manifest.manifest import ShardEntry

S = TypeVar("S", LibsvmSource, ParquetSource)


@dataclass(frozen=True, slots=True)
class BlockArray:
    """One of the arrays that the blocks are made of."""

    part: int
    """Its position in the tuple that a task gives."""
    name: str
    """Begin of its keys."""
    meta: Any
    """Array of its type and dtype, of no length."""
    width: tuple[float | None, ...] = ()
    """Lengths of its axes beside the rows."""


def block_arrays(
    load: Callable[[Any, Any], tuple[Any, ...]],
    shared: Any,
    pieces: Sequence[Any],
    row_chunks: Sequence[float],
    arrays: Sequence[BlockArray],
    *,
    name: str,
    token: str,
) -> tuple[da.Array, ...]:
    """Arrays whose blocks come from one task each; nothing is computed yet.

    Parameters
    ----------
    load : callable
        ``load(shared, piece)`` gives a tuple of blocks.
    shared
        What all tasks need; travels once to each worker.
    pieces : sequence
        What each task needs beside it; small.
    row_chunks : sequence of float
        Rows of each piece; NaN for unknown.
    arrays : sequence of BlockArray
    name, token : str
        Keys begin with the name and hold the token: equal tokens for equal contents.

    Returns
    -------
    arrays : tuple of dask.array.Array
        A graph of a few tasks for each piece, made in time linear in the pieces.
    """
    holder = delayed(shared, name=f"{name}-source-{token}", traverse=False)
    blocks = f"read-{name}-{token}"
    reading: dict[Any, Any] = {(blocks, number): (load, holder.key, piece) for number, piece in enumerate(pieces)}
    graph = HighLevelGraph.from_collections(blocks, reading, dependencies=[holder])
    found = []
    for array in arrays:
        key = f"{array.name}-{token}"
        places = (0,) * len(array.width)
        layer: dict[Any, Any] = {
            (key, number, *places): (itemgetter(array.part), (blocks, number)) for number in range(len(pieces))
        }
        whole = HighLevelGraph({**graph.layers, key: layer}, {**graph.dependencies, key: {blocks}})
        chunks = (tuple(row_chunks), *((length,) for length in array.width))
        found.append(da.Array(whole, key, chunks, meta=array.meta))
    return tuple(found)


@sizeof.register(sp.sparray)
def _sparray_bytes(array: sp.sparray) -> int:
    """Bytes of a sparse array: Dask itself sees 56 in any, and so spills and schedules as if they were free."""
    return sum(sizeof(part) for part in vars(array).values())


def read_libsvm(urlpath: str | Sequence[str], **options: Any) -> tuple[da.Array, ...]:
    r"""Dask arrays of LIBSVM text, a block for each split of the files; rows are read when they are computed.

    Nothing is written. With `n_features`, `zero_based` and `label_dtype` given, nothing is read here either, and row
    chunks are unknown (NaN) until computed; otherwise one scan over the whole source finds what is open, and row
    chunks are known. Columns, index base and label type are thus the same in every block.

    Parameters
    ----------
    urlpath : str or sequence of str
        Path, glob or fsspec URL, or several. .gz, .bz2, .xz and .zst files are one block each.
    **options
        Options of `dkfeat.LibsvmSource`, such as `n_features`, `zero_based`, `dtype`, `blocksize` or `query_id`.

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
    source = _source(LibsvmSource, urlpath, options)
    if source.is_resolved:
        splits = source.splits()
        row_chunks: tuple[float, ...] = (np.nan,) * len(splits)
    else:
        found = scan(source)
        source, splits, row_chunks = source.resolve(found), found.splits, found.rows_per_split
    return _arrays(source, splits, row_chunks)


def read_parquet(
    urlpath: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    label: str | None = "label",
    **options: Any,
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
    **options
        Options of `dkfeat.ParquetSource`, such as `weight`, `query_id`, `filters`, `n_features` or `blocksize`.
        Weights and query ids are returned too.

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
    source = _source(ParquetSource, urlpath, {**options, "features": features, "label": label})
    files = source.files()
    source = source.inspect(files)
    if not source.is_resolved or source.filters is not None:
        found = scan(source)
        return _arrays(source.resolve(found), found.splits, found.rows_per_split)
    splits = source.splits(files)
    return _arrays(source, splits, tuple(int(source.rows_of(split) or 0) for split in splits))


def _source(cls: type[S], urlpath: str | Sequence[str], options: dict[str, Any]) -> S:
    """Make the source of arrays, which hold every row and none of the columns that shards may keep."""
    for name in ("on_bad_row", "keep", "id"):
        if name in options:
            raise ConfigError(f"{name} is an option for runs that write shards; Dask arrays hold every row")
    labels = options.get("labels")
    return cls(urlpath, **{**options, "labels": None if labels is None else tuple(labels)})


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
    blocks = [piece.block for piece in source.read(split, checksum=False)]
    plain = [
        replace(block, y=_row_labels(block.y, block.label_offsets), label_offsets=None, kept={}) for block in blocks
    ]
    rows = join_blocks(plain)
    return rows.X, rows.y, rows.qid, rows.weight


def _row_labels(y: NDArray[Any], offsets: NDArray[np.int64] | None) -> NDArray[Any]:
    """One label a row, or one tuple of labels."""
    if offsets is None:
        return y
    rows = np.empty(len(offsets) - 1, object)
    for row in range(len(rows)):
        rows[row] = tuple(y[offsets[row] : offsets[row + 1]].tolist())
    return rows


def dataset_arrays(rows: DatasetRows, parts: Sequence[str], chunk_rows: int) -> tuple[da.Array, ...]:
    """Features, labels and, among `parts`, weights; nothing is read yet.

    Parameters
    ----------
    rows : DatasetRows
    parts : sequence of str
        As `DatasetRows.parts` gives them.
    chunk_rows : int
        Consecutive shards are one chunk as long as they have no more rows together.
    """
    spec, manifest = rows.reader.spec, rows.reader.manifest
    empty = replace(manifest, shards=(), sources=(), rows=0, nnz=0, n_empty_rows=0)  # what tasks carry stays small
    light = DatasetRows(ShardReader(rows.reader.storage, spec, empty), rows.verify)
    groups = _grouped([entry for entry in manifest.shards if entry.rows] or manifest.shards[:1], chunk_rows)
    dense = spec["output"]["layout"] == "dense"
    meta = np.empty((0, 0), np.float32) if dense else sp.csr_matrix((0, 0), dtype=np.float32)
    arrays = [BlockArray(0, "dkfeat-X", meta, (int(spec["output"]["n_features_out"]),))]
    if spec["input"]["multilabel"]:
        n_classes = 0 if rows.classes is None else len(rows.classes)
        arrays.append(BlockArray(1, "dkfeat-y", sp.csr_matrix((0, n_classes), dtype=np.uint8), (n_classes,)))
    else:
        arrays.append(BlockArray(1, "dkfeat-y", np.empty(0, spec["input"]["label_dtype"])))
    if "weight" in parts:
        arrays.append(BlockArray(2, "dkfeat-weight", np.empty(0)))
    return block_arrays(
        _load,
        (light, parts),
        groups,
        [sum(entry.rows for entry in group) for group in groups],
        arrays,
        name="dkfeat",
        token="-".join([manifest.sha256[:16], str(chunk_rows), *parts]),
    )


def _grouped(entries: Sequence[ShardEntry], most_rows: int) -> list[tuple[ShardEntry, ...]]:
    """Consecutive shards, together as long as they have at most so many rows."""
    groups: list[list[ShardEntry]] = []
    held = 0
    for entry in entries:
        if not groups or held + entry.rows > most_rows:
            groups.append([])
            held = 0
        groups[-1].append(entry)
        held += entry.rows
    return [tuple(group) for group in groups]


def _load(shared: tuple[DatasetRows, Sequence[str]], entries: Sequence[ShardEntry]) -> tuple[Any, ...]:
    """Features and labels of some shards, and what else is asked."""
    rows, parts = shared
    return rows.as_batch(rows.of_shards(entries, parts), True, parts)
