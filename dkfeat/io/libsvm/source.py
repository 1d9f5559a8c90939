"""Source of rows in LIBSVM text, its files cut or joined into splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import ConfigError, ParseError
from dkfeat.io.files.find import find_files
from dkfeat.io.libsvm.messages import parse_error
from dkfeat.io.libsvm.options import LibsvmOptions
from dkfeat.io.libsvm.read import locate_rows, read_pieces, scan_pieces
from dkfeat.io.shards.bad_rows import BadRow
from dkfeat.io.sources.base import Piece, RejectedRow, Source, SplitScan
from dkfeat.io.sources.options import dtype_of_labels, integer

MOST_FILES = 1_000
"""Most files in a group; it bounds a task's arguments and the records of its shards, which name each file."""

_TINY_SHARE = 16
_INFLATION = 16


def grouped(splits: Iterable[Split], blocksize: int) -> tuple[Split, ...]:
    """Join neighbouring splits that are tiny whole files; the others stay, in order, and all are numbered anew.

    A file is tiny if its text is at most a sixteenth of `blocksize`. Of a compressed file the text is taken to be
    sixteen times what is stored: more than LIBSVM text shrinks by, and known without reading. Text that inflates
    further makes its group longer to read, not larger in memory, for pieces end by the text itself. A group ends
    before its text would pass `blocksize`, and after `MOST_FILES` files.

    Parameters
    ----------
    splits : iterable of Split
        In source order, each of one file.
    blocksize : int
        Bytes of text in a split of a plain file.

    Returns
    -------
    splits : tuple of Split
        Numbered from the number of the first.

    Examples
    --------
    >>> files = [SourceFile(name=name, url="", size=size) for name, size in (("a", 9), ("b", 5), ("c", 500))]
    >>> splits = [Split(number=i, file=file, start=0, stop=file.size) for i, file in enumerate(files)]
    >>> [(split.number, split.title, split.stop) for split in grouped(splits, blocksize=1000)]
    [(0, 'a and 1 more', 14), (1, 'c', 500)]
    """
    joined: list[Split] = []
    run: list[Split] = []
    first, room = 0, -1

    def close() -> None:
        if run:
            joined.append(_joined(run, first + len(joined)))
            run.clear()

    for split in splits:
        first = first if joined or run else split.number
        text = _likely_text(split.file)
        tiny = text * _TINY_SHARE <= blocksize and (split.start, split.stop) == (0, split.file.size)
        if not tiny or text > room or len(run) == MOST_FILES:
            close()
            room = blocksize if tiny else -1
        run.append(split)
        room -= text
    close()
    return tuple(joined)


def _joined(run: Sequence[Split], number: int) -> Split:
    if len(run) == 1:
        return replace(run[0], number=number)
    stop = sum(split.stop for split in run)
    return Split(number=number, file=run[0].file, start=0, stop=stop, others=tuple(split.file for split in run[1:]))


def _likely_text(file: SourceFile) -> int:
    return file.size * (1 if file.compression is None else _INFLATION)


MOST_RANGES = 200_000
"""Ranges that plain files may be cut into: twice the tasks of the largest job that is planned for."""


