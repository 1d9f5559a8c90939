"""Batches of Parquet columns as rows: numbers checked, cast and told with their places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dkfeat.io.columns import KEPT_TYPES
from dkfeat.io.parquet_batch import Batch, first_true, floats_of, int64_of, lists_of, owner_of, plain, refuse
from dkfeat.io.scans import exact_integers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.io.parquet import ParquetSource

__all__ = ["Rows", "decode", "decode_labels", "highest_index"]

NOT_ALLOWED, BAD_FEATURE, OUT_OF_RANGE = "label not allowed", "bad feature", "index out of range"

ROW_BYTES = 16
"""What a row counts toward a piece beside its values: its label and its places in tables."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Decoded rows."""

    number: NDArray[np.int64]
    """Number of each row in the file."""
    n_bytes: NDArray[np.int64]
    """What each row counts toward a piece."""
    lengths: NDArray[np.int64]
    """Stored values of each row."""
    indices: NDArray[Any]
    """Columns of all values, end to end, rising in each row."""
    values: NDArray[Any]
    """All values, none of them zero."""
    labels: NDArray[Any]
    """Labels, end to end."""
    label_lengths: NDArray[np.int64] | None
    """Labels of each row, where rows have several."""
    qid: NDArray[np.int64] | None
    """Query ids."""
    weight: NDArray[np.float64] | None
    """Weights."""
    kept: dict[str, pa.Array] = field(default_factory=dict)
    """Kept columns, by their names in shards."""

    def __len__(self) -> int:
        return len(self.number)

    def take(self, start: int, stop: int) -> Rows:
        """Rows from `start` to `stop`, as views."""
        begin, end = int(self.lengths[:start].sum()), int(self.lengths[:stop].sum())
        first, last = start, stop
        if self.label_lengths is not None:
            first, last = int(self.label_lengths[:start].sum()), int(self.label_lengths[:stop].sum())
        return Rows(
            number=self.number[start:stop],
            n_bytes=self.n_bytes[start:stop],
            lengths=self.lengths[start:stop],
            indices=self.indices[begin:end],
            values=self.values[begin:end],
            labels=self.labels[first:last],
            label_lengths=None if self.label_lengths is None else self.label_lengths[start:stop],
            qid=None if self.qid is None else self.qid[start:stop],
            weight=None if self.weight is None else self.weight[start:stop],
            kept={name: column.slice(start, stop - start) for name, column in self.kept.items()},
        )


def decode(source: ParquetSource, batch: Batch, first_row: int) -> Rows:
    """Rows of a batch; `first_row` is the number in the file of the row group's first row."""
    index_dtype = _index_dtype(source)
    read = _dense if source.features_as == "columns" else _vectors if source.features_as == "vector" else _pairs
    lengths, indices, values, n_values = read(source, batch)
    keep = values != 0
    if not keep.all():
        ends = np.concatenate([[0], np.cumsum(keep)])[np.concatenate([[0], np.cumsum(lengths)])]
        lengths, indices, values = np.diff(ends), indices[keep], values[keep]
    labels, label_lengths = decode_labels(source, batch)
    kept, text_bytes = _kept(source, batch)
    item_bytes = np.dtype(index_dtype).itemsize + np.dtype(source.dtype).itemsize
    return Rows(
        number=first_row + batch.rows,
        n_bytes=ROW_BYTES + n_values * item_bytes + text_bytes,
        lengths=lengths.astype(np.int64, copy=False),
        indices=indices.astype(index_dtype, copy=False),
        values=values,
        labels=labels,
        label_lengths=label_lengths,
        qid=None if source.query_id is None else _query_ids(batch, source.query_id),
        weight=None if source.weight is None else _weights(batch, source.weight),
        kept=kept,
    )


