"""Nearest rows of shards under the min-max kernel, by a task for each batch of queries and group of shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dkfeat.engine.dataset.dataset import ShardDataset, dataset_reader, open_shards
from dkfeat.engine.featurize import featurize
from dkfeat.engine.open import Target, as_target
from dkfeat.engine.progress import Progress, ProgressState, clock
from dkfeat.engine.resolve import inherit_row_options
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.maps._kernel_estimates import Codes
from dkfeat.neighbors.exact import Rows, RowsInMemory, RowsOfSource, check_n_neighbors, rows_to_compare
from dkfeat.neighbors.graph import make_graph
from dkfeat.neighbors.scan import CodesFrom, ShardScan, open_codes, sampled_map, temporary_folder
from dkfeat.neighbors.table import Neighbors, check_neighbors_target, write_neighbors
from dkfeat.sources.base import Source
from dkfeat.sources.formats import as_source, is_location
from dkfeat.validation import check_choice, check_columns, check_integer, rows_as_csr

if TYPE_CHECKING:
    from dask.distributed import Client

    from dkfeat.maps._sampled import SampledMap
    from dkfeat.neighbors.scan import Arrays, Batch

_MANY, _PAIR_SECONDS, _GRAPH_SECONDS = 100_000, 1.8e-12, 3e-4  # seconds of a core: a bit of codes of a pair, a row
_SENT = 16  # batches of queries in memory whose codes are sent to workers at a time


def search(
    data: ShardDataset | str | PathLike[str],
    queries: Any = None,
    n_neighbors: int = 10,
    *,
    rerank: int | None = None,
    method: Literal["exact", "graph"] = "exact",
    source: Any = None,
    target: str | PathLike[str] | Target | None = None,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
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
    data : ShardDataset, str or path
        Data set made by `GCWSFeatures`, `DartFeatures` or `MinHashFeatures`, or its folder or URL.
    queries : array, sparse matrix, ShardDataset, Source, path, glob, URL, a list of these, or None
        Rows of shape (n_queries, n_features); or LIBSVM text or Parquet, read with the input options of the data set
        except those that the source sets. The data set's map is applied to them. Or, without `rerank`, shards of an
        equal map, or their folder or URL. None: each row of the data set, without itself.
    n_neighbors : int, default=10
        Number of rows found for each query, at least 1.
    rerank : int or None, default=None
        Number of rows that are compared exactly with each query, at least `n_neighbors`; it needs `source`. None:
        similarities are estimates.
    method : {"exact", "graph"}, default="exact"
        With "graph", which is for the neighbours of all rows, bands of codes give each row some neighbours, and the
        neighbours of these refine them: most of the rows that an exact search finds, in a time that grows little more
        than in proportion to the rows. ``Neighbors.recall`` estimates how many.
    source : Source, path, glob, URL, a list of these, array, sparse matrix or None
        The source from which the shards were made, whose rows are read again and checked; or an array of shape
        (n_rows, n_features) with the rows in the order of the shards.
    target : str, path, Target or None, default=None
        Folder or URL for the result. Queries that are text or Parquet are first featurized into shards beside it, in a
        folder with ``-queries`` after its name. None: the result is in memory.
    client : distributed.Client or None, default=None
        Cluster to run on, as in `dkfeat.featurize`.
    progress : bool or callable, default=True
        Progress report, as in `dkfeat.featurize`.
    storage_options : mapping or None
        Options of fsspec for shards and sources given by URL.

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
        such as neighbours among the rows before a batch was added.
    dkfeat.errors.ShardError
        If a shard is not as committed.
    dkfeat.errors.DkfeatError
        As from `dkfeat.featurize`, for queries that are text or Parquet and for a target.

    Notes
    -----
    An exact search compares every query with every row: 512 codes of 8 bits take about 10 ns of a core. A task reads
    one or more shards for up to 4,096 queries; with a target these are from one shard of the queries.

    The table has a row for each query and neighbour, in this order: ``query``, the number of the query from 0;
    ``rank`` from 1; ``neighbor``, the number of the row; ``similarity``; ``standard_error``, 0 if the similarity is
    exact. The columns that the shards of the queries keep follow under their names, and those that the data set keeps,
    such as an id, with ``neighbor_`` before their names.

    The graph is refined until few neighbours change, with 32 or more for each row. The files for it, about 3 kB for
    each row, are in a temporary folder; if the call is interrupted, it is made again. Its recall is the share of the
    nearest rows of 256 rows, evenly spaced and searched exactly by codes, that were found, or others as near; 0.95 and
    more on most data. Rows without equal codes count as no near ones.

    All workers must see temporary folders, which are deleted at the end: the one of a graph, and without a target that
    of text and Parquet, which are featurized. They are in ``temporary-directory`` of Dask's configuration, else beside
    the target if that is a folder, else where the system has them.

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
    data = open_codes(data, storage_options)
    fitted = sampled_map(data)
    queries = _open_queries(queries, storage_options, data.verifies)
    without_self = queries is None
    check_n_neighbors(n_neighbors, data.n_rows, without_self=without_self)
    if rerank is not None:
        check_integer(rerank, "rerank", low=n_neighbors)
        if isinstance(queries, ShardDataset):
            raise ConfigError(
                "rerank compares rows exactly, but these queries are shards; give the files from which they were made, "
                "or no rerank"
            )
    is_graph = check_choice(method, "method", ("exact", "graph")) == "graph"
    if is_graph and not without_self:
        raise ConfigError(
            "method='graph' (--method graph) finds the neighbours of all rows; leave out the queries, or it"
        )
    option = "rerank=100 (--rerank 100)"
    rows = rows_to_compare(data, source, storage_options, is_exact=rerank is not None, option=option)
    settings = {
        "n_neighbors": n_neighbors,
        "rerank": rerank,
        "without_self": without_self,
        "n_rows": data.n_rows,
        "shards": data.manifest.shards_sha256,
    }
    if is_graph:
        settings["method"] = method
    to = None if target is None else _checked_target(data, queries, target, settings, rows)
    with ExitStack() as stack:
        asked = rows  # for exact comparisons
        if queries is None:
            queries = data
        elif isinstance(queries, Source):
            read = _source_like(data, queries)
            if to is None:
                folder = Target(stack.enter_context(temporary_folder("queries")))
            else:
                folder = replace(to, urlpath=f"{to.path.rstrip('/')}-queries")
            featurize(read, folder, fitted, client=client, progress=progress)
            queries = open_shards(folder.path, storage_options=folder.storage_options)
            asked = rows and RowsOfSource.of(queries, read, None)
        else:
            queries = _checked_queries(data, fitted, queries)
            asked = RowsInMemory(queries)
        reporter = Progress(progress)
        make_lists = None
        if is_graph:
            make_lists = partial(make_graph, stack.enter_context(temporary_folder("graph", to)))
        elif without_self and data.n_rows > _MANY:
            reporter.note(_cost(data))
        scan = ShardScan(
            data=data,
            fitted=fitted,
            n_neighbors=n_neighbors,
            n_candidates=n_neighbors if rerank is None else min(rerank, data.n_rows - without_self),
            rows=rows,
            queries=asked,
            without_self=without_self,
            make_lists=make_lists,
        )
        if to is None:
            return _in_memory(scan, queries, client, reporter)
        write_neighbors(scan, queries, to, settings, client, reporter)
    return Neighbors.open(to.path, storage_options=to.storage_options)


def _open_queries(queries: Any, storage_options: Mapping[str, Any] | None, verifies: Any) -> Any:
    """Return shards or a source for paths; anything else is returned unchanged."""
    if not is_location(queries):
        return queries
    reader = dataset_reader(queries, storage_options)
    return as_source(queries, storage_options) if reader is None else ShardDataset(reader, verifies)


def _checked_target(
    data: ShardDataset, queries: Any, target: object, settings: Mapping[str, Any], rows: Rows | None
) -> Target:
    """Return the target, in which the table can be written or continued."""
    if not (queries is None or isinstance(queries, ShardDataset | Source)):
        raise ConfigError(
            "queries in memory give a result in memory; leave out the target, or store the queries as text or "
            "Parquet and give their path"
        )
    to = as_target(target)
    sources = [each for each in (queries, getattr(rows, "source", None)) if isinstance(each, Source)]
    check_neighbors_target(data, to.open(), settings, sources)
    return to


def _source_like(data: ShardDataset, queries: Source) -> Source:
    """Give the source of queries the options of the data set's rows that it leaves out, except those of labels."""
    files = queries.files()  # a missing file is the first thing to report
    # float64: whatever numbers stand for unknown labels
    name, options = data.shards.storage.url, data.spec["input"]
    remedy = "search other shards"
    return inherit_row_options(queries, name, options, "float64", files, encoder=data.encoder, remedy=remedy)


