"""Exact similarities of candidates, whose rows are in memory or are read again from their source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from dkfeat.engine.dataset.verify import resolved_source
from dkfeat.engine.runners.base import results_of, until_stopped
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.sources.base import Source
from dkfeat.store.manifest.record_table import planned_splits
from dkfeat.validation import check_integer, rows_as_csr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.runners.base import Runner, Task
    from dkfeat.maps._sampled import SampledMap
    from dkfeat.store.manifest.records import ShardEntry

_COMPARED = 64
"""Number of rows, first and last, of an array whose codes are compared with those of the shards."""
_PAIRS = 1 << 20
"""Number of pairs of rows that are compared at a time."""


def check_n_neighbors(n_neighbors: object, n_rows: int, *, without_self: bool) -> int:
    """Return a number of neighbours among `n_rows` rows; `without_self` if a query is one of them.

    Raises
    ------
    ConfigError
        If it is not an integer of at least 1, or there are fewer rows.
    """
    found = check_integer(n_neighbors, "n_neighbors", low=1)
    available = max(0, n_rows - without_self)
    if found > available:
        others = "other rows" if without_self else "rows"
        raise ConfigError(f"n_neighbors={found:,}, but there are {available:,} {others}; ask for fewer")
    return found


def ordered(
    similarities: NDArray[np.float64], rows: NDArray[np.int64], n: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the `n` most similar candidates of each query in descending order, of equal ones the lower row first.

    Examples
    --------
    >>> ordered(np.array([[0.1, 0.9, 0.9]]), np.array([[4, 3, 2]]), 2)
    (array([[0.9, 0.9]]), array([[2, 3]]))
    """
    order = np.lexsort((rows, -similarities), axis=1)[:, :n]
    return np.take_along_axis(similarities, order, axis=1), np.take_along_axis(rows, order, axis=1)


