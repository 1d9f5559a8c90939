"""Limit on the bad rows that a run sets aside, and reading of those rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dkfeat.errors import ParquetError, ParseError
from dkfeat.filesystems.urls import printable

if TYPE_CHECKING:
    from dkfeat.blocks import BadRow, SourceFile
    from dkfeat.sources.base import Source
    from dkfeat.store.shards.reader import ShardReader


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    """A row that was set aside, for display: position, reason and text."""

    source: str
    """Name of the source file."""
    line: int
    """1-based line in the decompressed file; for Parquet the 1-based row in the file."""
    column: int
    """1-based byte column of the invalid token; 0 for Parquet, whose message names the column."""
    offset: int
    """0-based byte at which the line begins in the decompressed file; for Parquet the 0-based row in the file."""
    reason: str
    """Reason as in the counts of the manifest, such as "bad value"."""
    message: str
    """Message with the expected and the actual text."""
    text: str
    """The line, or the values read, truncated to 160 characters; control and non-ASCII characters are escaped."""

    @property
    def place(self) -> str:
        """``file:line:column``, as in error messages; for Parquet only the file; the message names row and column."""
        file = printable(self.source)
        return f"{file}:{self.line}:{self.column}" if self.column else file

    def to_mapping(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        return asdict(self)


class BadRowLimit:
    """Limit on the bad rows of a batch, ``source.max_bad_rows``: a number of rows, or a share of them.

    Examples
    --------
    >>> from dkfeat.sources.libsvm.source import LibsvmSource
    >>> BadRowLimit(LibsvmSource("rows.svm", max_bad_rows="1%")).most
    0.01
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.most: float = source.max_bad_rows
        """An int is a number of rows, a float a share of all rows."""

    def check(self, n_bad: int, n_rows: int | None, first: tuple[SourceFile, BadRow] | None) -> None:
        """Raise an error if there are too many bad rows.

        Parameters
        ----------
        n_bad : int
            Bad rows found.
        n_rows : int or None
            All rows of the batch, bad ones included; None while their number is unknown; a share is not checked then.
        first : tuple of SourceFile and BadRow, or None
            Bad row that the error names; None if there is none.

        Raises
        ------
        ParseError, ParquetError
            With the position of `first`.
        """
        is_share = isinstance(self.most, float)
        allowed = self.most if not is_share else None if n_rows is None else self.most * n_rows
        if allowed is None or n_bad <= allowed or first is None:
            return
        of = "" if n_rows is None else f" of {n_rows:,}"
        file, bad = first
        most = f"{self.most:.6g} of the rows" if is_share else f"{self.most:,}"
        reason = (
            f"{n_bad:,}{of} rows are bad, more than max_bad_rows={most}, this one for instance: {bad.message}. "
            "Nothing is committed; repair the source, correct the options for reading it, or raise max_bad_rows"
        )
        raise self._source.bad_row_error(file, bad, reason)


def quarantined_rows(reader: ShardReader) -> Iterator[QuarantinedRow]:
    """Yield the rows that were set aside, in the source's order; only shards with such rows are read, one at a time.

    Raises
    ------
    ShardError
        If a shard is missing or damaged.
    """
    names = [source.name for source in reader.manifest.sources]
    positions = {name: position for position, name in enumerate(names)}
    seen: Counter[str] = Counter()  # lines of each file in earlier splits, since line numbers start at the split
    before = 0
    for entry in reader.manifest.shards:
        if entry.piece == 0:
            before = seen[entry.source]
        seen[entry.source] += entry.lines or 0
        for bad in reader.bad_rows(entry) if entry.bad_rows else ():
            yield QuarantinedRow(
                source=names[positions[entry.source] + bad.file],
                line=before + bad.line,
                column=bad.column,
                offset=bad.offset,
                reason=bad.reason,
                message=bad.message,
                text=bad.text,
            )


@contextmanager
def suggesting_quarantine(source: Source) -> Iterator[None]:
    """Add to errors about single rows a note that such rows can be quarantined."""
    try:
        yield
    except (ParseError, ParquetError) as error:
        if source.can_quarantine and source.on_bad_row == "raise" and _is_quarantinable(error):
            error.add_note('on_bad_row="quarantine" (--on-bad-row quarantine) sets such rows aside and continues')
        raise


def _is_quarantinable(error: ParseError | ParquetError) -> bool:
    if isinstance(error, ParquetError):
        return error.row is not None
    # an overlong line cannot be quarantined, because its end is not searched for
    return error.line is not None and "max_line_bytes" not in error.reason
