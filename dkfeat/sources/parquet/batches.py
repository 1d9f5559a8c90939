"""Rows of a split of a Parquet file, batch by batch; a batch and its columns locate their errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dkfeat.archives import check_footer
from dkfeat.blocks import BadRow, SourceFile, Split
from dkfeat.errors import ParquetError
from dkfeat.messages import printable
from dkfeat.sources.contents import check_unchanged
from dkfeat.sources.parquet.files import Footer, matching_groups, open_parquet, reading
from dkfeat.sources.parquet.options import ParquetOptions, condition_of, storage_type
from dkfeat.sources.parquet.schema import Schema, check_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELL_BYTES = 24
"""Bytes that a cell of a table adds to the size of rows besides its text: an encoder makes two coordinates of it."""
BATCH_BYTES = 8 << 20
"""Approximate size of the values decoded at a time, by the counts in the footer."""
_MOST_BATCH_ROWS = 1 << 16
_VALUE_BYTES = 8
_ROW_BYTES = 16


class RowError(ParquetError):
    """Error in one row, independent of other rows; `category` is one of ``dkfeat.sources.pieces.REASONS``."""

    category = "bad value"


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBatch:
    """Columns of consecutive rows of a row group, without rows that a filter excludes."""

    file: SourceFile
    """The file."""
    row_group: int | None
    """Number of the row group; None for rows in memory."""
    rows: NDArray[np.int64]
    """Number of each row in the row group, or in memory."""
    columns: dict[str, pa.Array]
    """Arrays by column name, without dictionary or extension types."""
    lines: NDArray[np.int64] | None = None
    """Line of each row of text, counted from 1 at the beginning of the split; rows are then bytes of the file."""

    def error(self, column: str | None, row: int, reason: str, category: str = RowError.category) -> RowError:
        """Make an error about the row at a position of the batch, or about its value in `column`."""
        error = RowError(
            reason,
            path=printable(self.file.url),
            row_group=self.row_group if self.lines is None else None,
            row=int(self.rows[row]),
            column=None if column is None else printable(column),
        )
        error.category = category
        return error

    def column(self, name: str) -> Column:
        """Return a column that has one value per row."""
        return Column(self, name, self.columns[name])

    def part(self, start: int, stop: int) -> ColumnBatch:
        """Return the rows from `start` to `stop`, as views."""
        columns = {name: array.slice(start, stop - start) for name, array in self.columns.items()}
        lines = None if self.lines is None else self.lines[start:stop]
        return replace(self, rows=self.rows[start:stop], columns=columns, lines=lines)

    def without(self, positions: Sequence[int]) -> ColumnBatch:
        """Return a copy without some rows."""
        kept = np.delete(np.arange(len(self.rows)), positions)
        columns = {name: array.take(pa.array(kept)) for name, array in self.columns.items()}
        lines = None if self.lines is None else self.lines[kept]
        return replace(self, rows=self.rows[kept], columns=columns, lines=lines)


class Column(NamedTuple):
    """A column of a batch, or the concatenated values of its lists.

    Raises
    ------
    RowError
        If a method finds a bad value; with the location of the first one.
    """

    batch: ColumnBatch
    name: str
    array: pa.Array
    """Array without dictionary or extension type."""
    lengths: Any = None
    """Number of values of each row, shape (n_rows,), int64, if rows have lists."""

    def error(self, position: int, reason: str, category: str = RowError.category) -> RowError:
        """Make an error about the value at a position of the array."""
        if self.lengths is not None:
            position = int(np.searchsorted(np.cumsum(self.lengths), position, side="right"))
        return self.batch.error(self.name, position, reason, category)

    def raise_first_bad(self, bad: NDArray[np.bool_], values: Any, expected: str, category: str) -> None:
        """Raise an error about the first bad value, if there is one."""
        if bad.any():
            first = int(np.argmax(bad))
            raise self.error(first, f"{values[first]}, but {expected}", category)

    def without_nulls(self, reason: str, category: str = RowError.category) -> Self:
        """Return the column if it holds no nulls."""
        if self.array.null_count:
            first = int(np.argmax(self.array.is_null().to_numpy(zero_copy_only=False)))
            raise self.error(first, reason, category)
        return self

    def lists(self, category: str = "bad feature") -> Column:
        """Return the column of the values of lists."""
        array = self.without_nulls(
            "a null in place of a list; store an empty list for a row without values", category
        ).array
        if pa.types.is_fixed_size_list(array.type):
            lengths = np.full(len(array), array.type.list_size, np.int64)
        else:
            lengths = array.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        return self._replace(array=plain(array.flatten()), lengths=lengths)

    def floats(self) -> NDArray[Any]:
        """Return numbers without nulls as float32 or float64."""
        array, kind = self.array, self.array.type
        if pa.types.is_boolean(kind):
            array = array.cast(pa.uint8())
        elif pa.types.is_decimal(kind):
            array = array.cast(pa.string()).cast(pa.float64())  # the nearest, which Arrow's own cast may miss
        numbers = array.to_numpy(zero_copy_only=False)
        if numbers.dtype in (np.dtype(np.float32), np.dtype(np.float64)):
            return numbers
        return numbers.astype(np.float32 if numbers.dtype == np.float16 else np.float64)

    def int64(self, category: str, remedy: str = "") -> NDArray[np.int64]:
        """Return integers without nulls as int64; `remedy` is the end of the message for larger ones."""
        array = self.array.cast(pa.int8()) if pa.types.is_boolean(self.array.type) else self.array
        numbers = array.to_numpy(zero_copy_only=False)
        if numbers.dtype in (np.dtype(np.uint64), np.dtype(object)):  # objects are decimals without fraction
            for bad, bound in ((numbers > 2**63 - 1, "at most 2^63 - 1"), (numbers < -(2**63), "at least -2^63")):
                self.raise_first_bad(bad.astype(np.bool_), numbers, f"integers are {bound}{remedy}", category)
        return numbers.astype(np.int64, copy=False)

    def inexact(self, floats: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return the mask of the integers or decimals without nulls whose integer part changes in float64."""
        bad = np.abs(floats) >= 2.0**53
        wide = np.flatnonzero(bad)
        integers = self.array.take(pa.array(wide)).to_pylist()
        bad[wide] = [int(number) != int(nearest) for number, nearest in zip(integers, floats[wide], strict=True)]
        return bad


