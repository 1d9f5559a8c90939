"""Scan of the shards of a data set for the rows that are most similar to batches of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import dask
import numpy as np

from dkfeat.blocks import PackedCodes
from dkfeat.compiled.sampling.codes import best_rows, empty_heaps, merged
from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.open import as_path
from dkfeat.engine.runners.base import until_stopped
from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import is_url
from dkfeat.messages import percent
from dkfeat.neighbors.exact import Rows, ordered
from dkfeat.process_cache import ProcessCache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.engine.open import Target
    from dkfeat.engine.progress import Progress
    from dkfeat.engine.runners.base import Runner
    from dkfeat.maps._sampled import SampledMap

    Arrays = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]
    """Similarities, rows and errors, each of shape (n, n_neighbors)."""

QUERIES = 4096
"""Maximum number of queries whose codes and best rows a task holds."""
_KEPT = 1 << 23  # best rows of all queries that a task holds
_ROWS = 65_536  # rows of a shard that are compared at a time
_TASKS = 1 << 16  # maximum number of tasks of a run, unless one batch has more
_GROUPS = 4  # maximum number of tasks of a batch for each thread, as the best rows of each are sent and merged


@dataclass(frozen=True, kw_only=True)
class ShardScan:
    """Search among the rows of a data set, for any queries."""

    data: ShardDataset
    fitted: SampledMap
    """The map of the data set."""
    n_neighbors: int
    n_candidates: int
    """Number of rows with the most equal codes that are kept for each query."""
    rows: Rows | None = None
    """The rows of the data set, for exact comparisons; None: similarities are estimates."""
    queries: Rows | None = None
    """All queries, for exact comparisons."""
    without_self: bool = False
    """True if the queries are the rows, and no row is its own neighbour."""
    make_lists: Callable[[ShardScan, Runner, Progress], tuple[NDArray[np.int64], float]] | None = None
    """Makes an approximate graph of all rows, see `prepared`; None: the search compares each query with each row."""
    lists: NDArray[np.int64] | None = None
    """Best rows of all rows, once they are made, as heaps of `dkfeat.compiled.sampling.codes`."""
    recall: float | None = None
    """Share of the nearest rows that are in the lists."""

    @cached_property
    def source(self) -> ShardSource:
        """The shards of the data set."""
        return ShardSource.of(self.data.shards)

    @property
    def batch_rows(self) -> int:
        """Number of queries of a batch, whose best rows fit in memory."""
        return max(1, min(QUERIES, _KEPT // self.n_candidates))

    @cached_property
    def splits(self) -> Sequence[Split]:
        """Shards with rows, each a task."""
        return [split for split in self.source.splits() if split.stop]

    def prepared(self, runner: Runner, reporter: Progress) -> ShardScan:
        """Return the scan that can search; an approximate graph is made, unless it is made."""
        if self.make_lists is None or self.lists is not None:
            return self
        lists, recall = self.make_lists(self, runner, reporter)
        return replace(self, lists=lists, recall=recall)

    def batches(self, first: int, stop: int) -> list[Batch]:
        """Cut consecutive queries into batches."""
        size = self.batch_rows
        return [Batch(start, min(start + size, stop)) for start in range(first, stop, size)]

    def stage(self, reporter: Progress, batches: Sequence[Batch]) -> AbstractContextManager[Any]:
        """Begin the stage of a search for batches of queries; of a graph, each batch is a task."""
        if self.make_lists is None:
            name, n_tasks = "search, exact" if self.without_self else "search", len(batches) * len(self.splits)
            n_bytes = len(batches) * sum(map(self.source.split_bytes, self.splits))
        else:
            name, n_tasks = "search by graph", len(batches)
            name += "" if self.recall is None else f", recall {percent(self.recall)}"
            n_bytes = sum(map(self._list_bytes, batches))
        return reporter.stage(name, total_tasks=n_tasks, total_bytes=n_bytes)

    def count(self, batch: Batch, splits: Iterable[Split], advance: Callable[..., object]) -> None:
        """Report the tasks of a batch as done: one for each of some shards, or the one of a graph."""
        if self.make_lists is not None:
            advance(rows=batch.stop - batch.first, source_bytes=self._list_bytes(batch))
            return
        for split in splits:
            advance(rows=split.stop, source_bytes=self.source.split_bytes(split))

    def _list_bytes(self, batch: Batch) -> int:
        return (batch.stop - batch.first) * self.n_candidates * 8

    def search(
        self,
        codes: ShardDataset | CodesFrom,
        batches: Sequence[Batch],
        runner: Runner,
        advance: Callable[..., object],
        done: Callable[[Batch, Arrays], object],
    ) -> None:
        """Find the most similar rows of batches of queries, several batches at a time.

        Parameters
        ----------
        codes : ShardDataset or CodesFrom
            Codes of the queries, which tasks read from shards; those of an array are sent to each worker once.
        batches : sequence of Batch
        runner : Runner
            Runs the tasks, each on a batch and a group of shards.
        advance : callable
            Called for each batch and shard, or each batch of a graph, as ``advance(rows=..., source_bytes=...)``.
        done : callable
            Called in this thread with each batch and its results, as in `Neighbors`, in any order.
        """
        if self.lists is not None:
            for batch in batches:
                self.count(batch, self.splits, advance)
                done(batch, self._ranked(batch, *best_rows(self.lists[slice(*batch), : self.n_candidates]), runner))
            return
        n_groups = min(len(self.splits), _GROUPS * runner.n_threads)
        bounds = [len(self.splits) * group // n_groups for group in range(n_groups + 1)]
        groups = [self.splits[start:stop] for start, stop in pairwise(bounds)]
        shards = [tuple(split.number for split in group) for group in groups]
        found: dict[Batch, tuple[NDArray[np.int64], int]] = {}

        def merge(item: Comparison, best: NDArray[np.int64]) -> None:
            heaps, n_merged = found.pop(item.batch, (empty_heaps(len(best), self.n_candidates), 0))
            heaps = merged(heaps, best)
            self.count(item.batch, groups[item.group], advance)
            if n_merged + 1 < n_groups:
                found[item.batch] = heaps, n_merged + 1
            else:
                done(item.batch, self._ranked(item.batch, *best_rows(heaps), runner))

        task = CompareTask(data=self.data, codes=codes, n_kept=self.n_candidates, without_self=self.without_self)
        step = max(1, _TASKS // n_groups)
        for at in range(0, len(batches), step):
            some = [Comparison(batch, *group) for batch in batches[at : at + step] for group in enumerate(shards)]
            runner.run(task, some, merge)

    def _ranked(self, batch: Batch, counts: NDArray[np.int64], rows: NDArray[np.int64], runner: Runner) -> Arrays:
        """Return the most similar of the rows with the most equal codes, whose numbers are given."""
        if self.rows is None or self.queries is None:
            similarities, rows = ordered(self.fitted._similarity_of_counts(counts), rows, self.n_neighbors)
            errors = np.asarray(self.fitted.expected_error_at(np.clip(similarities, 0.0, 1.0)))
            return similarities, rows, errors
        given = self.queries.take(*batch, runner)
        similarities = self.rows.similarities(self.fitted, given, rows, runner)
        return *ordered(similarities, rows, self.n_neighbors), np.zeros((len(rows), self.n_neighbors))


class Batch(NamedTuple):
    """Consecutive queries that are compared together."""

    first: int
    stop: int


class Comparison(NamedTuple):
    """A batch of queries and a group of shards, the input of one task."""

    batch: Batch
    group: int
    """Number of the group."""
    shards: tuple[int, ...]

    @property
    def description(self) -> str:
        """Queries and shards, for messages."""
        (first, stop), shards = self.batch, f"{self.shards[0]} to {self.shards[-1]}"
        return f"the search for queries {first:,} to {stop - 1:,} in shards {shards}"


class CodesFrom(NamedTuple):
    """Codes of consecutive queries in memory."""

    codes: PackedCodes
    first: int
    """Number of the first query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareTask:
    """Comparison of batches of queries with groups of shards, sent to each worker once for a search."""

    data: ShardDataset
    codes: ShardDataset | CodesFrom
    n_kept: int
    without_self: bool
    """True if the queries are the rows, and a row is not compared with itself."""

    @property
    def map(self) -> SampledMap:
        """The map, by which workers are compared with the driver."""
        return cast("SampledMap", self.data.map)

    def __call__(self, item: Comparison, stopped: Callable[[], bool]) -> NDArray[np.int64]:
        """Return the heaps of the best rows of a group of shards."""
        (start, stop), fitted, queries = item.batch, self.map, self._queries(item.batch)
        own = np.arange(start, stop) if self.without_self else np.full(stop - start, -1)
        heaps = empty_heaps(stop - start, self.n_kept)
        for shard in item.shards:
            for first, codes in until_stopped(code_blocks(self.data, shard), stopped):
                fitted._keep_most_similar(queries, codes, first, own, heaps)
        return heaps

    def _queries(self, batch: Batch) -> PackedCodes:
        if isinstance(given := self.codes, CodesFrom):
            (codes, empty), first = given
            rows = slice(batch.first - first, batch.stop - first)
            return PackedCodes(codes[rows], empty[rows])

        def read() -> PackedCodes:
            parts = (codes for _, codes in code_rows(given, *batch))
            return PackedCodes(*map(np.concatenate, zip(*parts, strict=True)))

        return _READ.get((given.shards.storage.url, given.manifest.sha256, batch), read)


