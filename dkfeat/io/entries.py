"""The records that a manifest is made of: shards, sources, and the manifest before."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from dkfeat.errors import ShardError

__all__ = ["BadCount", "PreviousManifest", "ShardEntry", "SourceEntry", "check_shard_name", "manifest_name"]

SHARD_NAME = re.compile(r"part-([0-9]{6,12})-([0-9]{4,12})-[0-9a-f]{12}\.parquet")
MANIFEST_NAME = re.compile(r"manifest-([0-9]{6,12})\.json")
MAX_COUNT = (1 << 63) - 1
BadCount = tuple[int, str, int]
"""Position of a file in its split, reason, and number of rows set aside."""
_HASH = re.compile(r"[0-9a-f]{64}")
_NO_BAD_ROWS: dict[str, int] = {}  # one for all: there may be a million sources
_RARE = ("rows_by_file", "bad_rows", "lines")


def manifest_name(number: int) -> str:
    """Name of manifest `number` inside the metadata folder.

    Examples
    --------
    >>> manifest_name(3)
    'manifest-000003.json'
    """
    return f"manifest-{number:06d}.json"


def check_shard_name(name: object) -> str:
    """Return `name` if it can be a shard's; anything else, a path above all, is refused.

    Raises
    ------
    ShardError
        For any name that dkfeat would not give to a shard.

    Examples
    --------
    >>> check_shard_name("part-000000-0000-3f9c2a71b0de.parquet")
    'part-000000-0000-3f9c2a71b0de.parquet'
    """
    if not isinstance(name, str) or SHARD_NAME.fullmatch(name) is None:
        message = f"{str(name)[:80]!a} is not a shard's name: expected part-<split>-<piece>-<12 hex digits>.parquet"
        raise ShardError(message)
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """What the manifest says of one shard."""

    split: int
    """Number of the split that it was made from."""
    piece: int
    """Position within the split, from 0."""
    last: bool
    """Whether it is the split's last piece."""
    name: str
    """File name inside ``data/``."""
    size: int
    """Bytes of the file."""
    sha256: str
    """SHA-256 of the file, 64 lowercase hexadecimal digits."""
    rows: int
    """Number of rows, empty ones included."""
    nnz: int
    """Nonzeros of the source's rows."""
    n_empty: int
    """Rows without features."""
    source: str
    """Name of the source file, the first of a group."""
    range: tuple[int, int]
    """First and past-the-end byte of the piece's rows in the decompressed source; of a group, in its files' joined."""
    source_sha256: str
    """SHA-256 of those bytes."""
    rows_by_file: tuple[int, ...] = ()
    """Rows of each file of a group; empty for a split of one file."""
    bad_rows: tuple[BadCount, ...] = ()
    """Rows that were set aside, counted by file and reason."""
    lines: int | None = field(default=None, compare=False)
    """Lines of the piece's text, where bad rows are set aside: what line numbers are made of."""

    def __post_init__(self) -> None:
        where = f"shard {str(self.name)[:80]!a}"
        match = SHARD_NAME.fullmatch(check_shard_name(self.name))
        for key in ("split", "piece", "size", "rows", "nnz", "n_empty"):
            check_count(getattr(self, key), f"{where}: {key}")
        check(isinstance(self.last, bool), f"{where}: last={self.last!r} is not a boolean")
        check(isinstance(self.source, str), f"{where}: source={self.source!r} is not text")
        check_hash(self.sha256, f"{where}: sha256")
        check_hash(self.source_sha256, f"{where}: source_sha256")
        check(self.n_empty <= self.rows, f"{where}: {self.n_empty:,} empty rows of {self.rows:,}")
        check(isinstance(self.range, tuple) and len(self.range) == 2, f"{where}: range={self.range!r} is no pair")
        start, stop = self.range
        check_count(start, f"{where}: range start")
        check_count(stop, f"{where}: range stop")
        check(start <= stop, f"{where}: range [{start}, {stop}) runs backwards")
        named = match is not None and (int(match[1]), int(match[2])) == (self.split, self.piece)
        check(named, f"{where}: its name is not that of split {self.split}, piece {self.piece}")
        check_by_file(self.rows_by_file, self.bad_rows, self.rows, where)
        if self.lines is not None:
            check_count(self.lines, f"{where}: lines")

    @property
    def n_bad_rows(self) -> int:
        """Rows of its text that were set aside."""
        return sum(count for _, _, count in self.bad_rows)

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values; what only groups and quarantine know is left out elsewhere."""
        left_out = {key for key in _RARE if getattr(self, key) in ((), None)}
        mapping: dict[str, Any] = {key: getattr(self, key) for key in self.__slots__ if key not in left_out}
        mapping["range"] = list(self.range)
        return mapping

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Inverse of `to_mapping`; unknown keys are ignored, missing ones refused."""
        values = pick(mapping, [key for key in cls.__slots__ if key not in _RARE], "shard entry")
        values.update({key: mapping[key] for key in _RARE if key in mapping})
        if isinstance(values["range"], list):
            values["range"] = tuple(values["range"])
        return cls(**as_tuples(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """A source file that the data set covers, pinned by what tells whether it changed."""

    name: str
    """Path relative to the source's root."""
    size: int
    """Bytes as stored."""
    mtime_ns: int | None
    """Time of last change in nanoseconds, or None on an object store."""
    etag: str | None
    """Version tag, or None on a file system."""
    rows: int
    """Rows that came from it."""
    bad_rows: Mapping[str, int] = field(default_factory=lambda: _NO_BAD_ROWS)
    """Rows of it that were set aside, by reason."""

    def __post_init__(self) -> None:
        where = f"source {str(self.name)[:80]!a}"
        check_identity(self.identity, "source")
        check_count(self.rows, f"{where}: rows")
        check(isinstance(self.bad_rows, Mapping), f"{where}: bad_rows={self.bad_rows!r:.60} is not a mapping")
        for reason, count in self.bad_rows.items():
            check_count(count, f"{where}: bad_rows, {reason:.60}")

    @property
    def n_bad_rows(self) -> int:
        """Rows of it that were set aside."""
        return sum(self.bad_rows.values())

    @property
    def identity(self) -> dict[str, str | int | None]:
        """What must be equal for the file to count as unchanged; compare with ``SourceFile.identity``."""
        return {"name": self.name, "size": self.size, "mtime_ns": self.mtime_ns, "etag": self.etag}

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values."""
        bad_rows = {"bad_rows": dict(self.bad_rows)} if self.bad_rows else {}
        return {**self.identity, "rows": self.rows, **bad_rows}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Inverse of `to_mapping`; unknown keys are ignored, missing ones refused."""
        values = pick(mapping, ("name", "size", "mtime_ns", "etag", "rows"), "source entry")
        return cls(**values, bad_rows=mapping.get("bad_rows", _NO_BAD_ROWS))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousManifest:
    """The manifest that this one extends."""

    name: str
    """File name inside the metadata folder."""
    sha256: str
    """SHA-256 of that file."""

    def __post_init__(self) -> None:
        named = isinstance(self.name, str) and MANIFEST_NAME.fullmatch(self.name) is not None
        check(named, f"previous: {str(self.name)[:80]!a} is not a manifest's name")
        check_hash(self.sha256, "previous: sha256")


def check(holds: bool, message: str) -> None:
    """Raise `ShardError` with `message` unless it holds."""
    if not holds:
        raise ShardError(message)


def check_count(value: object, what: str) -> None:
    """Refuse anything but an integer of at least 0 that fits 64 signed bits."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        message = f"{what}={value!r:.60} is not a count"
        raise ShardError(message)


def check_by_file(rows_by_file: Any, bad_rows: Any, rows: int, where: str) -> None:
    """Refuse what cannot be a shard's counts by file."""
    check(isinstance(rows_by_file, tuple) and isinstance(bad_rows, tuple), f"{where}: counts by file are no lists")
    for count in rows_by_file:
        check_count(count, f"{where}: rows_by_file")
    total = sum(rows_by_file)
    check(not rows_by_file or total == rows, f"{where}: its files have {total:,} rows of {rows:,}")
    for item in bad_rows:
        check(
            isinstance(item, tuple) and len(item) == 3 and isinstance(item[1], str), f"{where}: bad_rows={item!r:.60}"
        )
        check_count(item[0], f"{where}: bad_rows, file")
        check_count(item[2], f"{where}: bad_rows, {item[1]:.60}")
        known = max(len(rows_by_file), 1)
        check(item[0] < known, f"{where}: bad_rows counts file {item[0]:,} of {known:,}")


def as_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn lists of JSON into the tuples that entries and footers hold."""
    made = dict(values)
    if isinstance(made.get("rows_by_file"), list):
        made["rows_by_file"] = tuple(made["rows_by_file"])
    if isinstance(made.get("bad_rows"), list):
        made["bad_rows"] = tuple(tuple(item) if isinstance(item, list) else item for item in made["bad_rows"])
    return made


def check_identity(identity: Mapping[str, object], what: str) -> None:
    """Refuse what cannot be the identity of a source file."""
    name, mtime_ns, etag = identity["name"], identity["mtime_ns"], identity["etag"]
    where = f"{what} {str(name)[:80]!a}"
    check(isinstance(name, str) and name != "", f"{where}: the name is not text")
    check_count(identity["size"], f"{where}: size")
    check(mtime_ns is None or type(mtime_ns) is int, f"{where}: mtime_ns={mtime_ns!r:.60} is not an integer")
    check(etag is None or isinstance(etag, str), f"{where}: etag={etag!r:.60} is not text")


def check_hash(value: object, what: str) -> None:
    """Refuse anything but 64 lowercase hexadecimal digits."""
    if not isinstance(value, str) or _HASH.fullmatch(value) is None:
        message = f"{what}={value!r:.80} is not a SHA-256"
        raise ShardError(message)


def is_finite(value: object) -> bool:
    """Whether it is an integer or a float that is neither NaN nor infinite."""
    return type(value) is int or (type(value) is float and math.isfinite(value))


def pick(mapping: object, keys: Iterable[str], what: str) -> dict[str, Any]:
    """Values of `keys`; other keys are left alone, a missing one is refused."""
    if not isinstance(mapping, Mapping):
        message = f"{what}: expected an object, got {type(mapping).__name__}"
        raise ShardError(message)
    missing = [key for key in keys if key not in mapping]
    if missing:
        message = f"{what}: key {missing[0]!r} is missing"
        raise ShardError(message)
    return {key: mapping[key] for key in keys}
