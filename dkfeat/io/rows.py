"""Parquet columns as rows: the inverse of `dkfeat.io.columns`, distrustful, without copies where the bytes allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix

from dkfeat.blocks import PackedCodes
from dkfeat.errors import ShardError
from dkfeat.io.columns import RESERVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["from_table"]


def from_table(table: pa.Table, n_columns: int) -> tuple[Any, ...]:
    """Features, labels, label offsets, query ids, weights and kept columns of a table of ``columns.to_table``.

    Parameters
    ----------
    table : pyarrow.Table
        Columns may be left out: what is missing comes back as None. Columns that the layouts do not know are kept ones.
    n_columns : int
        Width of the features: bytes of a row of codes, else columns.

    Raises
    ------
    ShardError
        When values contradict the layout: wrong width, indices out of order or range, a value that is not finite, a
        weight below 0.
    """
    parts = {name: _chunk(table, name) for name in table.column_names}
    encoded: Any = None
    if "codes" in parts:
        encoded = _read_codes(parts["codes"], n_columns)
    elif "indices" in parts:
        encoded = _read_sparse(parts["indices"], parts.get("values"), n_columns)
    elif "features" in parts:
        encoded = _read_dense(parts["features"], n_columns)
    labels, offsets = _read_labels(parts["label"]) if "label" in parts else (None, None)
    qid = _numbers(parts["qid"]) if "qid" in parts else None
    weight = _numbers(parts["weight"]) if "weight" in parts else None
    if weight is not None:
        _check_finite(weight)
        if (weight < 0).any():
            message = f"weight {weight.min()} is below 0"
            raise ShardError(message)
    kept = {name: column for name, column in parts.items() if name not in RESERVED}
    return encoded, labels, offsets, qid, weight, kept


def _chunk(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    array = (
        column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    )
    if name in RESERVED and name != "codes" and array.null_count:
        message = f"column {name}: {array.null_count:,} nulls where none may be"
        raise ShardError(message)
    return array


def _numbers(array: pa.Array) -> NDArray[Any]:
    return array.to_numpy(zero_copy_only=True)


def _read_lists(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[Any]]:
    offsets = _numbers(array.offsets).astype(np.int64)
    values = array.values
    if values.null_count:
        message = f"{values.null_count:,} nulls inside lists where none may be"
        raise ShardError(message)
    return offsets - offsets[0], _numbers(values)[offsets[0] : offsets[-1]]


def _read_labels(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    if pa.types.is_list(array.type):
        offsets, values = _read_lists(array)
        return values, offsets
    return _numbers(array), None


def _read_codes(array: pa.Array, row_bytes: int) -> PackedCodes:
    if array.type != pa.binary(row_bytes):
        message = f"column codes is {array.type}, expected fixed_size_binary[{row_bytes}]"
        raise ShardError(message)
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
            message = "indices and values have lists of different lengths"
            raise ShardError(message)
    if len(columns):
        rises = np.diff(columns) > 0
        starts = indptr[1:-1]
        rises[starts[(starts > 0) & (starts < len(columns))] - 1] = True
        if not rises.all():
            row = int(np.searchsorted(indptr, int(np.argmin(rises)), side="right")) - 1
            message = f"row {row:,}: indices do not ascend"
            raise ShardError(message)
        if columns.min() < 0 or columns.max() >= n_columns:
            message = f"indices run from {columns.min()} to {columns.max()}, expected 0 to {n_columns - 1}"
            raise ShardError(message)
    _check_finite(data)
    return csr_matrix((data, columns, indptr.astype(columns.dtype)), shape=(len(indptr) - 1, n_columns))


def _read_dense(array: pa.Array, n_columns: int) -> NDArray[np.float32]:
    offsets, values = _read_lists(array)
    if not np.array_equal(offsets, np.arange(len(offsets)) * n_columns):
        message = f"a row of features is not {n_columns:,} long"
        raise ShardError(message)
    _check_finite(values)
    return values.reshape(-1, n_columns)


def _check_finite(values: NDArray[Any]) -> None:
    if not np.isfinite(values).all():
        message = f"value {values[~np.isfinite(values)][0]} is not finite"
        raise ShardError(message)
