"""Manifest of a data set: the shards and sources that a commit lists."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dkfeat.canonical import Count, Sha256, dumps, fingerprint, parse_object, typed
from dkfeat.errors import ShardError, SpecConflictError
from dkfeat.messages import counted, show_bytes, show_label
from dkfeat.store.manifest.record_table import Records, Shards, Sources
from dkfeat.store.manifest.records import ShardEntry, check

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile

MANIFEST_NAME = re.compile(r"manifest-([0-9]{6,12})\.json")


def manifest_name(number: int) -> str:
    """Name of manifest `number` inside the metadata folder.

    Examples
    --------
    >>> manifest_name(3)
    'manifest-000003.json'
    """
    return f"manifest-{number:06d}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousManifest:
    """Reference to the manifest that a manifest extends."""

    name: str
    """File name inside the metadata folder."""
    sha256: Sha256
    """SHA-256 of that file."""


FORMAT = 1
GROUPS = "groups"
"""Feature that a plan requires of its reader if a split is a group of files."""
SEGMENTS = "segments"
"""Feature that manifests of version 0.2 require: their records are in segments of JSON."""
RECORDS = "records in Parquet: update dkfeat to 0.3"
"""Feature that a manifest requires of its reader, worded for the message of versions that do not know it."""
KNOWN_REQUIREMENTS = frozenset({GROUPS, SEGMENTS, RECORDS})
SEGMENT_NAME = re.compile(r"segment-[0-9a-f]{64}\.json")
RECORDS_NAME = re.compile(r"records-([0-9]{6,12})-[0-9a-f]{64}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsEntry:
    """Reference of a manifest to the file with its records."""

    sha256: Sha256
    """SHA-256 of the file, which is in its name."""
    size: Count
    """Size of the file in bytes."""
    sources: Count
    """Number of source files."""
    splits: Count
    """Number of splits."""
    shards: Count
    """Number of shards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A manifest without its records: what its file states of the whole data set."""

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
    records_file: RecordsEntry | None = None
    """File with the records; None in manifests of earlier versions."""
    run: Mapping[str, Any]
    """Host, times and versions of the run that wrote the manifest, the only part that differs between equal runs."""
    sha256: str = field(default="", compare=False)
    """SHA-256 of the file that the manifest was read from; empty before it is written."""

    def __post_init__(self) -> None:
        where = f"manifest {self.number}"
        expected = manifest_name(self.number - 1) if self.number > 1 else None
        previous = self.previous.name if self.previous is not None else None
        check(previous == expected and self.number > 0, f"{where}: previous is {previous!a}, expected {expected!a}")
        check(all(map(math.isfinite, self.labels or ())), f"{where}: labels are not finite numbers")

    @property
    def name(self) -> str:
        """File name inside the metadata folder."""
        return manifest_name(self.number)

    @property
    def records_name(self) -> str:
        """Name of the file with the records inside the metadata folder; empty for a manifest of an earlier version."""
        return f"records-{self.number:06d}-{self.records_file.sha256}.parquet" if self.records_file else ""

    def to_json(self) -> bytes:
        """Return the text of the file, which `parse_head` reads."""
        names = [item.name for item in fields(Head) if item.name != "sha256"]
        return dumps({"format": FORMAT, **{name: getattr(self, name) for name in names}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(Head):
    """A committed state of a data set: all its shards, in the source's row order."""

    shards: Shards
    """Ordered by split, then piece."""
    sources: Sources
    """All source files of the data set, also those without rows, in plan order."""

    def __post_init__(self) -> None:
        Head.__post_init__(self)  # super() without arguments fails in a class that is made anew for its slots
        where = f"manifest {self.number}"
        for name, total in self.records.sums().items():
            stated = getattr(self, name)
            check(total == stated, f"{where}: {name}={stated:,}, but its shards add up to {total:,}")
        names: list[str] = self.records.sources["name"].to_pylist()
        if len(set(names)) < len(names):
            twice = [name for name, count in Counter(names).items() if count > 1]
            raise ShardError(f"{where}: source listed twice: {twice[:3]}")

    @classmethod
    def of(cls, head: Head, records: Records) -> Self:
        """Make a manifest of its head and its records."""
        values = {item.name: getattr(head, item.name) for item in fields(Head)}
        return cls(**values, shards=Shards(records), sources=Sources(records))

    @property
    def records(self) -> Records:
        """Columns of shards, splits and sources."""
        return self.shards.records

    def without_records(self) -> Self:
        """Return a copy without shards and sources, for tasks that get entries: they open no file that may be gone."""
        empty = Records.of((), (), (), ())
        return replace(self, rows=0, nnz=0, n_empty_rows=0, shards=Shards(empty), sources=Sources(empty))

    def new_files(self, files: Iterable[SourceFile]) -> tuple[SourceFile, ...]:
        """Return the files that are no sources of the data set."""
        names = set(self.records.sources["name"].to_pylist())
        return tuple(file for file in files if file.name not in names)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all shards in bytes, by name."""
        return dict(zip(self.shards.names, self.records.shards["size"].tolist(), strict=True))

    @property
    def size(self) -> int:
        """Size of all shards and their files of text in bytes."""
        return int(self.records.shards["size"].sum()) + self.text_size

    @property
    def text_size(self) -> int:
        """Size of the files of text beside ``data/`` in bytes; 0 if the shards have none."""
        size = self.run.get("text_size")
        return size if isinstance(size, int) and size > 0 else 0

    def missing(self, sizes: Mapping[str, int]) -> list[ShardEntry]:
        """Return the shards that are missing or have another size in a listing of ``data/``."""
        found = np.array([sizes.get(name, -1) for name in self.shards.names], np.int64)
        return [self.shards[place] for place in np.flatnonzero(found != self.records.shards["size"]).tolist()]

    @property
    def n_splits(self) -> int:
        """Number of splits; they are numbered from 0."""
        return self.records.n_splits

    @property
    def shards_sha256(self) -> str:
        """Hash of the bytes of all shards in order; it does not depend on when and where they were made."""
        return fingerprint(self.shards.sha256)

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
        for each in self.records.sources["bad_rows"].flatten().to_pylist():
            counts[each["reason"]] += each["count"]
        return dict(sorted(counts.items()))

    @property
    def n_bad_rows(self) -> int:
        """Number of rows set aside in all sources."""
        return sum(self.bad_rows.values())

    @property
    def unterminated(self) -> list[str]:
        """Names of the files of text whose last line has no line end."""
        columns = self.records.sources
        pairs = zip(columns["name"].to_pylist(), columns["final_newline"].to_pylist(), strict=True)
        return [name for name, has_newline in pairs if has_newline is False]

    def __repr__(self) -> str:
        size = show_bytes(self.size)
        contents = f"{counted(self.rows, 'row')}, {counted(len(self.shards), 'shard')}, {size}"
        return f"Manifest(number={self.number}, {contents})"


def parse_head(data: bytes, what: str = "manifest") -> tuple[Head, dict[str, Any]]:
    """Read and check the text of a manifest; return its head, and all values of its file.

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
    values["sha256"] = hashlib.sha256(data).hexdigest()
    head = typed(values, Head, what)
    check((RECORDS in head.requires) == (head.records_file is not None), f"{what}: its records are missing")
    return head, values


