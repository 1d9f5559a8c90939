"""Base class of sources of rows, and its values: scans, pieces, rejected rows, origins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from scipy import sparse

from dkfeat.blocks import PackedCodes, RowBlock, SourceFile, Split
from dkfeat.errors import ConfigError, DkfeatError, InputError
from dkfeat.validation import check_integer

if TYPE_CHECKING:
    from dkfeat.blocks import BadRow


MOST_LABELS = 10_000
"""Maximum number of different labels that are listed."""
_MOST_FEATURES = 2**63 - 1
_MOST_EXACT = 2**53


@dataclass(slots=True)
class SplitScan:
    """Counts and labels of one split, accumulated by a scan."""

    n_rows: int = 0
    nnz: int | None = None
    """Number of stored values, without zeros. None if they were not counted."""
    n_empty_rows: int | None = None
    """Rows without a stored value; None if they were not counted."""
    min_index: int | None = None
    """Lowest index in the files, also of zeros; None if there is none."""
    max_index: int | None = None
    """Highest index in the files, also of zeros; None if there is none."""
    labels: set[int | float] | None = field(default_factory=set)
    """Set of labels; None if there are more than 10,000."""
    has_integer_labels: bool = True
    """True if every label is an integer of int64; a float64 label also if it is below 2**53 in magnitude."""
    has_inexact_labels: bool = False
    """True if float64, as the type of the source's labels, may not represent an integer label."""
    n_bad_rows: int = 0
    """Number of bad rows, which the other counts do not include."""
    first_bad: BadRow | None = None
    """The first bad row."""
    unterminated: tuple[int, ...] = ()
    """Positions in the split of the files of text whose last line has no line end."""

    @property
    def needs_labels(self) -> bool:
        """True if further labels may change the result."""
        return self.labels is not None or self.has_integer_labels

    def add_labels(self, labels: np.ndarray) -> None:
        """Add distinct labels to the counts."""
        is_int64 = labels.dtype == np.int64
        self.has_integer_labels = self.has_integer_labels and (is_int64 or are_integers(labels))
        self.has_inexact_labels |= is_int64 and bool(np.any((labels > _MOST_EXACT) | (labels < -_MOST_EXACT)))
        if self.labels is not None:
            self.labels.update(labels.tolist())
            self.labels = self.labels if len(self.labels) <= MOST_LABELS else None

    def fits(self, scan: Scan) -> bool:
        """Return False if a row of the split may be an error under the options that follow from the whole source."""
        is_wide = self.max_index is not None and self.max_index - (not scan.zero_based) >= scan.n_features
        return not is_wide and not (self.has_inexact_labels and scan.label_dtype == "float64")

    def join_labels(self, source: Source, joined: dict[tuple[bool, bool], SplitScan]) -> None:
        """Replace the labels by one set for all splits of a source that `fits` treats alike, kept in `joined`.

        So memory does not grow with the number of splits, and the labels of splits that do not fit stay apart.
        """
        most_features = _MOST_FEATURES if source.n_features is None else source.n_features
        reaches_end = self.max_index is not None and self.max_index >= most_features
        first = joined.setdefault((reaches_end, self.has_inexact_labels), self)
        if first.labels is not None and self.labels is not None:
            first.labels |= self.labels
        if self.labels is None or len(first.labels or ()) > MOST_LABELS:
            first.labels = None
        self.labels = first.labels

    def add_bad_rows(self, bad: Sequence[BadRow]) -> None:
        """Add bad rows, in order, to the counts."""
        self.n_bad_rows += len(bad)
        self.first_bad = self.first_bad or next(iter(bad), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Counts and labels of a whole source, and values for its unresolved options."""

    n_features: int
    """Number of columns, at least 1: the option, or as many as the highest index in the source needs."""
    zero_based: bool
    """The option, or True if any index is 0."""
    label_dtype: str
    """The option, or "int64" if every label, found or allowed, is an integer, else "float64"."""
    labels: tuple[float, ...] | None
    """Sorted distinct labels, as int for integer labels; None if there are more than 10,000."""
    n_rows: int
    nnz: int | None
    """Number of stored values; None if the format counts rows without reading values, like Parquet."""
    n_empty_rows: int | None
    """Number of rows without a stored value; None as for `nnz`."""
    rows_per_split: tuple[int, ...]
    """Number of rows of each split, in the order of `splits`."""
    files: tuple[SourceFile, ...]
    splits: tuple[Split, ...]
    n_bad_rows: int = 0
    """Number of bad rows, which the other counts do not include."""
    first_bad: tuple[SourceFile, BadRow] | None = None
    """The first bad row, with its file."""
    unterminated: tuple[SourceFile, ...] = ()
    """Files of text whose last line has no line end, and may be cut off."""

    @classmethod
    def merge(
        cls,
        source: Source,
        files: Sequence[SourceFile],
        splits: Sequence[Split],
        parts: Sequence[SplitScan],
    ) -> Self:
        """Join the scans of all splits of a source; `parts` are in the order of `splits`."""
        lowest = min((part.min_index for part in parts if part.min_index is not None), default=1)
        highest = max((part.max_index for part in parts if part.max_index is not None), default=0)
        zero_based = lowest == 0 if source.zero_based == "auto" else source.zero_based
        n_features = source.n_features
        if n_features is None:
            n_features = min(max(highest + zero_based, 1), _MOST_FEATURES)
        label_dtype = source.label_dtype
        if label_dtype == "auto":
            declared = all(map(is_int64, source.labels or ()))
            label_dtype = "int64" if declared and all(part.has_integer_labels for part in parts) else "float64"
        labels, sets = None, {id(part.labels): part.labels for part in parts}.values()  # many parts share a set
        if None not in sets:
            union = sorted(set().union(*(each for each in sets if each is not None)))
            kind = int if label_dtype == "int64" else float
            labels = tuple(kind(label) for label in union) if len(union) <= MOST_LABELS else None
        bad = (
            (split.files[part.first_bad.file], part.first_bad)
            for split, part in zip(splits, parts, strict=True)
            if part.first_bad
        )
        return cls(
            n_bad_rows=sum(part.n_bad_rows for part in parts),
            first_bad=next(bad, None),
            unterminated=tuple(
                split.files[position]
                for split, part in zip(splits, parts, strict=True)
                for position in part.unterminated
            ),
            n_features=n_features,
            zero_based=zero_based,
            label_dtype=label_dtype,
            labels=labels,
            n_rows=sum(part.n_rows for part in parts),
            nnz=_sum(part.nnz for part in parts),
            n_empty_rows=_sum(part.n_empty_rows for part in parts),
            rows_per_split=tuple(part.n_rows for part in parts),
            files=tuple(files),
            splits=tuple(splits),
        )


def is_int64(label: float) -> bool:
    """Return True if a label is an integer of int64."""
    return int(label) == label and -(2**63) <= label < 2**63


def are_integers(labels: np.ndarray) -> bool:
    """Return True if float64 labels are exact as int64."""
    return bool(np.all(exact_integers(labels)))


def exact_integers(labels: np.ndarray) -> np.ndarray:
    """Return the mask of the float64 labels that are exact as int64."""
    exact: np.ndarray = (labels == np.trunc(labels)) & (np.abs(labels) < _MOST_EXACT)
    return exact


def _sum(counts: Iterable[int | None]) -> int | None:
    found = list(counts)
    return None if None in found else sum(filter(None, found))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Consecutive rows of a split, which make one shard."""

    number: int
    """Position in the split, from 0."""
    last: bool
    """True for the last piece of a split."""
    block: RowBlock
    """The rows; empty for the only piece of a split without rows."""
    start: int
    """Start of the rows, and end of the previous piece: a byte of decompressed text; for Parquet and shards a row."""
    stop: int
    """End of the rows, exclusive."""
    source_sha256: str
    """SHA-256 of the text from start to stop, or of the rows read from Parquet, as 64 hexadecimal digits; empty if it
    was not computed."""
    rows_by_file: tuple[int, ...] = ()
    """Rows of each file of a group; empty for a split of one file."""
    bad_rows: tuple[BadRow, ...] = ()
    """Rows from start to stop that were set aside, in order; at most `dkfeat.sources.bad_rows.MOST_BAD_ROWS`."""
    lines: int | None = None
    """Number of lines of text from start to stop; None for Parquet, or if bad rows are errors."""
    unterminated: tuple[int, ...] | None = None
    """Positions in the split of the files whose last line has no line end; only in the last piece of a split of
    text."""

    def without(self, rows: Sequence[int], bad_rows: Sequence[BadRow]) -> Piece:
        """Return a copy in which the rows at these positions are bad rows; `bad_rows` has their records, in order."""
        keep = np.ones(self.block.n_rows, np.bool_)
        keep[list(rows)] = False
        by_file = list(self.rows_by_file)
        for bad in bad_rows if by_file else ():
            by_file[bad.file] -= 1
        merged = sorted((*self.bad_rows, *bad_rows), key=lambda bad: (bad.file, bad.offset))
        return replace(self, block=self.block.take(keep), rows_by_file=tuple(by_file), bad_rows=tuple(merged))


def join_blocks(blocks: Sequence[RowBlock]) -> RowBlock:
    """Concatenate at least one block; a single block is returned unchanged."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    columns = {
        name: _joined([getattr(block, name) for block in blocks])
        for name in ("X", "y", "qid", "weight", "number")
        if getattr(first, name) is not None
    }
    if first.label_offsets is not None:
        lengths = [np.diff(block.label_offsets) for block in blocks]  # type: ignore[type-var]  # all have them if the first has
        columns["label_offsets"] = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
    kept = {name: pa.concat_arrays([block.kept[name] for block in blocks]) for name in first.kept}
    return RowBlock(kept=kept, **columns)


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], PackedCodes):
        return PackedCodes(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    if sparse.issparse(parts[0]):
        return sparse.csr_matrix(sparse.vstack(parts, format="csr"))
    return np.concatenate(parts)


class RejectedRow(NamedTuple):
    """A row of a piece that a map rejects."""

    row: int
    """Position in the piece, from 0."""
    column: int | None
    """Column of the invalid value, from 0; None if the whole row is invalid."""
    reason: str
    """Message of the map, without a location."""


class Origin(NamedTuple):
    """Location of consecutive rows in a source."""

    file: str
    """Name of the source file."""
    split: int
    """Number of the split."""
    first: int
    """Position of the first row among the rows of the file in the split, from 0, not counting rows set aside."""
    n_rows: int
    """Number of rows."""


class Source(ABC):
    """Files of rows, with the options for reading them.

    Concrete sources are frozen dataclasses whose fields are the options. Options that depend on the whole source are
    resolved before rows are read, in this order: from the spec of a data set, from the files' metadata, by a scan.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """Name of the format: ``to_mapping()["kind"]``."""
    can_quarantine: ClassVar[bool] = False
    """True if bad rows can be set aside: `on_bad_row` is an option."""
    row_options: ClassVar[frozenset[str]] = frozenset()
    """Options that select rows and kept columns; `like` does not inherit them."""

    urlpath: str | Sequence[str]
    """Path, glob or fsspec URL, or several."""
    n_features: int | None
    """Number of columns; None until resolved."""
    blocksize: int | str
    """Target size of the rows of a split and of a piece, in bytes."""
    zero_based: Any = True
    """True if the first column is 0, not 1; "auto" until resolved."""
    dtype: Any
    """Type of the values, "float32" or "float64"."""
    multilabel: Any = False
    """True if rows have lists of labels."""
    query_id: Any = False
    """True if rows have query ids; in some sources the name of their column."""
    labels: tuple[float, ...] | None
    """Allowed labels; None: all."""
    label_dtype: Any
    """Type of the labels, "int64" or "float64"; "auto" until resolved."""
    storage_options: Mapping[str, Any] | None
    """Options of fsspec; they may hold secrets, so they are neither shown nor stored."""
    on_bad_row: Any = "raise"
    """Treatment of bad rows: "raise", an error; "quarantine", set aside."""
    max_bad_rows: Any = 0.01
    """Maximum number of bad rows of a batch, an int, or their share, a float."""

    @property
    @abstractmethod
    def unresolved(self) -> tuple[str, ...]:
        """Names of the options that must be resolved before `read`."""

    @property
    def is_resolved(self) -> bool:
        """True if all options are resolved, so that `read` can be called."""
        return not self.unresolved

    @property
    @abstractmethod
    def patterns(self) -> tuple[str, ...]:
        """Paths, globs and URLs in which `files` looks for files."""

    @abstractmethod
    def files(self) -> tuple[SourceFile, ...]:
        """List the files of the source, in byte-wise order of their names."""

    def inspect(self, files: Sequence[SourceFile]) -> Self:  # noqa: ARG002  # text has no metadata
        """Return the source with the options that the files' metadata determine; others need a scan."""
        return self

    @abstractmethod
    def splits(self, files: Sequence[SourceFile] | None = None, first_number: int = 0) -> tuple[Split, ...]:
        """Cut files into splits; a file without rows is one empty split."""

    @property
    def has_labels(self) -> bool:
        """True if rows have labels of their own."""
        return True

    @property
    def has_weights(self) -> bool:
        """True if rows have weights, which shards keep."""
        return False

    @property
    def kept(self) -> Mapping[str, str]:
        """Types of further columns that shards keep, by their names there."""
        return {}

    @property
    def label_options(self) -> frozenset[str]:
        """Options of labels, which rows without labels need not share with the rows of a model or of shards."""
        return frozenset({"labels", "label_dtype"})

    def without_absent_label(self, files: Sequence[SourceFile] | None = None) -> Self:  # noqa: ARG002  # Parquet uses it
        """Return the source without a column of labels if its files do not have that column."""
        return self

    def rows_of(self, split: Split) -> int | None:  # noqa: ARG002  # text has no counts
        """Return the number of rows of a split; None if the rows must be read to count them."""
        return None

    @abstractmethod
    def split_bytes(self, split: Split) -> int:
        """Return the number of stored bytes that a task reads for this split."""

    @abstractmethod
    def piece_bytes(self, split: Split) -> int:
        """Return the maximum size of a piece of this split, in the unit of `blocksize`."""

    @abstractmethod
    def scan_split(self, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
        """Count rows, values and labels of a split; `proceed` is called repeatedly, and its exceptions end the scan."""

    def resolve(self, scan: Scan) -> Self:
        """Return the source with unresolved options set to the results of a scan."""
        source = self.inspect(scan.files)
        return source.replaced(**{name: getattr(scan, name) for name in source.unresolved})

    def read(self, split: Split, max_piece_rows: int | None = None, *, checksum: bool = True) -> Iterator[Piece]:
        """Read a split, one piece after another, in bounded memory.

        Pieces depend only on the rows of the split and on `max_piece_rows`; `pieces` of each source documents where
        they end. A split has at least one piece.

        Parameters
        ----------
        split : Split
        max_piece_rows : int, optional
            At least 1; None: no bound.
        checksum : bool, default=True
            Compute ``Piece.source_sha256``, which takes a quarter of the time for text.

        Yields
        ------
        piece : Piece
            Whole rows; the file was as listed when they were read.

        Raises
        ------
        dkfeat.errors.ConfigError
            If the source is not resolved.
        dkfeat.errors.SourceError
            If rows are invalid or cannot be read; its subclasses carry the location.
        dkfeat.errors.SpecConflictError
            If the file has changed since it was listed.
        """
        if not self.is_resolved:
            raise ConfigError(
                f"{', '.join(self.unresolved)} must be known before reading; give each a value, or resolve the source "
                "by a scan"
            )
        if max_piece_rows is not None:
            max_piece_rows = check_integer(max_piece_rows, "max_piece_rows", low=1, high=2**31 - 1)
        return self.pieces(split, max_piece_rows, checksum)

    @abstractmethod
    def pieces(self, split: Split, max_piece_rows: int | None, checksum: bool) -> Iterator[Piece]:
        """Yield the pieces of a split for `read`, which checks the arguments."""

    def origins(self, split: Split, piece: Piece, before: Sequence[int]) -> list[Origin]:
        """Locate the rows of a piece; `before` has the number of earlier rows of each file of the split."""
        counts = piece.rows_by_file or (piece.block.n_rows,)
        return [
            Origin(file.name, split.number, first, n_rows)
            for file, first, n_rows in zip(split.files, before, counts, strict=True)
        ]

    def rejected_rows(self, split: Split, piece: Piece, rejected: Sequence[RejectedRow]) -> list[BadRow]:
        """Locate rows that a map rejects, in ascending order, by reading the split again."""
        raise InputError(
            f"{split.title}: {len(rejected):,} rows of piece {piece.number} are refused by the map, but a source of "
            f"kind {self.kind!r} sets no rows aside; reason of the first: {rejected[0].reason}"
        )

    def rejected_row_error(self, split: Split, piece: Piece, rejected: RejectedRow) -> DkfeatError:
        """Make the error for a row that a map rejects, with its location."""
        return InputError(f"{split.title}: split {split.number}, piece {piece.number}: {rejected.reason}")

    def bad_row_error(self, file: SourceFile, row: BadRow, reason: str) -> DkfeatError:  # noqa: ARG002  # subclasses use it
        """Make the error for a row that was set aside, with its location; `reason` is the message."""
        return InputError(f"{file.name}: {reason}")

    def replaced(self, **options: Any) -> Self:
        """Return a copy with other options."""
        return replace(self, **options)  # type: ignore[type-var]  # every source is a dataclass, but this class is not

    @abstractmethod
    def to_mapping(self) -> dict[str, Any]:
        """Return plain values of all options that affect rows or pieces, and `kind`."""

    @classmethod
    @abstractmethod
    def defaults(cls) -> dict[str, Any]:
        """Return `to_mapping` of a source with default options."""
