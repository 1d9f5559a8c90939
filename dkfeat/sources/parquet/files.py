"""Parquet files: opening with limits, footers, cutting into splits, and batches of rows that locate their errors."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import DkfeatError, ParquetError, SourceError, cause_of
from dkfeat.filesystems.urls import is_url, open_filesystem, open_retries, printable
from dkfeat.sources.contents import check_unchanged, open_bytes, source_errors
from dkfeat.sources.find import warn_of_left_out
from dkfeat.sources.parquet.options import ParquetOptions, Schema, check_schema, condition_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


ENDINGS = (".parquet", ".parq", ".pq")
MOST_GROUP_ROWS = 2**31 - 1
"""Maximum number of rows of a row group: more than any writer makes, and counted in 32 bits."""

_LIMITS = {"thrift_string_size_limit": 1 << 26, "thrift_container_size_limit": 1 << 22}
_BUFFER_BYTES = 64 << 20
_FAULTS = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, OverflowError, MemoryError)
BATCH_BYTES = 8 << 20
"""Approximate size of the values decoded at a time, by the counts in the footer."""
_MOST_BATCH_ROWS = 1 << 16
_VALUE_BYTES = 8
_ROW_BYTES = 16


@dataclass(frozen=True, slots=True)
class Footer:
    """Counts of a file's row groups, in order."""

    rows: tuple[int, ...]
    """Number of rows of each row group."""
    row_bytes: tuple[int, ...]
    """Size in memory of the rows of each row group, in bytes, estimated from the counts in the footer."""
    chosen: tuple[bool, ...]
    """True for each row group of which rows may pass the source's filters, by its statistics."""
    condition: Any = None
    """Expression of the source's filters; None if it has none."""


