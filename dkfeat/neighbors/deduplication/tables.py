"""Tables of duplicates: similar pairs, and for each row its group and its origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.runners.open import LazyRunner
from dkfeat.engine.tables import ORIGIN, TableJob, TableSpec, origin_columns, write_table
from dkfeat.errors import ConfigError
from dkfeat.neighbors.deduplication.groups import PIECE_ROWS, Groups
from dkfeat.neighbors.deduplication.pairs import PairFiles
from dkfeat.neighbors.deduplication.result import GROUPS, PAIRS
from dkfeat.store.shards.columns import ARROW_TYPES

if TYPE_CHECKING:
    from pathlib import Path

    from dkfeat.blocks import Split
    from dkfeat.engine.dataset.dataset import ShardDataset
    from dkfeat.engine.progress import Progress
    from dkfeat.engine.runners.local import Runner
    from dkfeat.neighbors.deduplication.stages import Found
    from dkfeat.sources.base import Piece
    from dkfeat.store.manifest.manifest import Manifest

_PAIR_COLUMNS = {"row": "int64", "other": "int64", "similarity": "float64"}
_GROUP_COLUMNS = {"row": "int64", "group": "int64", "keep": "bool", **ORIGIN, "file_row": "int64"}
_ROW_BYTES = 24  # of a pair, or of a row's numbers


def pairs_spec(settings: Mapping[str, Any], piece_rows: int) -> TableSpec:
    """Return the spec of the table of pairs."""
    schema = _schema(_PAIR_COLUMNS)
    return TableSpec(
        layout=PAIRS, schema=schema, settings=settings, piece_rows=piece_rows, row_bytes=_ROW_BYTES, reads=()
    )


def groups_spec(settings: Mapping[str, Any], source: ShardSource) -> TableSpec:
    """Return the spec of the table of groups.

    Raises
    ------
    ConfigError
        If a kept column of the source has the name of a column of the table.
    """
    taken = [name for name in source.kept if name in _GROUP_COLUMNS]
    if taken:
        raise ConfigError(
            f"{source.urlpath} keeps a column {taken[0]!r}, but the table of groups has a column of that name; "
            "featurize with another name of that column, or without it"
        )
    schema = _schema(_GROUP_COLUMNS)
    for name, kind in source.kept.items():
        schema = schema.append(pa.field(name, ARROW_TYPES[kind]))
    return TableSpec(
        layout=GROUPS,
        schema=schema,
        settings=settings,
        piece_rows=PIECE_ROWS,
        row_bytes=3 * _ROW_BYTES,
        reads=tuple(source.kept),
    )


def write_tables(
    data: ShardDataset, folder: Path, settings: Mapping[str, Any], found: Found, runner: Runner, report: Progress
) -> int:
    """Write both tables; return the number of pairs."""
    source = ShardSource.of(data.shards)
    pairs, groups = pairs_spec(settings, found.piece_rows), groups_spec(settings, source)

    def write(spec: TableSpec, job: Callable[..., TableJob]) -> Manifest:
        target, stage = folder / spec.layout, f"write {spec.layout}"
        return write_table(data, target, spec, job, LazyRunner.of(runner), report, stage=stage)

    first_in_files = first_rows_in_files(source)
    write(groups, partial(GroupsJob, schema=groups.schema, groups=found.groups, first_in_files=first_in_files))
    return write(pairs, partial(PairsJob, files=found.pairs)).rows


def first_rows_in_files(source: ShardSource) -> dict[tuple[int, str], int]:
    """Count the rows of each file in the splits before a split; the keys are numbers of splits and names of files."""
    found: dict[tuple[int, str], int] = {}
    n_rows: dict[str, int] = {}
    for shard in source.stored.values():
        for origin in shard.origins:
            found.setdefault((origin.split, origin.file), n_rows.get(origin.file, 0))
            n_rows[origin.file] = n_rows.get(origin.file, 0) + origin.n_rows
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsJob(TableJob):
    """Job whose shards hold the pairs whose higher row is in their range of rows."""

    files: PairFiles

    def table(self, split: Split, piece: Piece) -> pa.Table:
        """See `TableJob.table`."""
        first = self.first_row(split, piece)
        found = self.files.between(first, first + piece.stop - piece.start)
        columns = [pa.array(values) for values in (*found.rows, found.similarities)]
        return pa.table(columns, schema=_schema(_PAIR_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsJob(TableJob):
    """Job whose shards hold the rows of the data set, with their groups and origins."""

    schema: pa.Schema
    groups: Groups
    first_in_files: Mapping[tuple[int, str], int]

    def table(self, split: Split, piece: Piece) -> pa.Table:
        """See `TableJob.table`."""
        first = self.first_row(split, piece)
        n_rows = piece.stop - piece.start
        rows, lowest = np.arange(first, first + n_rows), self.groups.of(first, first + n_rows)
        origin = origin_columns(self.source, split, piece, ())
        in_files = [
            np.arange(part.first, part.first + part.n_rows) + self.first_in_files[part.split, part.file]
            for part in self.source.origins(split, piece, ())
        ]
        columns = {
            "row": pa.array(rows),
            "group": pa.array(lowest),
            "keep": pa.array(lowest == rows),
            **origin,
            "file_row": pa.array(np.concatenate([np.empty(0, np.int64), *in_files])),
        }
        return pa.table([*columns.values(), *piece.block.kept.values()], schema=self.schema)


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([pa.field(name, ARROW_TYPES[kind], nullable=False) for name, kind in columns.items()])