def _checked_queries(data: ShardDataset, fitted: SampledMap, queries: Any) -> Any:
    """Return shards of the data set's map, or an array as a csr_matrix of its columns."""
    if not isinstance(queries, ShardDataset):
        queries = rows_as_csr(queries if data.encoder is None else data.encoder.rows_for_map(queries), name="queries")
        check_columns(queries.shape[1], fitted.n_features_in_, type(fitted).__name__)
    elif sampled_map(queries).fingerprint() != fitted.fingerprint():
        raise SpecConflictError(
            f"{queries.shards.storage.url} was made by another map than {data.shards.storage.url}; "
            "featurize the queries with --like"
        )
    return queries


def _in_memory(scan: ShardScan, queries: Any, client: Client | None, reporter: Progress) -> Neighbors:
    """Search for all queries, and hold the results."""
    n_queries = queries.shape[0]
    shape = n_queries, scan.n_neighbors
    found = np.empty(shape), np.empty(shape, np.int64), np.empty(shape)

    def done(batch: Batch, arrays: Arrays) -> None:
        for held, part in zip(found, arrays, strict=True):
            held[slice(*batch)] = part

    with ExitStack() as stack:
        runner = stack.enter_context(open_runner(client))
        scan = scan.prepared(runner, reporter)
        stage = stack.enter_context(scan.stage(reporter, scan.batches(0, n_queries)))
        step = n_queries if isinstance(queries, ShardDataset) else _SENT * scan.batch_rows
        for first in range(0, n_queries, max(1, step)):
            batches = scan.batches(first, min(first + step, n_queries))
            if not isinstance(codes := queries, ShardDataset):
                codes = CodesFrom(scan.fitted.encode(queries[first : batches[-1].stop]), first)
            scan.search(codes, batches, runner, stage.advance, done)
    return Neighbors(scan.data.n_rows, found, without_self=scan.without_self, recall=scan.recall)


def _cost(data: ShardDataset) -> str:
    """Say what the neighbours of all rows take of a core, exactly and by a graph."""
    n, codes = data.n_rows, Codes.of(data.spec["map"])
    exact, graph = clock(_PAIR_SECONDS * codes.n_components * codes.bits * n * n), clock(_GRAPH_SECONDS * n)
    return (
        f"each of {n:,} rows is compared with all, which takes a core about {exact}; method='graph' (--method graph) "
        f"takes about {graph}, and finds about 95 % of the same neighbours"
    )
