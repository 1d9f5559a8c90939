"""Manifest of a data set: the shards and sources that a commit lists."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from dkfeat.canonical import Count, Name, Sha256, check_fields, dumps, fingerprint, parse_object, typed
from dkfeat.errors import ShardError, SpecConflictError
from dkfeat.html import card, sparkline
from dkfeat.messages import counted, show_bytes, show_label

SHARD_NAME = re.compile(r"part-([0-9]{6,12})-([0-9]{4,12})-[0-9a-f]{12}\.parquet")
MANIFEST_NAME = re.compile(r"manifest-([0-9]{6,12})\.json")
BadCount = tuple[Count, str, Count]
"""Position of a file in its split, reason, and number of rows set aside."""
_NO_BAD_ROWS: dict[str, int] = {}  # a shared default, since there may be a million sources


def manifest_name(number: int) -> str:
    """Name of manifest `number` inside the metadata folder.

    Examples
    --------
    >>> manifest_name(3)
    'manifest-000003.json'
    """
    return f"manifest-{number:06d}.json"


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
class ShardEntry:
    """Record of one shard in the manifest."""

    split: Count
    """Number of the split that the shard was made from."""
    piece: Count
    """Position within the split, from 0."""
    last: bool
    """True for the split's last piece."""
    name: str
    """File name inside ``data/``."""
    size: Count
    """Size of the file in bytes."""
    sha256: Sha256
    """SHA-256 of the file, 64 lowercase hexadecimal digits."""
    rows: Count
    """Number of rows, empty ones included."""
    nnz: Count
    """Number of nonzeros of the source's rows."""
    n_empty: Count
    """Number of rows without features."""
    source: str
    """Name of the source file, the first of a group."""
    range: tuple[Count, Count]
    """First byte of the piece's rows, and the byte after the last, in the decompressed source or concatenated group."""
    source_sha256: Sha256
    """SHA-256 of those bytes."""
    rows_by_file: tuple[Count, ...] = ()
    """Number of rows of each file of a group; empty for a split of one file."""
    bad_rows: tuple[BadCount, ...] = ()
    """Numbers of rows set aside, by file and reason."""
    lines: Count | None = field(default=None, compare=False)
    """Number of lines of the piece's text if bad rows are set aside, to compute line numbers."""

    def __post_init__(self) -> None:
        check_shard_name(self.name)
        where = f"shard {self.name}"
        check_fields(self, where)
        check_tuples(self, where)
        split, piece = map(int, self.name.split("-")[1:3])
        named = (split, piece) == (self.split, self.piece)
        check(named, f"{where}: its name is not that of split {self.split}, piece {self.piece}")
        check(self.n_empty <= self.rows, f"{where}: {self.n_empty:,} empty rows of {self.rows:,}")
        check(self.range[0] <= self.range[1], f"{where}: range {self.range} runs backwards")
        total = sum(self.rows_by_file)
        check(not self.rows_by_file or total == self.rows, f"{where}: its files have {total:,} rows of {self.rows:,}")
        n_files, last = max(len(self.rows_by_file), 1), max((file for file, _, _ in self.bad_rows), default=0)
        check(last < n_files, f"{where}: bad_rows counts file {last:,} of {n_files:,}")

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
    bad_rows: Mapping[str, Count] = field(default_factory=lambda: _NO_BAD_ROWS)
    """Numbers of rows set aside, by reason."""
    final_newline: bool | None = None
    """True if the last line of a file of text has a line end, or the file is empty; None for other files, and in
    manifests of versions that did not record it."""

    def __post_init__(self) -> None:
        check_fields(self, f"source {str(self.name)[:80]!a}")

    @property
    def n_bad_rows(self) -> int:
        """Number of rows set aside."""
        return sum(self.bad_rows.values())

    @property
    def identity(self) -> dict[str, str | int | None]:
        """Values that are equal as long as the file is unchanged; compare with ``SourceFile.identity``."""
        return {"name": self.name, "size": self.size, "mtime_ns": self.mtime_ns, "etag": self.etag}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousManifest:
    """Reference to the manifest that a manifest extends."""

    name: str
    """File name inside the metadata folder."""
    sha256: Sha256
    """SHA-256 of that file."""

    def __post_init__(self) -> None:
        check_fields(self, "previous")
        check(MANIFEST_NAME.fullmatch(self.name) is not None, f"previous: {self.name[:80]!a} is not a manifest's name")


def check(holds: bool, message: str) -> None:
    """Raise `ShardError` with `message` unless the condition is true."""
    if not holds:
        raise ShardError(message)


def check_tuples(record: Any, where: str) -> None:
    """Check that fields of a shard's record are tuples, which are hashable and immutable, and not lists."""
    wrong = [key for key in ("range", "rows_by_file", "bad_rows") if not isinstance(getattr(record, key), tuple)]
    check(not wrong, f"{where}: {wrong} are not tuples")