def passing_rows(
    condition: Any, arrays: dict[str, pa.Array], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], dict[str, pa.Array]]:
    """Return the numbers and the columns of the rows for which the expression of filters is true."""
    number = "row"
    while number in arrays:
        number += "_"
    table = pa.table({**arrays, number: rows}).filter(condition)
    found = {name: table[name].combine_chunks() for name in table.column_names}
    return found.pop(number).to_numpy(), found


def plain(array: pa.Array) -> pa.Array:
    """Convert to an array without extension, dictionary or view type."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary).take(array.indices)  # Arrow does not decode a view
    stored = _without_views(kind)
    return array if stored == kind else array.cast(stored)


def copy_views(table: pa.Table) -> pa.Table:
    """Return a table with large text and lists in place of views, of which older versions of pyarrow know no size."""
    columns = []
    for column in table.columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        stored = _without_views(kind)
        columns.append(column if stored == kind else pa.chunked_array([*map(plain, column.chunks)], stored))
    return pa.table(columns, table.column_names)


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_without_views(kind.value_type), kind.list_size)
    is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    if is_view or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        value = _without_views(kind.value_type)
        return pa.large_list(value) if is_view or value != kind.value_type else kind
    return {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind, kind)


def footer_of(options: ParquetOptions, file: SourceFile, parquet: pq.ParquetFile) -> Footer:
    """Check a file's schema and footer, and count the rows and values of its row groups, without reading rows.

    Raises
    ------
    ParquetError
        If a column does not match the source.
    """
    check_schema(options, Schema(options, parquet.schema_arrow, file))
    metadata = parquet.metadata
    groups = range(metadata.num_row_groups)
    rows = tuple(metadata.row_group(group).num_rows for group in groups)
    first = str((options.features or ("",))[0])  # features are resolved
    if options.is_table:
        names = [name for name in options.read_features if name in options.texts]
        sizes = {_first_leaf(parquet.schema_arrow, name): 1 + options.texts[name].row_bytes for name in names}
        with reading(file):
            check_footer(metadata, file.size, [*sizes])
        n_values = []
        for group, count in enumerate(rows):
            cells = count * len(options.features or ()) * CELL_BYTES
            for leaf, size in sizes.items():
                cells += size * max(0, metadata.row_group(group).column(leaf).total_uncompressed_size)
            n_values.append(cells // _VALUE_BYTES)
    elif options.features_as == "columns" or pa.types.is_fixed_size_binary(parquet.schema_arrow.field(first).type):
        n_values = [count * int(options.n_features or 1) for count in rows]
    else:
        leaf = _first_leaf(parquet.schema_arrow, first)
        with reading(file):
            check_footer(metadata, file.size, [leaf])
        n_values = [max(0, metadata.row_group(group).column(leaf).num_values) for group in groups]
    chosen, condition = set(groups), None
    if options.filters is not None:
        condition = condition_of(options.filters, parquet.schema_arrow, file)
        compared = {column for item in options.filters for column, *_ in item}
        with reading(file):
            check_footer(metadata, file.size, [_first_leaf(parquet.schema_arrow, column) for column in compared])
        # statistics leave out NaN, which passes `!=` and `not in`, so row groups cannot be judged by these
        negated = {column for item in options.filters for column, operator, _ in item if operator in ("!=", "not in")}
        kinds = [storage_type(parquet.schema_arrow.field(column).type) for column in negated]
        if not any(map(pa.types.is_floating, kinds)):
            chosen = matching_groups(parquet, file, condition, options.storage_options)
    return Footer(
        rows=rows,
        row_bytes=tuple(_VALUE_BYTES * n + _ROW_BYTES * m for n, m in zip(n_values, rows, strict=True)),
        chosen=tuple(group in chosen for group in groups),
        condition=condition,
    )


@contextmanager
def open_split(options: ParquetOptions, split: Split, columns: Sequence[str] | None) -> Iterator[SplitReader]:
    """Open a split to read some columns of it; None: all, as they are stored.

    Raises
    ------
    ParquetError
        If the file is damaged, or its schema does not match the source.
    SpecConflictError
        If the file has changed since it was listed.
    """
    file = split.file
    check_unchanged(file, options.storage_options)
    with open_parquet(file, options.storage_options, 16 if columns is None else len(columns)) as parquet:
        with reading(file):
            footer = footer_of(options, file, parquet)
        if split.stop > len(footer.rows):
            raise ParquetError(
                f"has {len(footer.rows):,} row groups, but the plan reads up to {split.stop:,}",
                path=printable(file.url),
            )
        features = set(options.features or ()) & set(columns or ()) - set(options.filter_columns)
        types = {item.name: storage_type(item.type) for item in parquet.schema_arrow if item.name in features}
        of_table = options.is_table and options.has_table_encoder
        unread = {name: kind for name, kind in types.items() if of_table and not options.encoder.encodes(kind)}
        yield SplitReader(parquet, split, footer, None if columns is None else list(columns), unread, options)


class SplitReader:
    """Rows of a split, batch by batch; made by `open_split`. Columns `unread`, with their types, are read as nulls."""

    def __init__(
        self,
        parquet: pq.ParquetFile,
        split: Split,
        footer: Footer,
        columns: list[str] | None,
        unread: dict[str, pa.DataType],
        options: ParquetOptions,
    ) -> None:
        self._parquet, self._split, self._footer, self._columns = parquet, split, footer, columns
        self._unread, self._compared = unread, options.filter_columns
        self.first_row = sum(footer.rows[: split.start])
        """Number in the file of the split's first row."""
        self.stop_row = sum(footer.rows[: split.stop])
        """Number of the first row after the split."""
        self.n_rows: int | None = self.stop_row - self.first_row
        self.n_lines: int | None = None
        self.bad: list[BadRow] = []

    def batches(self) -> Iterator[tuple[ColumnBatch, int]]:
        """Read the split.

        Yields
        ------
        batch : ColumnBatch
            Rows that pass the filters; at least one.
        first_row : int
            Number in the file of the first row of the batch's row group.
        """
        first_row = self.first_row
        for group in range(self._split.start, self._split.stop):
            for part, start in self._parts(group):
                with reading(self._split.file, group):
                    rows, columns = self._selected(part, np.arange(start, start + part.num_rows))
                if len(rows):
                    yield ColumnBatch(self._split.file, group, rows, columns), first_row
            first_row += self._footer.rows[group]

    def stored(self) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        """Yield all columns of the rows that pass the filters as they are stored, and their numbers in the file."""
        first_row = self.first_row
        for group in range(self._split.start, self._split.stop):
            for part, start in self._parts(group):
                with reading(self._split.file, group):
                    table, rows = pa.Table.from_batches([part]).cast(self.schema), np.arange(part.num_rows)
                    if self._footer.condition is not None:
                        compared = {name: plain(part.column(name)) for name in self._compared}
                        rows = passing_rows(self._footer.condition, compared, rows)[0]
                        table = table.take(rows)
                yield table, first_row + start + rows
            first_row += self._footer.rows[group]

    @property
    def schema(self) -> pa.Schema:
        """Schema of the file, with its metadata, without views, of which pyarrow selects no rows."""
        schema = self._parquet.schema_arrow
        return pa.schema([field.with_type(_without_views(field.type)) for field in schema], schema.metadata)

    def _parts(self, group: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows of a row group, and the number in it of the first one."""
        file, declared, start = self._split.file, self._footer.rows[group], 0
        n_bytes = self._footer.row_bytes[group]
        names = None
        if self._columns is None:
            n_bytes = self._parquet.metadata.row_group(group).total_byte_size
        else:
            names = [name for name in self._columns if name not in self._unread]
        size = min(max(BATCH_BYTES * declared // max(n_bytes, 1), 1), _MOST_BATCH_ROWS)
        with reading(file, group):
            parts = iter(self._parquet.iter_batches(size, [group], names, use_threads=False))
        while declared:  # an empty row group is not read: some writers store no pages for it
            with reading(file, group):
                part = next(parts, None)
            if part is None or start + part.num_rows > declared:
                start += 0 if part is None else part.num_rows
                break
            yield part, start
            start += part.num_rows
        if start != declared:
            raise ParquetError(
                f"damaged: the footer declares {declared:,} rows, but {start:,} were found",
                path=printable(file.url),
                row_group=group,
            )

    def _selected(self, part: pa.RecordBatch, rows: np.ndarray) -> tuple[np.ndarray, dict[str, pa.Array]]:
        """Return row numbers and plain columns of the rows that pass the filters."""
        arrays = {
            name: plain(pa.nulls(len(rows), self._unread[name]) if name in self._unread else part.column(name))
            for name in self._columns or ()
        }
        if self._footer.condition is None or not len(rows):
            return rows, arrays
        return passing_rows(self._footer.condition, arrays, rows)


def _first_leaf(schema: pa.Schema, column: str) -> int:
    """Find the number of the first leaf column of a column, whose name occurs once in the schema."""
    return sum(map(_n_leaves, schema.types[: schema.get_field_index(column)]))


def _n_leaves(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _n_leaves(kind.storage_type)
    if pa.types.is_dictionary(kind) or not pa.types.is_nested(kind):
        return 1
    return sum(_n_leaves(kind.field(number).type) for number in range(kind.num_fields))
