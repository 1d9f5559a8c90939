"""Batches of a split's row groups, read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import ParquetError
from dkfeat.io.files import check_unchanged, printable
from dkfeat.io.parquet_batch import Batch, plain
from dkfeat.io.parquet_columns import Schema, check_schema
from dkfeat.io.parquet_files import Footer, may_match, open_parquet, reading
from dkfeat.io.parquet_filters import condition_of

if TYPE_CHECKING:
    from dkfeat.io.parquet import ParquetSource

__all__ = ["SplitReader", "footer_of", "open_split"]

BATCH_BYTES = 8 << 20
"""Values decoded at a time, by the footer's counts."""
_MOST_BATCH_ROWS = 1 << 16
_VALUE_BYTES = 8
_ROW_BYTES = 16


def footer_of(source: ParquetSource, file: SourceFile, parquet: pq.ParquetFile) -> Footer:
    """Check a file's schema and count what its row groups hold; no row is read.

    Raises
    ------
    ParquetError
        A column is not what the source reads.
    """
    check_schema(source, Schema(parquet.schema_arrow, file))
    metadata = parquet.metadata
    groups = range(metadata.num_row_groups)
    rows = tuple(metadata.row_group(group).num_rows for group in groups)
    leaf = None if source.features_as == "columns" else _first_leaf(parquet.schema_arrow, str(source.features[0]))  # type: ignore[index]  # features are settled
    width = int(source.n_features or 1)
    n_values = [
        rows[group] * width if leaf is None else max(0, metadata.row_group(group).column(leaf).num_values)
        for group in groups
    ]
    if leaf is not None and pa.types.is_fixed_size_binary(parquet.schema_arrow.field(source.features[0]).type):  # type: ignore[index]  # as above
        n_values = [count * width for count in rows]
    chosen = set(groups)
    if source.filters is not None:
        condition = condition_of(source.filters, parquet.schema_arrow, file)
        chosen = may_match(parquet, file, condition, source.storage_options)
    return Footer(
        rows=rows,
        row_bytes=tuple(_VALUE_BYTES * n + _ROW_BYTES * m for n, m in zip(n_values, rows, strict=True)),
        chosen=tuple(group in chosen for group in groups),
    )


@contextmanager
def open_split(source: ParquetSource, split: Split, columns: Sequence[str]) -> Iterator[SplitReader]:
    """Open a split to read some columns of it.

    Raises
    ------
    ParquetError
        Damage, or a schema that is not the source's.
    SpecConflictError
        The file is not as it was listed.
    """
    file = split.file
    check_unchanged(file, source.storage_options)
    with open_parquet(file, source.storage_options, len(columns)) as parquet:
        with reading(file):
            footer, condition = footer_of(source, file, parquet), None
            if source.filters is not None:
                condition = condition_of(source.filters, parquet.schema_arrow, file)
        if split.stop > len(footer.rows):
            reason = f"has {len(footer.rows):,} row groups, but the plan reads up to {split.stop:,}"
            raise ParquetError(reason, path=printable(file.url))
        yield SplitReader(parquet, split, footer, columns, condition)


class SplitReader:
    """Rows of a split, batch by batch; made by `open_split`."""

    def __init__(
        self, parquet: pq.ParquetFile, split: Split, footer: Footer, columns: Sequence[str], condition: Any
    ) -> None:
        self._parquet, self._split, self._footer = parquet, split, footer
        self._columns, self._condition = columns, condition
        self.group_rows = footer.rows
        """Rows of each row group of the file."""
        self.first_row = sum(footer.rows[: split.start])
        """Number in the file of the split's first row."""
        self.stop_row = sum(footer.rows[: split.stop])
        """Number of the first row behind it."""

    def batches(self) -> Iterator[tuple[Batch, int]]:
        """Read the split.

        Yields
        ------
        batch : Batch
            Rows that pass the filters; at least one.
        first_row : int
            Number in the file of the first row of the batch's row group.
        """
        first_row = self.first_row
        for group in range(self._split.start, self._split.stop):
            for batch in _group_batches(
                self._parquet, self._split.file, group, self._footer, self._columns, self._condition
            ):
                yield batch, first_row
            first_row += self._footer.rows[group]


def _group_batches(
    parquet: pq.ParquetFile, file: SourceFile, group: int, footer: Footer, columns: Sequence[str], condition: Any
) -> Iterator[Batch]:
    declared, start = footer.rows[group], 0
    size = min(max(BATCH_BYTES * declared // max(footer.row_bytes[group], 1), 1), _MOST_BATCH_ROWS)
    with reading(file, group):
        parts = iter(parquet.iter_batches(size, row_groups=[group], columns=list(columns), use_threads=False))
    while declared:  # a group of no rows is not asked: some writers give it no pages
        with reading(file, group):
            part = next(parts, None)
            if part is None:
                break
            rows = np.arange(start, start + part.num_rows)
            start += part.num_rows
            batch = _selected(part, rows, columns, condition)
        if start > declared:
            break
        if len(batch[0]):
            yield Batch(file, group, *batch)
    if start != declared:
        reason = f"damaged: the footer declares {declared:,} rows, {start:,} are there"
        raise ParquetError(reason, path=printable(file.url), row_group=group)


def _selected(
    part: pa.RecordBatch, rows: np.ndarray, columns: Sequence[str], condition: Any
) -> tuple[np.ndarray, dict[str, pa.Array]]:
    """Row numbers and plain columns of the rows that pass the filters."""
    arrays = {name: plain(part.column(name)) for name in columns}
    if condition is None or not len(rows):
        return rows, arrays
    place = "row"
    while place in arrays:
        place += "_"
    table = pa.table({**arrays, place: rows}).filter(condition).combine_chunks()
    found = {name: table.column(name) for name in (*columns, place)}
    whole = {
        name: column.chunk(0) if column.num_chunks else pa.array([], column.type) for name, column in found.items()
    }
    return whole.pop(place).to_numpy(), whole


def _first_leaf(schema: pa.Schema, column: str) -> int:
    """Find the number of the first column chunk that holds a part of a column."""
    place = 0
    for item in schema:
        if item.name == column:
            return place
        place += _n_leaves(item.type)
    raise KeyError(column)  # the schema was checked


def _n_leaves(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _n_leaves(kind.storage_type)
    if pa.types.is_dictionary(kind) or not pa.types.is_nested(kind):
        return 1
    return sum(_n_leaves(kind.field(place).type) for place in range(kind.num_fields))
