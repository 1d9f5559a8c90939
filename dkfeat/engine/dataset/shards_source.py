"""Source of rows that reads committed shards back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from dkfeat.blocks import RESERVED, SourceFile, Split
from dkfeat.canonical import fingerprint
from dkfeat.errors import ConfigError
from dkfeat.process_cache import ProcessCache
from dkfeat.sources.base import Source, SplitScan
from dkfeat.sources.pieces import Origin, Piece
from dkfeat.store.manifest.record_table import planned_splits
from dkfeat.store.manifest.records import ShardEntry
from dkfeat.store.shards.columns import LAYOUTS
from dkfeat.store.shards.reader import ShardReader
from dkfeat.store.storage.base import DATA


class StoredShard(NamedTuple):
    """A shard as a part of its data set."""

    entry: ShardEntry
    """Record in the manifest."""
    origins: tuple[Origin, ...]
    """Origins of its rows, in order."""
    first_row: int
    """Number of its first row among all rows of the data set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSource(Source):
    """Shards of one manifest as a source, in which each shard is a file and a split; made by `of`.

    The blocks have the features as stored: `PackedCodes`, a csr_matrix or an ndarray.
    """

    kind: ClassVar[str] = "shards"
    can_quarantine: ClassVar[bool] = False
    _to_resolve: ClassVar[tuple[str, ...]] = ()

    reader: ShardReader
    """Reader of the shards of its manifest; later commits do not change it."""
    zero_based: bool = True
    multilabel: bool = False
    query_id: bool = False
    only: tuple[str, ...] | None = None
    """Columns that are read, as for `ShardReader.read`; None: all."""

    def __post_init__(self) -> None:
        """Leave the options as they are: a manifest holds checked ones."""

    @classmethod
    def of(
        cls, reader: ShardReader, only: tuple[str, ...] | None = None, *, layouts: Collection[str] = LAYOUTS
    ) -> Self:
        """Make the source of all shards of a reader; `only` names the columns to read.

        Raises
        ------
        ConfigError
            If the layout of the shards is none of `layouts`; by default these are the layouts of features.
        """
        options = reader.spec["input"]
        url = reader.storage.url
        if (layout := reader.spec["output"]["layout"]) not in layouts:
            raise ConfigError(f"{url} holds {layout}, not features")
        return cls(
            reader=reader,
            urlpath=url,
            blocksize=1,
            n_features=reader.manifest.n_features,
            multilabel=bool(options.get("multilabel")),
            query_id="qid" in reader.manifest.schema,
            label_dtype=options["label_dtype"],
            classes=tuple(options["classes"]) if "classes" in options else None,
            only=only,
        )

    @property
    def stored(self) -> Mapping[str, StoredShard]:
        """Shards by their names."""
        url, manifest = self.reader.storage.url, self.reader.manifest
        return _STORED.get((url, manifest.number, manifest.sha256), lambda: _stored(self.reader))

    @property
    def patterns(self) -> tuple[str, ...]:
        """Folder of the shards."""
        return (f"{self.urlpath}/{DATA}",)

    @property
    def has_labels(self) -> bool:
        """True if rows have labels of their own."""
        return self.reader.spec["input"].get("label", "label") is not None

    @property
    def has_weights(self) -> bool:
        """True if rows have weights."""
        return "weight" in self.reader.manifest.schema

    @property
    def kept(self) -> Mapping[str, str]:
        """Types of the columns that the shards keep, by their names."""
        return {name: kind for name, kind in self.reader.manifest.schema.items() if name not in RESERVED}

    def files(self, *, checks: bool = True) -> tuple[SourceFile, ...]:  # noqa: ARG002 - inherited
        """List the shards in the manifest's order; `etag` is their SHA-256, by which a change is detected."""
        return tuple(
            SourceFile(name=entry.name, url=f"{self.urlpath}/{DATA}/{entry.name}", size=entry.size, etag=entry.sha256)
            for entry, _, _ in self.stored.values()
        )

    def splits(self, files: Sequence[SourceFile] | None = None) -> tuple[Split, ...]:
        """Make one split of each shard, from its first row to its last."""
        files = self.files() if files is None else files
        return tuple(
            Split(number=position, file=file, start=0, stop=self.stored[file.name].entry.rows)
            for position, file in enumerate(files)
        )

    def first_row(self, split: Split) -> int:
        """Return the number of the first row of a split among all rows of the data set."""
        return self.stored[split.file.name].first_row

    def shards_of(self, split: Split) -> Sequence[Split]:
        """Return the split itself, which is a shard."""
        return (split,)

    def rows_of(self, split: Split) -> int | None:
        """Return the number of rows of a split."""
        return split.stop

    def split_bytes(self, split: Split) -> int:
        """Return the size of the shard in bytes."""
        return split.file.size

    def piece_bytes(self, split: Split) -> int:
        """Return the size of the shard in bytes, because it is in memory as a whole."""
        return split.file.size

    def scan_split(self, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:  # noqa: ARG002 - inherited
        """Raise ConfigError: the manifest has the results that a scan would find."""
        raise ConfigError(f"{self.urlpath}: shards are not scanned; `dkfeat inspect` shows what is in them")

    def pieces(self, split: Split, max_piece_rows: int | None, checksum: bool) -> Iterator[Piece]:
        """Yield the pieces of a shard, which is checked against its manifest; a piece ends after `max_piece_rows` rows.

        ``Piece.start`` and ``Piece.stop`` are rows of the shard; ``Piece.source_sha256`` is a hash of these and of its
        SHA-256.
        """
        entry = self.stored[split.file.name].entry
        most = max(1, entry.rows if max_piece_rows is None else max_piece_rows)
        bounds = [*range(0, max(1, entry.rows), most), entry.rows]
        rows = self.reader.read(entry, only=self.only)
        for number, (start, stop) in enumerate(pairwise(bounds)):
            data = rows.take(slice(start, stop))
            block = replace(data, y=np.zeros(stop - start)) if data.y is None else data
            yield Piece(
                number=number,
                last=stop == entry.rows,
                block=block,
                start=start,
                stop=stop,
                source_sha256=fingerprint([entry.sha256, start, stop]) if checksum else "",
            )

    def origins(self, split: Split, piece: Piece, before: Sequence[int]) -> list[Origin]:  # noqa: ARG002 - inherited
        """Locate the rows in the source from which the shards were made."""
        found, first = [], 0
        for origin in self.stored[split.file.name].origins:
            start, stop = max(piece.start, first), min(piece.stop, first + origin.n_rows)
            if start < stop:
                found.append(origin._replace(first=origin.first + start - first, n_rows=stop - start))
            first += origin.n_rows
        return found

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values: the input options with which the shards were made, and the fingerprint of their spec."""
        return {**self.reader.spec["input"], "kind": self.kind, "spec_fp": self.reader.manifest.spec_fp}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return an empty mapping, because all options are set."""
        return {}


_STORED = ProcessCache[Mapping[str, StoredShard]](4)


def _stored(reader: ShardReader) -> dict[str, StoredShard]:
    manifest, names = reader.manifest, dict[int, tuple[str, ...]]()
    if any(entry.rows_by_file for entry in manifest.shards):  # a record names only the first file of a group
        planned = planned_splits(manifest.records)
        names = {split.number: tuple(file.name for file in split.files) for split in planned}
    found: dict[str, StoredShard] = {}
    before: list[int] = []
    first_row = 0
    for entry in manifest.shards:
        counts = entry.rows_by_file or (entry.rows,)
        before = [0] * len(counts) if entry.piece == 0 else before
        files = names[entry.split] if entry.rows_by_file else (entry.source,)
        origins = (Origin(*item) for item in zip(files, [entry.split] * len(files), before, counts, strict=True))
        found[entry.name] = StoredShard(entry, tuple(origins), first_row)
        first_row += entry.rows
        before = [sum(pair) for pair in zip(before, counts, strict=True)]
    return found
