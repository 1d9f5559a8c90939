"""Digest of rows of Arrow tables, by which they are recorded: that of their values, however stored and cut."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dkfeat.blocks import SourceFile
from dkfeat.sources.parquet.batches import BATCH_BYTES, plain
from dkfeat.sources.parquet.schema import is_text, list_value

MEMORY = "<memory>"
"""Name of rows in memory in manifests and plans, in place of that of a file."""
_MOST_ROWS = 4096
_PRIME, _BASE = 2**255 - 19, int.from_bytes(hashlib.sha256(b"rows of dkfeat").digest()) >> 1
_NULL, _INTEGER, _BYTES, _UNSIGNED, _SHOWN = 0, 2, 3, 4, 5
"""Tags of cells: of other numbers 1, of integers from 2^63 on `_UNSIGNED`, of values as text `_SHOWN`."""
_CELL = np.dtype([("tag", "u1"), ("number", "<i8")])

Digest = tuple[int, int, int]
"""Number of rows, bytes that were hashed of them, and a polynomial of the SHA-256 of each row, in their order."""


def digest_of(table: pa.Table) -> Digest:
    """Compute the digest of consecutive rows.

    Numbers are equal whatever their type, and times whatever their unit; NaN is null.

    Examples
    --------
    >>> one, two = pa.table({"x": [1, None, 3]}), pa.table({"x": [1.0, np.nan, 3.0]})
    >>> record_of(["x"], map(digest_of, (two[:2], two[2:]))) == record_of(["x"], [digest_of(one)])
    True
    """
    value = n_bytes = 0
    size = max(1, min(_MOST_ROWS, BATCH_BYTES * table.num_rows // max(1, table.nbytes)))
    for batch in table.to_batches(max_chunksize=size) if table.num_columns else ():
        cells = chain.from_iterable(_cells(plain(array)) for array in batch.columns)
        for row in pc.binary_join_element_wise(*cells, pa.scalar(b"", pa.large_binary())).to_pylist():
            value = (value * _BASE + int.from_bytes(hashlib.sha256(row).digest())) % _PRIME
            n_bytes += len(row)
    return table.num_rows, n_bytes, value


def record_of(names: Sequence[str], digests: Iterable[Digest]) -> SourceFile:
    """Make the record of the rows of parts, in their order; ``etag`` is the SHA-256 of all and the names of columns."""
    rows = n_bytes = value = 0
    for n_rows, hashed, part in digests:
        rows, n_bytes, value = rows + n_rows, n_bytes + hashed, (value * pow(_BASE, n_rows, _PRIME) + part) % _PRIME
    sha256 = hashlib.sha256(json.dumps([list(names), rows, value]).encode()).hexdigest()
    return SourceFile(name=MEMORY, url="rows in memory", size=n_bytes, etag=sha256)


def _cells(array: pa.Array) -> list[pa.Array]:
    """Return 9 bytes for each value, a tag and a number, and for those of other types, bytes of that number."""
    of, kind, item, content = pa.types, array.type, list_value(array.type), None
    tags = array.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
    if of.is_integer(kind):
        values = array.fill_null(0).to_numpy()
        numbers, wide = values.astype(np.float64).view(np.int64), (values > 2**53) | (values < -(2**53))
        numbers[wide], tags[wide] = values[wide].astype(np.int64), np.where(values[wide] < 2**63, _INTEGER, _UNSIGNED)
    elif of.is_floating(kind):
        floats = array.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        numbers, tags[np.isnan(floats)] = floats.view(np.int64), _NULL
    else:
        tags *= np.uint8(_BYTES if item is not None or is_text(kind) else _SHOWN)
        if item is not None and (of.is_integer(item) or of.is_floating(item)):
            lists = array.cast(pa.large_list(item))
            lengths = lists.value_lengths().fill_null(0).to_numpy()
            data = _cells(lists.flatten())[0].buffers()[2]
            content = _cut(_CELL.itemsize * np.concatenate([[0], np.cumsum(lengths)]), data)
        elif is_text(kind):
            content = array.cast(pa.large_binary()).fill_null(b"")
        else:
            if of.is_timestamp(kind):
                text = array.cast(pa.timestamp("ns" if kind.unit == "ns" else "us")).cast(pa.large_string())
                array = pc.utf8_rtrim(text, "0")
            texts = ["" if value is None else str(value) for value in array.to_pylist()]
            content = pa.array(texts, pa.large_string()).cast(pa.large_binary())
        numbers = pc.binary_length(content).to_numpy()
    cells = np.empty(len(tags), _CELL)
    cells["tag"], cells["number"] = tags, numbers * (tags != _NULL)
    head = _cut(np.arange(len(tags) + 1) * _CELL.itemsize, pa.py_buffer(cells.view(np.uint8)))
    return [head] if content is None else [head, content]


def _cut(offsets: Any, data: pa.Buffer) -> pa.Array:
    """Return the binary values between ascending offsets of bytes."""
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int64)), data]
    )
