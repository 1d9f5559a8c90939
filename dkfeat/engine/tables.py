"""Jobs on the shards of a data set: copies of some of its rows, and tables that are computed from them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dkfeat.blocks import RowBlock, Split
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.open import open_run
from dkfeat.engine.resolve import Resolved, make_spec
from dkfeat.engine.run import execute
from dkfeat.engine.tasks.job import Job
from dkfeat.sources.base import Source
from dkfeat.sources.pieces import Piece
from dkfeat.store.shards.columns import kinds

if TYPE_CHECKING:
    from distributed import Client

    from dkfeat.config import ExecutionConfig
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.progress import Progress, ProgressState
    from dkfeat.engine.runners.base import Runner
    from dkfeat.store.manifest.manifest import Manifest


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

    keeps_labels = False
    """A table has the columns that `columns` makes."""
    is_exact = True
    """Tables have equal bits on every machine."""

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
    with open_run(source, target, kind=spec.layout, client=client, progress=progress) as opened:
        made, schema, tasks = spec.to_mapping(source), kinds(spec.schema), partial(job, schema=spec.schema)
        resolved = Resolved(opened=opened, source=source, spec=made, schema=schema, job=tasks, stage=stage)
        return execute(resolved)