def check_format(values: Mapping[str, Any], what: str, last: int = FORMAT) -> None:
    """Reject metadata of a newer format, or metadata that require an unknown feature.

    Raises
    ------
    SpecConflictError
        If the format is newer or a required feature is unknown; the message names them.
    """
    number = typed(values.get("format"), Count, f"{what}: format")
    check(number >= 1, f"{what}: format 0 does not exist")
    if number > last:
        raise SpecConflictError(
            f"{what}: format {number}, written by a newer dkfeat; this one reads up to {last}: update dkfeat"
        )
    unknown = sorted(set(typed(values.get("requires", []), list[str], f"{what}: requires")) - KNOWN_REQUIREMENTS)
    if unknown:
        raise SpecConflictError(f"{what}: requires {unknown}, written by a newer dkfeat: update dkfeat")


_SHOWN = 10
"""Maximum number of labels in a text."""


def labels_named(labels: Sequence[int | float], given: Mapping[str, Any]) -> list[Any]:
    """Return labels as the source has them: those that number words, by the input options of a spec, as words."""
    words = given.get("classes")
    return [label if isinstance(label, str) else words[int(label)] for label in labels] if words else list(labels)


def column_named(column: int, given: Mapping[str, Any]) -> str:
    """Return the name of a column of numbers, or its number as in the source, by the input options of a spec."""
    names = given.get("features")
    if isinstance(names, Sequence) and len(names) > 1 and given.get("features_as") != "sparse":
        return str(names[column])
    return f"column {column + (given.get('zero_based') is False):,}"


def columns_besides_features(given: Mapping[str, Any]) -> set[str]:
    """Return the names of the columns to which the input options of a spec give another use than that of features."""
    names = {given.get(use) for use in ("label", "weight", "query_id", "id")} | {*given.get("keep", ())}
    return {name for name in names if isinstance(name, str)}


def labels_shown(labels: Sequence[Any] | None) -> str:
    """Format a label set for display: all of a few labels, else their number and range."""
    if labels is None:
        return "more than 10,000 values, or not known"
    if len(labels) <= _SHOWN:
        return ", ".join(map(show_label, labels)) or "none"
    return f"{len(labels):,} values from {show_label(min(labels))} to {show_label(max(labels))}"
