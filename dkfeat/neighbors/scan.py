"""Scan of the shards of a data set for the rows that are most similar to a batch of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dkfeat.blocks import PackedCodes
from dkfeat.compiled.sampling.codes import best_rows, empty_heaps, merged
from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.open import as_path
from dkfeat.engine.runners.base import until_stopped
from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import is_url
from dkfeat.neighbors.exact import Rows, ordered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.engine.progress import Progress
    from dkfeat.engine.runners.base import Runner
    from dkfeat.maps._sampled import SampledMap

QUERIES = 4096
"""Maximum number of queries whose codes and best rows a task holds."""
_KEPT = 1 << 23  # best rows of all queries that a task holds
_ROWS = 65_536  # rows of a shard that are compared at a time


@dataclass(frozen=True, kw_only=True)
class ShardScan:
    """Search among the rows of a data set, for any batch of queries."""

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

    def stage(self, reporter: Progress, n_batches: int) -> AbstractContextManager[Any]:
        """Begin the stage of a search for batches of queries."""
        n_tasks, n_bytes = n_batches * len(self.splits), n_batches * sum(map(self.source.split_bytes, self.splits))
        return reporter.stage("search", total_tasks=n_tasks, total_bytes=n_bytes)

    def count(self, split: Split, advance: Callable[..., object]) -> None:
        """Report a task as done."""
        advance(rows=split.stop, source_bytes=self.source.split_bytes(split))

    def best(
        self,
        first: int,
        codes: PackedCodes,
        own: NDArray[np.int64],
        runner: Runner,
        advance: Callable[..., object],
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Find the most similar rows of consecutive queries.

        Parameters
        ----------
        first : int
            Number of the first query.
        codes : PackedCodes
            Codes of n queries.
        own : ndarray of shape (n,), int64
            Row that each query is not compared with; -1: none.
        runner : Runner
            Runs the tasks.
        advance : callable
            Called after each task as ``advance(rows=..., source_bytes=...)``.

        Returns
        -------
        similarities, rows, errors : ndarray of shape (n, n_neighbors)
            As in `Neighbors`.
        """
        heaps = empty_heaps(len(own), self.n_candidates)

        def done(split: Split, best: NDArray[np.int64]) -> None:
            heaps[:] = merged(heaps, best)
            self.count(split, advance)

        runner.run(partial(_best_of_shard, self.data, codes, own, self.n_candidates), self.splits, done)
        counts, rows = best_rows(heaps)
        if self.rows is None or self.queries is None:
            similarities, rows = ordered(self.fitted._similarity_of_counts(counts), rows, self.n_neighbors)
            errors = np.asarray(self.fitted.expected_error_at(np.clip(similarities, 0.0, 1.0)))
            return similarities, rows, errors
        given = self.queries.take(first, first + len(own), runner)
        similarities = self.rows.similarities(self.fitted, given, rows, runner)
        return *ordered(similarities, rows, self.n_neighbors), np.zeros((len(own), self.n_neighbors))


def _best_of_shard(
    data: ShardDataset,
    queries: PackedCodes,
    own: NDArray[np.int64],
    n_kept: int,
    split: Split,
    stopped: Callable[[], bool],
) -> NDArray[np.int64]:
    """Compare a batch of queries with the rows of a shard; return the heaps of the best of them."""
    heaps = empty_heaps(len(own), n_kept)
    for first, codes in until_stopped(code_blocks(data, split.number), stopped):
        fitted: Any = data.map
        fitted._keep_most_similar(queries, codes, first, own, heaps)
    return heaps


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


def sampled_map(data: ShardDataset | str | PathLike[str]) -> SampledMap:
    """Return the map of a data set of codes; see `open_codes`."""
    fitted: Any = open_codes(data).map
    return cast("SampledMap", fitted)


def own_rows(first: int, n: int, *, without_self: bool) -> NDArray[np.int64]:
    """Return the rows with which consecutive queries are not compared; -1 stands for none."""
    return np.arange(first, first + n) if without_self else np.full(n, -1)


def code_blocks(data: ShardDataset, shard: int) -> Iterator[tuple[int, PackedCodes]]:
    """Yield blocks of a shard's rows: the number of the first row, and the codes."""
    codes = data.shards.read(data.manifest.shards[shard], data.verifies, only=("encoded",)).X
    first = int(data.first_rows[shard])
    for at in range(0, len(codes.codes), _ROWS):
        yield first + at, PackedCodes(codes.codes[at : at + _ROWS], codes.empty[at : at + _ROWS])
