"""Scan of a data set for the rows that are most similar to a batch of queries, of its shards or of its index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dkfeat.blocks import PackedCodes
from dkfeat.compiled.sampling.codes import best_rows, empty_heaps, merged
from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.open import as_path
from dkfeat.engine.progress import ProgressState
from dkfeat.engine.resolve import PIECE_BYTES
from dkfeat.engine.runners.base import until_stopped
from dkfeat.engine.tables import TableJob, TableSpec, write_table
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.filesystems.urls import is_url
from dkfeat.maps._sampled import SampledMap
from dkfeat.neighbors.exact import Rows, ordered
from dkfeat.store.manifest.metadata import newest_manifest, read_spec
from dkfeat.store.shards.columns import index_table
from dkfeat.store.shards.reader import ShardReader
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import SPEC

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.engine.progress import Progress
    from dkfeat.engine.runners.base import Runner
    from dkfeat.sources.pieces import Piece
    from dkfeat.store.manifest.manifest import Manifest

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
    index: ShardReader | None = None
    """Index of the data set, which is read instead of its shards."""
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

        runner.run(partial(_best_of_shard, self.data, self.index, codes, own, self.n_candidates), self.splits, done)
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
    index: ShardReader | None,
    queries: PackedCodes,
    own: NDArray[np.int64],
    n_kept: int,
    split: Split,
    stopped: Callable[[], bool],
) -> NDArray[np.int64]:
    """Compare a batch of queries with the rows of a shard; return the heaps of the best of them."""
    heaps = empty_heaps(len(own), n_kept)
    for first, codes in until_stopped(code_blocks(data, split, index), stopped):
        fitted: Any = data.map
        fitted._keep_most_similar(queries, codes, first, own, heaps)
    return heaps


def open_codes(
    data: ShardDataset | str | PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> tuple[ShardDataset, SampledMap]:
    """Open a data set of codes, and return it with its map; options are for a URL.

    Raises
    ------
    ConfigError
        As from `sampled_map`.
    """
    if not isinstance(data, ShardDataset):
        remote = is_url(as_path(data, "data"))  # options may be those of another place that is read
        data = open_shards(data, storage_options=storage_options if remote else None)
    return data, sampled_map(data)


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


def own_rows(first: int, n: int, *, without_self: bool) -> NDArray[np.int64]:
    """Return the rows with which consecutive queries are not compared; -1 stands for none."""
    return np.arange(first, first + n) if without_self else np.full(n, -1)


def first_row(data: ShardDataset, split: Split) -> int:
    """Return the number of the first row of a shard, a split of `ShardSource`."""
    return int(data.first_rows[split.number])


def code_blocks(data: ShardDataset, split: Split, index: ShardReader | None) -> Iterator[tuple[int, PackedCodes]]:
    """Yield blocks of a shard's rows: the number of the first row, and the codes, from an index if there is one."""
    if index is None:
        first, codes = numbered_codes(data, split)
        for at in range(0, split.stop, _ROWS):
            yield first + at, PackedCodes(codes.codes[at : at + _ROWS], codes.empty[at : at + _ROWS])
        return
    first = first_row(data, split)
    for entry in index.manifest.shards:
        if entry.source == split.file.name:
            for position, codes in index.map_index(entry):
                yield first + entry.range[0] + position, codes