def decode_labels(source: ParquetSource, batch: Batch) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Labels of a batch, end to end, and how many each row has; float64 while the label type is open."""
    dtype = "float64" if source.label_dtype == "auto" else source.label_dtype
    if source.label is None:
        return np.zeros(len(batch.rows), dtype), None
    name, array, lengths = source.label, batch.columns[source.label], None
    row_of: Callable[[int], int] = int
    if source.multilabel:
        array, lengths = lists_of(batch, name, array, "bad label")
        row_of = owner_of(lengths)
    if array.null_count:
        raise batch.error(name, row_of(first_true(array.is_null())), "a null, but each row has a label", "bad label")
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        labels = (
            int64_of(batch, name, array, row_of, "bad label")
            if dtype == "int64"
            else floats_of(array).astype(np.float64, copy=False)
        )
    else:
        labels = floats_of(array).astype(np.float64, copy=False)
        refuse(batch, name, row_of, ~np.isfinite(labels), labels, "labels are finite numbers", "bad label")
    if source.labels is not None:
        expected = f"the labels allowed are {', '.join(map(str, source.labels))}"
        refuse(batch, name, row_of, ~np.isin(labels, source.labels), labels, expected, NOT_ALLOWED)
    if dtype == "int64" and labels.dtype != np.int64:
        expected = 'the source has integer labels; pass label_dtype="float64"'
        refuse(batch, name, row_of, ~exact_integers(labels), labels, expected, NOT_ALLOWED)
        labels = labels.astype(np.int64)
    return labels, lengths


def highest_index(source: ParquetSource, batch: Batch) -> int | None:
    """Highest index of sparse rows, or last position of vectors; None without any."""
    if source.features_as == "vector":
        _, lengths = lists_of(batch, str(source.features[0]), batch.columns[source.features[0]])  # type: ignore[index]  # features are settled before the scan
        return int(lengths.max()) - 1 if len(lengths) and lengths.max() else None
    name, array, _ = _pair(source, batch)
    flat, lengths = lists_of(batch, name, array)
    if flat.null_count:
        raise batch.error(name, owner_of(lengths)(first_true(flat.is_null())), "a null among indices", BAD_FEATURE)
    indices = int64_of(batch, name, flat, owner_of(lengths), OUT_OF_RANGE)
    return int(indices.max()) if len(indices) else None


def _dense(source: ParquetSource, batch: Batch) -> tuple[NDArray[Any], ...]:
    """Read one number from each of many columns."""
    names = source.features or ()
    columns = []
    for name in names:
        array = batch.columns[name]
        if array.null_count:
            raise batch.error(name, first_true(array.is_null()), "a null, but features are finite numbers")
        columns.append(_for_tensor(array))
    block = pa.record_batch(columns, names=[str(place) for place in range(len(names))]).to_tensor().to_numpy()
    values = _finite(block.ravel(), source, lambda place: (place // len(names), names[place % len(names)]), batch)
    rows, width = block.shape
    lengths = np.full(rows, width, np.int64)
    return lengths, np.tile(np.arange(width, dtype=_index_dtype(source)), rows), values, lengths


def _vectors(source: ParquetSource, batch: Batch) -> tuple[NDArray[Any], ...]:
    """Read a list of all values in one column."""
    name, width = str((source.features or ())[0]), int(source.n_features or 0)
    array = batch.columns[name]
    if array.null_count:
        raise batch.error(name, first_true(array.is_null()), "a null, but features are finite numbers")
    if pa.types.is_fixed_size_binary(array.type):
        if array.type.byte_width != 4 * width:
            raise batch.error(
                name, 0, f"{array.type.byte_width} bytes, but {width:,} float32 values take {4 * width:,}"
            )
        start = array.offset * 4 * width
        raw = np.frombuffer(array.buffers()[1] or b"", np.uint8)[start : start + len(array) * 4 * width]
        flat: Any = raw.view("<f4")
        lengths = np.full(len(array), width, np.int64)
    else:
        items, lengths = lists_of(batch, name, array)
        if (wrong := lengths != width).any():
            row = int(np.argmax(wrong))
            hint = '; pass features_as="sparse" if these are column numbers' if pa.types.is_integer(items.type) else ""
            reason = f"{lengths[row]:,} values, but the source has n_features={width:,}{hint}"
            raise batch.error(name, row, reason, BAD_FEATURE)
        if items.null_count:
            row = first_true(items.is_null()) // width
            raise batch.error(name, row, "a null in a vector, but features are finite numbers")
        flat = floats_of(items)
    values = _finite(flat, source, lambda place: (place // width, name), batch)
    return lengths, np.tile(np.arange(width, dtype=_index_dtype(source)), len(lengths)), values, lengths


def _pairs(source: ParquetSource, batch: Batch) -> tuple[NDArray[Any], ...]:
    """Read a list of indices and a list of values."""
    name, array, value_name = _pair(source, batch)
    flat, lengths = lists_of(batch, name, array)
    owner = owner_of(lengths)
    if flat.null_count:
        raise batch.error(name, owner(first_true(flat.is_null())), "a null among indices", BAD_FEATURE)
    indices = int64_of(batch, name, flat, owner, OUT_OF_RANGE)
    base = 0 if source.zero_based else 1
    if len(indices):
        n_features = int(source.n_features or 0)
        reason = f"indices are numbered from {base}" + ("; pass zero_based=True if from 0" if base else "")
        refuse(batch, name, owner, indices < base, indices, reason, OUT_OF_RANGE)
        highest = n_features - 1 + base
        expected = f"the highest index is {highest:,}, by n_features"
        refuse(batch, name, owner, indices > highest, indices, expected, OUT_OF_RANGE)
        falls = np.diff(indices) <= 0
        starts = np.cumsum(lengths)[:-1]
        falls[starts[(starts > 0) & (starts < len(indices))] - 1] = False
        if falls.any():
            place = int(np.argmax(falls)) + 1
            now, last = int(indices[place]), int(indices[place - 1])
            what = f"index {now} twice" if now == last else f"index {now} after {last}"
            reason = f"{what}, but indices must ascend within a row"
            raise batch.error(name, owner(place), reason, "indices not ascending")
    if value_name is None:
        return lengths, indices - base, np.ones(len(indices), source.dtype), lengths
    items, value_lengths = lists_of(batch, value_name, batch.columns[value_name])
    if (wrong := value_lengths != lengths).any():
        row = int(np.argmax(wrong))
        reason = f"{value_lengths[row]:,} values for {lengths[row]:,} indices"
        raise batch.error(value_name, row, reason, BAD_FEATURE)
    if items.null_count:
        raise batch.error(value_name, owner(first_true(items.is_null())), "a null among values")
    values = _finite(floats_of(items), source, lambda place: (owner(place), value_name), batch)
    return lengths, indices - base, values, lengths


def _pair(source: ParquetSource, batch: Batch) -> tuple[str, pa.Array, str | None]:
    """Name and array of the indices, name of the values."""
    names = source.features or ()
    array = batch.columns[names[0]]
    if not pa.types.is_struct(array.type):
        return names[0], array, names[1] if len(names) > 1 else None
    if array.null_count:
        raise batch.error(
            names[0],
            first_true(array.is_null()),
            "a null, but each row has features; an empty row has none in its lists",
            BAD_FEATURE,
        )
    for part in ("indices", "values"):
        batch.columns[f"{names[0]}.{part}"] = plain(array.field(part))
    return f"{names[0]}.indices", batch.columns[f"{names[0]}.indices"], f"{names[0]}.values"


def _finite(
    numbers: NDArray[Any], source: ParquetSource, place_of: Callable[[int], tuple[int, str]], batch: Batch
) -> NDArray[Any]:
    """Numbers in the source's type, all finite."""
    with np.errstate(over="ignore"):  # told below, with its place
        values = numbers.astype(source.dtype, copy=False)
    good = np.isfinite(values)
    if not good.all():
        place = int(np.argmin(good))
        row, column = place_of(place)
        number = numbers[place]
        reason = f"{number}, but features are finite numbers"
        if np.isfinite(number):
            reason = f'{number} overflows float32; pass dtype="float64" if it is meant'
        raise batch.error(column, row, reason)
    return values


