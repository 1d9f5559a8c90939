"""Pieces of a Parquet split: CSR blocks of bounded size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from dkfeat.blocks import RowBlock, Split
from dkfeat.errors import ParquetError
from dkfeat.io.columns import KEPT_TYPES
from dkfeat.io.files import check_unchanged, printable
from dkfeat.io.parquet_batches import open_split
from dkfeat.io.parquet_columns import read_columns
from dkfeat.io.parquet_decode import Rows, decode
from dkfeat.io.parquet_quarantine import decode_good
from dkfeat.io.quarantine import MOST_BAD_ROWS, BadRow
from dkfeat.io.source import Piece

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.io.parquet import ParquetSource

__all__ = ["read_pieces"]

_MOST_VALUES = 2**31 - 1


def read_pieces(source: ParquetSource, split: Split, max_piece_rows: int | None, checksum: bool) -> Iterator[Piece]:
    """Read a split piece by piece; see ``ParquetSource.read``."""
    with open_split(source, split, read_columns(source)) as reader:
        number, start, held = 0, reader.first_row, _Held(source, max_piece_rows)
        for batch, first_row in reader.batches():
            bad: list[BadRow] = []
            try:
                if source.on_bad_row == "quarantine":
                    _, rows, bad = decode_good(source, batch, first_row)
                else:
                    rows = decode(source, batch, first_row)
            except MemoryError as fault:
                reason = f"{len(batch.rows):,} rows need more memory than there is"
                raise ParquetError(reason, path=printable(split.file.url), row_group=batch.row_group) from fault
            del batch
            while len(rows) or bad:
                fitting, stop = held.room(rows, bad)
                aside = len(bad) if stop is None else sum(row.offset < stop for row in bad)
                held.add(rows.take(0, fitting), bad[:aside])
                rows, bad = rows.take(fitting, len(rows)), bad[aside:]
                if stop is not None:
                    check_unchanged(split.file, source.storage_options)
                    yield held.piece(number, start, stop, last=False, checksum=checksum)
                    number, start, held = number + 1, stop, _Held(source, max_piece_rows)
            del rows  # the caller alone holds a block while the next one is read
        check_unchanged(split.file, source.storage_options)
        yield held.piece(number, start, reader.stop_row, last=True, checksum=checksum)


class _Held:
    """Rows of the piece being filled."""

    def __init__(self, source: ParquetSource, max_rows: int | None) -> None:
        self._source, self._parts, self._bad_rows = source, list[Rows](), list[BadRow]()
        self._left_rows = _MOST_VALUES if max_rows is None else max_rows
        self._left_bytes, self._left_values = int(source.blocksize), _MOST_VALUES

    def room(self, rows: Rows, bad: Sequence[BadRow]) -> tuple[int, int | None]:
        """How many of the rows still belong to this piece, and the number in the file of the first one that does not.

        It ends before the first row that begins past its bytes, or that is one row, or one bad row, too many. None if
        all fit.
        """
        before = np.cumsum(rows.n_bytes) - rows.n_bytes
        fitting = min(int(np.searchsorted(before, self._left_bytes, side="left")), self._left_rows)
        if self._left_values < len(rows.values):  # beyond 32 bits, which blocksize allows for very narrow values only
            fitting = min(fitting, int(np.searchsorted(np.cumsum(rows.lengths), self._left_values, side="right")))
        stop = int(rows.number[fitting]) if fitting < len(rows) else None
        most = MOST_BAD_ROWS - len(self._bad_rows)
        if len(bad) > most and (stop is None or bad[most].offset < stop):
            stop = bad[most].offset
            fitting = int(np.searchsorted(rows.number, stop))
        return fitting, stop

    def add(self, rows: Rows, bad: Sequence[BadRow]) -> None:
        """Take rows in, and those to be set aside among them."""
        self._bad_rows += bad
        if len(rows):
            self._parts.append(rows)
            self._left_bytes -= int(rows.n_bytes.sum())
            self._left_rows -= len(rows)
            self._left_values -= len(rows.values)

    def piece(self, number: int, start: int, stop: int, *, last: bool, checksum: bool) -> Piece:
        """Make the piece; the rows are given away."""
        block = self._block()
        bad = tuple(self._bad_rows)
        digest = _sha256(block, bad) if checksum else ""
        return Piece(number=number, last=last, block=block, start=start, stop=stop, source_sha256=digest, bad_rows=bad)

    def _block(self) -> RowBlock:
        source, parts = self._source, self._parts
        self._parts = []
        index = np.dtype(np.int32 if int(source.n_features or 0) < 2**31 else np.int64)
        indptr = _offsets([part.lengths for part in parts]).astype(index)
        X = csr_matrix(
            (
                _joined([part.values for part in parts], source.dtype),
                _joined([part.indices for part in parts], index),
                indptr,
            ),
            shape=(len(indptr) - 1, source.n_features),
            copy=False,
        )
        X.has_sorted_indices = X.has_canonical_format = True
        columns = {
            name: pa.concat_arrays([part.kept[name] for part in parts]) if parts else pa.array([], KEPT_TYPES[kind])
            for name, kind in zip(source.kept_columns, source.kept_types or (), strict=True)
        }
        offsets = None
        if source.multilabel:
            offsets = _offsets([part.label_lengths for part in parts if part.label_lengths is not None])
        return RowBlock(
            X=X,
            y=_joined([part.labels for part in parts], source.label_dtype),
            label_offsets=offsets,
            qid=None if source.query_id is None else _joined([part.qid for part in parts], np.int64),
            weight=None if source.weight is None else _joined([part.weight for part in parts], np.float64),
            kept=columns,
        )


def _joined(arrays: list[Any], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False)


def _offsets(lengths: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(_joined(lengths, np.int64))]).astype(np.int64, copy=False)


def _sha256(block: RowBlock, bad: Sequence[BadRow]) -> str:
    """SHA-256 of rows as they were read: counts, label, query id, weight, features, kept columns, bad rows' places."""
    digest = hashlib.sha256()
    counts = [block.n_rows, block.X.nnz, len(block.y)]
    arrays: list[Any] = [np.array(counts, np.int64), block.y]
    arrays += [array for array in (block.label_offsets, block.qid, block.weight) if array is not None]
    arrays += [block.X.indptr.astype(np.int64), block.X.indices.astype(np.int64), block.X.data]
    for column in block.kept.values():
        arrays.append(pc.is_valid(column).to_numpy(zero_copy_only=False))
        arrays += _contents(column)
    arrays += [np.array([row.offset for row in bad], np.int64)] if bad else []
    for array in arrays:
        little = np.ascontiguousarray(array)
        little = little.astype(little.dtype.newbyteorder("<"), copy=False)
        digest.update(little.view(np.uint8))  # type: ignore[arg-type]  # arrays are buffers
    return digest.hexdigest()


def _contents(column: pa.Array) -> list[NDArray[Any]]:
    """Values of a kept column as numbers and bytes, with zero in place of nulls."""
    if pa.types.is_string(column.type):
        filled = pc.fill_null(column, "")
        text = "".join(filled.to_pylist()).encode() if len(filled) else b""
        return [pc.binary_length(filled).to_numpy(), np.frombuffer(text, np.uint8)]
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    return [pc.fill_null(column, 0 if not pa.types.is_boolean(column.type) else False).to_numpy(zero_copy_only=False)]