def index(
    data: ShardDataset | str | PathLike[str],
    *,
    client: Client | None = None,
    progress: bool | Callable[[ProgressState], object] = True,
) -> Manifest:
    r"""Write an index of a data set, with which `search` answers a single query several times as fast.

    The index has a copy of the codes in files that each search maps into memory, so that nothing is decoded or checked
    for each query, and the pages stay in the system's cache. Results are the same with and without it.

    It is in a folder beside that of the shards, with ``-index`` after its name, where `search` finds it. Before the
    call, this folder must either not exist, or hold an index of the same data set, complete or interrupted. After the
    call, the index has all shards. If the call is interrupted, the same call continues, and searches read the shards.
    If shards were added to the data set, the same call adds them to the index; until then, searches are an error. To go
    back, remove the folder.

    Parameters
    ----------
    data : ShardDataset, str or path
        Data set made by `GCWSFeatures` or `DartFeatures`, or its folder; not a URL of an object store.
    client : distributed.Client or None, default=None
        Cluster to run on, as in `dkfeat.featurize`.
    progress : bool or callable, default=True
        Progress report, as in `dkfeat.featurize`.

    Returns
    -------
    manifest : Manifest
        Committed list of the files of the index.

    Raises
    ------
    dkfeat.errors.ConfigError
        If the map does not sample, or the shards are not in a local folder.
    dkfeat.errors.SpecConflictError
        If the folder holds something else, or shards that it covers were replaced.
    dkfeat.errors.DkfeatError
        As from `dkfeat.featurize`.

    See Also
    --------
    search : Reads the index if there is one.

    Notes
    -----
    A single query among 1 million rows of 512 codes takes a sixth of the time, a batch of 64 three quarters. The index
    takes as much space as the codes. ``dkfeat verify`` checks its bytes; a search checks only sizes and footers.

    Examples
    --------
    >>> import pathlib, tempfile, dkfeat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "rows.svm").write_text("1 1:4 3:1\n1 2:3\n1 1:4 3:2\n")
    >>> dart = dkfeat.DartFeatures(n_components=512, random_state=0)
    >>> _ = dkfeat.featurize(folder / "rows.svm", folder / "features", dart, progress=False)
    >>> dkfeat.neighbors.index(folder / "features", progress=False).rows
    3
    >>> dkfeat.neighbors.search(folder / "features", np.array([[4.0, 0.0, 1.5]]), 2, progress=False).rows.tolist()
    [[0, 2]]
    """
    data, fitted = open_codes(data)
    row_bytes = fitted.encoded_row_bytes
    if data.shards.storage.is_remote:
        raise ConfigError(
            f"an index is mapped into memory, but {data.shards.storage.url} is in an object store; copy the shards to "
            "a local folder, or search without index"
        )
    spec = TableSpec(
        layout="index",
        schema=index_table(PackedCodes(np.empty((0, row_bytes), np.uint8), np.empty(0, np.bool_))).schema,
        settings={"format": 1},
        piece_rows=max(1, PIECE_BYTES // row_bytes),
        row_bytes=row_bytes,
        reads=("encoded",),
    )
    return write_table(data, _folder(data), spec, _IndexJob, stage="index", client=client, progress=progress)


def open_index(data: ShardDataset) -> ShardReader | None:
    """Open the index of a data set; None if there is none.

    Raises
    ------
    SpecConflictError
        If it lacks a shard of the data set.
    """
    storage, url = open_storage(_folder(data)), data.shards.storage.url
    if storage.is_remote or storage.size(SPEC) is None:
        return None
    spec, manifest = read_spec(storage), newest_manifest(storage)
    if manifest is None or spec["output"]["layout"] != "index":
        return None
    if spec["input"]["spec_fp"] != data.manifest.spec_fp:
        raise SpecConflictError(
            f"{storage.url} is an index of shards with another spec than those of {url}; remove it, and run "
            f"`dkfeat index {url}`"
        )
    indexed = {source.name: source.etag for source in manifest.sources}
    missing = [entry.name for entry in data.manifest.shards if indexed.get(entry.name) != entry.sha256]
    if missing:
        raise SpecConflictError(
            f"{storage.url} lacks {len(missing):,} of the {data.n_shards:,} shards of {url}, such as {missing[0]}; "
            f"run `dkfeat index {url}` again, or remove the index"
        )
    return ShardReader(storage, spec, manifest)


def _folder(data: ShardDataset) -> str:
    return f"{data.shards.storage.url}-index"


@dataclass(frozen=True, slots=True, kw_only=True)
class _IndexJob(TableJob):
    """Job that copies codes."""

    def columns(self, split: Split, piece: Piece) -> dict[str, Any]:  # noqa: ARG002 - inherited
        """See `TableJob.columns`."""
        table = index_table(piece.block.X)
        return dict(zip(table.column_names, table.columns, strict=True))