class LibsvmSource(LibsvmOptions, Source):
    """Files of LIBSVM text as a source of rows.

    A line is a row: a label, then ``index:value`` with rising indices, and a comment after ``#`` if any. Blank and
    comment lines are no rows; a label alone is a row without features. Values are rounded correctly to float64, then to
    `dtype`; those that are zero then, also ``-0.0``, are not stored. Anything else is an error with its location.

    Files that end in .gz, .bz2, .xz, .zst are decompressed while they are read, each as one split. Tiny files that
    follow one another are read together, as one split.

    Raises
    ------
    dkfeat.errors.ConfigError
        A setting is out of range.

    Examples
    --------
    >>> source = LibsvmSource("day*.svm", n_features=10, zero_based=False, label_dtype="int64", blocksize="1MiB")
    >>> source.is_resolved, source.blocksize
    (True, 1048576)
    """

    __slots__ = ()

    def inspect(self, files: Sequence[SourceFile]) -> LibsvmSource:  # noqa: ARG002  # text has no metadata
        """Source with the label type that the labels allowed have."""
        if self.labels is None or self.label_dtype != "auto":
            return self
        return replace(self, label_dtype=dtype_of_labels(self.labels))

    def files(self) -> tuple[SourceFile, ...]:
        """Files of the source in byte-wise order of their names; errors as in `dkfeat.io.files.find.find_files`."""
        return find_files(self.urlpath, self.storage_options)

    def splits(self, files: Sequence[SourceFile] | None = None, first_number: int = 0) -> tuple[Split, ...]:
        """Cut files into splits: ranges of plain files, whole compressed files, groups of tiny files.

        A range owns the lines that begin in it. An empty file is one empty split, or belongs to a group.

        Raises
        ------
        dkfeat.errors.ConfigError
            For more than `MOST_RANGES` ranges.
        """
        blocksize = int(self.blocksize)
        files = self.files() if files is None else files
        plain_bytes = sum(file.size for file in files if file.compression is None)
        if plain_bytes > blocksize * MOST_RANGES:
            raise ConfigError(
                f"blocksize={blocksize:,} bytes cuts {plain_bytes:,} bytes of text into more than "
                f"{MOST_RANGES:,} tasks; raise it, to 64MiB for instance"
            )
        numbers = count(first_number)

        def cut(file: SourceFile) -> Iterator[Split]:
            step = blocksize if file.compression is None else max(file.size, 1)
            for start in range(0, max(file.size, 1), step):
                yield Split(number=next(numbers), file=file, start=start, stop=min(start + step, file.size))

        return grouped(chain.from_iterable(map(cut, files)), blocksize)

    def split_bytes(self, split: Split) -> int:
        """Bytes, as stored, that a task reads of this split."""
        return split.stop - split.start

    def piece_bytes(self, split: Split) -> int:
        """Most bytes of text in one piece of this split."""
        return int(self.blocksize) if split.is_compressed else min(int(self.blocksize), split.stop - split.start)

    def scan_split(self, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
        """Check a split's text and count what is in it, in memory of about `WINDOW_BYTES`.

        The text must agree with the options that are given; with ``zero_based="auto"`` index 0 is allowed. `proceed` is
        called at every window of text; what it raises ends the scan.

        Raises
        ------
        dkfeat.errors.ParseError
            With the location of the token.
        dkfeat.errors.SpecConflictError
            The file is not as it was listed.
        """
        return scan_pieces(self, split, proceed)

    def read(self, split: Split, max_piece_rows: int | None = None, *, checksum: bool = True) -> Iterator[Piece]:
        """Read a split, one piece after another.

        A piece ends before the first row that begins `blocksize` or more bytes of decompressed text after the piece, or
        that would be one more than `max_piece_rows`, or one more bad row than `MOST_BAD_ROWS`, and with the split.
        Pieces depend on nothing else. A split has at least one piece.

        Parameters
        ----------
        split : Split
        max_piece_rows : int, optional
            At least 1; None: no bound.
        checksum : bool, default=True
            Compute ``Piece.source_sha256``: a quarter of the time.

        Yields
        ------
        piece : Piece
            Only whole rows that were read while the file was as listed.

        Raises
        ------
        dkfeat.errors.ConfigError
            The source is not resolved.
        dkfeat.errors.ParseError
            With the location of the token.
        dkfeat.errors.SpecConflictError
            The file is not as it was listed.
        """
        if not self.is_resolved:
            raise ConfigError(
                "n_features, zero_based and label_dtype must be known before reading; give them or settle by a scan"
            )
        if max_piece_rows is not None:
            max_piece_rows = integer("max_piece_rows", max_piece_rows, 2**31 - 1)
        return read_pieces(self, split, max_piece_rows, checksum)

    def rejected_rows(self, split: Split, piece: Piece, rejected: Sequence[RejectedRow]) -> list[BadRow]:
        """Locate rows that a map does not take, by reading the split once more."""
        return locate_rows(self, split, piece, rejected)

    def rejected_row_error(self, split: Split, piece: Piece, rejected: RejectedRow) -> ParseError:
        """Error for a row that a map does not take, at the location of the value to blame."""
        (row,) = self.rejected_rows(split, piece, [rejected])
        return self.bad_row_error(split.files[row.file], row, row.message)

    def bad_row_error(self, file: SourceFile, row: BadRow, reason: str) -> ParseError:
        """Error about a row that was set aside, at the location of the token to blame."""
        return parse_error(reason, file, row.offset, row.column, self.storage_options)
