"""Nearest rows of queries: as arrays, as a graph, and as a table that is stored and committed as shards are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, cached_property, partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Self, TypedDict

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from dkfeat.canonical import Count, Positive, dumps, parse_typed, typed
from dkfeat.engine.dataset.dataset import ShardDataset, open_shards
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.open import binding_spec
from dkfeat.engine.progress import Progress
from dkfeat.engine.resolve import must_agree
from dkfeat.engine.runners.base import results_of
from dkfeat.engine.tables import TableJob, TableSpec, write_table
from dkfeat.engine.tasks.job import SplitResult, publish_piece, run_split
from dkfeat.errors import CommitError, ConfigError, SpecConflictError
from dkfeat.store.commit.begin import check_target
from dkfeat.store.manifest.records import check
from dkfeat.store.outputs import check_kind
from dkfeat.store.shards.codec import shard_name
from dkfeat.store.shards.columns import ARROW_TYPES
from dkfeat.store.storage.base import DATA, META, SPEC, faults_as, read_existing
from dkfeat.validation import check_integer

if TYPE_CHECKING:
    from dask.distributed import Client
    from numpy.typing import NDArray

    from dkfeat.blocks import Split
    from dkfeat.engine.open import Target
    from dkfeat.engine.runners.base import Runner
    from dkfeat.neighbors.scan import Arrays, Batch, ShardScan
    from dkfeat.sources.base import Source
    from dkfeat.sources.pieces import Piece
    from dkfeat.store.manifest.manifest import Manifest
    from dkfeat.store.storage.base import Storage

SIMILARITY, ROW, ERROR = COLUMNS = ("similarity", "neighbor", "standard_error")
"""Columns of a table with the arrays of `Neighbors`."""
_TYPES = {"query": "int64", "rank": "int64", ROW: "int64", SIMILARITY: "float64", ERROR: "float64"}
_DEFAULTS = {"method": "exact"}  # of settings that are left out of specs
_OF_NEIGHBOR = "neighbor_"
"""Beginning of the names of the columns that the data set keeps."""
_RECALL = f"{META}/recall.json"
"""File with the recall of an approximate graph."""


class _Settings(TypedDict):
    n_neighbors: Positive
    n_rows: Count
    without_self: bool


@dataclass(eq=False, repr=False)
class Neighbors:
    """Nearest rows of queries; made by `search`, or by `Neighbors.open` from a folder that `search` wrote.

    The arrays of a result in a folder are read when they are first used.

    Parameters
    ----------
    n_rows : int
        Number of rows among which neighbours were searched.
    arrays : tuple of three ndarrays, or ShardDataset
        Similarities, rows and errors, or a table of them.
    without_self : bool, default=False
        True if the queries are the rows, and no row is its own neighbour.
    recall : float or None, default=None
        Of an approximate graph, the share of the nearest rows that were found, estimated from a sample of the rows.
        None: the search was exact.
    """

    n_rows: int
    arrays: tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]] | ShardDataset
    _: KW_ONLY
    without_self: bool = False
    recall: float | None = None

    @classmethod
    def open(cls, folder: str | PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> Self:
        """Open a folder that `search` wrote.

        Parameters
        ----------
        folder : str or path
            The ``target`` of `search`.
        storage_options : mapping or None
            Options of fsspec for a URL.

        Raises
        ------
        dkfeat.errors.ShardError
            If nothing is committed there.
        dkfeat.errors.ConfigError
            If the folder holds something else.
        """
        table = open_shards(folder, storage_options=storage_options)
        if table.layout != "neighbors":
            raise ConfigError(
                f"{fspath(folder)} holds {'features' if table.has_features else table.layout}, not neighbours; "
                "give the target of dkfeat.neighbors.search, or the folder after --out of `dkfeat neighbors`"
            )
        where = f"{table.shards.storage.url}/{SPEC}"
        settings = typed(table.spec["neighbors"], _Settings, f"{where}: neighbors")
        n_neighbors = settings["n_neighbors"]
        check(table.n_rows % n_neighbors == 0, f"{where}: {table.n_rows:,} rows are not {n_neighbors:,} for each query")
        recall = _read_recall(table.shards.storage) if "method" in table.spec["neighbors"] else None
        return cls(settings["n_rows"], table, without_self=settings["without_self"], recall=recall)

    @property
    def folder(self) -> str | None:
        """Folder or URL of the table; None for a result in memory."""
        return self.arrays.shards.storage.url if isinstance(self.arrays, ShardDataset) else None

    @property
    def n_neighbors(self) -> int:
        """Number of neighbours of each query."""
        if isinstance(self.arrays, ShardDataset):
            return int(self.arrays.spec["neighbors"]["n_neighbors"])
        return self.arrays[1].shape[1]

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        if isinstance(self.arrays, ShardDataset):
            return self.arrays.n_rows // self.n_neighbors
        return len(self.arrays[1])

    def __repr__(self) -> str:
        where = "" if self.folder is None else f", {self.folder!r}"
        return f"Neighbors({self.n_neighbors:,} of {self.n_queries:,} queries among {self.n_rows:,} rows{where})"

    @property
    def similarities(self) -> NDArray[np.float64]:
        """Similarities in descending order, shape (n_queries, n_neighbors): the exact kernel, or else estimates."""
        return self._arrays[0]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Numbers of the rows in the data set's order, from 0, shape (n_queries, n_neighbors).

        Of equally similar rows the lower one is first.
        """
        return self._arrays[1]

    @property
    def errors(self) -> NDArray[np.float64]:
        """Standard errors of the similarities, shape (n_queries, n_neighbors); zeros if these are exact."""
        return self._arrays[2]

    def medians(self, rank: int) -> tuple[float, float]:
        """Return the medians over the queries of the similarity and the standard error at a rank, from 1.

        Of a folder, only these two columns are read, file by file. Without queries the medians are NaN.
        """
        place = check_integer(rank, "rank", low=1, high=self.n_neighbors) - 1
        names = (SIMILARITY, ERROR)
        parts = [[np.empty(0)] * 2, *([part[name][:, place] for name in names] for part in self._parts(names))]
        values = (np.concatenate(column) for column in zip(*parts, strict=True))
        similarity, error = (float(np.median(column)) if len(column) else float("nan") for column in values)
        return similarity, error

    def to_graph(self) -> sp.csr_matrix:
        """Make the graph of queries and their nearest rows, with the distances 1 - similarity.

        It has the form of scikit-learn's ``KNeighborsTransformer(mode="distance")``, which estimators with
        ``metric="precomputed"`` take: in the graph of all rows, each row is its own first neighbour, at distance 0.

        Returns
        -------
        graph : csr_matrix of shape (n_queries, n_rows), float64
            Rows of n_neighbors edges, or of n_neighbors + 1 in the graph of all rows, in ascending order of distance.
        """
        distances, rows = np.clip(1.0 - self.similarities, 0.0, 1.0), self.rows
        if self.without_self:
            distances = np.column_stack([np.zeros(len(rows)), distances])
            rows = np.column_stack([np.arange(len(rows)), rows])
        bounds = np.arange(len(rows) + 1) * rows.shape[1]
        return sp.csr_matrix((distances.ravel(), rows.ravel(), bounds), shape=(len(rows), self.n_rows))

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        if not isinstance(self.arrays, ShardDataset):
            return self.arrays
        none = np.empty((0, self.n_neighbors))
        parts = [{SIMILARITY: none, ROW: none.astype(np.int64), ERROR: none}, *self._parts(COLUMNS)]
        similarities, rows, errors = (np.concatenate([part[name] for part in parts]) for name in COLUMNS)
        return similarities, rows, errors

    def _parts(self, names: tuple[str, ...]) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield some of the arrays, for all queries at once or for those of each file."""
        if not isinstance(self.arrays, ShardDataset):
            yield dict(zip(COLUMNS, self.arrays, strict=True))
            return
        table = self.arrays
        for entry in table.manifest.shards:
            found = table.shards.read(entry, table.verifies, only=names).kept
            yield {name: found[name].to_numpy().reshape(-1, self.n_neighbors) for name in names}


def _read_recall(storage: Storage) -> float | None:
    """Return the recall of a graph, which is written before its table; None without it."""
    text = read_existing(storage, _RECALL)
    return None if text is None else parse_typed(text, float, f"{storage.url}/{_RECALL}")


def write_neighbors(
    scan: ShardScan,
    queries: ShardDataset,
    target: Target,
    settings: Mapping[str, Any],
    client: Client | None,
    reporter: Progress,
) -> Manifest:
    """Find the neighbours of all rows of shards, and commit them as a table; an interrupted call continues.

    Parameters
    ----------
    scan : ShardScan
    queries : ShardDataset
        The queries.
    target : Target
    settings : mapping
        Settings of the table's spec; if ``without_self`` is true, the queries are the rows.
    client, reporter
        As in `search`.

    Raises
    ------
    ConfigError
        If kept columns of queries and rows have equal names.
    """
    source = ShardSource.of(queries.shards)
    kept = [*source.kept.items(), *((_OF_NEIGHBOR + name, kind) for name, kind in scan.source.kept.items())]
    remedy = "keep it under another name, or search without a target"
    schema = table_schema(_TYPES, kept, source, "a table of neighbours", remedy)
    spec = TableSpec(
        layout="neighbors",
        schema=schema,
        settings=settings,
        piece_rows=scan.batch_rows,
        row_bytes=scan.n_neighbors * 8 * len(schema),
        reads=("encoded", *source.kept),
    )
    job = partial(_NeighborsJob, scan=scan, reporter=reporter, queries=queries)
    return write_table(queries, target, spec, job, stage="search", client=client, progress=reporter)


def table_schema(
    columns: Mapping[str, str], kept: Sequence[tuple[str, str]], source: ShardSource, content: str, remedy: str
) -> pa.Schema:
    """Return the columns of a table, without nulls, and after them those that data sets keep.

    Raises
    ------
    ConfigError
        If a kept column has the name of another one; `content` and `remedy` are for the message.
    """
    names = [*columns, *(name for name, _ in kept)]
    taken = [name for name in names if names.count(name) > 1]
    if taken:
        raise ConfigError(
            f"{source.urlpath} keeps a column {taken[0]!r}, but {content} has a column of that name; {remedy}"
        )
    fields = [pa.field(name, ARROW_TYPES[kind], nullable=False) for name, kind in columns.items()]
    return pa.schema([*fields, *(pa.field(name, ARROW_TYPES[kind]) for name, kind in kept)])


def check_neighbors_target(
    data: ShardDataset, storage: Storage, settings: Mapping[str, Any], sources: Iterable[Source]
) -> None:
    """Check, before any work, that neighbours among the rows of a data set can be written, or continued.

    Parameters
    ----------
    data : ShardDataset
    storage : Storage
        The target.
    settings : mapping
        Settings of the table's spec; ``shards`` has the hash of the data set's shards.
    sources : iterable of Source
        Sources that are read besides.

    Raises
    ------
    ConfigError
        If the target holds something of another kind, or a file of the sources.
    SpecConflictError
        If the target holds a table about other rows or with other settings.
    CommitError
        If another run holds it, or it holds other files.
    """
    for source in sources:
        storage.keep_apart(source.files(), source.patterns)
    check_kind(storage, "neighbors")
    check_target(storage)
    spec = binding_spec(storage)[0]
    if spec is None:
        return
    found, remedy = {**_DEFAULTS, **spec["neighbors"]}, "choose another target, or remove this one"
    if found["shards"] != settings["shards"]:
        n_rows = f"{found['n_rows']:,}" if isinstance(found.get("n_rows"), int) else "other"
        raise SpecConflictError(
            f"{storage.url} holds neighbours among {n_rows} rows, but {data.shards.storage.url} has {data.n_rows:,} "
            f"rows now, or other ones; all of them may have changed, so {remedy}"
        )
    must_agree({**_DEFAULTS, **settings}, found, storage.url, remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NeighborsJob(TableJob):
    """Job that runs in the driver, and searches by tasks on workers."""

    scan: ShardScan
    reporter: Progress
    queries: ShardDataset
    workers: Runner | None = None
    find: Callable[[Batch], Arrays] | None = None
    """Returns the result for a piece."""

    def run_in_driver(
        self, splits: Sequence[Split], workers: Runner, done: Callable[[Split, SplitResult], object]
    ) -> None:
        """See `Job.run_in_driver`; each batch is written when it is found, and a split is done with its last one."""
        size = self.spec["split"]["max_piece_rows"]
        existing = {*self.storage.list(DATA, sizes=False)}
        places: dict[Batch, tuple[Split, int]] = {}
        pieces: dict[int, list[Piece]] = {}  # of the splits of which a part is written
        batches: list[Batch] = []
        n_new = Counter[int]()
        for split in splits:
            first = self.source.first_row(split)
            for number, batch in enumerate(self.scan.batches(first, first + split.stop)):
                batches.append(batch)
                if shard_name(self.spec_fp, split, number) not in existing:  # else an earlier run has searched it
                    places[batch] = split, number
                    n_new[split.number] += 1
        prepared = cache(partial(self.scan.prepared, workers, self.reporter if places else Progress(False)))
        scan = prepared() if places else replace(self.scan, recall=_read_recall(self.storage))
        if places and scan.recall is not None:
            with faults_as(CommitError, f"{self.storage.url}/{_RECALL} cannot be written"):
                self.storage.replace(_RECALL, dumps(scan.recall))

        def search_again(batch: Batch) -> Arrays:  # the file of an earlier run is damaged
            found: list[Arrays] = []
            prepared().search(self.queries, [batch], workers, lambda **_: None, lambda _, made: found.append(made))
            return found[0]

        job, n_left = replace(self, workers=workers, find=search_again), n_new.copy()
        with scan.stage(self.reporter, batches) as stage:

            def end(split: Split) -> None:
                result = run_split(job, split)
                done(split, replace(result, found=result.found - n_new[split.number]))

            def write(batch: Batch, found: Arrays) -> None:
                split, number = places.pop(batch)
                if split.number not in pieces:
                    pieces[split.number] = [*self.source.read(split, size)]
                piece = pieces[split.number][number]
                publish_piece(replace(job, find=lambda _: found), split, piece, lambda X: X, [0])
                n_left[split.number] -= 1
                if not n_left[split.number]:
                    del pieces[split.number]
                    end(split)

            for batch in batches:
                if batch not in places:
                    scan.count(batch, scan.splits, stage.advance)
            for split in splits:
                if not n_left[split.number]:
                    end(split)
            scan.search(self.queries, [*places], workers, stage.advance, write)

    def columns(self, split: Split, piece: Piece) -> dict[str, Any]:
        """See `TableJob.columns`."""
        assert self.workers is not None
        assert self.find is not None
        first, n = self.first_row(split, piece), piece.block.n_rows
        if not n:
            return {name: [] for name in self.schema.names}
        (batch,) = self.scan.batches(first, first + n)
        similarities, rows, errors = self.find(batch)
        n_each = rows.shape[1]
        queries, ranks = np.repeat(np.arange(*batch), n_each), np.tile(np.arange(1, n_each + 1), n)
        found = queries, ranks, rows.ravel(), similarities.ravel(), errors.ravel()
        columns: dict[str, Any] = dict(zip(_TYPES, found, strict=True))
        of_query = pa.array(np.repeat(np.arange(n), n_each))
        columns |= {name: column.take(of_query) for name, column in piece.block.kept.items()}
        if self.scan.source.kept:
            kept = _kept(self.scan, rows.ravel(), self.workers)
            columns |= {_OF_NEIGHBOR + name: values for name, values in kept.items()}
        return columns


def _kept(scan: ShardScan, rows: NDArray[np.int64], workers: Runner) -> dict[str, pa.Array]:
    """Read kept columns of rows, each shard with any of the rows by a task."""
    names = tuple(scan.source.kept)
    numbers, positions = np.unique(rows, return_inverse=True)
    with_rows = {*(np.searchsorted(scan.data.first_rows, numbers, side="right") - 1).tolist()}
    task = partial(_kept_of_shard, scan.data, names, numbers)
    some = [split for split in scan.splits if split.number in with_rows]
    parts = results_of(workers, task, some)
    return {name: pa.concat_arrays([part[name] for part in parts]).take(pa.array(positions)) for name in names}


def _kept_of_shard(
    data: ShardDataset,
    names: Sequence[str],
    numbers: NDArray[np.int64],
    split: Split,
    stopped: Callable[[], bool],  # noqa: ARG001 - one read
) -> dict[str, pa.Array]:
    """Read kept columns of the rows of a shard that are among some numbers, in ascending order."""
    entry, first = data.manifest.shards[split.number], int(data.first_rows[split.number])
    begin, end = np.searchsorted(numbers, [first, first + entry.rows])
    # "size": a scan of shards has compared the SHA-256, and checksums of pages are compared here
    kept = data.shards.read(entry, "size", only=names).kept
    return {name: kept[name].take(pa.array(numbers[begin:end] - first)) for name in names}
