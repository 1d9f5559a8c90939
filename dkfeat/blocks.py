"""Values that the layers share: blocks of rows, packed codes, source files, splits, records of bad rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from dkfeat.canonical import Count

if TYPE_CHECKING:
    from numpy.typing import NDArray


RESERVED = ("label", "qid", "weight", "codes", "indices", "values", "features")
"""Column names that kept columns cannot have, because shards use them."""

KEPT_TYPES = ("int64", "float64", "bool", "string", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]")
"""Names of the possible types of a kept column, as pyarrow writes them."""

BadCount = tuple[Count, str, Count]
"""Position of a file in its split, reason, and number of rows set aside."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowBlock:
    """Rows of a source in memory, usually consecutive ones."""

    X: Any
    """Features, csr_matrix of shape (n_rows, n_features): sorted indices, no duplicates; int32 indices while they fit.
    pyarrow Table of the columns as they are, for a source of tables without an encoder. In blocks read from shards, the
    features as stored: PackedCodes, csr_matrix or ndarray; None if only other columns were read."""
    y: Any
    """Labels, int64 or float64. Shape (n_rows,), or all labels end to end if `label_offsets` is given. In blocks read
    from shards with lists of labels, their indicator matrix, csr_matrix of shape (n_rows, n_classes). None if there are
    no labels, or they were not read."""
    label_offsets: NDArray[np.int64] | None = None
    """Multi-label only: row i has the labels ``y[label_offsets[i]:label_offsets[i + 1]]``."""
    qid: NDArray[np.int64] | None = None
    """Query of each row, shape (n_rows,); None if the source has no queries."""
    weight: NDArray[np.float64] | None = None
    """Weight of each row in training, shape (n_rows,), finite and at least 0; None if the source has no weights."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Kept columns by their names in shards: pyarrow arrays of n_rows values or nulls."""

    number: NDArray[np.int64] | None = None
    """Number of each row in its file, or among all rows of a data set; None if it is not needed."""

    def __post_init__(self) -> None:
        lengths = self._lengths()
        rows = next(iter(lengths.values()), 0)
        wrong = {name: length for name, length in lengths.items() if length != rows}
        if wrong:
            raise ValueError(f"a block of {rows:,} rows has columns of other lengths: {wrong}")

    def _lengths(self) -> dict[str, int]:
        lengths = {} if self.X is None else {"features": int(self.X.shape[0])}
        if self.y is not None:
            lengths["label"] = self.y.shape[0] if self.label_offsets is None else len(self.label_offsets) - 1
        columns = {"qid": self.qid, "weight": self.weight, "number": self.number, **self.kept}
        return lengths | {name: len(column) for name, column in columns.items() if column is not None}

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return next(iter(self._lengths().values()), 0)

    def take(self, rows: NDArray[Any] | slice) -> RowBlock:
        """Select rows by positions, in their order, by a mask of shape (n_rows,), or by a slice."""
        y, offsets = self.y, self.label_offsets
        if offsets is None:
            y = take_rows(y, rows)
        elif isinstance(rows, slice) and rows.step is None:
            start, stop, _ = rows.indices(self.n_rows)
            offsets = offsets[start : max(start, stop) + 1]
            y, offsets = y[offsets[0] : offsets[-1]], offsets - offsets[0]
        else:
            places = np.arange(len(y))  # y may hold words
            lists = csr_matrix((places, places, offsets), shape=(self.n_rows, max(len(y), 1)))[rows]
            y, offsets = y[lists.data], lists.indptr.astype(np.int64, copy=False)
        if self.kept and not isinstance(rows, slice):
            rows = np.arange(self.n_rows)[rows]
        return RowBlock(
            X=take_rows(self.X, rows),
            y=y,
            label_offsets=offsets,
            qid=take_rows(self.qid, rows),
            weight=take_rows(self.weight, rows),
            kept={
                name: column[rows] if isinstance(rows, slice) else column.take(rows)
                for name, column in self.kept.items()
            },
            number=take_rows(self.number, rows),
        )


class PackedCodes(NamedTuple):
    """Codes of samples as stored in shards, from ``encode`` of a map such as `GCWSFeatures`, for ``decode``."""

    codes: NDArray[np.uint8]
    """Shape (n_rows, ceil(n_components * bits / 8)): codes in component order, least significant bit first."""
    empty: NDArray[np.bool_]
    """Shape (n_rows,): mask of the rows without features, whose bytes are zero and have no meaning."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, and of bytes per row."""
        return self.codes.shape