FORMAT = 1
GROUPS = "groups"
"""Feature that a plan requires of its reader if a split is a group of files."""
KNOWN_REQUIREMENTS = frozenset({GROUPS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A committed state of a data set: all its shards, in the source's row order."""

    requires: tuple[str, ...] = ()
    """Features that a reader must support to read the shards."""
    number: Count
    """Number of the commit, from 1."""
    previous: PreviousManifest | None
    """None for number 1."""
    spec_fp: Sha256
    """Fingerprint of the spec that every shard follows."""
    schema: Mapping[str, str]
    """Parquet columns and their types."""
    n_features: Count
    """Columns of the source."""
    labels: tuple[int | float, ...] | None
    """Sorted label set, or None if it is unknown or has more than 10,000 values."""
    rows: Count
    """Total over all shards."""
    nnz: Count
    """Total over all shards."""
    n_empty_rows: Count
    """Total over all shards."""
    shards: tuple[ShardEntry, ...]
    """Ordered by split, then piece."""
    sources: tuple[SourceEntry, ...]
    """All source files of the data set, also those without rows, in plan order."""
    run: Mapping[str, Any]
    """Host, times and versions of the run that wrote the manifest, the only part that differs between equal runs."""
    sha256: str = field(default="", compare=False)
    """SHA-256 of the file that the manifest was read from; empty before it is written."""

    def __post_init__(self) -> None:
        where = f"manifest {str(self.number)[:20]}"
        check_fields(self, where)
        check(
            (self.previous is None) == (self.number == 1) and self.number > 0, f"{where}: only number 1 has no previous"
        )
        if self.previous is not None:
            check(self.previous.name == manifest_name(self.number - 1), f"{where}: previous is {self.previous.name}")
        check(all(map(math.isfinite, self.labels or ())), f"{where}: labels are not finite numbers")
        self._check_shards(where)

    def _check_shards(self, where: str) -> None:
        expected = (0, 0)
        for entry in self.shards:
            if (entry.split, entry.piece) != expected:
                raise ShardError(
                    f"{where}: expected split {expected[0]}, piece {expected[1]}, got split {entry.split}, piece "
                    f"{entry.piece} ({entry.name}); a shard is missing, listed twice or out of order"
                )
            expected = (entry.split + 1, 0) if entry.last else (entry.split, entry.piece + 1)
        check(expected[1] == 0, f"{where}: the last piece of split {expected[0]} is missing")
        names = Counter(source.name for source in self.sources)
        twice = [name for name, count in names.items() if count > 1]
        check(not twice, f"{where}: source listed twice: {twice[:3]}")
        for key, shard_key in (("rows", "rows"), ("nnz", "nnz"), ("n_empty_rows", "n_empty")):
            total, stated = sum(getattr(entry, shard_key) for entry in self.shards), getattr(self, key)
            check(total == stated, f"{where}: {key}={stated:,}, but its shards add up to {total:,}")

    def missing(self, sizes: Mapping[str, int]) -> list[ShardEntry]:
        """Return the shards that are missing or have another size in a listing of ``data/``."""
        return [entry for entry in self.shards if sizes.get(entry.name) != entry.size]

    @property
    def n_splits(self) -> int:
        """Number of splits; they are numbered from 0."""
        return self.shards[-1].split + 1 if self.shards else 0

    @property
    def shards_sha256(self) -> str:
        """Hash of the bytes of all shards in order; it does not depend on when and where they were made."""
        return fingerprint([entry.sha256 for entry in self.shards])

    @property
    def numeric_envs(self) -> tuple[str, ...]:
        """Numeric environments of the processes that made the shards: processor, and libraries with their threads.

        For maps whose features have equal bits on every machine, and in manifests of earlier versions, it is only that
        of the coordinating process.
        """
        found = self.run.get("numeric_envs") or [self.run.get("numeric_env")]
        return tuple(str(each) for each in found if each) if isinstance(found, list) else ()

    @property
    def bad_rows(self) -> dict[str, int]:
        """Numbers of rows set aside in all sources, by reason."""
        counts: Counter[str] = Counter()
        for source in self.sources:
            counts.update(source.bad_rows)
        return dict(sorted(counts.items()))

    @property
    def n_bad_rows(self) -> int:
        """Number of rows set aside in all sources."""
        return sum(source.n_bad_rows for source in self.sources)

    @property
    def unterminated(self) -> list[str]:
        """Names of the files of text whose last line has no line end."""
        return [source.name for source in self.sources if source.final_newline is False]

    @property
    def name(self) -> str:
        """File name inside the metadata folder."""
        return manifest_name(self.number)

    def __repr__(self) -> str:
        size = show_bytes(sum(entry.size for entry in self.shards))
        contents = f"{counted(self.rows, 'row')}, {counted(len(self.shards), 'shard')}, {size}"
        return f"Manifest(number={self.number}, {contents})"

    def facts(self) -> dict[str, str]:
        """Return counts and sizes for display; counts of rows without features or set aside only if not 0."""
        size = sum(entry.size for entry in self.shards)
        each = f", {size / self.rows:,.0f} bytes a row" if self.rows else ""
        facts = {
            "rows": f"{self.rows:,}",
            "shards": f"{len(self.shards):,}",
            "size": f"{show_bytes(size)}{each}",
            "source files": f"{len(self.sources):,}",
        }
        if self.n_empty_rows:
            facts["rows without features"] = f"{self.n_empty_rows:,}"
        if self.n_bad_rows:
            reasons = ", ".join(f"{reason}: {count:,}" for reason, count in self.bad_rows.items())
            facts["rows set aside"] = f"{self.n_bad_rows:,} ({reasons})"
        if cut := self.unterminated:
            more = f" and {len(cut) - _SHOWN:,} more" if len(cut) > _SHOWN else ""
            facts["no final line end"] = ", ".join(cut[:_SHOWN]) + more
        return facts

    def pictures(self) -> dict[str, str]:
        """Return a sparkline of the rows of each shard, for cards."""
        rows = [entry.rows for entry in self.shards]
        if len(rows) < 2:  # a single bar shows nothing
            return {}
        return {"rows by shard": sparkline(rows, f"rows by shard, {min(rows):,} to {max(rows):,}")}

    def _repr_html_(self) -> str:
        columns = {"columns of the source": f"{self.n_features:,}", "labels": labels_shown(self.labels)}
        shards = [
            {"shard": entry.name, "rows": entry.rows, "size": show_bytes(entry.size), "source": entry.source}
            for entry in self.shards[:_SHOWN]
        ]
        sources = [
            {"source": entry.name, "rows": entry.rows, "size": show_bytes(entry.size), "set aside": entry.n_bad_rows}
            for entry in self.sources[:_SHOWN]
        ]
        run = {
            key: ", ".join(f"{name} {each}" for name, each in value.items()) if isinstance(value, Mapping) else value
            for key, value in self.run.items()
        }
        return card(
            "Manifest",
            {**self.facts(), **columns, "spec": self.spec_fp[:12]},
            note=f"number {self.number:,}",
            pictures=self.pictures(),
            details={_heading("Shards", self.shards): shards, _heading("Sources", self.sources): sources, "Run": run},
        )

    def to_json(self) -> bytes:
        """Return the text of the file, which `from_json` reads."""
        values = {key: getattr(self, key) for key in self.__slots__ if key != "sha256"}
        return dumps({"format": FORMAT, **values, "shards": iter(self.shards), "sources": iter(self.sources)})

    @classmethod
    def from_json(cls, data: bytes, what: str = "manifest") -> Self:
        """Read and check the text of a manifest.

        Parameters
        ----------
        data : bytes
            Bytes of the file.
        what : str
            File name for error messages.

        Raises
        ------
        ShardError
            If the text is damaged or inconsistent.
        SpecConflictError
            If a newer version of dkfeat wrote it.
        """
        values = parse_object(data, what)
        check_format(values, what)
        check("requires" in values, f"{what}: key 'requires' is missing")
        return typed({**values, "sha256": hashlib.sha256(data).hexdigest()}, cls, what)


def check_format(values: Mapping[str, Any], what: str) -> None:
    """Reject metadata of a newer format, or metadata that require an unknown feature.

    Raises
    ------
    SpecConflictError
        If the format is newer or a required feature is unknown; the message names them.
    """
    number = typed(values.get("format"), Count, f"{what}: format")
    check(number >= 1, f"{what}: format 0 does not exist")
    if number > FORMAT:
        raise SpecConflictError(
            f"{what}: format {number}, written by a newer dkfeat; this one reads up to {FORMAT}: upgrade dkfeat"
        )
    unknown = sorted(set(typed(values.get("requires", []), list[str], f"{what}: requires")) - KNOWN_REQUIREMENTS)
    if unknown:
        raise SpecConflictError(f"{what}: requires {unknown}, written by a newer dkfeat: upgrade dkfeat")


_SHOWN = 10
"""Maximum number of shards, sources and labels in cards."""


def labels_shown(labels: Sequence[int | float] | None) -> str:
    """Format a label set for display: all of a few labels, else their number and range."""
    if labels is None:
        return "more than 10,000 values, or not known"
    if len(labels) <= _SHOWN:
        return ", ".join(map(show_label, labels)) or "none"
    return f"{len(labels):,} values from {show_label(min(labels))} to {show_label(max(labels))}"


def _heading(name: str, items: Sequence[Any]) -> str:
    return f"{name}: the first {_SHOWN} of {len(items):,}" if len(items) > _SHOWN else name
