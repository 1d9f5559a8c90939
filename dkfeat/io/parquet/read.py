"""Reading of a Parquet split: rows in pieces, counts for a scan, locations of rejected rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from dkfeat.blocks import RowBlock, Split
from dkfeat.errors import ConfigError, ParquetError
from dkfeat.io.files.find import check_unchanged
from dkfeat.io.parquet.batches import Batch, RowError, open_split
from dkfeat.io.parquet.decode import (
    DecodedRows,
    bad_row,
    decode,
    decode_good,
    decode_labels,
    highest_index,
    index_dtype,
)
from dkfeat.io.parquet.options import ParquetOptions
from dkfeat.io.shards.bad_rows import MOST_BAD_ROWS, REFUSED, BadRow
from dkfeat.io.shards.columns import KEPT_TYPES
from dkfeat.io.sources.base import Piece, RejectedRow, SplitScan
from dkfeat.io.storage.urls import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray


_MOST_VALUES = 2**31 - 1


def read_pieces(options: ParquetOptions, split: Split, max_piece_rows: int | None, checksum: bool) -> Iterator[Piece]:
    """Read a split piece by piece; see ``ParquetSource.read``."""
    with open_split(options, split, options.read_columns) as reader:
        number, start, piece = 0, reader.first_row, _PieceBuilder(options, max_piece_rows)
        for batch, first_row in reader.batches():
            bad: list[BadRow] = []
            try:
                if options.is_quarantined:
                    _, rows, bad = decode_good(options, batch, first_row)
                else:
                    rows = decode(options, batch, first_row)
            except MemoryError as fault:
                raise ParquetError(
                    f"{len(batch.rows):,} rows need more memory than there is",
                    path=printable(split.file.url),
                    row_group=batch.row_group,
                ) from fault
            del batch
            while len(rows) or bad:
                fitting, stop = piece.room(rows, bad)
                aside = len(bad) if stop is None else sum(row.offset < stop for row in bad)
                piece.add(rows.take(0, fitting), bad[:aside])
                rows, bad = rows.take(fitting, len(rows)), bad[aside:]
                if stop is not None:
                    check_unchanged(split.file, options.storage_options)
                    yield piece.piece(number, start, stop, last=False, checksum=checksum)
                    number, start, piece = number + 1, stop, _PieceBuilder(options, max_piece_rows)
            del rows  # so that only the caller holds a block while the next one is read
        check_unchanged(split.file, options.storage_options)
        yield piece.piece(number, start, reader.stop_row, last=True, checksum=checksum)


def scan_pieces(options: ParquetOptions, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
    """Read labels of a split, and indices if the width is unknown; see ``ParquetSource.scan_split``.

    If bad rows are quarantined, all columns are read, because bad rows must not be counted.
    """
    features = (options.features or ()) if options.n_features is None else ()
    names = (options.label, *features[:1], *options.filter_columns)
    columns = list(dict.fromkeys([name for name in names if name]))
    if options.is_quarantined:
        columns, decoded = options.read_columns, _with_width(options)
    counts = SplitScan()
    with open_split(options, split, columns) as reader:
        if not columns:  # the footers have all counts
            counts.n_rows = reader.stop_row - reader.first_row
            counts.add_labels(np.zeros(min(counts.n_rows, 1)))
        for batch, first_row in reader.batches() if columns else ():
            if proceed is not None:
                proceed()
            if options.is_quarantined:
                batch, _, bad = decode_good(decoded, batch, first_row)
                counts.add_bad_rows(bad)
            counts.n_rows += len(batch.rows)
            counts.add_labels(np.unique(decode_labels(options, batch)[0]))
            if options.n_features is None and (index := highest_index(options, batch)) is not None:
                counts.max_index = max(index, counts.max_index or 0)
        check_unchanged(split.file, options.storage_options)
    return counts


def _with_width(options: ParquetOptions) -> ParquetOptions:
    """Options that separate bad rows from good ones before the width is known."""
    if options.n_features is not None:
        return options
    if options.features_as == "vector":
        raise ConfigError(
            'on_bad_row="quarantine" needs n_features for vectors in lists of any length: '
            "which of them are bad depends on it"
        )
    return replace(options, n_features=2**63 - 1)


def locate_rows(
    options: ParquetOptions, split: Split, piece: Piece, rejected: Sequence[RejectedRow]
) -> Iterator[tuple[BadRow, RowError]]:
    """Locate rows that a map rejected, in ascending order, by reading the split up to them.

    Yields
    ------
    row : BadRow
    error : RowError
    """
    aside = [bad.offset for bad in piece.bad_rows]
    seen, left = 0, list(rejected)
    with open_split(options, split, options.read_columns) as reader:
        for batch, first_row in reader.batches():
            numbers = first_row + batch.rows
            own = np.flatnonzero((numbers >= piece.start) & (numbers < piece.stop) & ~np.isin(numbers, aside))
            while left and left[0].row < seen + len(own):
                position = int(own[left[0].row - seen])
                error = _rejected_error(options, batch, position, left.pop(0))
                yield bad_row(batch, position, first_row, error), error
            seen += len(own)
            if not left:
                return


def _rejected_error(options: ParquetOptions, batch: Batch, position: int, rejected: RejectedRow) -> RowError:
    names, reason, column = options.features or (), rejected.reason, rejected.column
    if column is None:
        return batch.error(None, position, reason, REFUSED)
    if options.features_as == "columns":
        return batch.error(names[column], position, reason, REFUSED)
    return batch.error(names[-1], position, f"{reason} (column {column:,} of the features)", REFUSED)


class _PieceBuilder:
    """Builder of a piece from decoded rows."""

    def __init__(self, options: ParquetOptions, max_rows: int | None) -> None:
        self._options, self._parts, self._bad_rows = options, list[DecodedRows](), list[BadRow]()
        self._left_rows = _MOST_VALUES if max_rows is None else max_rows
        self._left_bytes, self._left_values = int(options.blocksize), _MOST_VALUES

    def room(self, rows: DecodedRows, bad: Sequence[BadRow]) -> tuple[int, int | None]:
        """Count the rows that still fit in this piece, and find the first row that does not.

        The piece ends before the first row that begins beyond its byte limit, or that exceeds its limit of rows or bad
        rows. The second value is the number of that row in the file, or None if all rows fit.
        """
        before = np.cumsum(rows.n_bytes) - rows.n_bytes
        fitting = min(int(np.searchsorted(before, self._left_bytes, side="left")), self._left_rows)
        if self._left_values < len(rows.values):  # over 32 bits; blocksize allows this only for very narrow values
            fitting = min(fitting, int(np.searchsorted(np.cumsum(rows.lengths), self._left_values, side="right")))
        stop = int(rows.number[fitting]) if fitting < len(rows) else None
        most = MOST_BAD_ROWS - len(self._bad_rows)
        if len(bad) > most and (stop is None or bad[most].offset < stop):
            stop = bad[most].offset
            fitting = int(np.searchsorted(rows.number, stop))
        return fitting, stop

    def add(self, rows: DecodedRows, bad: Sequence[BadRow]) -> None:
        """Add rows, and the quarantined rows among them."""
        self._bad_rows += bad
        if len(rows):
            self._parts.append(rows)
            self._left_bytes -= int(rows.n_bytes.sum())
            self._left_rows -= len(rows)
            self._left_values -= len(rows.values)

    def piece(self, number: int, start: int, stop: int, *, last: bool, checksum: bool) -> Piece:
        """Make the piece; the builder keeps no reference to the rows."""
        block = self._block()
        bad = tuple(self._bad_rows)
        digest = _sha256(block, bad) if checksum else ""
        return Piece(number=number, last=last, block=block, start=start, stop=stop, source_sha256=digest, bad_rows=bad)

    def _block(self) -> RowBlock:
        options, parts = self._options, self._parts
        self._parts = []
        index = index_dtype(options)
        indptr = _offsets([part.lengths for part in parts]).astype(index)
        X = csr_matrix(
            (
                _joined([part.values for part in parts], options.dtype),
                _joined([part.indices for part in parts], index),
                indptr,
            ),
            shape=(len(indptr) - 1, options.n_features),
            copy=False,
        )
        X.has_sorted_indices = X.has_canonical_format = True
        columns = {
            name: pa.concat_arrays([part.kept[name] for part in parts]) if parts else pa.array([], KEPT_TYPES[kind])
            for name, kind in zip(options.kept_columns, options.kept_types or (), strict=True)
        }
        offsets = None
        if options.multilabel:
            offsets = _offsets([part.label_lengths for part in parts if part.label_lengths is not None])
        return RowBlock(
            X=X,
            y=_joined([part.labels for part in parts], options.label_dtype),
            label_offsets=offsets,
            qid=None if options.query_id is None else _joined([part.qid for part in parts], np.int64),
            weight=None if options.weight is None else _joined([part.weight for part in parts], np.float64),
            kept=columns,
        )


def _joined(arrays: list[Any], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False)


def _offsets(lengths: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(_joined(lengths, np.int64))]).astype(np.int64, copy=False)


def _sha256(block: RowBlock, bad: Sequence[BadRow]) -> str:
    """SHA-256 of rows as read: counts, label, query id, weight, features, kept columns, bad rows."""
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
    """Values of a kept column as numbers and bytes, with nulls replaced by zero."""
    if pa.types.is_string(column.type):
        filled = pc.fill_null(column, "")
        text = "".join(filled.to_pylist()).encode() if len(filled) else b""
        return [pc.binary_length(filled).to_numpy(), np.frombuffer(text, np.uint8)]
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    return [pc.fill_null(column, 0 if not pa.types.is_boolean(column.type) else False).to_numpy(zero_copy_only=False)]
