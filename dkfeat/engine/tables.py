"""Shards of a data set as the source of another one: of some of its rows, or of a table that is computed from them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from dkfeat.blocks import RESERVED, RowBlock, SourceFile, Split
from dkfeat.canonical import fingerprint
from dkfeat.engine.open import open_run
from dkfeat.engine.resolve import Resolved, make_spec
from dkfeat.engine.run import execute
from dkfeat.engine.tasks.job import Job
from dkfeat.errors import ConfigError
from dkfeat.sources.base import Origin, Piece, Source, SplitScan
from dkfeat.store.manifest.records import ShardEntry, planned_splits
from dkfeat.store.shards.columns import LAYOUTS, kinds
from dkfeat.store.shards.reader import ShardReader
from dkfeat.store.storage.base import DATA

if TYPE_CHECKING:
    from distributed import Client

    from dkfeat.config import ExecutionConfig
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.progress import Progress, ProgressState
    from dkfeat.engine.runners.local import Runner
    from dkfeat.store.manifest.manifest import Manifest


class StoredShard(NamedTuple):
    """A shard as a part of its data set."""

    entry: ShardEntry
    """Record in the manifest."""
    origins: tuple[Origin, ...]
    """Origins of its rows, in order."""
    first_row: int
    """Number of its first row among all rows of the data set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSource(Source):
    """Shards of one manifest as a source, in which each shard is a file and a split; made by `of`.

    The blocks have the features as stored: `PackedCodes`, a csr_matrix or an ndarray.
    """

    kind: ClassVar[str] = "shards"
    can_quarantine: ClassVar[bool] = False
    _to_resolve: ClassVar[tuple[str, ...]] = ()

    reader: ShardReader
    """Reader of the shards of its manifest; later commits do not change it."""
    stored: Mapping[str, StoredShard]
    """Shards by their names."""
    zero_based: bool = True
    multilabel: bool = False
    query_id: bool = False
    only: tuple[str, ...] | None = None
    """Columns that are read, as for `ShardReader.read`; None: all."""

    def __post_init__(self) -> None:
        """Leave the options as they are: a manifest holds checked ones."""

    @classmethod
    def of(
        cls, reader: ShardReader, only: tuple[str, ...] | None = None, *, layouts: Collection[str] = LAYOUTS
    ) -> Self:
        """Make the source of all shards of a reader; `only` names the columns to read.

        Raises
        ------
        ConfigError
            If the layout of the shards is none of `layouts`; by default these are the layouts of features.
        """
        options = reader.spec["input"]
        url = reader.storage.url
        if (layout := reader.spec["output"]["layout"]) not in layouts:
            raise ConfigError(f"{url} holds {layout}, not features")
        return cls(
            reader=reader,
            stored=_stored(reader),
            urlpath=url,
            blocksize=1,
            n_features=reader.manifest.n_features,
            multilabel=bool(options.get("multilabel")),
            query_id="qid" in reader.manifest.schema,
            label_dtype=options["label_dtype"],
            only=only,
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        """Folder of the shards."""
        return (f"{self.urlpath}/{DATA}",)

    @property
    def has_labels(self) -> bool:
        """True if rows have labels of their own."""
        return self.reader.spec["input"].get("label", "label") is not None

    @property
    def has_weights(self) -> bool:
        """True if rows have weights."""
        return "weight" in self.reader.manifest.schema

    @property
    def kept(self) -> Mapping[str, str]:
        """Types of the columns that the shards keep, by their names."""
        return {name: kind for name, kind in self.reader.manifest.schema.items() if name not in RESERVED}

    def files(self) -> tuple[SourceFile, ...]:
        """List the shards in the manifest's order; `etag` is their SHA-256, by which a change is detected."""
        return tuple(
            SourceFile(name=entry.name, url=f"{self.urlpath}/{DATA}/{entry.name}", size=entry.size, etag=entry.sha256)
            for entry, _, _ in self.stored.values()
        )

    def splits(self, files: Sequence[SourceFile] | None = None, first_number: int = 0) -> tuple[Split, ...]:
        """Make one split of each shard, from its first row to its last."""
        files = self.files() if files is None else files
        return tuple(
            Split(number=first_number + position, file=file, start=0, stop=self.stored[file.name].entry.rows)
            for position, file in enumerate(files)
        )

    def first_row(self, split: Split) -> int:
        """Return the number of the first row of a split among all rows of the data set."""
        return self.stored[split.file.name].first_row

    def rows_of(self, split: Split) -> int | None:
        """Return the number of rows of a split."""
        return split.stop

    def split_bytes(self, split: Split) -> int:
        """Return the size of the shard in bytes."""
        return split.file.size

    def piece_bytes(self, split: Split) -> int:
        """Return the size of the shard in bytes, because it is in memory as a whole."""
        return split.file.size

    def scan_split(self, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:  # noqa: ARG002 - inherited
        """Raise ConfigError: the manifest has the results that a scan would find."""
        raise ConfigError(f"{self.urlpath}: shards are not scanned; `dkfeat inspect` shows what is in them")

    def pieces(self, split: Split, max_piece_rows: int | None, checksum: bool) -> Iterator[Piece]:
        """Yield the pieces of a shard, which is checked against its manifest; a piece ends after `max_piece_rows` rows.

        ``Piece.start`` and ``Piece.stop`` are rows of the shard; ``Piece.source_sha256`` is a hash of these and of its
        SHA-256.
        """
        entry = self.stored[split.file.name].entry
        most = max(1, entry.rows if max_piece_rows is None else max_piece_rows)
        bounds = [*range(0, max(1, entry.rows), most), entry.rows]
        rows = self.reader.read(entry, only=self.only)
        for number, (start, stop) in enumerate(pairwise(bounds)):
            data = rows.take(slice(start, stop))
            block = replace(data, y=np.zeros(stop - start)) if data.y is None else data
            yield Piece(
                number=number,
                last=stop == entry.rows,
                block=block,
                start=start,
                stop=stop,
                source_sha256=fingerprint([entry.sha256, start, stop]) if checksum else "",
            )

    def origins(self, split: Split, piece: Piece, before: Sequence[int]) -> list[Origin]:  # noqa: ARG002 - inherited
        """Locate the rows in the source from which the shards were made."""
        found, first = [], 0
        for origin in self.stored[split.file.name].origins:
            start, stop = max(piece.start, first), min(piece.stop, first + origin.n_rows)
            if start < stop:
                found.append(origin._replace(first=origin.first + start - first, n_rows=stop - start))
            first += origin.n_rows
        return found

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values: the input options with which the shards were made, and the fingerprint of their spec."""
        return {**self.reader.spec["input"], "kind": self.kind, "spec_fp": self.reader.manifest.spec_fp}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return an empty mapping, because all options are set."""
        return {}


def _stored(reader: ShardReader) -> dict[str, StoredShard]:
    manifest, names = reader.manifest, dict[int, tuple[str, ...]]()
    if any(entry.rows_by_file for entry in manifest.shards):  # a record names only the first file of a group
        planned = planned_splits(manifest.records)
        names = {split.number: tuple(file.name for file in split.files) for split in planned}
    found: dict[str, StoredShard] = {}
    before: list[int] = []
    first_row = 0
    for entry in manifest.shards:
        counts = entry.rows_by_file or (entry.rows,)
        before = [0] * len(counts) if entry.piece == 0 else before
        files = names[entry.split] if entry.rows_by_file else (entry.source,)
        origins = (Origin(*item) for item in zip(files, [entry.split] * len(files), before, counts, strict=True))
        found[entry.name] = StoredShard(entry, tuple(origins), first_row)
        first_row += entry.rows
        before = [sum(pair) for pair in zip(before, counts, strict=True)]
    return found


ORIGIN = {"source_file": "string", "source_split": "int64", "source_row": "int64"}
"""Columns with the origin of a row, and their types."""


def origin_columns(source: Source, split: Split, piece: Piece, before: Sequence[int]) -> dict[str, pa.Array]:
    """Return the columns of `ORIGIN` for the rows of a piece; `before` as for ``Source.origins``."""
    origins = source.origins(split, piece, before)
    counts = [origin.n_rows for origin in origins]
    rows = [np.arange(origin.first, origin.first + origin.n_rows) for origin in origins]
    names = pa.array([origin.file for origin in origins], pa.string())
    return {
        "source_file": names.take(pa.array(np.repeat(np.arange(len(counts)), counts))),
        "source_split": pa.array(np.repeat(np.array([o.split for o in origins], np.int64), counts)),
        "source_row": pa.array(np.concatenate([np.empty(0, np.int64), *rows])),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsJob(Job):
    """Job on the rows of shards, which are encoded already."""

    source: ShardSource

    @property
    def environments(self) -> tuple[str, ...]:
        """Numeric environments in which the shards were made."""
        return self.source.reader.manifest.numeric_envs

    def encoder(self) -> Callable[[Any], Any]:
        """Return the identity."""
        return lambda X: X

    def counts(self, piece: Piece, encoded: Any) -> dict[str, Any]:
        """Return 0 nonzeros: shards do not have those of each row."""
        return Job.counts(self, piece, encoded) | {"nnz": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJob(ShardsJob):
    """Job that makes rows of a table from each piece of a shard."""

    schema: pa.Schema
    """Columns of the table, as in its `TableSpec`."""

    @property
    def keeps_labels(self) -> bool:
        """False: a table has the columns that `columns` makes."""
        return False

    @property
    def is_exact(self) -> bool:
        """True: tables have equal bits on every machine."""
        return True

    def block(self, split: Split, piece: Piece, encoded: Any, before: Sequence[int]) -> RowBlock:  # noqa: ARG002 - inherited
        """Return the rows of the table."""
        return RowBlock(X=pa.table(self.columns(split, piece), schema=self.schema), y=None)

    def counts(self, piece: Piece, encoded: Any) -> dict[str, Any]:  # noqa: ARG002 - inherited
        """Return zeros: rows of a table are not features."""
        return {"nnz": 0, "n_empty": 0}

    def first_row(self, split: Split, piece: Piece) -> int:
        """Return the number of the piece's first row among all rows of the data set."""
        return self.source.first_row(split) + piece.start

    @abstractmethod
    def columns(self, split: Split, piece: Piece) -> dict[str, Any]:
        """Make the table's rows of a piece, any number of them: the columns of `schema` by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What a table holds."""

    layout: str
    """Kind of table, of `dkfeat.store.shards.columns.TABLES`."""
    schema: pa.Schema
    """Columns; those that are not nullable have no nulls."""
    settings: Mapping[str, Any]
    """Plain JSON values that, with the map and the shards' spec, determine the rows of a piece."""
    piece_rows: int
    """Maximum number of the data set's rows from which a shard of the table is made."""
    row_bytes: int
    """Approximate bytes that are made from one row of the data set."""
    reads: tuple[str, ...] | None = None
    """Columns of the data set that are read, as for ``ShardReader.read``; None: all."""

    def to_mapping(self, source: ShardSource) -> dict[str, Any]:
        """Return the spec of the table made from these shards, as plain JSON values."""
        output = {"layout": self.layout, "n_features_out": len(self.schema), "row_bytes": self.row_bytes}
        settings = {self.layout: dict(self.settings)}
        reader, given = source.reader, source.to_mapping()
        rows, size = self.piece_rows, source.blocksize
        return make_spec(reader.spec["map"], given, output, piece_rows=rows, blocksize=size, **settings)


def write_table(
    data: ShardDataset,
    target: object,
    spec: TableSpec,
    job: Callable[..., TableJob],
    *,
    stage: str,
    client: Client | ExecutionConfig | Runner | None,
    progress: bool | Callable[[ProgressState], object] | Progress,
) -> Manifest:
    """Make a table from all shards of a data set, and commit it; an interrupted call continues.

    If a new batch was added to the data set, its shards are added to the table.

    Parameters
    ----------
    data : ShardDataset
    target : str, path or Target
        The table.
    spec : TableSpec
    job : callable
        Class of the tasks, called with the fields of `TableJob`.
    stage : str
        Name of the stage in progress reports.
    client, progress
        As for `dkfeat.engine.open.open_run`.

    Raises
    ------
    dkfeat.errors.SpecConflictError
        If the target holds something else.
    dkfeat.errors.DkfeatError
        As from `dkfeat.featurize`.
    """
    source = ShardSource.of(data.shards, spec.reads)
    with open_run(source, target, client=client, progress=progress) as opened:
        made, schema, tasks = spec.to_mapping(source), kinds(spec.schema), partial(job, schema=spec.schema)
        resolved = Resolved(
            opened=opened, source=source, map=data.map, spec=made, schema=schema, job=tasks, stage=stage
        )
        return execute(resolved)
