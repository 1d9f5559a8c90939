"""Source of rows in Parquet files: splits, pieces of rows, scans, and locations of rejected rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import SourceNotFoundError
from dkfeat.filesystems.urls import identifying, is_url
from dkfeat.messages import printable
from dkfeat.sources.contents import check_unchanged
from dkfeat.sources.find import warn_of_left_out
from dkfeat.sources.parquet.batches import SplitReader, footer_of, open_split
from dkfeat.sources.parquet.files import (
    ENDINGS,
    Footer,
    cut_file,
    folder_pattern,
    holds_parquet,
    is_hidden,
    open_parquet,
    warn_of_other_endings,
)
from dkfeat.sources.tabular import TabularSource

_MOST_FOOTERS = 20_000
_FOOTER_THREADS = 16


class ParquetSource(TabularSource):
    """Parquet files as a source of rows, with the roles of their columns.

    Features have one of four layouts, found by the columns' types: numbers in many columns; one column of vectors
    (lists, or fixed-size binary of little-endian float32); sparse rows as two columns of lists, indices and values; or
    one column of structs of these two. Nulls, NaN and infinities are errors with their location, or set aside with
    their row; a column that is missing or of another type is always an error. Integers and decimals are read as
    float64, then all values are rounded to `dtype`; a value that overflows it is bad. Zeros are not stored.

    Raises
    ------
    dkfeat.errors.ConfigError
        If a setting is out of range.

    Examples
    --------
    >>> source = ParquetSource("day*.parquet", features=("height", "width"), label="kind", keep="name")
    >>> source.features, source.is_resolved
    (('height', 'width'), False)
    """

    __slots__ = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """Paths, globs and URLs in which `files` looks for files; folders are searched at any depth."""
        return tuple(folder_pattern(path, self.storage_options) for path in self.urlpath)

    def files(self, *, checks: bool = True) -> tuple[SourceFile, ...]:
        """List the files in byte-wise order of their names; see `find_files`."""
        patterns = self.patterns
        for path, pattern in zip(self.urlpath, patterns, strict=True):
            if path != pattern and not is_url(path):
                warn_of_other_endings(path)
        found = super().files(checks=checks)
        if patterns == self.urlpath:
            return found
        visible = tuple(file for file in found if not is_hidden(file.name))
        hidden = [file.name for file in found if is_hidden(file.name)]
        warn_of_left_out(patterns[0], hidden, "names that begin with _ or . mark files that are not data")
        if not visible:
            raise SourceNotFoundError(
                f"no file matches {printable(patterns[0])}; names that begin with _ or . are ignored"
            )
        return visible

    @classmethod
    def recognises(cls, paths: Sequence[str]) -> bool:
        """Return True if all paths have a suffix of Parquet files, or are local folders with ``.parquet`` files.

        Examples
        --------
        >>> ParquetSource.recognises(["day-*.parquet"]), ParquetSource.recognises(["rows.svm"])
        (True, False)
        >>> ParquetSource.recognises(["https://host/day-1.parquet?signature=x"])
        True
        """
        names = [identifying(path).rstrip("/").lower() for path in paths]
        return all(name.endswith(ENDINGS) or holds_parquet(path) for name, path in zip(names, paths, strict=True))

    def open_rows(self, split: Split, columns: Sequence[str] | None) -> AbstractContextManager[SplitReader]:
        """Open a split to read some columns of it; None: all, as they are stored."""
        return open_split(self, split, columns)

    def schema_of(self, file: SourceFile) -> pa.Schema:
        """Return the columns of a file, with their types."""
        with open_parquet(file, self.storage_options) as parquet:
            return parquet.schema_arrow

    def splits(self, files: Sequence[SourceFile] | None = None) -> tuple[Split, ...]:
        """Cut files into splits: runs of row groups of up to `blocksize` bytes of rows, by the footers' counts.

        ``start`` and ``stop`` are numbers of row groups. Groups in which no row can pass the filters are left out. A
        file without rows is one empty split.

        Raises
        ------
        dkfeat.errors.ParquetError
            If a file is damaged, or its columns do not match the source.
        """
        files = self.files() if files is None else files
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            footers = pool.map(partial(_footer, self.inspect(files)), files)
            splits: list[Split] = []
            for file, footer in zip(files, footers, strict=True):
                splits.extend(cut_file(file, footer, int(self.blocksize), len(splits)))
        return tuple(splits)

    def rows_of(self, split: Split) -> int | None:
        """Return the number of rows of a split from the footer; None with filters."""
        return None if self.filters is not None else sum(self._footer(split).rows[split.start : split.stop])

    def count_rows(self, files: Sequence[SourceFile]) -> int:
        """Return the number of rows of files from their footers, also of those that filters exclude."""
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            return sum(sum(footer.rows) for footer in pool.map(partial(_footer, self.inspect(files)), files))

    def split_bytes(self, split: Split) -> int:
        """Return the number of stored bytes of the rows of this split."""
        rows = self._footer(split).rows
        return split.file.size * sum(rows[split.start : split.stop]) // max(1, sum(rows))

    def piece_bytes(self, split: Split) -> int:
        """Return the maximum size in memory of the rows of a piece of this split, in bytes."""
        return min(int(self.blocksize), sum(self._footer(split).row_bytes[split.start : split.stop]))

    def stored_rows(self, split: Split, bad: Collection[tuple[int, int]]) -> Iterator[pa.Table]:
        """See `Source.stored_rows`; rows have all columns of the file, with its schema and metadata."""
        with self.open_rows(split, None) as reader:
            yield reader.schema.empty_table()
            bad_numbers = [number for _, number in bad]
            for table, numbers in reader.stored():
                yield table.filter(~np.isin(numbers, bad_numbers)) if bad else table
            check_unchanged(split.file, self.storage_options)

    def _footer(self, split: Split) -> Footer:
        return _footer(self.inspect([split.file]), split.file)


@lru_cache(_MOST_FOOTERS)
def _footer(source: ParquetSource, file: SourceFile) -> Footer:
    """Read the footer of a file; it is cached for the file as it was listed."""
    with open_parquet(file, source.storage_options) as parquet:
        return footer_of(source, file, parquet)
