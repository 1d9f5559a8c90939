"""Source of rows in LIBSVM text: splits, pieces of rows, scans, and locations of rejected rows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dkfeat.blocks import BadRow, SourceFile, Split
from dkfeat.compiled import libsvm as loop
from dkfeat.errors import DkfeatError, ParseError
from dkfeat.messages import printable
from dkfeat.sources.base import SplitScan
from dkfeat.sources.libsvm.parser import (
    MOST_COUNTED_BYTES,
    NO_LIMIT,
    LibsvmOptions,
    SplitParser,
    open_split,
    parse_error,
    token_at,
)
from dkfeat.sources.lines import WINDOW_BYTES, cut_text, line_table
from dkfeat.sources.options import exact_integers
from dkfeat.sources.pieces import REFUSED, Piece, RejectedRow, cut_message, shown_text

MOST_FILES = 1_000
"""Maximum number of files in a group, to limit task arguments and the records of shards, which name each file."""

_TINY_SHARE = 16
_COMPRESSION_RATIO = 16
_MOST_BINS = 1 << 16
_TOKEN = re.compile(rb"[^ \t\r\n]+")


def grouped(splits: Iterable[Split], blocksize: int) -> tuple[Split, ...]:
    """Group neighbouring splits that are tiny whole files; other splits stay in order, and all are renumbered.

    A file is tiny if its text is at most a sixteenth of `blocksize`. The text of a compressed file is estimated as
    sixteen times its stored size, more than the usual compression ratio of LIBSVM text. If it is longer, reading the
    group takes longer but no more memory, because pieces depend on the text itself. A group ends before its text would
    exceed `blocksize`, and after `MOST_FILES` files.

    Parameters
    ----------
    splits : iterable of Split
        Splits in source order, each of one file.
    blocksize : int
        Bytes of text in a split of an uncompressed file.

    Returns
    -------
    splits : tuple of Split
        Splits numbered from 0.

    Examples
    --------
    >>> files = [SourceFile(name=name, url="", size=size) for name, size in (("a", 9), ("b", 5), ("c", 500))]
    >>> splits = [Split(number=i, file=file, start=0, stop=file.size) for i, file in enumerate(files)]
    >>> [(split.number, split.title, split.stop) for split in grouped(splits, blocksize=1000)]
    [(0, 'a and 1 more', 14), (1, 'c', 500)]
    """
    groups: list[list[Split]] = []
    room = -1
    for split in splits:
        text = split.file.size * (1 if split.file.compression is None else _COMPRESSION_RATIO)
        is_tiny = text * _TINY_SHARE <= blocksize and (split.start, split.stop) == (0, split.file.size)
        if not is_tiny or text > room or len(groups[-1]) == MOST_FILES:
            groups.append([])
            room = blocksize if is_tiny else -1
        groups[-1].append(split)
        room -= text
    return tuple(_joined(group, number) for number, group in enumerate(groups))


def _joined(group: Sequence[Split], number: int) -> Split:
    if len(group) == 1:
        return replace(group[0], number=number)
    first, *others = (split.file for split in group)
    return Split(number=number, file=first, start=0, stop=sum(split.stop for split in group), others=tuple(others))


class LibsvmSource(LibsvmOptions):
    """Files of LIBSVM text as a source of rows.

    A line is a row: a label, then ``index:value`` with ascending indices, and optionally a comment after ``#``. Blank
    and comment lines are not rows; a label alone is a row without features. Values are rounded correctly to float64,
    then to `dtype`; resulting zeros, also ``-0.0``, are not stored. Anything else is an error with its location.

    Files with the suffixes .gz, .bz2, .xz and .zst are decompressed while they are read, each as one split. Consecutive
    tiny files are read as one split.

    Raises
    ------
    dkfeat.errors.ConfigError
        If a setting is out of range.

    Examples
    --------
    >>> source = LibsvmSource("day*.svm", n_features=10, zero_based=False, label_dtype="int64", blocksize="1MiB")
    >>> source.is_resolved, source.blocksize
    (True, 1048576)
    """

    __slots__ = ()

    def splits(self, files: Sequence[SourceFile] | None = None) -> tuple[Split, ...]:
        """Cut files into splits: ranges of uncompressed files, whole compressed files, groups of tiny files.

        A line belongs to the range in which it begins. An empty file is one empty split, or belongs to a group.

        Raises
        ------
        dkfeat.errors.ConfigError
            For more than `MOST_RANGES` ranges.
        """
        files = self.files() if files is None else files
        return grouped(cut_text(files, int(self.blocksize)), int(self.blocksize))

    def scan_split(self, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
        """Check a split's text and count rows, values and labels, in memory of about `WINDOW_BYTES`.

        The text must agree with the options; with ``zero_based="auto"`` index 0 is allowed. `proceed` is called for
        every window of text, and its exceptions end the scan.

        Raises
        ------
        dkfeat.errors.ParseError
            If a line is invalid; the error has the location of the token.
        dkfeat.errors.SpecConflictError
            If the file has changed since it was listed.
        """
        counts = SplitScan(nnz=0)
        with open_split(self, split) as parser:
            cursor = parser.cursor
            while parser.load():
                if proceed is not None:
                    proceed()
                parser.parse(NO_LIMIT, NO_LIMIT)
                if counts.labels is not None or counts.has_integer_labels:  # further ones may change the result
                    counts.add_labels(_distinct(parser.tables.labels(cursor)))
                counts.n_rows += int(cursor[loop.ROWS])
                counts.nnz += int(cursor[loop.NNZ])  # type: ignore[operator]  # it is counted
                # the tables are overwritten for every window
                cursor[[loop.ROWS, loop.NNZ, loop.LABELS, loop.N_NOT_INT64]] = 0
                counts.add_bad_rows(parser.bad_rows)
                parser.bad_rows.clear()
        counts.has_inexact_labels |= bool(cursor[loop.N_INEXACT])
        counts.unterminated = tuple(parser.unterminated)
        counts.n_empty_rows = int(cursor[loop.EMPTY_ROWS])
        if cursor[loop.LOWEST] <= cursor[loop.HIGHEST]:
            counts.min_index, counts.max_index = int(cursor[loop.LOWEST]), int(cursor[loop.HIGHEST])
        return counts

    def pieces(self, split: Split, max_piece_rows: int | None, checksum: bool) -> Iterator[Piece]:
        """Yield the pieces of a split for `read`.

        A piece ends at the end of the split, or earlier: before a row whose offset in the decompressed text is at least
        `blocksize` bytes beyond the start of the piece, or before the piece would exceed `max_piece_rows` rows or
        `MOST_BAD_ROWS` bad rows.
        """
        with open_split(self, split) as parser:
            number, is_full = 0, True
            while is_full:
                start, digest = parser.offset, hashlib.sha256()
                is_full, stop = False, start + int(self.blocksize)
                while not is_full and parser.load():
                    is_full, parsed = parser.parse(max_piece_rows or NO_LIMIT, stop)
                    if checksum:
                        digest.update(parsed)
                if is_full:  # at the end of a file the parser itself checks
                    parser.check_unchanged()
                yield Piece(
                    number=number,
                    last=not is_full,
                    block=self.encoded(parser.tables.take_block(parser.cursor)),
                    start=start,
                    stop=parser.offset,
                    source_sha256=digest.hexdigest() if checksum else "",
                    rows_by_file=tuple(parser.rows_by_file) if split.others else (),
                    bad_rows=tuple(parser.bad_rows),
                    lines=parser.lines if self.is_quarantined else None,
                    unterminated=None if is_full else tuple(parser.unterminated),
                    rounded=parser.rounded,
                )
                if is_full:
                    parser.reset()  # only the caller refers to the block while the next one is read
                number += 1

    def stored_rows(self, split: Split, bad: Collection[tuple[int, int]]) -> Iterator[pa.Table]:
        """See `Source.stored_rows`; comments and blank lines are no rows."""
        kept: list[bytes] = []
        n_bytes = 0
        yield line_table(kept)
        with open_split(self, split) as parser:
            for position, _, offset, _, line in _lines(parser):
                if _is_row(line) and (position, offset) not in bad:
                    kept.append(line)
                    n_bytes += len(line)
                if n_bytes > WINDOW_BYTES:
                    yield line_table(kept)
                    kept, n_bytes = [], 0
        yield line_table(kept)

    def rejected_rows(self, split: Split, piece: Piece, rejected: Sequence[RejectedRow]) -> list[BadRow]:
        """Locate rows that a map rejects, in ascending order, by reading the split's lines up to them."""
        bad_lines = {(bad.file, bad.offset) for bad in piece.bad_rows}
        wanted = {one.row: one for one in rejected}
        found: list[BadRow] = []
        row = -1
        with open_split(self, split) as parser:
            for position, at, offset, number, line in _lines(parser):
                if at < piece.start or not _is_row(line) or (position, offset) in bad_lines:
                    continue
                row += 1
                if row not in wanted:
                    continue
                feature = wanted[row].column
                column = 0 if feature is None else self._byte_of_feature(line, feature)
                token = "this row" if feature is None else token_at(memoryview(line), column)
                found.append(
                    BadRow(
                        file=position,
                        offset=offset,
                        line=number,
                        column=column + 1,
                        reason=REFUSED,
                        message=cut_message(f"the map refuses {token}: {wanted[row].reason}"),
                        text=shown_text(line),
                    )
                )
                if len(found) == len(wanted):
                    break
        return found

    def _byte_of_feature(self, line: bytes, feature: int) -> int:
        """Return the byte of the line at which the token of a feature begins; 0 if there is none."""
        wanted = feature + (self.zero_based is False)
        for token in _TOKEN.finditer(line.partition(b"#")[0]):
            index, colon, _ = token[0].partition(b":")
            if colon and index.isdigit() and int(index) == wanted:
                return token.start()
        return 0

    def bad_row_error(self, file: SourceFile, row: BadRow, reason: str) -> ParseError:
        """Make the error for a row that was set aside, with the location of the invalid token."""
        return parse_error(reason, file, row.offset, row.column, self.storage_options)

    def describe_rounded(self, file: SourceFile, row: BadRow) -> str:
        """Return the warning; beyond `MOST_COUNTED_BYTES` of a file with the byte of the line, not its number."""
        if row.offset <= MOST_COUNTED_BYTES:
            with suppress(DkfeatError, OSError):  # of a file that cannot be read again
                return str(self.bad_row_error(file, row, row.message))
        return f"{printable(file.url)}, line at byte {row.offset:,}: {row.message}"


def _is_row(line: bytes) -> bool:
    """Return False for blank lines and comments."""
    return bool(line.strip(b" \t\r\n")) and not line.lstrip(b" \t").startswith(b"#")


def _lines(parser: SplitParser) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Yield lines with file, offset in the split's text, offset in the file, and number from the start of the split."""
    position, number = -1, 0
    while parser.load():
        if parser.position != position:
            position, number = parser.position, 0
        window = parser.window
        at = window.begin
        while at < window.end:
            end = window.line_end(at)
            number += 1
            offset = window.origin + at
            yield position, parser.offset - window.offset + offset, offset, number, bytes(window.view[at:end])
            at = end
        window.consume(window.end)


def _distinct(labels: np.ndarray) -> np.ndarray:
    """Return the sorted distinct labels; integers in a small range are counted, ten times as fast as sorting."""
    if len(labels) and exact_integers(labels[:100]).all():
        low, high = labels.min().item(), labels.max().item()
        if high - low < _MOST_BINS and np.all(labels == np.trunc(labels)):
            return np.flatnonzero(np.bincount((labels - low).astype(np.int64))) + low
    return np.unique(labels)