_READ = ProcessCache[PackedCodes](4)
"""Batches of queries that tasks of this process have read from shards."""


def open_codes(
    data: ShardDataset | str | PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> ShardDataset:
    """Open a data set, which must be of codes; options are for a URL. Its map is not loaded.

    Raises
    ------
    ConfigError
        If the map is not locality sensitive, or the shards hold its features expanded.
    """
    if not isinstance(data, ShardDataset):
        remote = is_url(as_path(data, "data"))  # options may be those of another place that is read
        data = open_shards(data, storage_options=storage_options if remote else None)
    if data.layout != "codes":  # which maps that sample have
        name = data.spec["map"]["map"]
        what = f"features of the map {name!r} in the layout {data.layout!r}" if data.has_features else data.layout
        raise ConfigError(
            f"{data.shards.storage.url} holds {what}, but near rows are found by equal codes; "
            "featurize with gcws, dart or minhash in the layout 'codes'"
        )
    return data


def temporary_folder(content: str, beside: Target | None = None) -> TemporaryDirectory[str]:
    """Make a folder for files that are not kept, which all workers should see.

    It is in ``temporary-directory`` of Dask's configuration, else beside a target that is a folder, else the system's.
    """
    place = dask.config.get("temporary-directory", None)
    if place is None and beside is not None and not is_url(beside.path):
        place = Path(beside.path).absolute().parent
        place.mkdir(parents=True, exist_ok=True)
    return TemporaryDirectory(prefix=f"dkfeat-{content}-", dir=place)


def sampled_map(data: ShardDataset | str | PathLike[str]) -> SampledMap:
    """Return the map of a data set of codes; see `open_codes`."""
    fitted: Any = open_codes(data).map
    return cast("SampledMap", fitted)


def code_blocks(data: ShardDataset, shard: int) -> Iterator[tuple[int, PackedCodes]]:
    """Yield blocks of a shard's rows: the number of the first row, and the codes."""
    codes = data.shards.read(data.manifest.shards[shard], data.verifies, only=("encoded",)).X
    first = int(data.first_rows[shard])
    for at in range(0, len(codes.codes), _ROWS):
        yield first + at, PackedCodes(codes.codes[at : at + _ROWS], codes.empty[at : at + _ROWS])


def code_rows(data: ShardDataset, first: int, stop: int) -> Iterator[tuple[int, PackedCodes]]:
    """Yield blocks of consecutive rows, as `code_blocks` does."""
    begin, end = np.searchsorted(data.first_rows, first, side="right") - 1, np.searchsorted(data.first_rows, stop)
    for at, (codes, empty) in chain.from_iterable(code_blocks(data, shard) for shard in range(begin, end)):
        some = slice(max(first - at, 0), max(stop - at, 0))
        yield at + some.start, PackedCodes(codes[some], empty[some])
