"""Bad rows that were set aside: their records in the footers of shards, and their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from dkfeat.canonical import Count
from dkfeat.io.manifest.manifest import BadCount
from dkfeat.io.storage.urls import printable

MOST_BAD_ROWS = 4096
"""Bad rows after which a piece ends: what bounds a shard's footer and a task's memory."""

REFUSED = "refused by the map"
REASONS = (
    "bad label",
    "label not allowed",
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
"""Reasons for which a row is set aside, in the words that the manifest counts by."""

_SHOWN_CHARACTERS = 160
_MESSAGE_CHARACTERS = 240  # both in ASCII: so that a shard's footer stays below what its readers allow


class BadRow(NamedTuple):
    """A row that was set aside, as the footer of its piece's shard keeps it: a function of the row alone."""

    file: Count
    """Position of its file in the split, from 0."""
    offset: Count
    """First byte of its line in the decompressed file; of Parquet its row in the file, from 0."""
    line: Count
    """Line in the file, counted from 1 at the beginning of the split; of Parquet the row in the file, from 1."""
    column: Count
    """Byte column of the token to blame, from 1; of Parquet 0, for the message names the column."""
    reason: str
    """One of `REASONS`."""
    message: str
    """Text that says what was expected and what came."""
    text: str
    """The line, escaped, cut at 160 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    """A row that was set aside, for people: where it stands, why, and its text."""

    source: str
    """Name of the source file."""
    line: int
    """1-based line in the decompressed file; of Parquet the 1-based row in the file."""
    column: int
    """1-based byte column of the token to blame; of Parquet 0, for the message names the column."""
    offset: int
    """0-based byte at which the line begins in the decompressed file; of Parquet the 0-based row in the file."""
    reason: str
    """One of the words that the manifest counts by, such as "bad value"."""
    message: str
    """Text that says what was expected and what came."""
    text: str
    """The line, or the values read, cut at 160 characters; control characters and what is not ASCII are escaped."""

    @property
    def place(self) -> str:
        """``file:line:column``, as errors say it; of Parquet the file, for the message begins with the rest."""
        file = printable(self.source)
        return f"{file}:{self.line}:{self.column}" if self.column else file

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values."""
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
    """Escape a line so that it is safe to print, and cut it at 160 characters."""
    return _cut(text[: 4 * _SHOWN_CHARACTERS].rstrip(b"\r\n").decode("utf-8", "backslashreplace"), _SHOWN_CHARACTERS)


def cut_message(text: str) -> str:
    """Cut a message to what a record holds."""
    return _cut(text, _MESSAGE_CHARACTERS)


def _cut(text: str, most: int) -> str:
    shown = printable(text).encode("ascii", "backslashreplace").decode()
    return shown if len(shown) <= most else shown[: most - 3] + "..."