def take_rows(X: Any, rows: Any) -> Any:
    """Select rows by positions, in their order, a slice or a mask; `X` is as in `RowBlock`."""
    if X is None:
        return None
    if isinstance(X, PackedCodes):
        return PackedCodes(take_rows(X.codes, rows), X.empty[rows])
    if hasattr(X, "to_batches") and not isinstance(rows, slice):
        return X.filter(rows) if rows.dtype == np.bool_ else X.take(rows)
    # for positions, `take` is faster than an index
    is_positions = isinstance(X, np.ndarray) and isinstance(rows, np.ndarray) and rows.dtype != np.bool_
    return X.take(rows, axis=0) if is_positions else X[rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file of a source, with the properties by which a change is detected."""

    name: str
    """Path relative to the source's root, with forward slashes: its identity in plans and manifests."""
    url: str = field(repr=False)
    """fsspec URL or local path for opening it. Never part of an identity, never written to disk or shown as it is."""
    size: int
    """Stored size in bytes, at least 0."""
    mtime_ns: int | None = None
    """Modification time in nanoseconds; None if the file system has none."""
    etag: str | None = None
    """Version tag in an object store; None on a file system."""
    compression: str | None = None
    """None, "gzip", "bz2", "xz" or "zstd"."""

    @property
    def identity(self) -> dict[str, str | int | None]:
        """Properties that are equal as long as the file is unchanged."""
        return {"name": self.name, "size": self.size, "mtime_ns": self.mtime_ns, "etag": self.etag}

    def changes(self, recorded: Mapping[str, Any]) -> list[str]:
        """Describe the differences from an earlier `identity`; a property that was None then is not compared.

        Examples
        --------
        >>> SourceFile(name="a.svm", url="", size=5, mtime_ns=1).changes({"name": "a.svm", "size": 4, "mtime_ns": None})
        ['size 4 is now 5']
        """
        return differences(recorded, self.identity)


def differences(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe how properties of a file differ from recorded ones; those that were None then are not compared."""
    return [f"{key} {old} is now {new}" for key, new in now.items() if (old := recorded.get(key)) not in (None, new)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Part of a source that one task reads: a range of a file, a whole compressed file or a group of tiny files."""

    number: int
    """Position in the plan, from 0, in source order; continues over batches."""
    file: SourceFile
    """The file, or the first one of a group."""
    start: int
    """First byte of the range; the split holds the lines that begin in [start, stop). 0 for a group."""
    stop: int
    """End of the range, exclusive, in bytes as stored; for a group the bytes of all its files."""
    others: tuple[SourceFile, ...] = ()
    """Further whole files of a group, in source order."""

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """All files that are read, in order."""
        return (self.file, *self.others)

    @property
    def is_compressed(self) -> bool:
        """True if any of its files is compressed, so that the length of the text is known only after reading."""
        return any(file.compression is not None for file in self.files)

    @property
    def title(self) -> str:
        """Names of the files, for messages."""
        return f"{self.file.name} and {len(self.others):,} more" if self.others else self.file.name

    @property
    def description(self) -> str:
        """Range of bytes and names of the files, for messages."""
        return f"{self.title}, split {self.number} (bytes {self.start:,} to {self.stop:,})"

    def with_files(self, files: Mapping[str, SourceFile]) -> Self:
        """Return a copy with the files of the same names in `files`."""
        others = tuple(files[file.name] for file in self.others)
        return replace(self, file=files[self.file.name], others=others)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain JSON values, without URLs."""
        files = [asdict(file) for file in self.files]
        for file in files:
            del file["url"]
        return {"number": self.number, "files": files, "start": self.start, "stop": self.stop}


class BadRow(NamedTuple):
    """Record of a row that was set aside, in the footer of its piece's shard; it depends only on the row."""

    file: Count
    """Position of its file in the split, from 0."""
    offset: Count
    """First byte of its line in the decompressed file; for Parquet the row in the file, from 0."""
    line: Count
    """Line in the file, counted from 1 at the beginning of the split; for Parquet the row in the file, from 1."""
    column: Count
    """Byte column of the invalid token, from 1; 0 for Parquet, whose message names the column."""
    reason: str
    """Reason, such as "bad value"."""
    message: str
    """Message with the expected and the actual text."""
    text: str
    """The line, escaped and truncated to 160 characters."""
