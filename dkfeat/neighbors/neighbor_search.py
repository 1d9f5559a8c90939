"""Nearest rows of shards under the min-max kernel, by one task for each shard and batch of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from os import PathLike
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import dask
import numpy as np

from dkfeat.engine.dataset.dataset import ShardDataset, dataset_reader, open_shards
from dkfeat.engine.featurize import featurize
from dkfeat.engine.open import Target, as_path, with_bad_rows
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.resolve import inherit_row_options
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.filesystems.urls import is_url
from dkfeat.neighbors.exact import Rows, RowsInMemory, rows_of
from dkfeat.neighbors.index import open_index
from dkfeat.neighbors.result import Neighbors
from dkfeat.neighbors.scan import ShardScan, own_rows, sampled_map
from dkfeat.neighbors.table import check_target_among, write_neighbors
from dkfeat.sources.base import Source
from dkfeat.sources.formats import as_source
from dkfeat.validation import check_columns, check_integer, rows_as_csr

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.blocks import PackedCodes
    from dkfeat.maps._sampled import SampledMap

QUERIES = 4096
"""Maximum number of queries whose codes and best rows a task holds."""
_KEPT = 1 << 23  # best rows of all queries that a task holds


def search(
    shards: ShardDataset | str | PathLike[str],
    queries: Any = None,
    n_neighbors: int = 10,
    *,
    rerank: int | None = None,
    source: Any = None,
    query_source: Any = None,
    target: str | PathLike[str] | None = None,
    resume: bool = True,
    on_bad_row: str | None = None,
    max_bad_rows: float | str | None = None,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> Neighbors:
    r"""Find the rows of a data set that are most similar to queries, under the min-max kernel of its map.

    Codes are compared: the number of equal codes of two rows estimates their similarity. With `rerank`, the rows with
    the most equal codes are compared by the exact kernel too, which finds nearly all of the nearest rows.

    With a `target`, the result is written as Parquet files in bounded memory. Before the call, the target must either
    not exist, or hold neighbours among the same rows with the same settings, complete or interrupted. If the call is
    interrupted, the same call continues. If queries were added, it adds their neighbours. Any Parquet reader can read
    ``target/data`` once ``target/_SUCCESS`` exists.

    Parameters
    ----------
    shards : ShardDataset, str or path
        Data set made by `GCWSFeatures` or `DartFeatures`, or its folder or URL.
    queries : array, sparse matrix, ShardDataset, Source, path, glob, URL, a list of these, or None
        Rows of shape (n_queries, n_features); or LIBSVM text or Parquet, read with the input options of the data set
        except those that the source sets. The data set's map is applied to them. Or shards of an equal map, or their
        folder or URL. None: each row of the data set, without itself.
    n_neighbors : int, default=10
        Number of rows found for each query, at least 1.
    rerank : int or None, default=None
        Number of rows that are compared exactly with each query, at least `n_neighbors`; it needs `source`. None:
        similarities are estimates.
    source : Source, path, glob, URL, a list of these, array, sparse matrix or None
        The source from which the shards were made, whose rows are read again and checked; or an array of shape
        (n_rows, n_features) with the rows in the order of the shards.
    query_source : like source
        With `rerank`, the source of queries that are shards.
    target : str, path or None, default=None
        Folder or URL for the result. Queries that are text or Parquet are first featurized into shards beside it, in a
        folder with ``-queries`` after its name. None: the result is in memory.
    resume, on_bad_row, max_bad_rows
        As in `dkfeat.featurize`; the last two for queries that are text or Parquet.
    client : distributed.Client or None, default=None
        Cluster to run on, as in `dkfeat.featurize`.
    progress : bool or callable, default=True
        Progress report, as in `dkfeat.featurize`.
    storage_options, target_options : mapping or None
        Options of fsspec: the first for shards and sources given by URL, the second for a target given by URL.

    Returns
    -------
    found : Neighbors
        The same for any number of workers and any division into shards. With a target, it reads arrays on demand.

    Raises
    ------
    dkfeat.errors.ConfigError
        For a number out of range, or a map that does not sample: features of other maps are not locality sensitive.
    dkfeat.errors.InputError
        If queries have another number of columns, or a value is NaN or infinite.
    dkfeat.errors.SpecConflictError
        If queries are shards of another map, a source is not that of the shards, or the target holds something else,
        such as neighbours among the rows before a batch was added; or if the data set's index lacks some of its
        shards.
    dkfeat.errors.ShardError
        If a shard is not as committed.
    dkfeat.errors.DkfeatError
        As from `dkfeat.featurize`, for queries that are text or Parquet and for a target.

    Notes
    -----
    Every query is compared with every row: 512 codes of 8 bits take about 10 ns of a core. A task reads one shard for
    up to 4,096 queries; with a target these are from one shard of the queries. If `dkfeat.neighbors.index` was called,
    its files are read instead of the shards: results are the same, but a single query takes a fraction of the time.

    The table has a row for each query and neighbour, in this order: ``query``, the number of the query from 0;
    ``rank`` from 1; ``neighbor``, the number of the row; ``similarity``; ``standard_error``, 0 if the similarity is
    exact. The columns that the shards of the queries keep follow under their names, and those that the data set keeps,
    such as an id, with ``neighbor_`` before their names.

    Without a target, text and Parquet are featurized into a temporary folder, which is deleted at the end:
    ``temporary-directory`` of Dask's configuration, else the system's. All workers must see it.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("1 1:4 3:1\n1 2:3\n1 1:4 3:2\n")
    >>> dart = dkfeat.DartFeatures(n_components=512, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", dart, progress=False)
    >>> found = dkfeat.neighbors.search(folder / "features", np.array([[4.0, 0.0, 1.5]]), 2, progress=False)
    >>> found.rows.tolist()
    [[0, 2]]
    >>> graph = dkfeat.neighbors.search(folder / "features", n_neighbors=1, target=folder / "graph", progress=False)
    >>> graph.rows.tolist()
    [[2], [0], [0]]
    >>> import pyarrow.parquet
    >>> pyarrow.parquet.read_table(folder / "graph" / "data").column_names
    ['query', 'rank', 'neighbor', 'similarity', 'standard_error']
    """
    if not isinstance(shards, ShardDataset):
        remote = is_url(as_path(shards, "shards"))  # options may be those of another place that is read
        shards = open_shards(shards, storage_options=storage_options if remote else None)
    data = shards
    fitted = sampled_map(data)
    mapped = open_index(data)
    check_integer(n_neighbors, "n_neighbors", low=1)
    without_self = queries is None
    n_available = data.n_rows - without_self
    if n_neighbors > n_available:
        others = f"{max(n_available, 0):,} {'other ' if without_self else ''}rows"
        raise ConfigError(f"n_neighbors={n_neighbors:,}, but there are {others}; ask for fewer")
    rows = None
    if rerank is not None:
        check_integer(rerank, "rerank", low=n_neighbors)
        if source is None:
            raise ConfigError(
                "rerank compares rows exactly, so it needs the source of the shards; pass source (--source), or no "
                "rerank"
            )
        rows = rows_of(data, source, storage_options)
    elif source is not None or query_source is not None:
        raise ConfigError(
            "a source is given, but without rerank nothing is read from it; pass rerank, such as 100 (--rerank 100)"
        )
    is_array = not (queries is None or is_location(queries) or isinstance(queries, ShardDataset))
    if target is not None:
        if is_array:
            raise ConfigError(
                "queries in memory give a result in memory; leave out the target, or store the queries as text or "
                "Parquet and give their path"
            )
        check_target_among(data, target, target_options)
    reader = dataset_reader(queries, storage_options) if is_location(queries) else None
    if reader is not None:
        queries = ShardDataset(reader, data.verifies)
    if query_source is not None and not isinstance(queries, ShardDataset):
        raise ConfigError("query_source (--query-source) is for queries that are shards; leave it out")
    with ExitStack() as stack:
        if is_location(queries):
            query_source = source_like(data, queries, storage_options)
            folder = stack.enter_context(_folder_for_queries(target))
            featurize(
                with_bad_rows(query_source, on_bad_row, max_bad_rows),
                Target(folder, storage_options=target_options, resume=resume),
                fitted,
                client=client,
                progress=progress,
            )
            queries = open_shards(folder, storage_options=target_options)
        queries = data if queries is None else checked_queries(data, fitted, queries)
        scan = ShardScan(
            data=data,
            fitted=fitted,
            index=mapped,
            n_neighbors=n_neighbors,
            n_candidates=n_neighbors if rerank is None else min(rerank, n_available),
            rows=rows,
            queries=None if rows is None else _raw_queries(queries, rows, query_source, without_self, storage_options),
        )
        if target is None:
            return _in_memory(scan, queries, without_self, client, Progress(progress))
        write_neighbors(
            scan,
            queries,
            target,
            {"n_neighbors": n_neighbors, "rerank": rerank, "without_self": without_self},
            batch_rows=_batch_rows(scan),
            resume=resume,
            client=client,
            reporter=Progress(progress),
            target_options=target_options,
        )
    return Neighbors.open(target, storage_options=target_options)


def _folder_for_queries(target: str | PathLike[str] | None) -> AbstractContextManager[str]:
    """Choose the folder for the shards of queries that are files: beside the target, or a temporary one."""
    if target is not None:
        return nullcontext(f"{as_path(target, 'target').rstrip('/')}-queries")
    return TemporaryDirectory(prefix="dkfeat-queries-", dir=dask.config.get("temporary-directory", None))


def _raw_queries(
    queries: Any, rows: Rows, query_source: Any, without_self: bool, storage_options: Mapping[str, Any] | None
) -> Rows:
    """Return the rows of the queries, for exact comparisons."""
    if without_self:
        return rows
    if not isinstance(queries, ShardDataset):
        return RowsInMemory(queries)
    if query_source is None:
        raise ConfigError(
            "rerank compares rows exactly, but the queries are shards; pass query_source (--query-source), from which "
            "they were made, or no rerank"
        )
    return rows_of(queries, query_source, storage_options)


def _batch_rows(scan: ShardScan) -> int:
    """Return the number of queries of a batch, whose best rows fit in memory."""
    return max(1, min(QUERIES, _KEPT // scan.n_candidates))


def _in_memory(
    scan: ShardScan, queries: Any, without_self: bool, client: Client | None, reporter: Progress
) -> Neighbors:
    """Search for all queries, and hold the results."""
    n_neighbors, size = scan.n_neighbors, _batch_rows(scan)
    n_batches = -(-queries.shape[0] // size)
    none = np.empty((0, n_neighbors))
    found = [(none, none.astype(np.int64), none)]
    n_tasks, n_bytes = n_batches * len(scan.splits), n_batches * scan.n_bytes
    with (
        open_runner(client) as runner,
        reporter.stage("search", total_tasks=n_tasks, total_bytes=n_bytes) as stage,
    ):
        for first, codes, own in batches(scan.fitted, queries, size, without_self=without_self):
            found.append(scan.best(first, codes, own, runner, stage.advance))
    similarities, rows, errors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Neighbors(scan.data.n_rows, (similarities, rows, errors), without_self=without_self)


def is_location(queries: Any) -> bool:
    """Return True for a source, or for paths of files or of a folder of shards."""
    if isinstance(queries, str | PathLike | Source):
        return True
    return isinstance(queries, Sequence) and bool(queries) and all(isinstance(q, str | PathLike) for q in queries)


def source_like(data: ShardDataset, queries: Any, storage_options: Mapping[str, Any] | None) -> Source:
    """Make the source of queries; options left out are those of the data set's rows, except the options of labels.

    Queries need no labels: a column of labels that the files do not have is left out.

    Raises
    ------
    SourceNotFoundError
        If no file matches.
    SpecConflictError
        If another option differs from that of the data set.
    """
    found: Source = as_source(queries, None if isinstance(queries, Source) else storage_options)
    files = found.files()  # a missing file is the first thing to report
    # float64: whatever numbers stand for unknown labels
    return inherit_row_options(found, data.shards.storage.url, data.spec["input"], "float64", files)


def checked_queries(data: ShardDataset, fitted: SampledMap, queries: Any) -> Any:
    """Return shards of the data set's map, or an array as a csr_matrix of its columns.

    Raises
    ------
    SpecConflictError
        If shards were made by another map.
    InputError
        If an array has another number of columns.
    """
    if not isinstance(queries, ShardDataset):
        queries = rows_as_csr(queries, name="queries")
        check_columns(queries.shape[1], fitted.n_features_in_, type(fitted).__name__)
    elif sampled_map(queries).fingerprint() != fitted.fingerprint():
        raise SpecConflictError(
            f"{queries.shards.storage.url} was made by another map than {data.shards.storage.url}; "
            "featurize the queries with --like"
        )
    return queries


def batches(
    fitted: SampledMap, queries: Any, size: int, *, without_self: bool
) -> Iterator[tuple[int, PackedCodes, NDArray[np.int64]]]:
    """Yield the number of the first query of each batch, their codes, and the rows that they are not compared with."""
    first = 0
    for codes in _codes(fitted, queries, size):
        n = len(codes.empty)
        yield first, codes, own_rows(first, n, without_self=without_self)
        first += n


def _codes(fitted: SampledMap, queries: Any, size: int) -> Iterator[PackedCodes]:
    if isinstance(queries, ShardDataset):
        for codes, _ in queries.batches(size, shuffle=False, decode=False):
            yield codes
        return
    for first in range(0, queries.shape[0], size):
        yield fitted.encode(queries[first : first + size])
