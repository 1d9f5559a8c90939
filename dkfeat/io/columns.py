"""Rows as Parquet columns: the three layouts, and how each column is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix

from dkfeat.blocks import PackedCodes
from dkfeat.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "KEPT_TYPES",
    "LAYOUTS",
    "RESERVED",
    "ROW_GROUP_ROWS",
    "WRITER_OPTIONS",
    "kinds",
    "lists",
    "schema_of",
    "to_table",
]

LAYOUTS = ("codes", "sparse", "dense")

RESERVED = ("label", "qid", "weight", "codes", "indices", "values", "features")
"""Names that a shard's own columns have."""

KEPT_TYPES = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "date32[day]": pa.date32(),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"),
}
"""Types that a kept column can have."""

ROW_GROUP_ROWS = 1 << 20
"""A row group ends after this many rows and nowhere else; nearly every shard is one."""

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

_CODECS = {
    "codes": ("NONE", None),
    "indices": ("ZSTD", 1),
    "values": ("ZSTD", 1),
    "features": ("ZSTD", 1),
}
_OTHER_CODEC = ("ZSTD", 3)
_ENCODINGS = {"float": "BYTE_STREAM_SPLIT", "double": "BYTE_STREAM_SPLIT", "bool": "PLAIN", "string": "PLAIN"}
_OTHER_ENCODING = "DELTA_BINARY_PACKED"  # integers, and dates and times, which are kept as integers
_INT32_COLUMNS = 1 << 31


def to_table(
    layout: str,
    encoded: Any,
    labels: NDArray[Any] | None,
    label_offsets: NDArray[np.int64] | None,
    qid: NDArray[np.int64] | None,
    *,
    weight: NDArray[np.float64] | None = None,
    kept: Mapping[str, pa.Array] | None = None,
    values: bool = True,
) -> tuple[pa.Table, dict[str, Any]]:
    """Columns of a shard, and how Parquet is to keep each of them.

    Returns
    -------
    table : pyarrow.Table
        Columns label, then qid, weight and kept ones if given, then those of the layout.
    settings : dict
        Codec, level and encoding of each column, for ``ParquetWriter``.

    Raises
    ------
    InputError
        For an unknown layout, a type that the layout does not hold, or a kept column that cannot be kept.
    """
    found: dict[str, pa.Array] = {}
    if labels is not None and labels.dtype not in (np.dtype(np.int64), np.dtype(np.float64)):
        message = f"labels are {labels.dtype}, a shard keeps int64 or float64"
        raise InputError(message)
    if labels is not None:
        found["label"] = _label_column(labels, label_offsets)
    if qid is not None:
        found["qid"] = pa.array(np.ascontiguousarray(qid, dtype=np.int64))
    if weight is not None:
        found["weight"] = pa.array(np.ascontiguousarray(weight, dtype=np.float64))
    for name, column in (kept or {}).items():
        if name in RESERVED or column.type not in KEPT_TYPES.values():
            message = f"column {name!r} of type {column.type} cannot be kept: names {', '.join(RESERVED)} are taken"
            raise InputError(message)
        found[name] = column
    if layout == "codes":
        found["codes"] = _codes_column(encoded)
    elif layout == "sparse":
        found.update(_sparse_columns(encoded, values))
    elif layout == "dense":
        found["features"] = _dense_column(encoded)
    elif layout == "predictions":
        found.update(encoded)
    else:
        message = f"layout={layout!r}, but a shard is one of {', '.join(LAYOUTS)} or predictions"
        raise InputError(message)
    lengths = {name: len(column) for name, column in found.items()}
    if len(set(lengths.values())) > 1:
        message = f"the columns of a shard have equally many rows, got {lengths}"
        raise InputError(message)
    nullable = {"codes", *(kept or {})}
    schema = pa.schema([pa.field(name, column.type, nullable=name in nullable) for name, column in found.items()])
    return pa.table(list(found.values()), schema=schema), _settings(schema)


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
    """Columns and types of every shard of a data set, as the manifest states them.

    Parameters
    ----------
    layout : {"codes", "sparse", "dense"}
        Which columns hold the features.
    n_columns : int
        Width of the features: bytes of a row of codes, else columns.
    label_dtype : {"int64", "float64"}
        Type of one label.
    multilabel, query_id, weight : bool, default=False
        Whether rows have lists of labels, query ids, weights.
    kept : mapping of str to str, optional
        Types of the kept columns, of `KEPT_TYPES`, by their names.
    values : bool, default=True
        Sparse only: whether values are kept; without them all are 1.

    Examples
    --------
    >>> schema_of("codes", 256, "int64")
    {'label': 'int64', 'codes': 'fixed_size_binary[256]'}
    """
    rows = np.zeros((0, n_columns if layout != "sparse" else 1), np.uint8 if layout == "codes" else np.float32)
    encoded: Any = rows
    if layout == "codes":
        encoded = PackedCodes(rows, np.zeros(0, np.bool_))
    elif layout == "sparse":
        encoded = csr_matrix((0, n_columns), dtype=np.float32)
    offsets = np.zeros(1, np.int64) if multilabel else None
    qid = np.zeros(0, np.int64) if query_id else None
    weights = np.zeros(0) if weight else None
    columns = {name: pa.array([], KEPT_TYPES[kind]) for name, kind in (kept or {}).items()}
    table, _ = to_table(
        layout, encoded, np.zeros(0, label_dtype), offsets, qid, weight=weights, kept=columns, values=values
    )
    return kinds(table.schema)


