"""Decoder of Parquet batches: conversion of rows to numbers, with checks; bad rows are errors or set aside."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from dkfeat.blocks import BadRow, RowBlock
from dkfeat.errors import ParquetError
from dkfeat.sources.options import exact_integers
from dkfeat.sources.parquet.batches import CELL_BYTES, Column, ColumnBatch, RowError, plain
from dkfeat.sources.parquet.options import ARROW_TYPES, ParquetOptions
from dkfeat.sources.parquet.schema import is_integers, is_text, list_value
from dkfeat.sources.pieces import LABEL_NOT_ALLOWED, cut_message, shown_text
from dkfeat.validation import rounded_integers, rounding

if TYPE_CHECKING:
    from numpy.typing import NDArray


BAD_FEATURE, OUT_OF_RANGE = "bad feature", "index out of range"
_NULL_FEATURE = "a null, but features are finite numbers"

ROW_BYTES = 16
"""Bytes that a row adds to the size of a piece besides its values: for its label and table entries."""
_MOST_INDEX = 2**63 - 2
_SHOWN_ITEMS = 40
"""Maximum number of columns, and of values of a list, in the text of a bad row, which is cut at 160 characters."""


def decode(options: ParquetOptions, batch: ColumnBatch, first_row: int) -> RowBlock:
    """Decode a batch; its rows are numbered in the file, `first_row` being the number of the row group's first row."""
    y, label_lengths = decode_labels(options, batch)
    return RowBlock(
        X=_table(options, batch) if options.is_table else _rows(options, batch),
        y=y,
        label_offsets=None if label_lengths is None else np.concatenate([[0], np.cumsum(label_lengths)]),
        qid=None if options.query_id is None else _query_ids(batch, options.query_id),
        weight=None if options.weight is None else _weights(batch, options.weight),
        kept={name: _kept(batch, options.kept_columns[name], ARROW_TYPES[kind]) for name, kind in options.kept.items()},
        number=first_row + batch.rows,
    )


def _table(options: ParquetOptions, batch: ColumnBatch) -> pa.Table:
    """Return the columns of features as they are; those for n-grams are checked."""
    for name, ngrams in options.texts.items():
        if name in options.read_features and is_text(batch.columns[name].type):
            column = batch.column(name)
            if bad := ngrams.first_bad(column.array):
                position, reason = bad
                raise column.error(position, reason, BAD_FEATURE)
    return pa.table({name: batch.columns[name] for name in options.read_features})


def _rows(options: ParquetOptions, batch: ColumnBatch) -> csr_matrix:
    """Read sparse rows of numbers."""
    read = {"columns": _dense, "vector": _vectors, "sparse": _pairs}[options.features_as]
    lengths, indices, values = read(options, batch)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    stored = values != 0
    if not stored.all():
        indptr, indices, values = np.concatenate([[0], np.cumsum(stored)])[indptr], indices[stored], values[stored]
    indices = indices.astype(index_dtype(options), copy=False)
    return csr_matrix((values, indices, indptr), shape=(len(lengths), options.n_features), copy=False)


def row_bytes(options: ParquetOptions, batch: ColumnBatch, rows: RowBlock) -> NDArray[np.int64]:
    """Return the bytes that each row adds to the size of a piece: for its values, including zeros, and kept text."""
    n_bytes = np.full(rows.n_rows, ROW_BYTES, np.int64)
    columns = [(column, 1) for column in rows.kept.values()]
    if options.is_table:
        n_bytes += len(options.features or ()) * CELL_BYTES
        sizes = {name: 1 + ngrams.row_bytes for name, ngrams in options.texts.items()}
        columns += [(batch.columns[name], sizes.get(name, 1)) for name in rows.X.column_names]
    else:
        n_values: Any = int(options.n_features or 0)
        if options.features_as == "sparse":
            n_values = _pair(options, batch)[0].lists().lengths
        n_bytes += n_values * (rows.X.indices.itemsize + rows.X.data.itemsize)
    for column, size in columns:
        if is_text(column.type):
            n_bytes += size * pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
        elif list_value(column.type) is not None:
            n_bytes += CELL_BYTES * pc.fill_null(column.value_lengths(), 0).to_numpy().astype(np.int64)
    return n_bytes