def _for_tensor(array: pa.Array) -> pa.Array:
    """Array of a type that promotes exactly where it can: 64-bit integers are rounded once, to float64."""
    kind = array.type
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return array
    if pa.types.is_integer(kind) and kind.bit_width <= 32:
        return array
    return pa.array(floats_of(array))


def _query_ids(batch: Batch, name: str) -> NDArray[np.int64]:
    array, word = batch.columns[name], "bad query id"
    if array.null_count:
        raise batch.error(name, first_true(array.is_null()), "a null, but query ids are integers", word)
    return int64_of(batch, name, array, int, word)


def _weights(batch: Batch, name: str) -> NDArray[np.float64]:
    array, word = batch.columns[name], "bad weight"
    if array.null_count:
        raise batch.error(name, first_true(array.is_null()), "a null, but each row has a weight", word)
    weights = floats_of(array).astype(np.float64, copy=False)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    refuse(batch, name, int, bad, weights, "weights are finite and at least 0", word)
    return weights


def _kept(source: ParquetSource, batch: Batch) -> tuple[dict[str, pa.Array], NDArray[np.int64]]:
    """Kept columns as they go into shards, and the bytes of text in each row."""
    kept = {}
    text_bytes = np.zeros(len(batch.rows), np.int64)
    for (name, column), kind in zip(source.kept_columns.items(), source.kept_types or (), strict=True):
        kept[name] = array = _cast_kept(batch, column, KEPT_TYPES[kind])
        if kind == "string":
            text_bytes += pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64)
    return kept, text_bytes


def _cast_kept(batch: Batch, name: str, kind: pa.DataType) -> pa.Array:
    array = batch.columns[name]

    def cast(part: pa.Array) -> pa.Array:
        made = part.cast(pa.float32()).cast(kind) if pa.types.is_float16(part.type) else part.cast(kind)
        if pa.types.is_string(kind):
            made.validate(full=True)  # UTF-8 by name is not always so by its bytes
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


def _index_dtype(source: ParquetSource) -> type[np.signedinteger[Any]]:
    return np.int32 if int(source.n_features or 0) < 2**31 else np.int64
