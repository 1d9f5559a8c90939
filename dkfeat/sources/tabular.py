"""Source of the rows of tables, from which formats derive: options by their columns, scans, pieces, rejected rows."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from dkfeat.blocks import BadRow, RowBlock, SourceFile, Split
from dkfeat.errors import ConfigError, DkfeatError, ParquetError
from dkfeat.messages import counted, logger_of, printable
from dkfeat.process_cache import METER
from dkfeat.sources.base import SplitScan
from dkfeat.sources.contents import check_unchanged
from dkfeat.sources.parquet.batches import ColumnBatch, RowError
from dkfeat.sources.parquet.decode import (
    bad_row,
    decode,
    decode_good,
    decode_labels,
    first_rounded,
    highest_index,
    integer_features,
    row_bytes,
)
from dkfeat.sources.parquet.options import ARROW_TYPES, ParquetOptions
from dkfeat.sources.parquet.schema import Schema, options_of_schema
from dkfeat.sources.pieces import MOST_BAD_ROWS, REFUSED, Piece, RejectedRow, join_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logger_of(__name__)

_MOST_ROWS = 2**31 - 1


class RowReader(Protocol):
    """Rows of a split, batch by batch."""

    first_row: int
    """Number in the file of the split's first row; for text the byte of its first line."""
    n_rows: int | None
    """Number of rows, also of those that filters exclude; None if it is known only from batches."""
    n_lines: int | None
    """Number of lines of text up to the last batch; None for other formats."""
    bad: list[BadRow]
    """Rows that no batch has, because they cannot be read, since this list was cleared."""

    @property
    def stop_row(self) -> int:
        """Number of the first row after the split, or the byte, when all batches are read."""

    def batches(self) -> Iterator[tuple[ColumnBatch, int]]:
        """Yield rows that pass the filters, and the number in the file of the first row of their row group."""


