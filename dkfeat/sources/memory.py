"""Tables and arrays in memory as a source of rows: what is accepted, their Arrow form, splits and batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix, issparse

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import ConfigError, DkfeatError, InputError, SpecConflictError
from dkfeat.sources.digest import MEMORY, digest_of, record_of
from dkfeat.sources.parquet.batches import BATCH_BYTES, ColumnBatch, copy_views, passing_rows, plain
from dkfeat.sources.parquet.options import condition_of, storage_type
from dkfeat.sources.parquet.schema import Schema, check_schema
from dkfeat.sources.tabular import TabularSource
from dkfeat.validation import check_in_memory

_ACCEPTED = (
    "a path, a glob, a URL, a list of these, a source, or rows in memory: a DataFrame of pandas, polars or Dask, "
    "a Table of Arrow, an array of numbers of NumPy or Dask with two dimensions, or a sparse matrix of SciPy"
)
_MOST_BATCH_ROWS = 1 << 16
CELL_FACTOR = 3
"""Bytes in memory for each byte that is hashed, 9 of a number, which becomes two coordinates of a table."""


def arrow_table(rows: Any, y: Any = None, label: str = "label") -> pa.Table:
    """Convert rows to a table of Arrow, without a copy where their own storage allows it; `y` becomes a column.

    The index of a pandas table is left out; views are copied, as older versions of pyarrow know no size of them. Arrays
    become the column ``features`` of vectors, sparse matrices the columns ``indices`` and ``values``.

    Raises
    ------
    ConfigError
        For rows of an unsupported type, or if there is a column of the name of the labels.
    InputError
        If labels are not as many as rows, or values have no type of Arrow.
    """
    check_in_memory(rows, "rows")
    check_in_memory(y, "y")
    try:
        table = _table(rows)
        if y is None:
            return copy_views(table)
        if isinstance(y, str | bytes | Mapping | Set) or hasattr(y, "columns") or getattr(y, "ndim", 1) != 1:
            shown = " ".join(repr(y).split())
            raise InputError(
                f"y={shown:.50} is a {type(y).__name__}, but it must be one column of labels, such as an array, list "
                "or y[column]; a column of the table is named by dkfeat.TableSource(rows, label=...)"
            )
        is_arrow = isinstance(y, pa.Array | pa.ChunkedArray)
        labels = y if is_arrow else y.to_arrow() if hasattr(y, "to_arrow") else pa.array(y, from_pandas=True)
    except DkfeatError:
        raise
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        raise InputError(f"rows or labels cannot be read as columns of Arrow: {error}; convert them first") from error
    if label in table.column_names:
        raise ConfigError(f"the table has a column {label!r}, but y is given too; leave one of them out")
    if len(labels) != table.num_rows:
        raise InputError(f"y has {len(labels):,} labels, but there are {table.num_rows:,} rows; give one for each row")
    return copy_views(table.append_column(label, labels))


def _table(rows: Any) -> pa.Table:
    if isinstance(rows, np.ma.MaskedArray):
        raise ConfigError("rows are a masked array, whose mask has no meaning here; give rows.filled(0) for instance")
    if issparse(rows) and rows.ndim == 2:
        X = csr_matrix(rows, copy=not getattr(rows, "has_canonical_format", False))
        X.sum_duplicates()
        offsets = pa.array(X.indptr, pa.int64())
        lists = [pa.LargeListArray.from_arrays(offsets, pa.array(items)) for items in (X.indices, X.data)]
        return pa.table(lists, ["indices", "values"])
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind in "biuf" and rows.shape[1]:
        values = pa.array(np.ascontiguousarray(rows).ravel())
        return pa.table({"features": pa.FixedSizeListArray.from_arrays(values, rows.shape[1])})
    if hasattr(rows, "iloc") and hasattr(rows, "columns"):  # of pandas
        return pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, pa.RecordBatch) or (hasattr(rows, "__arrow_c_stream__") and hasattr(rows, "columns")):
        return pa.table(rows)
    shape = f" of shape {rows.shape} and type {rows.dtype}" if isinstance(rows, np.ndarray) else ""
    raise ConfigError(f"source={rows!r:.100} is a {type(rows).__name__}{shape}, but it must be {_ACCEPTED}")


class HeldRows(NamedTuple):
    """Rows in memory, in parts that are splits: Arrow tables, or futures of tables that workers of Dask hold."""

    parts: Sequence[Any]
    """Empty in a copy that was sent to a worker, which gets parts with its splits."""
    schema: pa.Schema
    """Columns of all parts, without dictionary, extension and view types."""
    starts: tuple[int, ...]
    """Number of the first row of each part, and at the end that of all rows."""
    file: SourceFile
    """Record of the rows, in place of that of a file; ``etag`` is their SHA-256."""

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldRows, ((), *self[1:])


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of columns without dictionary, extension and view types."""
    return pa.schema([(item.name, plain(pa.nulls(0, storage_type(item.type))).type) for item in schema])


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSplit(Split):
    """A split with its rows, which are sent with it; of a future, the worker fills in the table."""

    rows: Any = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        sent = pa.BufferOutputStream()  # a pickle of a slice would hold the whole table
        if isinstance(self.rows, pa.Table):
            with pa.ipc.new_stream(sent, self.rows.schema) as stream:
                stream.write_table(self.rows)
        return _received, (self.number, self.file, self.start, self.stop, sent.getvalue())