@contextmanager
def open_parquet(
    file: SourceFile, storage_options: Mapping[str, Any] | None, n_columns: int = 1
) -> Iterator[pq.ParquetFile]:
    """Open a file to read `n_columns` columns: a local one by buffers of about 64 MiB in all, else by row groups.

    Raises
    ------
    ParquetError
        If the file is not a Parquet file, or damaged.
    SourceError, SpecConflictError
        If the file cannot be read, or is gone.
    """
    with _opened(file, storage_options) as source:
        is_local = isinstance(source, pa.OSFile)
        with reading(file):
            parquet = pq.ParquetFile(
                source,
                buffer_size=min(max(_BUFFER_BYTES // max(n_columns, 1), 1 << 14), 1 << 20) if is_local else 0,
                pre_buffer=not is_local,  # few large requests, for all columns of a row group
                page_checksum_verification=True,
                **_LIMITS,
            )
        with parquet:
            _check_counts(parquet.metadata, file)
            yield parquet


@contextmanager
def reading(file: SourceFile, row_group: int | None = None) -> Iterator[None]:
    """Turn errors of pyarrow about damaged bytes into a `ParquetError` with the location."""
    try:
        yield
    except DkfeatError:
        raise
    except _FAULTS as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            raise SourceError(f"{printable(file.url)} cannot be read: {cause_of(fault)}") from fault
        detail = printable(" ".join(str(fault).split()))[:200]
        if isinstance(fault, MemoryError):
            reason = f"rows need more memory than there is: {detail or 'out of memory'}"
        elif "decrypt" in detail:
            reason = f"encrypted, but only plain files and columns are read; decrypt it first: {detail}"
        else:
            reason = f"damaged, or not a Parquet file: {detail}"
        raise ParquetError(reason, path=printable(file.url), row_group=row_group) from fault


def matching_groups(
    parquet: pq.ParquetFile, file: SourceFile, condition: Any, options: Mapping[str, Any] | None
) -> set[int]:
    """Return the numbers of the row groups that may have rows for which an expression is true, by their statistics."""
    with _opened(file, options) as source, reading(file):
        fragment = ds.ParquetFileFormat().make_fragment(source)
        subset = fragment.subset(filter=condition, schema=parquet.schema_arrow)
        return {group.id for group in subset.row_groups}


@contextmanager
def _opened(file: SourceFile, storage_options: Mapping[str, Any] | None) -> Iterator[pa.NativeFile]:
    with open_bytes(file, storage_options) as raw:
        if isinstance(raw, io.FileIO):  # a local file, which pyarrow reads without the GIL
            with reading(file):
                source = pa.OSFile(file.url)
            with source:
                yield source
        else:
            yield pa.PythonFile(io.BufferedReader(raw), mode="r")  # type: ignore[type-var]  # the opened file is raw


def _check_counts(metadata: pq.FileMetaData, file: SourceFile) -> None:
    total = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if not 0 <= rows <= MOST_GROUP_ROWS:
            raise ParquetError(
                f"the row group declares {rows:,} rows, but at most {MOST_GROUP_ROWS:,} are read",
                path=printable(file.url),
                row_group=group,
            )
        total += rows
    if total != metadata.num_rows:
        raise ParquetError(
            f"damaged: its row groups declare {total:,} rows, but the file {metadata.num_rows:,}",
            path=printable(file.url),
        )


def cut_file(file: SourceFile, footer: Footer, blocksize: int, first_number: int) -> Iterator[Split]:
    """Cut a file into splits: runs of row groups with up to `blocksize` bytes of rows; at least one split.

    Examples
    --------
    >>> footer = Footer(rows=(5, 5, 5), row_bytes=(400, 500, 900), chosen=(True, True, True))
    >>> file = SourceFile(name="a.parquet", url="a.parquet", size=900)
    >>> [(split.start, split.stop) for split in cut_file(file, footer, 1000, 0)]
    [(0, 2), (2, 3)]
    """
    runs: list[list[int]] = []
    for group, is_chosen in enumerate(footer.chosen):
        adjoins = bool(runs) and runs[-1][1] == group
        if not is_chosen or (not adjoins and not footer.rows[group]):
            continue
        if adjoins and sum(footer.row_bytes[runs[-1][0] : group + 1]) <= blocksize:
            runs[-1][1] = group + 1
        else:
            runs.append([group, group + 1])
    for number, (start, stop) in enumerate(runs or [[0, 0]], first_number):
        yield Split(number=number, file=file, start=start, stop=stop)


def folder_pattern(path: str, storage_options: Mapping[str, Any] | None) -> str:
    """Return the pattern of the Parquet files in a folder at any depth; other paths are returned unchanged."""
    if not _is_folder(path, storage_options):
        return path
    return (path if is_url(path) else glob.escape(path)).rstrip("/") + f"/**/*{ENDINGS[0]}"


def is_hidden(name: str) -> bool:
    """Return True if a part of a path begins with _ or ., by which writers mark files that are not data.

    Examples
    --------
    >>> is_hidden("day=1/part-0.parquet"), is_hidden("_delta_log/00010.checkpoint.parquet")
    (False, True)
    """
    return any(part.startswith(("_", ".")) for part in name.split("/"))


def warn_of_other_endings(folder: str) -> None:
    """Warn of files below a local folder with a suffix of Parquet files that a folder leaves out."""
    found = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]  # noqa: PTH118
    others = (path for path in found if path.lower().endswith(ENDINGS) and not path.endswith(ENDINGS[0]))
    names = sorted(os.path.relpath(path, folder) for path in others)
    names = [name for name in names if not is_hidden(name)]
    warn_of_left_out(folder, names, f"of a folder only names that end with {ENDINGS[0]} are read; give a pattern")


def _is_folder(path: str, storage_options: Mapping[str, Any] | None) -> bool:
    if not is_url(path):
        return os.path.isdir(path)  # noqa: PTH112  # Path would change names like "a//b"
    if glob.has_magic(path):
        return False
    with source_errors(path):
        system, folder = open_filesystem(path, storage_options)
        return bool(open_retries(path, storage_options or {}).call("look up", lambda: system.isdir(folder)))


def holds_parquet(path: str) -> bool:
    """Return True for a local folder with ``.parquet`` files at any depth."""
    if not os.path.isdir(path):  # noqa: PTH112  # Path would change names like "a//b"
        return False
    return any(name.endswith(ENDINGS[0]) for _, _, names in os.walk(path) for name in names)


class RowError(ParquetError):
    """Error in one row, independent of other rows; `category` is one of ``dkfeat.sources.base.REASONS``."""

    category = "bad value"


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBatch:
    """Columns of consecutive rows of a row group, without rows that a filter excludes."""

    file: SourceFile
    """The file."""
    row_group: int
    """Number of the row group."""
    rows: NDArray[np.int64]
    """Number of each row in the row group."""
    columns: dict[str, pa.Array]
    """Arrays by column name, without dictionary or extension types."""

    def error(self, column: str | None, row: int, reason: str, category: str = RowError.category) -> RowError:
        """Make an error about the row at a position of the batch, or about its value in `column`."""
        error = RowError(
            reason,
            path=printable(self.file.url),
            row_group=self.row_group,
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
        return replace(self, rows=self.rows[start:stop], columns=columns)

    def without(self, positions: Sequence[int]) -> ColumnBatch:
        """Return a copy without some rows."""
        kept = np.delete(np.arange(len(self.rows)), positions)
        columns = {name: array.take(pa.array(kept)) for name, array in self.columns.items()}
        return replace(self, rows=self.rows[kept], columns=columns)


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
        if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
            array = array.cast(pa.uint8() if pa.types.is_boolean(kind) else pa.float64())
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


def plain(array: pa.Array) -> pa.Array:
    """Convert to an array without extension, dictionary or list view type."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    return array.cast(pa.large_list(kind.value_type)) if is_view else array


def footer_of(options: ParquetOptions, file: SourceFile, parquet: pq.ParquetFile) -> Footer:
    """Check a file's schema and count the rows and values of its row groups, without reading rows.

    Raises
    ------
    ParquetError
        If a column does not match the source.
    """
    check_schema(options, Schema(parquet.schema_arrow, file))
    metadata = parquet.metadata
    groups = range(metadata.num_row_groups)
    rows = tuple(metadata.row_group(group).num_rows for group in groups)
    first = str((options.features or ("",))[0])  # features are resolved
    if options.features_as == "columns" or pa.types.is_fixed_size_binary(parquet.schema_arrow.field(first).type):
        n_values = [count * int(options.n_features or 1) for count in rows]
    else:
        leaf = _first_leaf(parquet.schema_arrow, first)
        n_values = [max(0, metadata.row_group(group).column(leaf).num_values) for group in groups]
    chosen, condition = set(groups), None
    if options.filters is not None:
        condition = condition_of(options.filters, parquet.schema_arrow, file)
        chosen = matching_groups(parquet, file, condition, options.storage_options)
    return Footer(
        rows=rows,
        row_bytes=tuple(_VALUE_BYTES * n + _ROW_BYTES * m for n, m in zip(n_values, rows, strict=True)),
        chosen=tuple(group in chosen for group in groups),
        condition=condition,
    )


@contextmanager
def open_split(options: ParquetOptions, split: Split, columns: Sequence[str]) -> Iterator[SplitReader]:
    """Open a split to read some columns of it.

    Raises
    ------
    ParquetError
        If the file is damaged, or its schema does not match the source.
    SpecConflictError
        If the file has changed since it was listed.
    """
    file = split.file
    check_unchanged(file, options.storage_options)
    with open_parquet(file, options.storage_options, len(columns)) as parquet:
        with reading(file):
            footer = footer_of(options, file, parquet)
        if split.stop > len(footer.rows):
            raise ParquetError(
                f"has {len(footer.rows):,} row groups, but the plan reads up to {split.stop:,}",
                path=printable(file.url),
            )
        yield SplitReader(parquet, split, footer, list(columns))


class SplitReader:
    """Rows of a split, batch by batch; made by `open_split`."""

    def __init__(self, parquet: pq.ParquetFile, split: Split, footer: Footer, columns: list[str]) -> None:
        self._parquet, self._split, self._footer, self._columns = parquet, split, footer, columns
        self.first_row = sum(footer.rows[: split.start])
        """Number in the file of the split's first row."""
        self.stop_row = sum(footer.rows[: split.stop])
        """Number of the first row after the split."""

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
            for batch in self._group_batches(group):
                yield batch, first_row
            first_row += self._footer.rows[group]

    def _group_batches(self, group: int) -> Iterator[ColumnBatch]:
        file, declared, start = self._split.file, self._footer.rows[group], 0
        size = min(max(BATCH_BYTES * declared // max(self._footer.row_bytes[group], 1), 1), _MOST_BATCH_ROWS)
        with reading(file, group):
            parts = iter(self._parquet.iter_batches(size, [group], self._columns, use_threads=False))
        while declared:  # an empty row group is not read: some writers store no pages for it
            with reading(file, group):
                part = next(parts, None)
                if part is None:
                    break
                rows = np.arange(start, start + part.num_rows)
                start += part.num_rows
                rows, columns = self._selected(part, rows)
            if start > declared:
                break
            if len(rows):
                yield ColumnBatch(file, group, rows, columns)
        if start != declared:
            raise ParquetError(
                f"damaged: the footer declares {declared:,} rows, but {start:,} were found",
                path=printable(file.url),
                row_group=group,
            )

    def _selected(self, part: pa.RecordBatch, rows: np.ndarray) -> tuple[np.ndarray, dict[str, pa.Array]]:
        """Return row numbers and plain columns of the rows that pass the filters."""
        arrays = {name: plain(part.column(name)) for name in self._columns}
        if self._footer.condition is None or not len(rows):
            return rows, arrays
        number = "row"
        while number in arrays:
            number += "_"
        table = pa.table({**arrays, number: rows}).filter(self._footer.condition)
        found = {name: table[name].combine_chunks() for name in table.column_names}
        return found.pop(number).to_numpy(), found


def _first_leaf(schema: pa.Schema, column: str) -> int:
    """Find the number of the first leaf column of a column, whose name occurs once in the schema."""
    return sum(map(_n_leaves, schema.types[: schema.get_field_index(column)]))


def _n_leaves(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _n_leaves(kind.storage_type)
    if pa.types.is_dictionary(kind) or not pa.types.is_nested(kind):
        return 1
    return sum(_n_leaves(kind.field(number).type) for number in range(kind.num_fields))