def kinds(schema: pa.Schema) -> dict[str, str]:
    """Names and types of columns, in words that do not change with the version of pyarrow."""
    return {
        item.name: f"list<{_kind(item.type.value_type)}>" if pa.types.is_list(item.type) else _kind(item.type)
        for item in schema
    }


def _kind(kind: pa.DataType) -> str:
    names = {pa.float32(): "float32", pa.float64(): "float64"}
    return names.get(kind, str(kind))


def _settings(schema: pa.Schema) -> dict[str, Any]:
    codecs, levels, encodings = {}, {}, {}
    for item in schema:
        nested = pa.types.is_list(item.type)
        path = f"{item.name}.list.element" if nested else item.name
        kind = str(item.type.value_type if nested else item.type)
        codecs[path], level = _CODECS.get(item.name, _OTHER_CODEC)
        if level is not None:
            levels[path] = level
        encodings[path] = "PLAIN" if item.name == "codes" else _ENCODINGS.get(kind, _OTHER_ENCODING)
    return {"compression": codecs, "compression_level": levels, "column_encoding": encodings}


def _label_column(labels: NDArray[Any], offsets: NDArray[np.int64] | None) -> pa.Array:
    values = pa.array(np.ascontiguousarray(labels))
    return values if offsets is None else lists(offsets, values)


def lists(offsets: NDArray[Any], values: pa.Array) -> pa.Array:
    """Join values to lists without nulls, row i being ``values[offsets[i]:offsets[i + 1]]``; shape (n_rows + 1,)."""
    if offsets[0] != 0 or offsets[-1] != len(values):
        message = f"lists cover values {offsets[0]:,} to {offsets[-1]:,}, but there are {len(values):,}"
        raise InputError(message)
    if len(values) > np.iinfo(np.int32).max:
        message = f"a shard's lists hold at most {np.iinfo(np.int32).max:,} values, got {len(values):,}"
        raise InputError(message)
    kind = pa.list_(pa.field("element", values.type, nullable=False))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, type=kind)


def _codes_column(packed: PackedCodes) -> pa.Array:
    codes = np.ascontiguousarray(packed.codes)
    if codes.dtype != np.uint8 or codes.ndim != 2 or codes.shape[1] == 0 or packed.empty.shape != codes.shape[:1]:
        message = f"codes are a uint8 array of rows of bytes with a mask, got {codes.dtype} of shape {codes.shape}"
        raise InputError(message)
    valid = pa.py_buffer(np.packbits(~packed.empty, bitorder="little")) if packed.empty.any() else None
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(codes.shape[1]), len(codes), [valid, pa.py_buffer(codes)])


def _sparse_columns(matrix: csr_matrix, values: bool) -> dict[str, pa.Array]:
    kind = np.int32 if matrix.shape[1] < _INT32_COLUMNS else np.int64
    if not matrix.has_canonical_format:
        message = "a sparse shard holds rows with sorted indices and no duplicates; call sum_duplicates first"
        raise InputError(message)
    columns = {"indices": lists(matrix.indptr, pa.array(matrix.indices.astype(kind, copy=False)))}
    if values:
        columns["values"] = lists(matrix.indptr, pa.array(matrix.data.astype(np.float32, copy=False)))
    elif not (matrix.data == 1).all():
        message = f"a sparse shard without values holds ones only, got {matrix.data[matrix.data != 1][0]}"
        raise InputError(message)
    return columns


def _dense_column(features: NDArray[np.float32]) -> pa.Array:
    if features.dtype != np.float32 or features.ndim != 2:
        message = f"dense features are a float32 matrix, got {features.dtype} of shape {features.shape}"
        raise InputError(message)
    rows, width = features.shape
    return lists(np.arange(rows + 1, dtype=np.int64) * width, pa.array(np.ascontiguousarray(features).ravel()))
