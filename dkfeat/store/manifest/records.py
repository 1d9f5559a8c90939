"""Records of a data set: its shards and source files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dkfeat.blocks import BadCount
from dkfeat.canonical import Count, Name, Sha256
from dkfeat.errors import ShardError

SHARD_NAME = re.compile(r"part-([0-9]{6,12})-([0-9]{4,12})-[0-9a-f]{12}\.parquet")
FILE_NAME = re.compile(SHARD_NAME.pattern.removesuffix("parquet") + r"[^/\0]+")
"""Name of a shard, or of the file with the text of its rows beside ``data/``, which has another ending."""
NO_BAD_ROWS: dict[str, int] = {}  # a shared default, since there may be a million sources


def check_shard_name(name: object) -> str:
    """Return `name` if it can be the name of a shard; a path, for example, cannot.

    Raises
    ------
    ShardError
        If `name` is not a name of the form that dkfeat gives to shards.

    Examples
    --------
    >>> check_shard_name("part-000000-0000-3f9c2a71b0de.parquet")
    'part-000000-0000-3f9c2a71b0de.parquet'
    """
    if not isinstance(name, str) or SHARD_NAME.fullmatch(name) is None:
        raise ShardError(
            f"{str(name)[:80]!a} is not a shard's name: expected part-<split>-<piece>-<12 hex digits>.parquet"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What the footer of a shard and its record in the manifest both state."""

    split: Count
    """Number of the split that the shard was made from."""
    piece: Count
    """Position within the split, from 0."""
    last: bool
    """True for the split's last piece."""
    source: str
    """Name of the source file, the first of a group."""
    range: tuple[Count, Count]
    """First byte of the piece's rows, and the byte after the last, in the decompressed source or concatenated group."""
    source_sha256: Sha256
    """SHA-256 of those bytes."""
    rows: Count
    """Number of rows, empty ones included."""
    nnz: Count
    """Number of nonzeros of the source's rows."""
    n_empty: Count
    """Number of rows without features: null codes, no stored columns, or only zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry(Piece):
    """Record of one shard in the manifest."""

    name: str
    """File name inside ``data/``."""
    size: Count
    """Size of the file in bytes."""
    sha256: Sha256
    """SHA-256 of the file, 64 lowercase hexadecimal digits."""
    rows_by_file: tuple[Count, ...] = ()
    """Number of rows of each file of a group; empty for a split of one file."""
    bad_rows: tuple[BadCount, ...] = ()
    """Numbers of rows set aside, by file and reason."""
    lines: Count | None = field(default=None, compare=False)
    """Number of lines of the piece's text if bad rows are set aside, to compute line numbers."""

    def __post_init__(self) -> None:
        check_shard_name(self.name)
        named = tuple(map(int, self.name.split("-")[1:3])) == (self.split, self.piece)
        check(named, f"shard {self.name}: its name is not that of split {self.split}, piece {self.piece}")

    @property
    def description(self) -> str:
        """Name of the shard, for messages of a runner that checks it."""
        return f"shard {self.name}"

    @property
    def n_bad_rows(self) -> int:
        """Number of rows of its text that were set aside."""
        return sum(count for _, _, count in self.bad_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """A source file of the data set, with the values by which a change is detected."""

    name: Name
    """Path relative to the source's root."""
    size: Count
    """Stored size in bytes."""
    mtime_ns: int | None
    """Modification time in nanoseconds, or None on an object store."""
    etag: str | None
    """Version tag, or None on a file system."""
    rows: Count
    """Number of rows in shards."""
    bad_rows: Mapping[str, Count] = field(default_factory=lambda: NO_BAD_ROWS)
    """Numbers of rows set aside, by reason."""
    final_newline: bool | None = None
    """True if the last line of a file of text has a line end, or the file is empty; None for other files, and in
    manifests of versions that did not record it."""

    @property
    def n_bad_rows(self) -> int:
        """Number of rows set aside."""
        return sum(self.bad_rows.values())

    @property
    def identity(self) -> dict[str, str | int | None]:
        """Values that are equal as long as the file is unchanged; compare with ``SourceFile.identity``."""
        return {"name": self.name, "size": self.size, "mtime_ns": self.mtime_ns, "etag": self.etag}


def check(holds: bool, message: str) -> None:
    """Raise `ShardError` with `message` unless the condition is true."""
    if not holds:
        raise ShardError(message)


def check_order(shards: Iterable[ShardEntry], first: int, what: str) -> list[int]:
    """Check that shards are all pieces of consecutive splits, in order; return the number of pieces of each split.

    Raises
    ------
    ShardError
        If not; the message names the first shard out of order.
    """
    pieces: list[int] = []
    expected = (first, 0)
    for entry in shards:
        if (entry.split, entry.piece) != expected:
            raise ShardError(
                f"{what}: expected split {expected[0]}, piece {expected[1]}, got split {entry.split}, piece "
                f"{entry.piece} ({entry.name}); a shard is missing, listed twice or out of order"
            )
        if entry.last:
            pieces.append(entry.piece + 1)
        expected = (entry.split + 1, 0) if entry.last else (entry.split, entry.piece + 1)
    check(expected[1] == 0, f"{what}: the last piece of split {expected[0]} is missing")
    return pieces
