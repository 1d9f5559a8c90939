"""Base class of sources of rows with their options, and the scans that resolve them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import ConfigError, DkfeatError, InputError
from dkfeat.messages import printable
from dkfeat.sources.find import find_files
from dkfeat.sources.options import (
    MOST_EXACT,
    as_paths,
    choices_of,
    declared_labels,
    dtype_of_labels,
    exact_integers,
    is_int64,
    limit_of_bad_rows,
    parse_size,
    plain_value,
)
from dkfeat.sources.pieces import Origin, Piece, RejectedRow
from dkfeat.validation import check_integer

if TYPE_CHECKING:
    from dkfeat.blocks import BadRow, RowBlock


MOST_LABELS = 10_000
"""Maximum number of different labels that are listed."""
_MOST_FEATURES = 2**63 - 1
_NOT_OF_ROWS = {
    "urlpath", "storage_options", "on_bad_row", "max_bad_rows", "max_line_bytes", "encoder", "as_words", "rows", "y"
}  # fmt: skip


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
    labels: set[Any] | None = field(default_factory=set)
    """Set of labels, numbers or words; None if there are more than 10,000."""
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

    def add_labels(self, labels: np.ndarray) -> None:
        """Add distinct labels to the counts."""
        is_int64 = labels.dtype == np.int64
        self.has_integer_labels = self.has_integer_labels and (is_int64 or bool(exact_integers(labels).all()))
        self.has_inexact_labels |= is_int64 and bool(np.any((labels > MOST_EXACT) | (labels < -MOST_EXACT)))
        self.add_distinct(labels.tolist())

    def add_distinct(self, labels: Iterable[Any]) -> None:
        """Add distinct labels, numbers or words, to the set."""
        if self.labels is not None:
            self.labels.update(labels)
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
    classes: tuple[str, ...] | None
    """Words that are labels, in the order of their bytes; None if labels are numbers."""
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
        cls, source: Source, files: Sequence[SourceFile], splits: Sequence[Split], parts: Sequence[SplitScan]
    ) -> Self:
        """Join the scans of all splits of a source; `parts` are in the order of `splits`."""
        lowest = min((part.min_index for part in parts if part.min_index is not None), default=1)
        highest = max((part.max_index for part in parts if part.max_index is not None), default=0)
        zero_based = lowest == 0 if source.zero_based == "auto" else source.zero_based
        n_features = source.n_features
        if n_features is None:
            n_features = min(max(highest + zero_based, 1), _MOST_FEATURES)
        label_dtype, classes = source.label_dtype, source.classes
        if label_dtype == "auto":
            declared = all(map(is_int64, source.labels or ()))
            label_dtype = "int64" if declared and all(part.has_integer_labels for part in parts) else "float64"
        labels: tuple[float, ...] | None = None
        sets = {id(part.labels): part.labels for part in parts}.values()  # many parts share a set
        if classes == ():
            if None in sets:
                raise ConfigError(
                    f"the labels are more than {MOST_LABELS:,} different words, but words are names of classes; name "
                    "another column by label= (--label), or store numbers in it"
                )
            classes = tuple(sorted(set().union(*(each or () for each in sets)), key=str.encode))
            if not classes:
                raise ConfigError(
                    "labels are words, which name the classes, but the source has no rows, or none passes its filters; "
                    "name the words in labels= (--labels), or read a source with rows first"
                )
        if classes is not None:
            labels = tuple(range(len(classes)))
        elif None not in sets:
            union = sorted(set().union(*(each for each in sets if each is not None)))
            kind = int if label_dtype == "int64" else float
            labels = tuple(map(kind, union)) if len(union) <= MOST_LABELS else None
        pairs = list(zip(splits, parts, strict=True))
        bad = ((split.files[part.first_bad.file], part.first_bad) for split, part in pairs if part.first_bad)
        return cls(
            n_bad_rows=sum(part.n_bad_rows for part in parts),
            first_bad=next(bad, None),
            unterminated=tuple(split.files[position] for split, part in pairs for position in part.unterminated),
            n_features=n_features,
            zero_based=zero_based,
            label_dtype=label_dtype,
            labels=labels,
            classes=classes,
            n_rows=sum(part.n_rows for part in parts),
            nnz=_sum(part.nnz for part in parts),
            n_empty_rows=_sum(part.n_empty_rows for part in parts),
            rows_per_split=tuple(part.n_rows for part in parts),
            files=tuple(files),
            splits=tuple(splits),
        )


def _sum(counts: Iterable[int | None]) -> int | None:
    found = list(counts)
    return None if None in found else sum(filter(None, found))


@dataclass(frozen=True, slots=True, repr=False)
class Source(ABC):
    """Files of rows, with the options for reading them; immutable, and checked when it is created.

    The fields of a concrete source, a frozen dataclass, are its options. Options that depend on the whole source are
    resolved before rows are read, in this order: from the spec of a data set, from the files' metadata, by a scan.

    Raises
    ------
    dkfeat.errors.ConfigError
        If a setting is out of range.
    """

    kind: ClassVar[str]
    """Name of the format: ``to_mapping()["kind"]``."""
    in_memory: ClassVar[bool] = False
    """True if the rows are in memory, not in files."""
    can_quarantine: ClassVar[bool] = True
    """True if bad rows can be set aside: `on_bad_row` is an option."""
    row_options: ClassVar[frozenset[str]] = frozenset()
    """Options that select rows and kept columns; `like` does not inherit them."""
    _to_resolve: ClassVar[tuple[str, ...]] = ("n_features", "zero_based", "label_dtype")

    urlpath: str | Sequence[str]
    """Path, glob or fsspec URL, or several; stored as a tuple."""
    n_features: int | None = field(default=None, kw_only=True)
    """Number of columns, from 1 to 2**63 - 1; None: found in the files' metadata, or by a scan."""
    blocksize: int | str = field(default="64MiB", kw_only=True)
    """Bytes of text, or of Parquet rows in memory, that a task reads at a time, at most 2 GiB. It is the target size of
    the rows of a split and of a piece. Stored as a number of bytes."""
    dtype: Literal["float32", "float64"] = field(default="float32", kw_only=True)
    """Type of the values; a value that overflows it is an error."""
    labels: tuple[float, ...] | None = field(default=None, kw_only=True)
    """Allowed labels, such as -1 and 1, any other is an error; None: all."""
    label_dtype: Literal["auto", "int64", "float64"] = field(default="auto", kw_only=True)
    """Type of the labels; "auto": int64 if all labels are integers of int64, else float64. This is decided by `labels`
    if given, else by the labels of the whole source. Integers are never rounded: one that is not exact in the type is
    an error. A label with a point or an exponent is a float64 number, and an integer only below 2**53 in magnitude."""
    on_bad_row: Literal["raise", "quarantine"] = field(default="raise", kw_only=True)
    """Treatment of rows that are malformed, violate the options, or are rejected by the map: "raise" ends the run with
    the position of the first one, "quarantine" stores them separately, up to `max_bad_rows` of those that the run adds,
    and ``open_shards(target).quarantine()`` reads them; the features of other rows are the same as without them. A run
    that ended at a bad row can be continued with "quarantine". Faults of the file itself, such as a truncated gzip
    stream, always end the run. It is not stored in the spec."""
    max_bad_rows: float | str = field(default=0.01, kw_only=True)
    """Maximum number of bad rows of a batch with quarantine: an int is a number of rows, a float a share of all rows,
    such as 0.01; 1.0 sets no limit. Text is one of these, or a percentage such as "1%"; it is stored as a number. With
    more bad rows a run ends and commits nothing. It is not stored in the spec."""
    storage_options: Mapping[str, Any] | None = field(default=None, kw_only=True, repr=False, hash=False)
    """Options of fsspec; they may hold secrets, so they are neither shown nor stored."""
    classes: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Words that are labels, in the order of their bytes: shards have their positions. None: labels are numbers; empty:
    words that a scan must find. `labels` with words sets them."""
    as_words: bool = field(default=False, kw_only=True, repr=False)
    """True if rows have words as labels, instead of positions among the `classes`, and may have others; a prediction
    and an evaluation set it."""
    encoder: Any = field(default=None, kw_only=True, repr=False, compare=False)
    """Encoder, which turns rows into sparse rows of numbers; a run sets it, and its spec has it. Without one, or until
    it is fitted, rows are read as they are."""

    if TYPE_CHECKING:  # each source declares them, at the place that they have in its specs
        zero_based: Any = field(default=True, kw_only=True)
        multilabel: Any = field(default=False, kw_only=True)
        query_id: Any = field(default=False, kw_only=True)
        features: Any = field(default=None, kw_only=True)  # of tables alone

    def __post_init__(self) -> None:
        self._set("urlpath", as_paths(self.urlpath))
        if self.n_features is not None:
            self._set("n_features", check_integer(self.n_features, "n_features", low=1, high=_MOST_FEATURES))
        self._set("blocksize", parse_size("blocksize", self.blocksize))
        for name, accepted in choices_of(type(self)).items():
            value = getattr(self, name)
            if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in accepted):
                raise ConfigError(f"{name}={value!r}, but it must be one of {', '.join(map(repr, accepted))}")
        self._set("max_bad_rows", limit_of_bad_rows(self.max_bad_rows))
        if self.labels is not None:
            self._set("labels", declared_labels(self.labels, self.label_dtype))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        shown = {item.name: getattr(self, item.name) for item in fields(self) if item.repr}
        shown["urlpath"] = tuple(printable(path) for path in self.urlpath)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def patterns(self) -> tuple[str, ...]:
        """Paths, globs and URLs in which `files` looks for files."""
        return tuple(self.urlpath)

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Names of the options that must be resolved before rows can be read."""
        names = tuple(name for name in self._to_resolve if getattr(self, name) in (None, "auto"))
        return (*names, "classes") if self.classes == () else names

    @property
    def is_table(self) -> bool:
        """True if rows are those of a table, with columns of any type."""
        return False

    @property
    def may_be_table(self) -> bool:
        """True if rows are those of a table, or may be by the options that are not resolved."""
        return self.is_table

    @property
    def is_encoded(self) -> bool:
        """True if there is a fitted encoder."""
        return self.encoder is not None and self.encoder.__sklearn_is_fitted__()

    @property
    def has_table_encoder(self) -> bool:
        """True if there is an encoder, fitted or not, for the columns of a table."""
        return self.encoder is not None and bool(self.encoder.takes_tables)

    def encoded(self, block: RowBlock, odd: Any = None) -> RowBlock:
        """Return the rows of a block as the encoder, if it is fitted, turns them into rows of numbers.

        Numbers of odd values of tables are added to the array `odd`, see `Piece.odd`.
        """
        return replace(block, X=self.encoder.rows_for_map(block.X, odd=odd)) if self.is_encoded else block

    def numbered(self, labels: np.ndarray) -> np.ndarray:
        """Return labels as numbers: a word as its position among the classes, any other one as their number."""
        if labels.dtype != object:
            return labels
        numbers = {word: number for number, word in enumerate(self.classes or ())}
        return np.array([numbers.get(word, len(numbers)) for word in labels], np.int64)

    @property
    def is_quarantined(self) -> bool:
        """True if bad rows are set aside."""
        return self.on_bad_row == "quarantine"

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values of all options that affect rows or pieces, and `kind`."""
        names = [item.name for item in fields(self) if item.name not in _NOT_OF_ROWS]
        values = {name: plain_value(getattr(self, name)) for name in names}
        return {"kind": self.kind, **{name: value for name, value in values.items() if name != "classes" or value}}

    @property
    def is_resolved(self) -> bool:
        """True if all options are resolved, so that `read` can be called."""
        return not self.unresolved

    def files(self, *, checks: bool = True) -> tuple[SourceFile, ...]:
        """List the files in byte-wise order of their names; see `find_files`."""
        return find_files(self.patterns, self.storage_options, checks=checks)

    def inspect(self, files: Sequence[SourceFile]) -> Self:  # noqa: ARG002  # text has no metadata
        """Return the source with the options that its other options and the files' metadata determine."""
        if self.labels is None or self.label_dtype != "auto":
            return self
        return self.replaced(label_dtype=dtype_of_labels(self.labels))

    @abstractmethod
    def splits(self, files: Sequence[SourceFile] | None = None) -> tuple[Split, ...]:
        """Cut files into splits; a file without rows is one empty split."""

    def for_worker(self, split: Split) -> Split:
        """Return what a task gets in place of a split: with its rows, if they are in memory."""
        return split

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

    def warn_of_columns(self, files: Sequence[SourceFile] | None, known: Collection[str] | None) -> None:  # noqa: B027  # text has no columns
        """Warn of columns of files that are not among the known ones, and of those that are read, but files lack.

        If `files` is None, they are listed; if `known` is None, other columns are left out on purpose.
        """

    def rows_of(self, split: Split) -> int | None:  # noqa: ARG002  # text has no counts
        """Return the number of rows of a split; None if the rows must be read to count them."""
        return None

    def count_rows(self, files: Sequence[SourceFile]) -> int | None:  # noqa: ARG002  # text has no counts
        """Return the number of rows of files, also of those that filters exclude; None as for `rows_of`."""
        return None

    def split_bytes(self, split: Split) -> int:
        """Return the number of stored bytes that a task reads for this split."""
        return split.stop - split.start

    def piece_bytes(self, split: Split) -> int:
        """Return the maximum size of a piece of this split, in the unit of `blocksize`."""
        most = int(self.blocksize)
        return most if split.is_compressed else min(most, split.stop - split.start)

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

    def stored_rows(self, split: Split, bad: Collection[tuple[int, int]]) -> Iterator[Any]:  # noqa: ARG002  # subclasses use it
        """Read a split as it is stored, in bounded memory.

        Yields
        ------
        table : pyarrow.Table
            Rows with all their columns, or the column ``lines.LINE``; without those that filters exclude, and without
            bad ones: `bad` has the position of the file and the offset of each, as in `BadRow`. The first table has no
            rows.
        """
        raise ConfigError(f"rows of {self.kind} are not copied as they are stored; give files of rows")

    def origins(self, split: Split, piece: Piece, before: Sequence[int]) -> list[Origin]:
        """Locate the rows of a piece; `before` has the number of earlier rows of each file of the split."""
        counts = piece.rows_by_file or (piece.block.n_rows,)
        return [
            Origin(file.name, split.number, first, n_rows)
            for file, first, n_rows in zip(split.files, before, counts, strict=True)
        ]

    def rejected_rows(self, split: Split, piece: Piece, rejected: Sequence[RejectedRow]) -> list[BadRow]:
        """Locate rows that a map rejects, in ascending order, by reading the split again."""
        raise InputError(f"{split.title}: split {split.number}, piece {piece.number}: {rejected[0].reason}")

    def rejected_row_error(self, split: Split, piece: Piece, rejected: RejectedRow) -> DkfeatError:
        """Make the error for a row that a map rejects, with its location."""
        (row,) = self.rejected_rows(split, piece, [rejected])
        return self.bad_row_error(split.files[row.file], row, row.message)

    def bad_row_error(self, file: SourceFile, row: BadRow, reason: str) -> DkfeatError:  # noqa: ARG002  # subclasses use it
        """Make the error for a row that was set aside, with its location; `reason` is the message."""
        return InputError(f"{file.name}: {reason}")

    def describe_rounded(self, file: SourceFile, row: BadRow) -> str:
        """Return the warning about a row with an integer feature that was rounded, with its location."""
        return str(self.bad_row_error(file, row, row.message))

    def replaced(self, **options: Any) -> Self:
        """Return a copy with other options."""
        return replace(self, **options)

    @classmethod
    def recognises(cls, paths: Sequence[str]) -> bool:  # noqa: ARG003  # subclasses use it
        """Return True if all paths are those of files of this format, by their names."""
        return False

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return `to_mapping` of a source with default options."""
        return cls("-").to_mapping()
