"""Nearest rows of shards under the min-max kernel, by one task for each shard and batch of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dkfeat.blocks import PackedCodes
from dkfeat.compiled.sampling.matches import best_rows, empty_heaps, merged
from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.runners.local import Stopped
from dkfeat.engine.runners.open import open_runner
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.io.sources.shards import ShardSource
from dkfeat.maps._sampled import SampledMap
from dkfeat.neighbors.rerank import Rows, RowsInMemory, RowsOfSource, ordered
from dkfeat.validation import check_columns, check_integer, rows_as_csr

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.blocks import Split

_COMPARED = 64
"""Number of rows, first and last, of an array whose codes are compared with those of the shards."""
QUERIES = 4096
"""Number of queries whose codes and best rows a task holds."""
_ROWS = 65_536  # rows of a shard that are in memory as codes at a time


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Neighbors:
    """Nearest rows of queries; made by `search`."""

    similarities: NDArray[np.float64]
    """Shape (n_queries, n_neighbors), descending: the exact kernel if rows were compared exactly, else estimates."""
    rows: NDArray[np.int64]
    """Shape (n_queries, n_neighbors): numbers of the rows in the data set's order, from 0. Of equally similar rows the
    lower one is first."""
    errors: NDArray[np.float64]
    """Shape (n_queries, n_neighbors): standard errors of the similarities; zeros if they are exact."""
    n_rows: int
    """Number of rows of the data set."""

    def to_graph(self) -> sp.csr_matrix:
        """Make the graph of queries and their nearest rows, with the distances 1 - similarity.

        It has the form of scikit-learn's ``kneighbors_graph(mode="distance")``, which estimators with
        ``metric="precomputed"`` take.

        Returns
        -------
        graph : csr_matrix of shape (n_queries, n_rows), float64
            Rows of n_neighbors edges, in ascending order of distance.
        """
        distances = np.clip(1.0 - self.similarities, 0.0, 1.0)
        bounds = np.arange(len(self.rows) + 1) * self.rows.shape[1]
        return sp.csr_matrix((distances.ravel(), self.rows.ravel(), bounds), shape=(len(self.rows), self.n_rows))


def search(
    shards: ShardDataset | str | PathLike[str],
    queries: Any = None,
    n_neighbors: int = 10,
    *,
    rerank: int | None = None,
    source: Any = None,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Neighbors:
    r"""Find the rows of a data set that are most similar to queries, under the min-max kernel of its map.

    Codes are compared: the number of equal codes of two rows estimates their similarity. With `rerank`, the rows with
    the most equal codes are compared by the exact kernel too, which finds nearly all of the nearest rows.

    Parameters
    ----------
    shards : ShardDataset, str or path
        Data set made by `GCWSFeatures` or `DartFeatures`, or its folder or URL.
    queries : array or sparse matrix of shape (n_queries, n_features), ShardDataset, str, path or None
        Rows, to which the data set's map is applied; or shards of an equal map, or their folder or URL. None: each row
        of the data set, without itself.
    n_neighbors : int, default=10
        Number of rows found for each query, at least 1.
    rerank : int or None, default=None
        Number of rows that are compared exactly with each query, at least `n_neighbors`; it needs `source`, and queries
        that are not shards. None: similarities are estimates.
    source : Source, path, glob, URL, a list of these, array, sparse matrix or None
        The source from which the shards were made, whose rows are read again and checked; or an array of shape
        (n_rows, n_features) with the rows in the order of the shards.
    client : distributed.Client or None, default=None
        Cluster to run on, as in `dkfeat.featurize`.
    progress : bool or callable, default=True
        Progress report, as in `dkfeat.featurize`.
    storage_options : mapping or None
        Options of fsspec for `shards` and a source given by URL.

    Returns
    -------
    found : Neighbors
        The same for any number of workers and any division into shards.

    Raises
    ------
    dkfeat.errors.ConfigError
        For a number out of range, or a map that does not sample: features of other maps are not locality sensitive.
    dkfeat.errors.InputError
        If queries have another number of columns, or a value is NaN or infinite.
    dkfeat.errors.SpecConflictError
        If queries are shards of another map, or a source is not that of the shards.
    dkfeat.errors.ShardError
        If a shard is not as committed.

    Notes
    -----
    Every query is compared with every row: 512 codes of 8 bits take about 10 ns of a core. A task reads one shard for
    4,096 queries.

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
    """
    data = shards if isinstance(shards, ShardDataset) else open_shards(shards, storage_options=storage_options)
    fitted = sampled_map(data)
    check_integer(n_neighbors, "n_neighbors", low=1)
    n_available = data.n_rows - (queries is None)
    if n_neighbors > n_available:
        others = f"{max(n_available, 0):,} {'other ' if queries is None else ''}rows"
        raise ConfigError(f"n_neighbors={n_neighbors:,}, but there are {others}; ask for fewer")
    if isinstance(queries, str | PathLike):
        queries = open_shards(queries, storage_options=storage_options)
    if not (queries is None or isinstance(queries, ShardDataset)):
        queries = rows_as_csr(queries, name="queries")
        check_columns(queries.shape[1], fitted.n_features_in_, type(fitted).__name__)
    n_kept = n_neighbors
    if rerank is not None:
        n_kept = min(check_integer(rerank, "rerank", low=n_neighbors), n_available)
        raw = _raw_rows(data, queries, source, storage_options)
    elif source is not None:
        raise ConfigError("source is given, but without rerank nothing is read from it; pass rerank, such as 100")
    stored = ShardSource.of(data.shards)
    splits = [split for split in stored.splits() if split.stop]
    n_queries = data.n_rows if queries is None else queries.shape[0]
    size = sum(map(stored.split_bytes, splits)) * -(-n_queries // QUERIES)
    found = [(np.empty((0, n_neighbors)), np.empty((0, n_neighbors), np.int64))]
    with (
        open_runner(client) as runner,
        Progress(progress).stage(
            "search", total_tasks=len(splits) * -(-n_queries // QUERIES), total_bytes=size
        ) as stage,
    ):
        for first, codes, own in _batches(data, fitted, queries):
            heaps = empty_heaps(len(own), n_kept)

            def done(split: Split, best: NDArray[np.int64]) -> None:
                heaps[:] = merged(heaps, best)  # noqa: B023 - called only while this batch runs
                stage.advance(rows=split.stop, source_bytes=stored.split_bytes(split))

            runner.run(_Task(data, codes, own, n_kept), splits, done)
            counts, rows = best_rows(heaps)
            similarities = fitted.similarity_of_counts(counts)
            if rerank is not None:
                last = first + len(own)
                given = raw.take(first, last, runner) if queries is None else queries[first:last]
                similarities = raw.similarities(fitted, given, rows, runner)
            found.append(ordered(similarities, rows, n_neighbors))
    similarities, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    errors = np.zeros(rows.shape)
    if rerank is None:
        errors = np.asarray(fitted.expected_error_at(np.clip(similarities, 0.0, 1.0)))
    return Neighbors(similarities=similarities, rows=rows, errors=errors, n_rows=data.n_rows)


def sampled_map(data: ShardDataset) -> SampledMap:
    """Return the map of a data set, which must be of codes.

    Raises
    ------
    ConfigError
        If the map is not locality sensitive, or the shards hold its features expanded.
    """
    fitted = data.map if data.has_features else None
    if not isinstance(fitted, SampledMap) or data.layout != "codes":
        what = data.layout if fitted is None else f"features of the map {fitted.name!r} in the layout {data.layout!r}"
        raise ConfigError(
            f"{data.shards.storage.url} holds {what}, but near rows are found by equal codes; "
            "featurize with gcws or dart in the layout 'codes'"
        )
    return fitted


def numbered_codes(data: ShardDataset, split: Split) -> tuple[int, PackedCodes]:
    """Read the codes of a shard, a split of `ShardSource`; return the number of its first row, and the codes."""
    entry = data.manifest.shards[split.number]
    return first_row(data, split), data.shards.read(entry, data.verifies, only=("encoded",)).X


def first_row(data: ShardDataset, split: Split) -> int:
    """Return the number of the first row of a shard, a split of `ShardSource`."""
    return sum(entry.rows for entry in data.manifest.shards[: split.number])


@dataclass(frozen=True, slots=True)
class _Task:
    """Task that compares a batch of queries with the rows of a shard."""

    data: ShardDataset
    queries: PackedCodes
    own: NDArray[np.int64]
    n_kept: int

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> NDArray[np.int64]:
        """Return the heaps of the best rows of a shard."""
        heaps = empty_heaps(len(self.own), self.n_kept)
        first, codes = numbered_codes(self.data, split)
        for at in range(0, split.stop, _ROWS):
            if stopped():
                raise Stopped
            some = PackedCodes(codes.codes[at : at + _ROWS], codes.empty[at : at + _ROWS])
            self.data.map.keep_most_similar(self.queries, some, first + at, self.own, heaps)
        return heaps


def _batches(
    data: ShardDataset, fitted: SampledMap, queries: Any
) -> Iterator[tuple[int, PackedCodes, NDArray[np.int64]]]:
    """Yield the number of the first query of each batch, their codes, and the rows that they are not compared with."""
    if queries is None or isinstance(queries, ShardDataset):
        given = data if queries is None else queries
        if given is not data and sampled_map(given).fingerprint() != fitted.fingerprint():
            raise SpecConflictError(
                f"{given.shards.storage.url} was made by another map than {data.shards.storage.url}; "
                "featurize the queries with --like"
            )
        first = 0
        for codes, _ in given.batches(QUERIES, shuffle=False, decode=False):
            n = len(codes.empty)
            yield first, codes, np.arange(first, first + n) if queries is None else np.full(n, -1)
            first += n
        return
    for first in range(0, queries.shape[0], QUERIES):
        codes = fitted.encode(queries[first : first + QUERIES])
        yield first, codes, np.full(len(codes.empty), -1)


def _raw_rows(data: ShardDataset, queries: Any, source: Any, storage_options: Mapping[str, Any] | None) -> Rows:
    """Return the rows for exact comparisons."""
    if isinstance(queries, ShardDataset):
        raise ConfigError("rerank needs queries that are rows, but they are shards; give rows, or no rerank")
    if source is None:
        raise ConfigError(
            "rerank compares rows exactly, so it needs the source of the shards; pass source, or no rerank"
        )
    if not hasattr(source, "shape"):
        return RowsOfSource.of(data, source, storage_options)
    X = rows_as_csr(source, name="source")
    if X.shape != (data.n_rows, data.manifest.n_features):
        raise ConfigError(
            f"source is an array of shape {X.shape}, but the shards were made from {data.n_rows:,} rows of "
            f"{data.manifest.n_features:,} columns; pass all of them, in their order"
        )
    for position in (0, -1) if data.n_rows else ():
        block = data.shards.read(data.manifest.shards[position], data.verifies, only=("encoded",))
        n = min(block.n_rows, _COMPARED)
        rows = slice(0, n) if position == 0 else slice(data.n_rows - n, data.n_rows)
        some = block.X.codes[:n] if position == 0 else block.X.codes[block.n_rows - n :]
        if not np.array_equal(data.map.encode(X[rows]).codes, some):
            raise ConfigError(
                "source is an array of other rows, or in another order, than those from which the shards were made: "
                f"codes of rows {rows.start:,} to {rows.stop - 1:,} differ; pass the rows in their order, or a path"
            )
    return RowsInMemory(X)