def decode_labels(options: ParquetOptions, batch: ColumnBatch) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Decode labels, concatenated, and the number of labels per row; float64 while the label type is unknown."""
    dtype = "float64" if options.label_dtype == "auto" else options.label_dtype
    if options.label is None:
        return np.zeros(len(batch.rows), dtype), None
    column, category = batch.column(options.label), "bad label"
    if options.multilabel:
        column = column.lists(category)
    if options.classes is not None:
        return _classes(options, column), column.lengths
    kind = column.without_nulls("a null, but each row has a label", category).array.type
    if is_integers(kind) and dtype == "int64":
        labels: NDArray[Any] = column.int64(LABEL_NOT_ALLOWED, '; pass label_dtype="float64" for other labels')
    else:
        labels = column.floats().astype(np.float64, copy=False)
    if dtype == "float64" and (is_integers(kind) or pa.types.is_decimal(kind)):
        remedy = 'pass label_dtype="int64"' if is_integers(kind) else "store the labels as int64"
        expected = f"it is not exact in float64, the type of the labels; {remedy} if all fit int64"
        column.raise_first_bad(column.inexact(labels), column.array, expected, LABEL_NOT_ALLOWED)
    if not is_integers(kind):
        column.raise_first_bad(~np.isfinite(labels), labels, "labels are finite numbers", category)
    if options.labels is not None:
        expected = f"the allowed labels are {', '.join(map(str, options.labels))}"
        column.raise_first_bad(~np.isin(labels, options.labels), labels, expected, LABEL_NOT_ALLOWED)
    if dtype == "int64" and labels.dtype != np.int64:
        expected = 'the source has integer labels; pass label_dtype="float64"'
        column.raise_first_bad(~exact_integers(labels), labels, expected, LABEL_NOT_ALLOWED)
        labels = labels.astype(np.int64)
    return labels, column.lengths


def _classes(options: ParquetOptions, column: Column) -> NDArray[Any]:
    """Return the positions of words among the classes; 0 for all words if these are not known yet. Or the words."""
    words = column.without_nulls("a null, but each row has a label", "bad label").array
    _check_text(column, 0, len(words))
    classes = options.classes or ()
    if options.as_words:
        return np.asarray(words.to_numpy(zero_copy_only=False))
    if not classes:
        return np.zeros(len(words), np.int64)
    positions = pc.index_in(words, pa.array(classes, words.type))
    if positions.null_count:
        known = ", ".join(classes[:_SHOWN_ITEMS]) + (", ..." if len(classes) > _SHOWN_ITEMS else "")
        expected = (
            f"the classes are {known}; set such rows aside by on_bad_row='quarantine' (--on-bad-row quarantine), "
        )
        expected += "evaluate a model on the files themselves, or make a new data set or model"
        unknown = positions.is_null().to_numpy(zero_copy_only=False)
        column.raise_first_bad(unknown, words, expected, LABEL_NOT_ALLOWED)
    return positions.to_numpy().astype(np.int64)


def _check_text(column: Column, start: int, stop: int) -> None:
    """Raise RowError at the first label from `start` to `stop` that is not valid UTF-8, as text of files may be."""
    try:
        column.array.slice(start, stop - start).validate(full=True)
    except pa.ArrowInvalid as fault:
        if stop - start == 1:
            raise column.error(start, "text that is not valid UTF-8", "bad label") from fault
        middle = (start + stop) // 2
        _check_text(column, start, middle)
        _check_text(column, middle, stop)


def highest_index(options: ParquetOptions, batch: ColumnBatch) -> int | None:
    """Return the highest index of sparse rows, or last position of vectors; None if there are none."""
    if options.features_as == "vector":
        lengths = batch.column(str((options.features or ())[0])).lists().lengths
        return int(lengths.max()) - 1 if len(lengths) and lengths.max() else None
    column, indices = _indices(_pair(options, batch)[0])
    if options.zero_based:
        column.raise_first_bad(indices == _MOST_INDEX + 1, indices, "the highest index is 2^63 - 2", OUT_OF_RANGE)
    return int(indices.max()) if len(indices) else None


def index_dtype(options: ParquetOptions) -> type[np.signedinteger[Any]]:
    """Return the type of column indices: int32 if they fit, else int64."""
    return np.int32 if int(options.n_features or 0) < 2**31 else np.int64


def _dense(options: ParquetOptions, batch: ColumnBatch) -> tuple[NDArray[Any], ...]:
    """Read one number from each of many columns."""
    columns = [batch.column(name).without_nulls(_NULL_FEATURE) for name in options.features or ()]
    arrays = [_for_tensor(column) for column in columns]
    block = pa.record_batch(arrays, names=[str(position) for position in range(len(arrays))]).to_tensor().to_numpy()
    rows, width = block.shape
    return np.full(rows, width, np.int64), _all_columns(options, rows, width), _finite(options, block.ravel(), columns)


def _vectors(options: ParquetOptions, batch: ColumnBatch) -> tuple[NDArray[Any], ...]:
    """Read a list of all values in one column."""
    width = int(options.n_features or 0)
    column = batch.column(str((options.features or ())[0])).without_nulls(_NULL_FEATURE)
    array = column.array
    if pa.types.is_fixed_size_binary(array.type):
        if array.type.byte_width != 4 * width:
            raise column.error(0, f"{array.type.byte_width} bytes, but {width:,} float32 values take {4 * width:,}")
        start = array.offset * 4 * width
        raw = np.frombuffer(array.buffers()[1] or b"", np.uint8)[start : start + len(array) * 4 * width]
        numbers: Any = raw.view("<f4")
        column = column._replace(lengths=np.full(len(array), width, np.int64))
    else:
        column = column.lists()
        lengths = column.lengths
        if (wrong := lengths != width).any():
            row = int(np.argmax(wrong))
            is_sparse = pa.types.is_integer(column.array.type)
            hint = '; pass features_as="sparse" if these are column numbers' if is_sparse else ""
            reason = f"{lengths[row]:,} values, but the source has n_features={width:,}{hint}"
            raise batch.error(column.name, row, reason, BAD_FEATURE)
        numbers = column.without_nulls("a null in a vector, but features are finite numbers").floats()
    rows = len(array)
    return np.full(rows, width, np.int64), _all_columns(options, rows, width), _finite(options, numbers, [column])


def _pairs(options: ParquetOptions, batch: ColumnBatch) -> tuple[NDArray[Any], ...]:
    """Read a list of indices and a list of values."""
    index_column, value_column = _pair(options, batch)
    column, indices = _indices(index_column)
    lengths: Any = column.lengths
    base = 0 if options.zero_based else 1
    if len(indices):
        reason = f"indices are numbered from {base}" + ("; pass zero_based=True if from 0" if base else "")
        column.raise_first_bad(indices < base, indices, reason, OUT_OF_RANGE)
        highest = int(options.n_features or 0) - 1 + base
        column.raise_first_bad(
            indices > highest, indices, f"the highest index is {highest:,}, by n_features", OUT_OF_RANGE
        )
        not_ascending = np.diff(indices) <= 0
        starts = np.cumsum(lengths)[:-1]
        not_ascending[starts[(starts > 0) & (starts < len(indices))] - 1] = False
        if not_ascending.any():
            first = int(np.argmax(not_ascending)) + 1
            index, previous = int(indices[first]), int(indices[first - 1])
            found = f"index {index} twice" if index == previous else f"index {index} after {previous}"
            raise column.error(first, f"{found}, but indices must ascend within a row", "indices not ascending")
    if value_column is None:
        return lengths, indices - base, np.ones(len(indices), options.dtype)
    items = value_column.lists()
    if (wrong := items.lengths != lengths).any():
        row = int(np.argmax(wrong))
        reason = f"{items.lengths[row]:,} values for {lengths[row]:,} indices"
        raise batch.error(items.name, row, reason, BAD_FEATURE)
    numbers = items.without_nulls("a null among values").floats()
    return lengths, indices - base, _finite(options, numbers, [items])


def _pair(options: ParquetOptions, batch: ColumnBatch) -> tuple[Column, Column | None]:
    """Return the columns of the indices and of the values."""
    read = [name for name in options.features or () if name in batch.columns]  # a scan reads only the first
    columns = [batch.column(name) for name in read]
    array = columns[0].array
    if pa.types.is_struct(array.type):
        columns[0].without_nulls("a null, but each row has features; store empty lists for an empty row", BAD_FEATURE)
        parts = ("indices", "values")
        columns = [Column(batch, f"{columns[0].name}.{part}", plain(array.field(part))) for part in parts]
    return columns[0], columns[1] if len(columns) > 1 else None


def _indices(column: Column) -> tuple[Column, NDArray[np.int64]]:
    """Return the flattened column of indices, and its integers."""
    column = column.lists().without_nulls("a null among indices", BAD_FEATURE)
    return column, column.int64(OUT_OF_RANGE)


def _all_columns(options: ParquetOptions, rows: int, width: int) -> NDArray[Any]:
    """Return the column indices of rows that have a value in every column."""
    return np.tile(np.arange(width, dtype=index_dtype(options)), rows)


def _finite(options: ParquetOptions, numbers: NDArray[Any], columns: Sequence[Column]) -> NDArray[Any]:
    """Check that numbers are finite and cast them to the source's type; number i is from column i % len(columns)."""
    with np.errstate(over="ignore"):  # an overflow is raised below, with its location
        values = numbers.astype(options.dtype, copy=False)
    good = np.isfinite(values)
    if not good.all():
        first = int(np.argmin(good))
        reason = f"{numbers[first]}, but features are finite numbers"
        if np.isfinite(numbers[first]):
            reason = f'{numbers[first]} overflows float32; pass dtype="float64" if the value is correct'
        raise columns[first % len(columns)].error(first // len(columns), reason)
    return values


def _for_tensor(column: Column) -> pa.Array:
    """Return an array of a type that promotes without loss; 64-bit integers and decimals are rounded to float64."""
    kind = column.array.type
    is_exact = pa.types.is_float32(kind) or pa.types.is_float64(kind)
    if is_exact or (pa.types.is_integer(kind) and kind.bit_width <= 32):
        return column.array
    return pa.array(column.floats())


def _query_ids(batch: ColumnBatch, name: str) -> NDArray[np.int64]:
    category = "bad query id"
    return batch.column(name).without_nulls("a null, but query ids are integers", category).int64(category)


def _weights(batch: ColumnBatch, name: str) -> NDArray[np.float64]:
    category = "bad weight"
    column = batch.column(name).without_nulls("a null, but each row has a weight", category)
    weights = column.floats().astype(np.float64, copy=False)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    column.raise_first_bad(bad, weights, "weights are finite and at least 0", category)
    return weights


def _kept(batch: ColumnBatch, name: str, kind: pa.DataType) -> pa.Array:
    """Convert a kept column to its type in shards."""
    array = batch.columns[name]

    def cast(part: pa.Array) -> pa.Array:
        made = part.cast(pa.float32()).cast(kind) if pa.types.is_float16(part.type) else part.cast(kind)
        if pa.types.is_string(kind):
            made.validate(full=True)  # text columns may hold invalid UTF-8
        return made

    try:
        return cast(array)
    except (pa.ArrowException, ValueError) as fault:
        for row in range(len(array)):
            try:
                cast(array.slice(row, 1))
            except (pa.ArrowException, ValueError) as cause:
                reason = f"cannot be kept as {kind}: {str(cause)[:120]}"
                raise batch.error(name, row, reason, "bad kept value") from fault
        raise


def decode_good(
    options: ParquetOptions, batch: ColumnBatch, first_row: int
) -> tuple[ColumnBatch, RowBlock, list[BadRow]]:
    """Decode a batch without its bad rows, which are listed in order.

    Whether a row is bad, and for which reason, depends on that row alone. A batch that cannot be decoded is halved
    until one row is left: a batch without bad rows is decoded once, and a few bad rows cost little.

    Parameters
    ----------
    options : ParquetOptions
    batch : ColumnBatch
        Batch of at least one row.
    first_row : int
        Number in the file of the first row of the batch's row group.

    Returns
    -------
    batch : ColumnBatch
        Batch of the good rows.
    rows : RowBlock
    bad_rows : list of BadRow
    """
    bad: dict[int, BadRow] = {}
    pending = [(0, len(batch.rows))]
    while pending:
        start, stop = pending.pop()
        try:
            rows = decode(options, batch.part(start, stop), first_row)
        except RowError as error:
            if stop - start == 1:
                bad[start] = bad_row(batch, start, first_row, error)
                continue
            middle = (start + stop) // 2
            pending += [(middle, stop), (start, middle)]
    if not bad:
        return batch, rows, []
    good = batch.without(list(bad))
    return good, decode(options, good, first_row), list(bad.values())


def bad_row(batch: ColumnBatch, position: int, first_row: int, error: RowError) -> BadRow:
    """Make the record of a bad row; `first_row` is the number in the file of the row group's first row."""
    number = first_row + int(batch.rows[position])
    location = {"row_group": error.row_group, "row": error.row, "column": error.column}
    if batch.lines is not None:
        del location["row"]
    return BadRow(
        file=0,
        offset=number,
        line=number + 1 if batch.lines is None else int(batch.lines[position]),
        column=0 if batch.lines is None else 1,
        reason=error.category,
        message=cut_message(str(ParquetError(error.reason, path="", **location))),  # type: ignore[arg-type]  # values of an error
        text=shown_text(_text(batch.part(position, position + 1), error.column or "").encode()),
    )


def integer_features(options: ParquetOptions, batch: ColumnBatch) -> list[str]:
    """Return the columns of features that are integers or lists of integers, and are read as numbers of a type."""
    if options.is_table:
        return []
    kinds = {name: batch.columns[name].type for name in options.features or ()}
    return [name for name, kind in kinds.items() if pa.types.is_integer(getattr(kind, "value_type", kind))]


def first_rounded(options: ParquetOptions, batch: ColumnBatch, first_row: int, names: Sequence[str]) -> BadRow | None:
    """Make the record of the first row of a decoded batch with an integer that was rounded in the named features."""
    columns = [batch.column(name) for name in names]
    if options.features_as == "sparse":
        columns = [column for column in _pair(options, batch)[1:] if column is not None]
    errors = []
    for column in columns:
        column = column if pa.types.is_integer(column.array.type) else column.lists()
        numbers = column.array.to_numpy(zero_copy_only=False)
        if (bad := rounded_integers(numbers, options.dtype)) is not None:
            at = int(np.argmax(bad))
            errors.append(column.error(at, f"{numbers[at]} is {rounding(int(numbers[at]), options.dtype)}"))
    if not errors:
        return None
    first = min(errors, key=lambda error: error.row or 0)
    return bad_row(batch, int(np.searchsorted(batch.rows, first.row or 0)), first_row, first)


def _text(row: ColumnBatch, bad_column: str) -> str:
    """Format the values of a row as read, beginning with the column that caused the error."""
    names = sorted(islice(row.columns, _SHOWN_ITEMS), key=lambda name: name != bad_column)
    if bad_column in row.columns and bad_column not in names:
        names.insert(0, bad_column)
    return ", ".join(f"{name}={_shown(row.columns[name])}" for name in names)


def _shown(array: pa.Array) -> str:
    """Format the value in an array of length one; of a list, only its beginning."""
    if not array.null_count and hasattr(array, "flatten") and not pa.types.is_struct(array.type):
        items = array.flatten()
        dots = ", ..." if len(items) > _SHOWN_ITEMS else ""
        return "[" + ", ".join(map(str, _values(items.slice(0, _SHOWN_ITEMS)))) + dots + "]"
    (value,) = _values(array)
    return repr(value[:_SHOWN_ITEMS] if isinstance(value, bytes | str) else value)


def _values(array: pa.Array) -> list[Any]:
    """Return values of any type, the beginnings of texts; these may be invalid UTF-8."""
    if not is_text(array.type):
        return list(array.to_pylist())
    values = pc.binary_slice(array.cast(pa.large_binary()), 0, 4 * _SHOWN_ITEMS).to_pylist()
    return [None if value is None else value.decode(errors="backslashreplace") for value in values]