class TabularSource(ParquetOptions):
    """Files of tables as a source of rows, with the roles of their columns."""

    __slots__ = ()

    @abstractmethod
    def open_rows(self, split: Split, columns: Sequence[str]) -> AbstractContextManager[RowReader]:
        """Open a split to read some columns of it."""

    @abstractmethod
    def schema_of(self, file: SourceFile) -> pa.Schema:
        """Return the columns of a file, with their types."""

    def check_unchanged(self, file: SourceFile) -> None:
        """Raise an error unless a file is as it was listed."""
        check_unchanged(file, self.storage_options)

    def row_error(self, file: SourceFile, error: RowError) -> DkfeatError:  # noqa: ARG002  # subclasses use it
        """Return an error in a row with its location as people know it."""
        return error

    @contextmanager
    def _locating(self, split: Split) -> Iterator[None]:
        try:
            yield
        except RowError as error:
            raise self.row_error(split.file, error) from error.__cause__

    @property
    def label_options(self) -> frozenset[str]:
        """Options of labels; a column that the source names itself is its own."""
        own = {"query_id"} if self.label == type(self).defaults()["label"] else {"query_id", "label"}
        return super().label_options | own

    def without_absent_label(self, files: Sequence[SourceFile] | None = None) -> Self:
        """Return the source without a column of labels if its files do not have that column."""
        if self.label is None:
            return self
        schema = self.schema_of((self.files() if files is None else files)[0])
        return self if self.label in schema.names else self.replaced(label=None)

    def warn_of_columns(self, files: Sequence[SourceFile] | None, known: Collection[str] | None) -> None:
        """Warn of columns of the last file that are not among the known ones; a file that lacks one is an error."""
        files = self.files() if files is None else files
        if files and known is not None:
            self._warn_of_new(Schema(self, self.schema_of(files[-1]), files[-1]).columns({*known}))

    def _warn_of_new(self, names: Sequence[str]) -> None:
        if names:
            text = "%s that the encoder has not seen, such as %s, ignored; use a new target to encode more columns"
            logger.warning(text, counted(len(names), "column"), printable(names[0]))

    def inspect(self, files: Sequence[SourceFile]) -> Self:
        """Return the source with the options that the schema of the first file determines."""
        if self.is_resolved or not files:
            return self
        return self.replaced(**options_of_schema(self, Schema(self, self.schema_of(files[0]), files[0])))

    def scan_split(self, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
        """Count a split's rows and read its labels; if the number of features is unknown, read features too.

        `proceed` is called for every batch, and its exceptions end the scan. Stored values are not counted.

        Raises
        ------
        dkfeat.errors.ParquetError
            If a value is invalid; the error has its location.
        dkfeat.errors.SpecConflictError
            If the file has changed since it was listed.
        """
        source = self.inspect([split.file])
        features = (source.features or ()) if source.n_features is None else ()
        names = (source.label, *features[:1], *source.filter_columns)
        columns, decoded = list(dict.fromkeys([name for name in names if name])), source
        if source.is_quarantined:  # a row may be bad by any column
            columns, decoded = source.read_columns, source._with_width()
        counts = SplitScan()
        with source.open_rows(split, columns) as reader, self._locating(split):
            is_counted = not columns and reader.n_rows is not None
            if is_counted:
                counts.n_rows = reader.n_rows or 0
                counts.add_labels(np.zeros(min(counts.n_rows, 1)))
            for batch, first_row in () if is_counted else reader.batches():
                if proceed is not None:
                    proceed()
                if source.is_quarantined:
                    batch, _, bad = decode_good(decoded, batch, first_row)
                    counts.add_bad_rows(_joined(reader, bad))
                counts.n_rows += len(batch.rows)
                labels = decode_labels(source, batch)[0]
                if source.classes == ():  # the words are not known yet
                    words = batch.columns[str(source.label)]
                    counts.add_distinct(pc.unique(words.flatten() if source.multilabel else words).to_pylist())
                else:
                    counts.add_labels(np.unique(labels))
                if source.n_features is None and (index := highest_index(source, batch)) is not None:
                    counts.max_index = max(index, counts.max_index or 0)
            source.check_unchanged(split.file)
        return counts

    def _with_width(self) -> Self:
        """Return a source that tells bad rows from good ones before the number of features is known."""
        if self.n_features is not None:
            return self
        if self.features_as == "vector":
            raise ConfigError(
                'on_bad_row="quarantine" needs n_features for vectors in lists of variable length, '
                "because vectors of another length are bad"
            )
        return self.replaced(n_features=2**63 - 1)

    def pieces(self, split: Split, max_piece_rows: int | None, checksum: bool) -> Iterator[Piece]:
        """Yield the pieces of a split for `read`.

        A piece ends at the end of the split, or before the first row that begins `blocksize` or more bytes of memory
        after the start of the piece, or would exceed `max_piece_rows` rows or `MOST_BAD_ROWS` bad rows. The size of a
        row is 16 bytes, an index and a value for each of its values, including zeros, and the bytes of its kept text;
        that of a bad row is 0. Pieces depend only on the rows of the split, not on the layout of the file.
        ``Piece.start`` and ``Piece.stop`` are numbers of rows in the file.
        """
        with self.open_rows(split, self.read_columns) as reader, self._locating(split):
            number, start, piece = 0, reader.first_row, _PieceBuilder(self, max_piece_rows)
            rounded: BadRow | None = None
            integers: list[str] | None = None
            for batch, first_row in reader.batches():
                bad: list[BadRow] = []
                try:
                    if self.is_quarantined:
                        batch, rows, bad = decode_good(self, batch, first_row)
                        bad = _joined(reader, bad)
                    else:
                        rows = decode(self, batch, first_row)
                    n_bytes = row_bytes(self, batch, rows)
                    integers = integer_features(self, batch) if integers is None else integers
                    rounded = rounded or first_rounded(self, batch, first_row, integers)
                except MemoryError as fault:
                    reason = f"{len(batch.rows):,} rows need more memory than there is"
                    raise self.column_error(split.file, None, reason) from fault
                if reader.n_rows:  # of Parquet, which other threads read
                    METER.read(self.split_bytes(split) * len(batch.rows) // reader.n_rows)
                del batch
                first = 0
                while first < rows.n_rows or bad:
                    end, stop = piece.find_end(rows, first, n_bytes, bad)
                    n_bad = len(bad) if stop is None else sum(row.offset < stop for row in bad)
                    piece.add(rows, first, end, n_bytes, bad[:n_bad])
                    first, bad = end, bad[n_bad:]
                    if stop is not None:
                        self.check_unchanged(split.file)
                        yield piece.piece(number, start, stop, rounded, checksum=checksum)
                        number, start, piece = number + 1, stop, _PieceBuilder(self, max_piece_rows)
                del rows  # only the caller refers to a block while the next one is read
            self.check_unchanged(split.file)
            last = piece.piece(number, start, reader.stop_row, rounded, checksum=checksum)
            yield replace(last, last=True, lines=reader.n_lines)  # those of all pieces of the split

    def rejected_rows(self, split: Split, piece: Piece, rejected: Sequence[RejectedRow]) -> list[BadRow]:
        """Locate rows that a map rejects, in ascending order, by reading the split up to them."""
        return [row for row, _ in self._locate_rows(split, piece, rejected)]

    def rejected_row_error(self, split: Split, piece: Piece, rejected: RejectedRow) -> DkfeatError:
        """Make the error for a row that a map rejects, with its location."""
        _, error = next(self._locate_rows(split, piece, [rejected]))
        return self.row_error(split.file, error)

    def bad_row_error(self, file: SourceFile, row: BadRow, reason: str) -> DkfeatError:  # noqa: ARG002  # the reason has the location
        """Make the error for a row that was set aside; its message has the location."""
        return ParquetError(reason, path=printable(file.url))

    def _locate_rows(
        self, split: Split, piece: Piece, rejected: Sequence[RejectedRow]
    ) -> Iterator[tuple[BadRow, RowError]]:
        """Yield the record of each row that a map rejects, and the error for it."""
        bad_numbers = [bad.offset for bad in piece.bad_rows]
        seen, left = 0, list(rejected)
        with self.open_rows(split, self.read_columns) as reader:
            for batch, first_row in reader.batches():
                numbers = first_row + batch.rows
                in_piece = (numbers >= piece.start) & (numbers < piece.stop)
                positions = np.flatnonzero(in_piece & ~np.isin(numbers, bad_numbers))
                while left and left[0].row < seen + len(positions):
                    position = int(positions[left[0].row - seen])
                    error = self._rejected_error(batch, position, left.pop(0))
                    yield bad_row(batch, position, first_row, error), error
                seen += len(positions)
                if not left:
                    return

    def _rejected_error(self, batch: ColumnBatch, position: int, rejected: RejectedRow) -> RowError:
        names, reason, column = self.features or (), rejected.reason, rejected.column
        if column is None:
            return batch.error(None, position, reason, REFUSED)
        if self.features_as in ("columns", "table"):
            name = self.encoder.describe()[column >> 32].name if self.is_table else names[column]
            return batch.error(name, position, reason, REFUSED)
        return batch.error(names[-1], position, f"{reason} (column {column:,} of the features)", REFUSED)


def _joined(reader: RowReader, bad: list[BadRow]) -> list[BadRow]:
    """Return bad rows together with those that could not be read since the last call, in order."""
    found = sorted([*reader.bad, *bad], key=lambda row: row.offset)
    reader.bad.clear()
    return found


class _PieceBuilder:
    """Builder of a piece from decoded rows."""

    def __init__(self, options: ParquetOptions, max_rows: int | None) -> None:
        self._options, self._parts, self._bad_rows = options, list[RowBlock](), list[BadRow]()
        self._left_rows = _MOST_ROWS if max_rows is None else max_rows
        self._left_bytes = int(options.blocksize)
        self._odd = (
            np.zeros((options.encoder.n_features_in_, 2), np.int64) if options.is_table and options.is_encoded else None
        )

    def find_end(
        self, rows: RowBlock, first: int, n_bytes: NDArray[np.int64], bad: Sequence[BadRow]
    ) -> tuple[int, int | None]:
        """Find the end of the rows from `first` on that still fit in this piece.

        The piece ends before the first row that begins at or beyond its byte limit, or that exceeds its limit of rows
        or bad rows. The second value is the number of that row in the file, or None if all rows fit.
        """
        before = np.cumsum(n_bytes[first:]) - n_bytes[first:]
        end = first + min(int(np.searchsorted(before, self._left_bytes, side="left")), self._left_rows)
        numbers: Any = rows.number
        stop = int(numbers[end]) if end < rows.n_rows else None
        most = MOST_BAD_ROWS - len(self._bad_rows)
        if len(bad) > most and (stop is None or bad[most].offset < stop):
            stop = bad[most].offset
            end = int(np.searchsorted(numbers, stop))
        return end, stop

    def add(self, rows: RowBlock, first: int, end: int, n_bytes: NDArray[np.int64], bad: Sequence[BadRow]) -> None:
        """Add the rows from `first` to `end`, and the bad rows among them."""
        self._bad_rows += bad
        if first < end:
            part = rows if end - first == rows.n_rows else rows.take(slice(first, end))
            self._parts.append(part)
            self._left_bytes -= int(n_bytes[first:end].sum())
            self._left_rows -= part.n_rows

    def piece(self, number: int, start: int, stop: int, rounded: BadRow | None, *, checksum: bool) -> Piece:
        """Make the piece; the builder keeps no reference to the rows."""
        block = self._block()
        bad = tuple(self._bad_rows)
        digest = _sha256(block, bad) if checksum else ""
        return Piece(
            number=number,
            last=False,
            block=block,
            start=start,
            stop=stop,
            source_sha256=digest,
            bad_rows=bad,
            odd=self._odd,
            rounded=rounded,
        )

    def _block(self) -> RowBlock:
        options = self._options
        empty = RowBlock(
            X=pa.table({name: pa.nulls(0) for name in options.read_features})
            if options.is_table
            else csr_matrix((0, options.n_features), dtype=options.dtype),
            y=np.empty(0, options.label_dtype),
            label_offsets=np.zeros(1, np.int64) if options.multilabel else None,
            qid=None if options.query_id is None else np.empty(0, np.int64),
            weight=None if options.weight is None else np.empty(0),
            kept={name: pa.array([], ARROW_TYPES[kind]) for name, kind in options.kept.items()},
        )
        block = join_blocks([empty, *self._parts])  # two blocks at least, so that rows are copied
        self._parts = []
        block = options.encoded(block, self._odd)
        if not isinstance(block.X, pa.Table):
            block.X.has_sorted_indices = block.X.has_canonical_format = True
        return block


def _sha256(block: RowBlock, bad: Sequence[BadRow]) -> str:
    """Compute the SHA-256 of rows as read: counts, label, query id, weight, features, kept columns, bad rows."""
    digest = hashlib.sha256()
    counts = [block.n_rows, block.X.nnz, len(block.y)]
    labels = _contents(pa.array(block.y, pa.string())) if block.y.dtype == object else [block.y]
    arrays: list[Any] = [np.array(counts, np.int64), *labels]
    arrays += [array for array in (block.label_offsets, block.qid, block.weight) if array is not None]
    arrays += [*(numbers.astype(np.int64, copy=False) for numbers in (block.X.indptr, block.X.indices)), block.X.data]
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
    """Return the values of a kept column as numbers and bytes, with nulls replaced by zero."""
    if pa.types.is_string(column.type):
        filled = pc.fill_null(column, "")
        text = "".join(filled.to_pylist()).encode() if len(filled) else b""
        return [pc.binary_length(filled).to_numpy(), np.frombuffer(text, np.uint8)]
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    return [pc.fill_null(column, 0 if not pa.types.is_boolean(column.type) else False).to_numpy(zero_copy_only=False)]