def _received(number: int, file: SourceFile, start: int, stop: int, sent: pa.Buffer) -> HeldSplit:
    rows = pa.ipc.open_stream(sent).read_all() if sent.size else None
    return HeldSplit(number=number, file=file, start=start, stop=stop, rows=rows)


@dataclass(frozen=True, slots=True, repr=False)
class TableSource(TabularSource):
    """Rows in memory as a source: a table of pandas, polars, Arrow or Dask, or an array of NumPy, SciPy or Dask.

    Columns of tables have the roles that they have in a `ParquetSource`, and the same options. The rows are known by
    the SHA-256 of their values in order, which depends neither on the kind of table nor on the partitions: to featurize
    them again does nothing, and other rows need another target. Each partition of Dask is a split, encoded on the
    worker that holds it; other rows are sent with their tasks if these run on a cluster. Nothing is written but shards.

    Parameters
    ----------
    rows : pandas.DataFrame, polars.DataFrame, pyarrow.Table, dask.dataframe.DataFrame, array or sparse matrix
        Rows; arrays, of NumPy or Dask, have two dimensions and hold numbers. The index of a pandas table is left out. A
        Dask collection is computed into the memory of the workers for the duration of a run.
    y : array, Series or list of n_rows labels, or None
        Labels: numbers or words. Of a Dask collection, a Series or array of Dask with equal partitions. None: those in
        the column `label`; arrays then have none.

    Raises
    ------
    dkfeat.errors.ConfigError
        If a setting is out of range, or rows are of another type.
    dkfeat.errors.InputError
        If there are more or fewer labels than rows.

    Examples
    --------
    >>> source = TableSource(np.eye(3), y=["a", "b", "a"])
    >>> source.n_features, source.held.schema.names
    (3, ['features', 'label'])
    """

    in_memory: ClassVar[bool] = True
    holder: ClassVar[str] = "the table"
    patterns: ClassVar[tuple[str, ...]] = ()
    """There are no files."""

    urlpath: Any = field(default=(MEMORY,), init=False, repr=False)
    rows: Any = field(compare=False, repr=False)
    y: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        TabularSource.__post_init__(self)  # classes with slots have no super()
        if isinstance(self.rows, HeldRows):
            return
        if hasattr(self.rows, "shape") and not hasattr(self.rows, "columns") and len(self.rows.shape) == 2:
            width = int(self.rows.shape[1])
            if self.n_features not in (None, width):
                raise ConfigError(f"the array has {width:,} columns, but n_features={self.n_features:,}")
            self._set("n_features", width)
            self._set("label", None if self.y is None and self.label == "label" else self.label)
        if self.y is not None and self.label is None:
            raise ConfigError("y is given, but label=None; leave one of them out")
        if not hasattr(self.rows, "to_delayed"):
            table = arrow_table(self.rows, self.y, str(self.label))
            rows, size, _ = digest = digest_of(table)
            starts = *range(0, max(rows, 1), max(1, rows * int(self.blocksize) // max(1, CELL_FACTOR * size))), rows
            parts = [table.slice(start, stop - start) for start, stop in pairwise(starts)]
            schema = plain_schema(table.schema)
            self._set("rows", HeldRows(parts, schema, starts, record_of(schema.names, [digest])))
            self._set("y", None)

    @property
    def held(self) -> HeldRows:
        """The rows; an error if they are a collection of Dask that no run has computed."""
        if not isinstance(self.rows, HeldRows):
            raise ConfigError("only featurize and train read rows of Dask; compute() them, or give their files")
        return self.rows

    def files(self, *, checks: bool = True) -> tuple[SourceFile, ...]:  # noqa: ARG002 - inherited
        """Return the record of the rows."""
        return (self.held.file,)

    def schema_of(self, file: SourceFile) -> pa.Schema:  # noqa: ARG002 - inherited
        """Return the columns, with their types."""
        return self.held.schema

    def splits(self, files: Sequence[SourceFile] | None = None) -> tuple[Split, ...]:
        """Return a split for each part: partitions of Dask, or runs of rows of about `blocksize` bytes."""
        of, pairs = self.files() if files is None else files, enumerate(pairwise(self.held.starts))
        return tuple(Split(number=at, file=file, start=start, stop=stop) for at, (start, stop) in pairs for file in of)

    def for_worker(self, split: Split) -> HeldSplit:
        """Return a split with its rows."""
        if self.held.starts[split.number : split.number + 2] != (split.start, split.stop):
            raise SpecConflictError(
                f"split {split.number} of the interrupted run has rows {split.start:,} to {split.stop:,}, which are no "
                "part of these rows now; cut them as before, or call `dkfeat abort` with the target"
            )
        rows = self.held.parts[split.number]
        return HeldSplit(number=split.number, file=split.file, start=split.start, stop=split.stop, rows=rows)

    def rows_of(self, split: Split) -> int | None:
        """Return the number of rows of a split; None with filters."""
        return None if self.filters is not None else split.stop - split.start

    def split_bytes(self, split: Split) -> int:
        """Return the number of bytes that are hashed of the rows of a split."""
        return split.file.size * (split.stop - split.start) // max(1, self.held.starts[-1])

    def piece_bytes(self, split: Split) -> int:
        """Return the maximum size in memory of the rows of a piece of this split, in bytes."""
        of_text = max((ngrams.row_bytes for ngrams in self.texts.values()), default=0)
        return min(int(self.blocksize), (CELL_FACTOR + of_text) * self.split_bytes(split))

    @contextmanager
    def open_rows(self, split: Split, columns: Sequence[str]) -> Iterator[Any]:
        """Open a split to read some columns of it."""
        file, schema = split.file, self.held.schema
        check_schema(self, Schema(self, schema, file))
        condition = None if self.filters is None else condition_of(self.filters, schema, file)
        table = (split if isinstance(split, HeldSplit) else self.for_worker(split)).rows.select(columns)
        size = min(max(BATCH_BYTES * table.num_rows // max(table.nbytes, 1), 1), _MOST_BATCH_ROWS)

        def batches() -> Iterator[tuple[ColumnBatch, int]]:
            start = split.start
            for part in table.to_batches(max_chunksize=size):
                rows: Any = np.arange(start, start + part.num_rows)
                arrays = {name: plain(part.column(name)).cast(schema.field(name).type) for name in columns}
                start += part.num_rows
                if condition is not None:
                    rows, arrays = passing_rows(condition, arrays, rows)
                if len(rows):
                    yield ColumnBatch(file, None, rows, arrays), 0

        n_rows = split.stop - split.start
        place = {"first_row": split.start, "stop_row": split.stop, "n_rows": n_rows, "n_lines": None}
        yield SimpleNamespace(**place, bad=[], batches=batches)

    def check_unchanged(self, file: SourceFile) -> None:
        """Do nothing: the rows are those that were hashed."""

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return `to_mapping` of a source with default options."""
        return cls(pa.table({"label": [0]})).to_mapping()
