"""Bad rows that were set aside: their records in the footers of shards, and their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from dkfeat.canonical import Count
from dkfeat.io.manifest.records import BadCount
from dkfeat.io.storage.urls import printable

MOST_BAD_ROWS = 4096
"""Maximum number of bad rows in a piece, to bound a shard's footer and a task's memory."""

LABEL_NOT_ALLOWED, REFUSED = "label not allowed", "refused by the map"
REASONS = (
    "bad label",
    LABEL_NOT_ALLOWED,
    "bad query id",
    "bad feature",
    "index out of range",
    "indices not ascending",
    "bad value",
    "bad weight",
    "bad kept value",
    "not text",
    REFUSED,
)
"""Reasons for setting a row aside, as in the counts of the manifest."""

_SHOWN_CHARACTERS = 160
_MESSAGE_CHARACTERS = (
    240  # both lengths are of escaped ASCII text, so that a shard's footer stays within its readers' limit
)


class BadRow(NamedTuple):
    """Record of a row that was set aside, in the footer of its piece's shard; it depends only on the row."""

    file: Count
    """Position of its file in the split, from 0."""
    offset: Count
    """First byte of its line in the decompressed file; for Parquet the row in the file, from 0."""
    line: Count
    """Line in the file, counted from 1 at the beginning of the split; for Parquet the row in the file, from 1."""
    column: Count
    """Byte column of the invalid token, from 1; 0 for Parquet, whose message names the column."""
    reason: str
    """One of `REASONS`."""
    message: str
    """Message with the expected and the actual text."""
    text: str
    """The line, escaped and truncated to 160 characters."""


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


def count_bad_rows(rows: Iterable[BadRow]) -> tuple[BadCount, ...]:
    """Count bad rows by file and reason, sorted.

    Examples
    --------
    >>> one = BadRow(file=0, offset=7, line=2, column=1, reason="bad label", message="", text="spam")
    >>> count_bad_rows([one, one])
    ((0, 'bad label', 2),)
    """
    counts = Counter((row.file, row.reason) for row in rows)
    return tuple((file, reason, n) for (file, reason), n in sorted(counts.items()))


def shown_text(text: bytes) -> str:
    """Escape a line so that it is safe to print, and truncate it to 160 characters."""
    return _truncate(
        text[: 4 * _SHOWN_CHARACTERS].rstrip(b"\r\n").decode("utf-8", "backslashreplace"), _SHOWN_CHARACTERS
    )


def cut_message(text: str) -> str:
    """Truncate a message to the maximum length in a record."""
    return _truncate(text, _MESSAGE_CHARACTERS)


def _truncate(text: str, max_length: int) -> str:
    shown = printable(text).encode("ascii", "backslashreplace").decode()
    return shown if len(shown) <= max_length else shown[: max_length - 3] + "..."
