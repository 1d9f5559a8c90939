"""Source of rows in Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Self

from dkfeat.blocks import SourceFile, Split
from dkfeat.canonical import fingerprint
from dkfeat.errors import ConfigError, ParquetError, SourceNotFoundError
from dkfeat.io.files.find import find_files
from dkfeat.io.parquet.batches import footer_of
from dkfeat.io.parquet.files import Footer, cut_file, folder_pattern, footers, is_hidden, open_parquet
from dkfeat.io.parquet.options import ParquetOptions
from dkfeat.io.parquet.read import locate_rows, read_pieces, scan_pieces
from dkfeat.io.parquet.schema import Schema, options_of_schema
from dkfeat.io.shards.bad_rows import BadRow
from dkfeat.io.sources.base import Piece, RejectedRow, Source, SplitScan
from dkfeat.io.sources.options import integer
from dkfeat.io.storage.urls import printable


class ParquetSource(ParquetOptions, Source):
    """Parquet files, and the roles of their columns, as a source of rows.

    Features have one of four layouts, found by the columns' types: numbers in many columns; one column of vectors
    (lists, or fixed-size binary of little-endian float32); sparse rows as two columns of lists, indices and values; or
    one column of structs of these two. Nulls, NaN and infinities are errors with their location, or set aside with
    their row; a column that is missing or of another type is always an error. Integers and decimals are read as
    float64, then all values are rounded to `dtype`; one that overflows it is bad. Values that are zero are not stored.

    Raises
    ------
    dkfeat.errors.ConfigError
        A setting is out of range.

    Examples
    --------
    >>> source = ParquetSource("day*.parquet", features=("height", "width"), label="kind", keep="name")
    >>> source.features, source.is_resolved
    (('height', 'width'), False)
    """

    __slots__ = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """Paths, globs and URLs that `files` looks up; a folder is looked through at any depth."""
        return tuple(folder_pattern(path, self.storage_options) for path in self.urlpath)

    def files(self) -> tuple[SourceFile, ...]:
        """Files of the source in byte-wise order of their names; errors as in `dkfeat.io.files.find.find_files`."""
        patterns = self.patterns
        found = find_files(patterns, self.storage_options)
        if patterns == self.urlpath:
            return found
        shown = tuple(file for file in found if not is_hidden(file.name))
        if not shown:
            raise SourceNotFoundError(
                f"no file matches {printable(patterns[0])}, names that begin with _ or . left out"
            )
        return shown

    def column_names(self, files: Sequence[SourceFile]) -> list[str]:
        """Names of all columns of the first file."""
        with open_parquet(files[0], self.storage_options) as parquet:
            return list(parquet.schema_arrow.names)

    def inspect(self, files: Sequence[SourceFile]) -> Self:
        """Source with the options that the schema of the first file settles."""
        if self.is_resolved or not files:
            return self
        with open_parquet(files[0], self.storage_options) as parquet:
            return self.replaced(**options_of_schema(self, Schema(parquet.schema_arrow, files[0])))

    def splits(self, files: Sequence[SourceFile] | None = None, first_number: int = 0) -> tuple[Split, ...]:
        """Cut files into splits: runs of row groups of up to `blocksize` bytes of rows, by the footers' counts.

        ``start`` and ``stop`` are numbers of row groups. Groups in which no row can pass the filters are left out. A
        file without rows is one empty split.

        Raises
        ------
        dkfeat.errors.ParquetError
            A file is damaged, or its columns are not what the source reads.
        """
        files = self.files() if files is None else files
        source = self.inspect(files)
        splits: list[Split] = []
        for file, footer in zip(files, source._footers(files), strict=True):
            splits.extend(cut_file(file, footer, int(self.blocksize), first_number + len(splits)))
        return tuple(splits)

    def rows_of(self, split: Split) -> int | None:
        """Rows of a split, which the footer has where there are no filters."""
        return None if self.filters is not None else sum(self._footer(split).rows[split.start : split.stop])

    def split_bytes(self, split: Split) -> int:
        """Bytes, as stored, that belong to the rows of this split."""
        rows = self._footer(split).rows
        return split.file.size * sum(rows[split.start : split.stop]) // max(1, sum(rows))

    def piece_bytes(self, split: Split) -> int:
        """Most bytes of rows in memory in one piece of this split."""
        return min(int(self.blocksize), sum(self._footer(split).row_bytes[split.start : split.stop]))

    def scan_split(self, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
        """Count a split's rows, and read its labels, and its indices if the number of columns is open.

        `proceed` is called at every batch; what it raises ends the scan. Stored values are not counted.

        Raises
        ------
        dkfeat.errors.ParquetError
            With the location of the value.
        dkfeat.errors.SpecConflictError
            The file is not as it was listed.
        """
        return scan_pieces(self.inspect([split.file]), split, proceed)

    def read(self, split: Split, max_piece_rows: int | None = None, *, checksum: bool = True) -> Iterator[Piece]:
        """Read a split, one piece after another.

        A piece ends before the first row that begins `blocksize` or more bytes of memory after the piece, or that would
        be one more than `max_piece_rows`, or one more bad row than `MOST_BAD_ROWS`, and with the split. A row counts 16
        bytes, one index and one value for each of its values, zeros among them, and the bytes of its kept text; a bad
        one counts none. Pieces depend on the rows of the split alone, not on how they are stored. ``Piece.start`` and
        ``Piece.stop`` are numbers of rows in the file.

        Parameters
        ----------
        split : Split
        max_piece_rows : int, optional
            At least 1; None: no bound.
        checksum : bool, default=True
            Compute ``Piece.source_sha256``.

        Yields
        ------
        piece : Piece
            Only whole rows that were read while the file was as listed.

        Raises
        ------
        dkfeat.errors.ConfigError
            The source is not resolved.
        dkfeat.errors.ParquetError
            With the location of the value.
        dkfeat.errors.SpecConflictError
            The file is not as it was listed.
        """
        if not self.is_resolved:
            raise ConfigError(
                "features, n_features and label_dtype must be known before reading; settle the source by a scan"
            )
        if max_piece_rows is not None:
            max_piece_rows = integer("max_piece_rows", max_piece_rows, 2**31 - 1)
        return read_pieces(self, split, max_piece_rows, checksum)

    def rejected_rows(self, split: Split, piece: Piece, rejected: Sequence[RejectedRow]) -> list[BadRow]:
        """Locate rows that a map does not take, by reading the split once more."""
        return [row for row, _ in locate_rows(self, split, piece, rejected)]

    def rejected_row_error(self, split: Split, piece: Piece, rejected: RejectedRow) -> ParquetError:
        """Error for a row that a map does not take, with its location."""
        _, error = next(locate_rows(self, split, piece, [rejected]))
        return error

    def bad_row_error(self, file: SourceFile, row: BadRow, reason: str) -> ParquetError:  # noqa: ARG002  # reason locates
        """Error about a row that was set aside; its message has the location."""
        return ParquetError(reason, path=printable(file.url))

    def _footers(self, files: Sequence[SourceFile]) -> list[Footer]:
        token = fingerprint(self.to_mapping())
        return footers(files, self.storage_options, token, lambda file, parquet: footer_of(self, file, parquet))

    def _footer(self, split: Split) -> Footer:
        source = self.inspect([split.file])
        return source._footers([split.file])[0]
