"""The manifest: the one list that says which shards a data set consists of."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from dkfeat.errors import ShardError, SpecConflictError
from dkfeat.io import strict_json
from dkfeat.io.entries import (
    PreviousManifest,
    ShardEntry,
    SourceEntry,
    check,
    check_count,
    check_hash,
    check_shard_name,
    is_finite,
    manifest_name,
    pick,
)
from dkfeat.wording import counted, show_bytes

__all__ = ["FORMAT", "Manifest", "PreviousManifest", "ShardEntry", "SourceEntry", "check_shard_name", "manifest_name"]

FORMAT = 1
GROUPS = "groups"
"""What a plan requires of its reader where a split is a group of files."""
KNOWN_REQUIREMENTS = frozenset({GROUPS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A committed state of a data set: all its shards, in the source's row order."""

    number: int
    """Which commit this is, from 1."""
    spec_fp: str
    """Fingerprint of the spec that every shard follows."""
    schema: Mapping[str, str]
    """Parquet columns and their types."""
    n_features: int
    """Columns of the source."""
    labels: tuple[int | float, ...] | None
    """Sorted label set, or None where it is not known or beyond 10,000 values."""
    rows: int
    """Total over all shards."""
    nnz: int
    """Total over all shards."""
    n_empty_rows: int
    """Total over all shards."""
    shards: tuple[ShardEntry, ...]
    """Ordered by split, then piece."""
    sources: tuple[SourceEntry, ...]
    """Every source file that is covered, also those without rows, in plan order."""
    previous: PreviousManifest | None
    """None for number 1."""
    run: Mapping[str, Any]
    """Who wrote it, where, when and with which versions: the only part that differs between equal runs."""
    requires: tuple[str, ...] = ()
    """Features that a reader must know of to read the shards."""
    sha256: str = field(default="", compare=False)
    """SHA-256 of the file that this was read from; empty before it is written."""

    def __post_init__(self) -> None:
        for key in ("number", "n_features", "rows", "nnz", "n_empty_rows"):
            check_count(getattr(self, key), f"manifest: {key}")
        where = f"manifest {self.number}"
        check_hash(self.spec_fp, f"{where}: spec_fp")
        textual = isinstance(self.schema, Mapping) and all(isinstance(kind, str) for kind in self.schema.values())
        check(textual, f"{where}: schema is not a mapping of names to types")
        check(isinstance(self.run, Mapping), f"{where}: run is not a mapping")
        check((self.previous is None) == (self.number == 1) and self.number > 0, f"{where}: its predecessor is missing")
        if self.previous is not None:
            check(self.previous.name == manifest_name(self.number - 1), f"{where}: follows {self.previous.name}")
        if self.labels is not None:
            check(all(map(is_finite, self.labels)), f"{where}: labels are not finite numbers")
        self._check_shards(where)

    def _check_shards(self, where: str) -> None:
        expected = (0, 0)
        for entry in self.shards:
            if (entry.split, entry.piece) != expected:
                message = (
                    f"{where}: expected split {expected[0]}, piece {expected[1]}, got split {entry.split}, piece "
                    f"{entry.piece} ({entry.name}); a shard is missing, listed twice or out of order"
                )
                raise ShardError(message)
            expected = (entry.split + 1, 0) if entry.last else (entry.split, entry.piece + 1)
        check(expected[1] == 0, f"{where}: the last piece of split {expected[0]} is missing")
        names = Counter(source.name for source in self.sources)
        twice = [name for name, count in names.items() if count > 1]
        check(not twice, f"{where}: source listed twice: {twice[:3]}")
        for key, own in (("rows", "rows"), ("nnz", "nnz"), ("n_empty_rows", "n_empty")):
            total, stated = sum(getattr(entry, own) for entry in self.shards), getattr(self, key)
            check(total == stated, f"{where}: {key}={stated:,}, but its shards add up to {total:,}")

    @property
    def n_splits(self) -> int:
        """Splits covered; they are numbered from 0."""
        return self.shards[-1].split + 1 if self.shards else 0

    @property
    def bad_rows(self) -> dict[str, int]:
        """Rows that were set aside, by reason, over all sources."""
        counts: Counter[str] = Counter()
        for source in self.sources:
            counts.update(source.bad_rows)
        return dict(sorted(counts.items()))

    @property
    def n_bad_rows(self) -> int:
        """Rows that were set aside."""
        return sum(source.n_bad_rows for source in self.sources)

    @property
    def name(self) -> str:
        """File name inside the metadata folder."""
        return manifest_name(self.number)

    def __repr__(self) -> str:
        size = show_bytes(sum(entry.size for entry in self.shards))
        held = f"{counted(self.rows, 'row')}, {counted(len(self.shards), 'shard')}, {size}"
        return f"Manifest(number={self.number}, {held})"

    def _repr_html_(self) -> str:
        from dkfeat.io.manifest_card import manifest_card  # notebooks alone show it

        return manifest_card(self)

    def to_json(self) -> bytes:
        """Text of the file; what `from_json` reads."""
        previous = None if self.previous is None else {"name": self.previous.name, "sha256": self.previous.sha256}
        return strict_json.dumps(
            {
                "format": FORMAT,
                "requires": list(self.requires),
                "number": self.number,
                "previous": previous,
                "spec_fp": self.spec_fp,
                "schema": dict(self.schema),
                "n_features": self.n_features,
                "labels": None if self.labels is None else list(self.labels),
                "rows": self.rows,
                "nnz": self.nnz,
                "n_empty_rows": self.n_empty_rows,
                "shards": map(ShardEntry.to_mapping, self.shards),
                "sources": map(SourceEntry.to_mapping, self.sources),
                "run": dict(self.run),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, what: str = "manifest") -> Self:
        """Read and check the text of a manifest.

        Parameters
        ----------
        data : bytes
            The file.
        what : str
            Its name, for messages.

        Raises
        ------
        ShardError
            When it is damaged or contradicts itself.
        SpecConflictError
            When a newer dkfeat wrote it.
        """
        values = strict_json.parse_object(data, what)
        check_format(values, what)
        keys = [key for key in cls.__slots__ if key != "sha256"]
        values = pick(values, keys, what)
        for key in ("shards", "sources", "requires"):
            check(isinstance(values[key], list), f"{what}: {key} is not a list")
        check(values["labels"] is None or isinstance(values["labels"], list), f"{what}: labels is not a list")
        previous = values["previous"]
        return cls(
            **{
                **values,
                "requires": tuple(values["requires"]),
                "labels": None if values["labels"] is None else tuple(values["labels"]),
                "shards": tuple(map(ShardEntry.from_mapping, values["shards"])),
                "sources": tuple(map(SourceEntry.from_mapping, values["sources"])),
                "previous": None if previous is None else PreviousManifest(**pick(previous, ("name", "sha256"), what)),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )


def check_format(values: Mapping[str, Any], what: str) -> None:
    """Refuse metadata of a newer format, or one that requires a feature unknown here.

    Raises
    ------
    SpecConflictError
        Naming what is too new.
    """
    check_count(values.get("format"), f"{what}: format")
    number = values["format"]
    check(number >= 1, f"{what}: format 0 does not exist")
    if number > FORMAT:
        message = f"{what}: format {number}, written by a newer dkfeat; this one reads up to {FORMAT}: upgrade dkfeat"
        raise SpecConflictError(message)
    requires = values.get("requires", [])
    check(isinstance(requires, list) and all(isinstance(item, str) for item in requires), f"{what}: bad requires")
    unknown = sorted(set(requires) - KNOWN_REQUIREMENTS)
    if unknown:
        message = f"{what}: requires {unknown}, written by a newer dkfeat: upgrade dkfeat"
        raise SpecConflictError(message)
