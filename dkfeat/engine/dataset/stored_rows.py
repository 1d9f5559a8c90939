"""Source of the rows of which a data set was made, as their files store them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

import numpy as np
import pyarrow as pa

from dkfeat.blocks import RowBlock, SourceFile, Split
from dkfeat.canonical import fingerprint
from dkfeat.engine.dataset.shards_source import ShardSource
from dkfeat.engine.dataset.verify import changes_of, resolved_source
from dkfeat.errors import SpecConflictError
from dkfeat.messages import counted, printable
from dkfeat.sources.base import Source
from dkfeat.sources.pieces import Piece
from dkfeat.store.manifest.record_table import planned_splits
from dkfeat.store.shards.reader import ShardReader

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows(ShardSource):
    """Rows of a data set as the files of its source store them, in the order of the data set; made by `of_source`.

    Rows that were not featurized are not read: those that filters exclude, and bad ones. ``RowBlock.X`` is a table, see
    `Source.stored_rows`, and ``RowBlock.number`` has the number of each row in the data set.
    """

    source: Source
    """The source, with the options that the data set states."""
    planned: Sequence[Split]
    """Splits from which the data set was made."""
    made: Mapping[int, Sequence[Split]]
    """Shards, as splits of a `ShardSource`, that were made from each split."""

    @classmethod
    def of_source(cls, reader: ShardReader, source: Any, storage_options: Mapping[str, Any] | None) -> Self:
        """Find the splits of the source of a data set.

        Raises
        ------
        SpecConflictError
            If the source has other files than the data set was made from.
        """
        manifest, shards = reader.manifest, ShardSource.of(reader)
        given = None if isinstance(source, Source) else storage_options
        resolved, files = resolved_source(reader.storage, reader.spec, manifest, source, given)
        problems, touched = changes_of(manifest, files)
        problems += [f"source {name!a} has another modification time or version tag" for name in touched]
        new = files.keys() - {entry.name for entry in manifest.sources}
        problems += [f"source {name!a} is not in the data set" for name in sorted(new)]
        if problems:
            more = f"; and {len(problems) - _SHOWN:,} more" if len(problems) > _SHOWN else ""
            raise SpecConflictError(
                f"{printable(resolved.urlpath[0])} is not the source from which {reader.storage.url} was made: "
                f"{'; '.join(problems[:_SHOWN])}{more}; give the unchanged files, or featurize these into another "
                "folder and find its duplicates"
            )
        of_split = groupby(shards.splits(), lambda shard: shards.stored[shard.file.name].entry.split)
        return cls(
            reader=reader,
            source=resolved,
            planned=tuple(split.with_files(files) for split in planned_splits(manifest.records)),
            made={number: tuple(made) for number, made in of_split},
            urlpath=resolved.urlpath,
            blocksize=resolved.blocksize,
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        """Paths, globs and URLs of the source."""
        return self.source.patterns

    @property
    def left_out(self) -> str:
        """Description of the rows that were not featurized; empty if there are none."""
        notes, manifest = [], self.reader.manifest
        if n_bad := manifest.n_bad_rows:
            notes.append(f"{counted(n_bad, 'bad row')}, see `dkfeat quarantine {self.reader.storage.url}`")
        if filters := getattr(self.source, "filters", None):
            n_rows = self.source.count_rows(self.files())
            n_excluded = "rows" if n_rows is None else counted(n_rows - manifest.rows - n_bad, "row")
            notes.append(f"{n_excluded} that filters={filters!r:.100} exclude")
        return " and ".join(notes)

    def files(self, *, checks: bool = True) -> tuple[SourceFile, ...]:  # noqa: ARG002 - inherited
        """List the files of the source, as `of_source` found them."""
        return tuple({file.name: file for split in self.planned for file in split.files}.values())

    def splits(self, files: Sequence[SourceFile] | None = None) -> tuple[Split, ...]:  # noqa: ARG002 - inherited
        """Return the splits from which the data set was made."""
        return tuple(self.planned)

    def shards_of(self, split: Split) -> Sequence[Split]:
        """Return the shards, as splits of a `ShardSource`, that were made from a split."""
        return self.made[split.number]

    def first_row(self, split: Split) -> int:
        """Return the number of the first row of a split among all rows of the data set."""
        return self.stored[self.made[split.number][0].file.name].first_row

    def rows_of(self, split: Split) -> int:
        """Return the number of rows of a split."""
        return sum(shard.stop for shard in self.made[split.number])

    def split_bytes(self, split: Split) -> int:
        """Return the number of stored bytes of the rows of this split."""
        return self.source.split_bytes(split)

    def piece_bytes(self, split: Split) -> int:  # noqa: ARG002 - inherited
        """Return the size of the largest piece in memory."""
        return int(self.blocksize)

    def pieces(self, split: Split, max_piece_rows: int | None, checksum: bool) -> Iterator[Piece]:  # noqa: ARG002 - inherited
        """Yield the pieces of a split; a piece ends with the table that reaches `blocksize` bytes of memory.

        ``Piece.start`` and ``Piece.stop`` are positions of rows among those of the split.
        """
        entries = [self.stored[shard.file.name].entry for shard in self.made[split.number]]
        bad = {(row.file, row.offset) for entry in entries if entry.bad_rows for row in self.reader.bad_rows(entry)}
        identity, tables = [entry.source_sha256 for entry in entries], list[pa.Table]()
        ends = np.append(0, np.cumsum(np.sum([entry.rows_by_file for entry in entries], axis=0, dtype=np.int64)))
        number = start = stop = n_bytes = 0

        def piece(*, last: bool) -> Piece:
            rows = RowBlock(X=pa.concat_tables(tables), y=None, number=self.first_row(split) + np.arange(start, stop))
            digest, by_file = fingerprint([identity, start, stop]), tuple(np.diff(ends.clip(start, stop)).tolist())
            return Piece(
                number=number, last=last, block=rows, start=start, stop=stop, source_sha256=digest, rows_by_file=by_file
            )

        for table in self.source.stored_rows(split, bad):
            if n_bytes >= int(self.blocksize) and table.num_rows:
                yield piece(last=False)
                number, start, n_bytes, tables = number + 1, stop, 0, []
            tables.append(table)
            stop += table.num_rows
            n_bytes += table.nbytes
        if stop != self.rows_of(split):
            raise SpecConflictError(
                f"{split.description}: has {stop:,} rows, but {self.rows_of(split):,} were featurized; give the "
                "unchanged files"
            )
        yield piece(last=True)