@dataclass(frozen=True, slots=True)
class RowsInMemory:
    """Rows of an array or sparse matrix."""

    X: Any

    def take(self, first: int, stop: int, runner: Runner) -> Any:  # noqa: ARG002 - nothing to run
        """Return consecutive rows, by their numbers in the data set."""
        return self.X[first:stop]

    def similarities(
        self,
        fitted: SampledMap,
        queries: Any,
        rows: NDArray[np.int64],
        runner: Runner | None = None,  # noqa: ARG002
    ) -> NDArray[np.float64]:
        """Compute the exact kernel of queries and their candidates.

        Parameters
        ----------
        fitted : SampledMap
        queries : array or sparse matrix of shape (n_queries, n_features)
        rows : ndarray of shape (n_queries, n_candidates), int64
            Numbers of the candidates.
        runner : Runner or None
            Not used, as there is nothing to read.

        Returns
        -------
        similarities : ndarray of shape (n_queries, n_candidates), float64
        """
        similarities = np.empty(rows.shape)
        step = max(1, _PAIRS // rows.shape[1])
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            held, positions = np.unique(some, return_inverse=True)
            left = np.repeat(np.arange(len(some)), some.shape[1])
            part = fitted.exact_pairs(queries[first : first + step], self.X[held], left, positions.reshape(-1))
            similarities[first : first + step] = part.reshape(some.shape)
        return similarities


@dataclass(frozen=True, slots=True)
class RowsOfSource:
    """Rows that are read again from their source, split by split, each checked against the bytes of its shard."""

    source: Source
    splits: Sequence[Split]
    pieces: Mapping[int, Sequence[tuple[int, ShardEntry]]]
    """Number of the first row and record of each shard, by split."""
    max_piece_rows: int

    @classmethod
    def of(cls, data: ShardDataset, source: Any, storage_options: Mapping[str, Any] | None) -> RowsOfSource:
        """Find the splits of a data set's source.

        Raises
        ------
        SpecConflictError
            If an option of the source differs from the data set's, or a file is missing.
        """
        storage, manifest = data.shards.storage, data.manifest
        resolved, files = resolved_source(storage, data.spec, manifest, source, storage_options)
        pieces: dict[int, list[tuple[int, ShardEntry]]] = {}
        for first, entry in zip(data.first_rows.tolist(), manifest.shards, strict=False):
            pieces.setdefault(entry.split, []).append((first, entry))
        splits = [*planned_splits(manifest.records, pieces)]
        missing = [file.name for split in splits for file in split.files if file.name not in files]
        if missing:
            raise SpecConflictError(
                f"the source has no file {missing[0]!r}, from which {storage.url} was made; "
                "give the source of the shards"
            )
        splits = [split.with_files(files) for split in splits]
        return cls(resolved, splits, pieces, data.spec["split"]["max_piece_rows"])

    def take(self, first: int, stop: int, runner: Runner) -> sp.csr_matrix:
        """Return consecutive rows, by their numbers in the data set."""
        numbers = np.arange(first, stop)
        return sp.vstack(self._run(partial(self._take, numbers), numbers, runner), format="csr")

    def similarities(
        self, fitted: SampledMap, queries: Any, rows: NDArray[np.int64], runner: Runner
    ) -> NDArray[np.float64]:
        """Compute the exact kernel of queries and their candidates, as `RowsInMemory.similarities` does."""
        order = np.argsort(rows, axis=None, kind="stable")
        numbers, similarities = rows.ravel()[order], np.empty(rows.size)
        task = partial(self._compare, numbers, fitted, queries, order // rows.shape[1])
        for positions, values in self._run(task, numbers, runner):
            similarities[order[positions]] = values
        return similarities.reshape(rows.shape)

    def read(self, split: Split, stopped: Callable[[], bool]) -> Iterator[tuple[int, sp.csr_matrix]]:
        """Yield the number of the first row and the rows of each piece of a split, checked against its shard."""
        known = {entry.piece: (first, entry) for first, entry in self.pieces[split.number]}
        for piece in until_stopped(self.source.read(split, self.max_piece_rows), stopped):
            first, entry = known[piece.number]
            if (piece.source_sha256, piece.block.n_rows) != (entry.source_sha256, entry.rows):
                raise SpecConflictError(
                    f"{split.description}: not the rows from which shard {entry.name} was made; "
                    "give the unchanged source, of which the map refused no row"
                )
            yield first, piece.block.X

    def _read_wanted(self, numbers: NDArray[np.int64], split: Split, stopped: Callable[[], bool]) -> Iterator[Any]:
        """Yield a range of positions in ascending `numbers`, the rows of a piece, and the number of the first."""
        for first, X in self.read(split, stopped):
            begin, end = np.searchsorted(numbers, [first, first + X.shape[0]])
            if begin < end:
                yield slice(begin, end), X, first

    def _take(self, numbers: NDArray[np.int64], split: Split, stopped: Callable[[], bool]) -> sp.csr_matrix:
        """Return the rows of a split that are among the numbers, in order."""
        parts = [X[numbers[some] - first] for some, X, first in self._read_wanted(numbers, split, stopped)]
        return sp.vstack(parts, format="csr")

    def _compare(
        self,
        numbers: NDArray[np.int64],
        fitted: SampledMap,
        queries: Any,
        left: NDArray[np.int64],
        split: Split,
        stopped: Callable[[], bool],
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Compare the rows of a split with their queries, `left`; return positions in the numbers, and similarities."""
        positions, values = [np.empty(0, np.int64)], [np.empty(0)]
        for some, X, first in self._read_wanted(numbers, split, stopped):
            by_query = some.start + np.argsort(left[some])  # the kernel is fast on consecutive pairs of a query
            held, right = np.unique(numbers[by_query] - first, return_inverse=True)
            asked, of_query = np.unique(left[by_query], return_inverse=True)
            positions.append(by_query)
            values.append(fitted.exact_pairs(queries[asked], X[held], of_query, right))
        return np.concatenate(positions), np.concatenate(values)

    def _run(self, task: Task, numbers: NDArray[np.int64], runner: Runner) -> list[Any]:
        """Run a task on the splits that have any of the rows, which are in ascending order; return its results."""

        def has_rows(split: Split) -> bool:
            first, (last, entry) = self.pieces[split.number][0][0], self.pieces[split.number][-1]
            return bool(np.searchsorted(numbers, first) < np.searchsorted(numbers, last + entry.rows))

        return results_of(runner, task, [split for split in self.splits if has_rows(split)])


Rows = RowsInMemory | RowsOfSource
"""The rows from which shards were made, by their numbers in the data set."""


def rows_to_compare(
    data: ShardDataset, source: Any, storage_options: Mapping[str, Any] | None, *, is_exact: bool, option: str
) -> Rows | None:
    """Return the rows of a data set for exact comparisons, which an option asks for; None if there are none.

    Raises
    ------
    ConfigError
        If the source is missing or not needed, or an array of another shape, or of rows whose codes differ.
    SpecConflictError
        As from `RowsOfSource.of`.
    """
    if is_exact != (source is not None):
        raise ConfigError(f"{option} needs the source of the shards; pass source (--source) and it, or neither")
    if source is None:
        return None
    if not hasattr(source, "shape"):
        return RowsOfSource.of(data, source, None if isinstance(source, Source) else storage_options)
    X = rows_as_csr(source if data.encoder is None else data.encoder.rows_for_map(source), name="source")
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
