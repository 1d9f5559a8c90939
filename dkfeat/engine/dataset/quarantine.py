"""Rows that were set aside as bad, for display."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dkfeat.filesystems.urls import printable
from dkfeat.store.shards import reader


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


def quarantined_rows(shards: reader.ShardReader) -> Iterator[QuarantinedRow]:
    """Yield the rows of the source that were set aside as bad, in its order."""
    names = [source.name for source in shards.manifest.sources]
    positions = {name: position for position, name in enumerate(names)}
    seen: Counter[str] = Counter()  # lines of each file in earlier splits, since line numbers start at the split
    before = 0
    for entry in shards.manifest.shards:
        if entry.piece == 0:
            before = seen[entry.source]
        seen[entry.source] += entry.lines or 0
        for bad in shards.bad_rows(entry) if entry.bad_rows else ():
            same = {name: getattr(bad, name) for name in ("column", "offset", "reason", "message", "text")}
            name = names[positions[entry.source] + bad.file]
            yield QuarantinedRow(source=name, line=before + bad.line, **same)
