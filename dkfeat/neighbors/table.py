"""Neighbours of all queries as a table that is stored and committed as shards are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.open import Target, as_path, open_location
from dkfeat.engine.progress import Progress
from dkfeat.engine.resolve import binding_spec
from dkfeat.engine.runners.driver import LazyDriverRunner
from dkfeat.engine.tables import TableJob, TableSpec, write_table
from dkfeat.engine.tasks.job import SplitResult, run_split
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.neighbors.result import ERROR, ROW, SIMILARITY
from dkfeat.neighbors.scan import first_row, own_rows
from dkfeat.store.commit.target import check_target
from dkfeat.store.shards.columns import ARROW_TYPES, TABLES

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.runners.local import Runner
    from dkfeat.neighbors.scan import ShardScan
    from dkfeat.sources.base import Piece
    from dkfeat.store.manifest.manifest import Manifest

QUERY, RANK = "query", "rank"
_TYPES = {QUERY: pa.int64(), RANK: pa.int64(), ROW: pa.int64(), SIMILARITY: pa.float64(), ERROR: pa.float64()}
_OF_NEIGHBOR = "neighbor_"
"""Beginning of the names of the columns that the data set keeps."""


def write_neighbors(
    scan: ShardScan,
    queries: ShardDataset,
    target: object,
    settings: Mapping[str, Any],
    *,
    batch_rows: int,
    resume: bool,
    client: Client | None,
    reporter: Progress,
    target_options: Mapping[str, Any] | None,
) -> Manifest:
    """Find the neighbours of all rows of shards, and commit them as a table; an interrupted call continues.

    Parameters
    ----------
    scan : ShardScan
    queries : ShardDataset
        The queries.
    target : str or path
    settings : mapping
        Settings of the search, for the table's spec; if ``without_self`` is true, the queries are the rows.
    batch_rows : int
        Maximum number of queries that are searched at a time.
    resume, client, reporter, target_options
        As in `search`.

    Raises
    ------
    ConfigError
        If kept columns of queries and rows have equal names.
    SpecConflictError
        If the target holds something else.
    """
    schema = _schema(scan.data, queries)
    spec = TableSpec(
        layout="neighbors",
        schema=schema,
        settings={**settings, "n_rows": scan.data.n_rows, "shards": scan.data.manifest.shards_sha256},
        piece_rows=batch_rows,
        row_bytes=scan.n_neighbors * 8 * len(schema),
        reads=("encoded", *ShardSource.of(queries.shards).kept),
    )
    job = partial(
        _NeighborsJob,
        scan=scan,
        schema=schema,
        kept_names=tuple(ShardSource.of(scan.data.shards).kept),
        reporter=reporter,
        without_self=settings["without_self"],
    )
    manifest = write_table(
        queries,
        Target(as_path(target, "target"), storage_options=target_options, resume=resume),
        spec,
        job,
        LazyDriverRunner(client),
        Progress(False),  # `reporter` counts the tasks of each batch
        stage="search",
    )
    if not reporter.logs():
        reporter.note(f"{as_path(target, 'target')} is complete already; nothing to do")
    return manifest


def _schema(data: ShardDataset, queries: ShardDataset) -> pa.Schema:
    fields = [pa.field(name, kind, nullable=False) for name, kind in _TYPES.items()]
    for given, before in ((queries, ""), (data, _OF_NEIGHBOR)):
        kept = ShardSource.of(given.shards).kept
        fields += [pa.field(before + name, ARROW_TYPES[kind]) for name, kind in kept.items()]
    names = [field.name for field in fields]
    taken = [name for name in names if names.count(name) > 1]
    if taken:
        raise ConfigError(
            f"{queries.shards.storage.url} keeps a column {taken[0]!r}, but a table of neighbours has a column of that "
            "name; keep it under another name, or search without a target"
        )
    return pa.schema(fields)


def check_target_among(data: ShardDataset, target: object, options: Mapping[str, Any] | None) -> None:
    """Check, before any work, that neighbours among the rows of a data set can be written to a target.

    Raises
    ------
    SpecConflictError
        If it holds something else, or neighbours among other rows.
    CommitError
        If another run holds it, or it holds other files.
    """
    storage = open_location(as_path(target, "target"), options)
    check_target(storage)
    spec = binding_spec(storage)[0]
    if spec is None:
        return
    if (layout := spec["output"]["layout"]) != "neighbors":
        kind = layout if layout in TABLES else "features"
        raise SpecConflictError(f"{storage.url} holds {kind}, not neighbours; choose another target")
    found = spec["neighbors"]
    if found["shards"] != data.manifest.shards_sha256:
        raise SpecConflictError(
            f"{storage.url} holds neighbours among {found['n_rows']:,} rows, but {data.shards.storage.url} has "
            f"{data.n_rows:,} rows now, or other ones; neighbours of all queries may have changed, so choose another "
            "target, or remove this one"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _NeighborsJob(TableJob):
    """Job whose tasks run in the driver, each by tasks on workers; a `DriverTask`."""

    scan: ShardScan
    schema: pa.Schema
    kept_names: Sequence[str]
    """Columns that the data set keeps."""
    without_self: bool
    reporter: Progress
    workers: Runner | None = None
    advance: Callable[..., object] | None = None
    """Counts a task of `workers`."""

    @contextmanager
    def opened(self, splits: Sequence[Split], workers: Runner) -> Iterator[Callable[[Split], SplitResult]]:
        """See `DriverTask.opened`."""
        size = self.spec["split"]["max_piece_rows"]
        n_batches = sum(-(-split.stop // size) for split in splits)
        n_tasks, n_bytes = n_batches * len(self.scan.splits), n_batches * self.scan.n_bytes
        with self.reporter.stage("search", total_tasks=n_tasks, total_bytes=n_bytes) as stage:
            job = replace(self, workers=workers, advance=stage.advance)

            def process(split: Split) -> SplitResult:
                result = run_split(job, split)
                found = result.found if split.stop else 0
                for task in [*self.scan.splits] * found:  # batches that an earlier run has searched
                    self.scan.count(task, stage.advance)
                return result

            yield process

    def table(self, split: Split, piece: Piece) -> pa.Table:
        """See `TableJob.table`."""
        assert self.workers is not None
        assert self.advance is not None
        first, n = self.first_row(split, piece), piece.block.n_rows
        if not n:
            return self.schema.empty_table()
        numbers = np.arange(first, first + n)
        own = own_rows(first, n, without_self=self.without_self)
        similarities, rows, errors = self.scan.best(first, piece.block.X, own, self.workers, self.advance)
        n_each = rows.shape[1]
        columns = {
            QUERY: pa.array(np.repeat(numbers, n_each)),
            RANK: pa.array(np.tile(np.arange(1, n_each + 1), n)),
            ROW: pa.array(rows.ravel()),
            SIMILARITY: pa.array(similarities.ravel()),
            ERROR: pa.array(errors.ravel()),
        }
        of_query = pa.array(np.repeat(np.arange(n), n_each))
        columns |= {name: column.take(of_query) for name, column in piece.block.kept.items()}
        if self.kept_names:
            found = _kept(self.scan, self.kept_names, rows.ravel(), self.workers)
            columns |= {_OF_NEIGHBOR + name: found[name] for name in self.kept_names}
        return pa.table([columns[name] for name in self.schema.names], schema=self.schema)


def _kept(scan: ShardScan, names: Sequence[str], rows: NDArray[np.int64], workers: Runner) -> dict[str, pa.Array]:
    """Read kept columns of rows, each shard with any of the rows by a task."""
    numbers, positions = np.unique(rows, return_inverse=True)
    with_rows = np.unique(np.searchsorted(scan.data.first_rows, numbers, side="right") - 1).tolist()
    found: dict[int, dict[str, pa.Array]] = {}

    def done(split: Split, result: dict[str, pa.Array]) -> None:
        found[split.number] = result

    task = _TakeKept(scan.data, names, numbers)
    workers.run(task, [split for split in scan.splits if split.number in with_rows], done)
    parts = [found[number] for number in sorted(found)]
    return {name: pa.concat_arrays([part[name] for part in parts]).take(pa.array(positions)) for name in names}


@dataclass(frozen=True, slots=True)
class _TakeKept:
    """Task that reads kept columns of the rows of a shard that are among some numbers, in ascending order."""

    data: ShardDataset
    names: Sequence[str]
    numbers: NDArray[np.int64]

    def __call__(self, split: Split, stopped: Callable[[], bool]) -> dict[str, pa.Array]:  # noqa: ARG002 - one read
        """Return the columns."""
        entry, first = self.data.manifest.shards[split.number], first_row(self.data, split)
        begin, end = np.searchsorted(self.numbers, [first, first + entry.rows])
        # "size": a scan of shards has compared the SHA-256, and checksums of pages are compared here
        kept = self.data.shards.read(entry, "size", only=self.names).kept
        positions = pa.array(self.numbers[begin:end] - first)
        return {name: kept[name].take(positions) for name in self.names}
