"""Parquet columns of a shard: layouts of the features, and codec and encoding of each column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix

from dkfeat.blocks import KEPT_TYPES, RESERVED, PackedCodes, RowBlock
from dkfeat.config.job import Layout
from dkfeat.errors import InputError, ShardError

if TYPE_CHECKING:
    from numpy.typing import NDArray


LAYOUTS: tuple[str, ...] = get_args(Layout)
"""Layouts of features."""

ROWS, LINES = "rows", "lines"
"""Layouts of rows of a source as they are stored: with all columns of their file, or as lines of text."""

TABLES = ("predictions", "neighbors", "pairs", "groups", ROWS, LINES)
"""Layouts of results that are computed from features, with columns of their own."""

_KEPT = (pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
ARROW_TYPES = dict(zip(KEPT_TYPES, _KEPT, strict=True))
"""Arrow types of kept columns by their names."""

ROW_GROUP_ROWS = 1 << 20
"""Maximum number of rows in a row group; nearly every shard is one row group."""

WRITER_OPTIONS: dict[str, Any] = {
    "version": "2.6",
    "data_page_version": "1.0",
    "data_page_size": 1 << 20,
    "write_batch_size": 1024,
    "use_dictionary": False,
    "write_statistics": False,
    "write_page_index": False,
    "write_page_checksum": True,
    "store_schema": False,
}

_ROW_OPTIONS = {**dict.fromkeys(("use_dictionary", "write_statistics", "store_schema"), True), "compression": "ZSTD"}
_LEVELS = {"indices": 1, "values": 1, "features": 1}
_OTHER_LEVEL = 3
_ENCODINGS = {"float": "BYTE_STREAM_SPLIT", "double": "BYTE_STREAM_SPLIT", "bool": "PLAIN", "string": "PLAIN"}
_OTHER_ENCODING = "DELTA_BINARY_PACKED"  # integers, and dates and times, which are stored as integers
_INT32_COLUMNS = 1 << 31


def to_table(layout: str, block: RowBlock, *, values: bool = True) -> tuple[pa.Table, dict[str, Any]]:
    """Make the columns of a shard, and the Parquet settings of each column.

    Returns
    -------
    table : pyarrow.Table
        Columns label, then qid, weight and kept columns if given, then those of the layout.
    settings : dict
        Codec, level and encoding of each column, for ``ParquetWriter``.

    Raises
    ------
    InputError
        If the layout is unknown or cannot store the features, or a kept column has a reserved name or unsupported type.
    """
    if layout == ROWS:
        return block.X, _ROW_OPTIONS
    found: dict[str, pa.Array] = {}
    if block.y is not None:
        labels = pa.array(np.ascontiguousarray(block.y), pa.string() if block.y.dtype == object else None)
        found["label"] = labels if block.label_offsets is None else lists(block.label_offsets, labels)
    if block.qid is not None:
        found["qid"] = pa.array(np.ascontiguousarray(block.qid, dtype=np.int64))
    if block.weight is not None:
        found["weight"] = pa.array(np.ascontiguousarray(block.weight, dtype=np.float64))
    for name, column in block.kept.items():
        if name in RESERVED or column.type not in _KEPT:
            raise InputError(
                f"column {name!r} of type {column.type} cannot be kept: the names {', '.join(RESERVED)} are reserved, "
                f"and the types are {', '.join(KEPT_TYPES)}"
            )
        found[name] = column
    if layout == "codes":
        found["codes"] = _codes_column(block.X)
    elif layout == "sparse":
        found.update(_sparse_columns(block.X, values))
    elif layout == "dense":
        found["features"] = _dense_column(block.X)
    else:
        found.update(zip(block.X.column_names, block.X.columns, strict=True))
    nullable = {"codes", *block.kept}
    if layout in TABLES:
        nullable |= {column.name for column in block.X.schema if column.nullable}
    schema = pa.schema([pa.field(name, column.type, nullable=name in nullable) for name, column in found.items()])
    return pa.table(list(found.values()), schema=schema), _settings(schema)


def required_table(columns: Mapping[str, pa.Array]) -> pa.Table:
    """Make a table of columns without nulls."""
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in columns.items()])
    return pa.table(list(columns.values()), schema=schema)


def schema_of(
    layout: str,
    n_columns: int,
    label_dtype: str,
    *,
    multilabel: bool = False,
    query_id: bool = False,
    weight: bool = False,
    kept: Mapping[str, str] | None = None,
    values: bool = True,
) -> dict[str, str]:
    """Return the columns of every shard of a data set, and their types, as in the manifest.

    Parameters
    ----------
    layout : {"codes", "sparse", "dense"}
        Layout of the features.
    n_columns : int
        Width of the features: bytes per row for codes, else number of columns.
    label_dtype : {"int64", "float64"}
        Type of one label.
    multilabel, query_id, weight : bool, default=False
        True if rows have lists of labels, query ids, weights.
    kept : mapping of str to str, optional
        Types of the kept columns by name, from `dkfeat.blocks.KEPT_TYPES`.
    values : bool, default=True
        False if values are not stored because all are 1; sparse layout only.

    Examples
    --------
    >>> schema_of("codes", 256, "int64")
    {'label': 'int64', 'codes': 'fixed_size_binary[256]'}
    """
    X: Any = np.zeros((0, n_columns if layout != "sparse" else 1), np.uint8 if layout == "codes" else np.float32)
    if layout == "codes":
        X = PackedCodes(X, np.zeros(0, np.bool_))
    elif layout == "sparse":
        X = csr_matrix((0, n_columns), dtype=np.float32)
    block = RowBlock(
        X=X,
        y=np.zeros(0, label_dtype),
        label_offsets=np.zeros(1, np.int64) if multilabel else None,
        qid=np.zeros(0, np.int64) if query_id else None,
        weight=np.zeros(0) if weight else None,
        kept={name: pa.array([], ARROW_TYPES[kind]) for name, kind in (kept or {}).items()},
    )
    table, _ = to_table(layout, block, values=values)
    return kinds(table.schema)


def kinds(schema: pa.Schema) -> dict[str, str]:
    """Names and types of columns, in terms that do not depend on the version of pyarrow."""
    return {item.name: _kind(item.type) for item in schema}


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list<{_kind(kind.value_type)}>"
    return {pa.float32(): "float32", pa.float64(): "float64"}.get(kind, str(kind))


def _settings(schema: pa.Schema) -> dict[str, Any]:
    codecs, levels, encodings = {}, {}, {}
    for item in schema:
        nested = pa.types.is_list(item.type)
        path = f"{item.name}.list.element" if nested else item.name
        kind = str(item.type.value_type if nested else item.type)
        is_codes = pa.types.is_fixed_size_binary(item.type)
        codecs[path] = "NONE" if is_codes else "ZSTD"
        if not is_codes:
            levels[path] = _LEVELS.get(item.name, _OTHER_LEVEL)
        encodings[path] = "PLAIN" if is_codes else _ENCODINGS.get(kind, _OTHER_ENCODING)
    return {"compression": codecs, "compression_level": levels, "column_encoding": encodings}


def lists(offsets: NDArray[Any], values: pa.Array) -> pa.Array:
    """Make lists without nulls: list i is ``values[offsets[i]:offsets[i + 1]]``; shape of `offsets` (n_lists + 1,)."""
    if offsets[0] != 0 or offsets[-1] != len(values):
        raise InputError(f"lists cover values {offsets[0]:,} to {offsets[-1]:,}, but there are {len(values):,}")
    if len(values) > np.iinfo(np.int32).max:
        raise InputError(f"a shard's lists hold at most {np.iinfo(np.int32).max:,} values, got {len(values):,}")
    kind = pa.list_(pa.field("element", values.type, nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, type=kind)


def _codes_column(packed: PackedCodes) -> pa.Array:
    codes = np.ascontiguousarray(packed.codes)
    valid = pa.py_buffer(np.packbits(~packed.empty, bitorder="little")) if packed.empty.any() else None
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(codes.shape[1]), len(codes), [valid, pa.py_buffer(codes)])


def _sparse_columns(features: csr_matrix | NDArray[np.float32], values: bool) -> dict[str, pa.Array]:
    matrix = csr_matrix(features)
    kind = np.int32 if matrix.shape[1] < _INT32_COLUMNS else np.int64
    if not matrix.has_canonical_format:
        raise InputError("a sparse shard holds rows with sorted indices and no duplicates; call sum_duplicates first")
    columns = {"indices": lists(matrix.indptr, pa.array(matrix.indices.astype(kind, copy=False)))}
    if values:
        columns["values"] = lists(matrix.indptr, pa.array(matrix.data.astype(np.float32, copy=False)))
    elif not (matrix.data == 1).all():
        raise InputError(f"a sparse shard without values holds ones only, got {matrix.data[matrix.data != 1][0]}")
    return columns


def _dense_column(features: NDArray[np.float32]) -> pa.Array:
    rows, width = features.shape
    return lists(np.arange(rows + 1, dtype=np.int64) * width, pa.array(np.ascontiguousarray(features).ravel()))


def from_table(table: pa.Table, n_columns: int) -> RowBlock:
    """Read rows from a table that `to_table` made.

    Parameters
    ----------
    table : pyarrow.Table
        Table, possibly without some columns, whose values are then None. Columns with names that are not in `RESERVED`
        are kept columns.
    n_columns : int
        Width of the features: bytes per row for codes, else number of columns.

    Raises
    ------
    ShardError
        If values contradict the layout: wrong width, indices out of order or range, a value that is not finite, a
        weight below 0.
    """
    parts = {name: _array(table, name) for name in table.column_names}
    X: Any = None
    if "codes" in parts:
        X = _read_codes(parts["codes"], n_columns)
    elif "indices" in parts:
        X = _read_sparse(parts["indices"], parts.get("values"), n_columns)
    elif "features" in parts:
        X = _read_dense(parts["features"], n_columns)
    y, label_offsets = _read_labels(parts["label"]) if "label" in parts else (None, None)
    qid, weight = (_numbers(parts[name]) if name in parts else None for name in ("qid", "weight"))
    if weight is not None:
        _check_finite(weight)
        if (weight < 0).any():
            raise ShardError(f"weight {weight.min()} is below 0")
    kept = {name: column for name, column in parts.items() if name not in RESERVED}
    return RowBlock(X=X, y=y, label_offsets=label_offsets, qid=qid, weight=weight, kept=kept)


def _array(table: pa.Table, name: str) -> pa.Array:
    chunks = table.column(name).chunks
    array = chunks[0] if len(chunks) == 1 else table.column(name).combine_chunks()
    if name in RESERVED and name != "codes" and array.null_count:
        raise ShardError(f"column {name} has {array.null_count:,} nulls, but none are allowed")
    return array


def _numbers(array: pa.Array) -> NDArray[Any]:
    return array.to_numpy(zero_copy_only=not pa.types.is_string(array.type))  # labels of predictions may be words


def _read_lists(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[Any]]:
    offsets = _numbers(array.offsets).astype(np.int64)
    values = array.values
    if values.null_count:
        raise ShardError(f"{values.null_count:,} nulls inside lists, but none are allowed")
    return offsets - offsets[0], _numbers(values)[offsets[0] : offsets[-1]]


def _read_labels(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    if pa.types.is_list(array.type):
        offsets, values = _read_lists(array)
        return values, offsets
    return _numbers(array), None


def _read_codes(array: pa.Array, row_bytes: int) -> PackedCodes:
    if array.type != pa.binary(row_bytes):
        raise ShardError(f"column codes is {array.type}, expected fixed_size_binary[{row_bytes}]")
    raw = array.buffers()[1]
    flat = np.frombuffer(raw, np.uint8) if raw is not None else np.empty(0, np.uint8)
    codes = flat[array.offset * row_bytes : (array.offset + len(array)) * row_bytes].reshape(len(array), row_bytes)
    if not array.null_count:
        return PackedCodes(codes, np.zeros(len(array), np.bool_))
    empty = array.is_null().to_numpy(zero_copy_only=False)
    if codes[empty].any():
        codes = codes.copy()
        codes[empty] = 0
    return PackedCodes(codes, empty)


def _read_sparse(indices: pa.Array, values: pa.Array | None, n_columns: int) -> csr_matrix:
    indptr, columns = _read_lists(indices)
    if values is None:
        data = np.ones(len(columns), np.float32)
    else:
        bounds, data = _read_lists(values)
        if not np.array_equal(bounds, indptr):
            raise ShardError("indices and values have lists of different lengths")
    if len(columns):
        rises = np.diff(columns) > 0
        starts = indptr[1:-1]
        rises[starts[(starts > 0) & (starts < len(columns))] - 1] = True
        if not rises.all():
            row = int(np.searchsorted(indptr, int(np.argmin(rises)), side="right")) - 1
            raise ShardError(f"row {row:,}: indices do not ascend")
        if columns.min() < 0 or columns.max() >= n_columns:
            raise ShardError(f"indices run from {columns.min()} to {columns.max()}, expected 0 to {n_columns - 1}")
    _check_finite(data)
    return csr_matrix((data, columns, indptr.astype(columns.dtype)), shape=(len(indptr) - 1, n_columns))


def _read_dense(array: pa.Array, n_columns: int) -> NDArray[np.float32]:
    offsets, values = _read_lists(array)
    if not np.array_equal(offsets, np.arange(len(offsets)) * n_columns):
        raise ShardError(f"a row of dense features does not have {n_columns:,} values")
    _check_finite(values)
    return values.reshape(-1, n_columns)


def _check_finite(values: NDArray[Any]) -> None:
    if not np.isfinite(values).all():
        raise ShardError(f"value {values[~np.isfinite(values)][0]} is not finite")
