"""Digest of the rows of Arrow tables: equal for equal values, however these are stored and cut into parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dkfeat.sources.parquet.batches import BATCH_BYTES, plain
from dkfeat.sources.parquet.schema import is_text, list_value

_MOST_ROWS = 4096
_PRIME, _BASE = 2**255 - 19, int.from_bytes(hashlib.sha256(b"rows of dkfeat").digest()) >> 1
_NULL, _FLOAT, _INTEGER, _BYTES = range(4)
_CELL = np.dtype([("tag", "u1"), ("number", "<i8")])

Digest = tuple[int, int, int]
"""Number of rows, bytes that were hashed of them, and a polynomial of the SHA-256 of each row, in their order."""


def digest_of(table: pa.Table) -> Digest:
    """Compute the digest of consecutive rows.

    Numbers are equal whatever their type, and times whatever their unit; NaN is null.

    Examples
    --------
    >>> one, two = pa.table({"x": [1, None, 3]}), pa.table({"x": [1.0, np.nan, 3.0]})
    >>> join_digests(["x"], map(digest_of, (two[:2], two[2:]))) == join_digests(["x"], [digest_of(one)])
    True
    """
    value = n_bytes = 0
    size = max(1, min(_MOST_ROWS, BATCH_BYTES * table.num_rows // max(1, table.nbytes)))
    for batch in table.to_batches(max_chunksize=size) if table.num_columns else ():
        for row in _row_bytes(batch):
            value = (value * _BASE + int.from_bytes(hashlib.sha256(row).digest())) % _PRIME
            n_bytes += len(row)
    return table.num_rows, n_bytes, value


def join_digests(names: Sequence[str], digests: Iterable[Digest]) -> tuple[int, str]:
    """Return the number of bytes hashed, and the SHA-256 of all rows and the names of their columns, in hexadecimal."""
    rows = n_bytes = value = 0
    for n_rows, hashed, part in digests:
        rows, n_bytes, value = rows + n_rows, n_bytes + hashed, (value * pow(_BASE, n_rows, _PRIME) + part) % _PRIME
    return n_bytes, hashlib.sha256(json.dumps([list(names), rows, value]).encode()).hexdigest()


def _row_bytes(batch: pa.RecordBatch) -> list[bytes]:
    """Return the bytes of each row, from which its values can be told: 9 of each, and those of text and lists."""
    parts: list[pa.Array] = []
    run: list[Any] = []
    for array in batch.columns:
        head, *content = _cells(plain(array))
        run.append(head)
        if content:
            parts, run = [*parts, _binary(run), *content], []
    parts += [_binary(run)] if run else []
    rows: list[bytes] = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary())).to_pylist()
    return rows


def _binary(cells: Sequence[Any]) -> pa.Array:
    """Return binary values of the cells of consecutive columns."""
    joined = np.empty((len(cells[0]), len(cells)), _CELL)
    for at, each in enumerate(cells):
        joined[:, at] = each
    return _cut(np.arange(len(joined) + 1) * joined[:1].nbytes if len(joined) else np.zeros(1), joined)


def _cells(array: pa.Array) -> tuple[Any, ...]:
    """Return a cell for each value, with a number or the length of binary values, and these."""
    of, kind, item = pa.types, array.type, list_value(array.type)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if of.is_integer(kind):
        numbers = array.fill_null(0).to_numpy()
        exact = (numbers <= 2**53) & (numbers >= -(2**53))
        bits = np.where(exact, numbers.astype(np.float64).view(np.int64), numbers.astype(np.int64))
        return (_tagged(np.where(exact, _FLOAT, _INTEGER) * valid, bits),)
    if of.is_floating(kind):
        floats = array.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        return (_tagged(_FLOAT * (valid & ~np.isnan(floats)), floats.view(np.int64)),)
    if item is not None and (of.is_integer(item) or of.is_floating(item)):
        lists = array.cast(pa.large_list(item))
        lengths = lists.value_lengths().fill_null(0).to_numpy()
        content = _cut(_CELL.itemsize * np.concatenate([[0], np.cumsum(lengths)]), _cells(lists.flatten())[0])
    elif is_text(kind):
        content = array.cast(pa.large_binary()).fill_null(b"")
    else:
        if of.is_timestamp(kind):
            text = array.cast(pa.timestamp("ns" if kind.unit == "ns" else "us")).cast(pa.large_string())
            array = pc.utf8_rtrim(text, "0")
        texts = ["" if value is None else str(value) for value in array.to_pylist()]
        content = pa.array(texts, pa.large_string()).cast(pa.large_binary())
    return _tagged(_BYTES * valid, pc.binary_length(content).to_numpy()), content


def _tagged(tags: Any, numbers: Any) -> Any:
    cells = np.empty(len(tags), _CELL)
    cells["tag"], cells["number"] = tags, numbers * (tags != _NULL)
    return cells


def _cut(offsets: Any, data: Any) -> pa.Array:
    """Return the binary values between ascending offsets of bytes."""
    buffers = [pa.py_buffer(np.ascontiguousarray(each).view(np.uint8)) for each in (offsets.astype(np.int64), data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, [None, *buffers])
