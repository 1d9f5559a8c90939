"""A source of rows in Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from dkfeat.blocks import SourceFile, Split
from dkfeat.canonical import fingerprint
from dkfeat.errors import ConfigError, ParquetError, SourceNotFoundError
from dkfeat.io.columns import KEPT_TYPES, RESERVED
from dkfeat.io.files import find_files, printable
from dkfeat.io.parquet_batches import footer_of
from dkfeat.io.parquet_columns import Schema, settled_options
from dkfeat.io.parquet_files import Footer, footers, open_parquet
from dkfeat.io.parquet_filters import Filters, normalized
from dkfeat.io.parquet_pieces import read_pieces
from dkfeat.io.parquet_quarantine import place_rows, refused_row
from dkfeat.io.parquet_scan import scan_groups
from dkfeat.io.parquet_splits import cut_file, folder_pattern, is_hidden
from dkfeat.io.quarantine import BadRow
from dkfeat.io.scans import Scan, SplitScan
from dkfeat.io.source import Piece, Refusal, Source
from dkfeat.io.source_options import check_choices, declared_labels, integer, parse_size, paths

__all__ = ["ParquetSource"]

_CHOICES: dict[str, tuple[object, ...]] = {
    "features_as": ("auto", "columns", "vector", "sparse"),
    "zero_based": (True, False),
    "dtype": ("float32", "float64"),
    "multilabel": (True, False, "auto"),
    "label_dtype": ("auto", "int64", "float64"),
    "on_bad_row": ("raise", "quarantine"),
}


@dataclass(frozen=True, slots=True)
class ParquetSource(Source):
    """Parquet files, and which of their columns are read as what.

    Features are told in one of four ways, which the columns' types show: numbers in many columns; one column of
    vectors (lists, or fixed-size binary of little-endian float32); sparse rows as two columns of lists, indices and
    values; or one column of structs of these two. Nulls, NaN and infinities are errors with their place, or set aside
    with their row; a column that is missing or of another type is always an error. Integers and decimals are read as
    float64, then all values are rounded to `dtype`; one that overflows it is bad. Values that are zero are not stored.

    Raises
    ------
    dkfeat.errors.ConfigError
        A setting is out of range.

    Examples
    --------
    >>> source = ParquetSource("day*.parquet", features=("height", "width"), label="kind", keep="name")
    >>> source.features, source.is_settled
    (('height', 'width'), False)
    """

    kind: ClassVar[str] = "parquet"
    sets_aside: ClassVar[bool] = True
    own_rows: ClassVar[frozenset[str]] = frozenset({"filters", "weight", "id", "keep", "kept_types"})

    urlpath: str | Sequence[str]
    """File, glob, folder of ``*.parquet`` files or fsspec URL, or several; kept as a tuple. Names in a folder that
    begin with ``_`` or ``.`` are passed over."""
    features: str | Sequence[str] | None = field(default=None, kw_only=True)
    """Names of the feature columns, in order; kept as a tuple. None: the column ``features`` if it holds vectors or
    structs, else ``indices`` and ``values`` if they hold lists, else all columns of numbers without another use, as the
    first file has them."""
    features_as: Literal["auto", "columns", "vector", "sparse"] = field(default="auto", kw_only=True)
    """How they are told; "auto": by their types. A single column of indices, whose values are all 1, is "sparse"."""
    label: str | None = field(default="label", kw_only=True)
    """Column of labels: integers, floats or booleans, or lists of them; None: rows have none, and get 0."""
    weight: str | None = field(default=None, kw_only=True)
    """Column of weights for training, finite and at least 0; shards keep it as ``weight``."""
    query_id: Any = field(default=None, kw_only=True)
    """Column of integers that shards keep as ``qid``; True: the column ``qid``."""
    id: str | None = field(default=None, kw_only=True)
    """Column that shards keep as ``id``."""
    keep: str | Sequence[str] = field(default=(), kw_only=True)
    """Columns that shards keep by their names: integers, floats, booleans, text, dates or timestamps, nulls among them.
    Kept as a tuple."""
    filters: Any = field(default=None, kw_only=True)
    """Which rows are read: comparisons such as ``[("day", ">=", "2026-11-20"), ("kind", "in", ["a", "b"])]`` that must
    all hold, or lists of these of which one must. Row groups that cannot hold such rows are not read."""
    n_features: int | None = field(default=None, kw_only=True)
    """Number of columns; None: as the types tell, or settled by a scan for sparse rows and lists."""
    zero_based: bool = field(default=True, kw_only=True)
    """Whether index 0 of sparse rows is the first column, not 1."""
    blocksize: int | str = field(default="64MiB", kw_only=True)
    """Bytes of rows in memory, index and value each, in a split and in a piece, 1 to 2 GiB; kept as an int. A row group
    that is larger is one split."""
    dtype: Literal["float32", "float64"] = field(default="float32", kw_only=True)
    """Type of the values; one that overflows it is an error."""
    multilabel: bool | Literal["auto"] = field(default="auto", kw_only=True)
    """Whether labels are lists; "auto": by the type of their column."""
    labels: tuple[float, ...] | None = field(default=None, kw_only=True)
    """Labels allowed; any other is an error. None: all."""
    label_dtype: Literal["auto", "int64", "float64"] = field(default="auto", kw_only=True)
    """Type of the labels; "auto": int64 for integers and booleans, and for floats that are all integers."""
    kept_types: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Types of `id` and `keep` in shards, in order; None: as the first file tells."""
    on_bad_row: Literal["raise", "quarantine"] = field(default="raise", kw_only=True)
    """What a bad row is: an error, or set aside with its place. Rows are read alike, so no spec holds it."""
    storage_options: Mapping[str, Any] | None = field(default=None, kw_only=True, repr=False, hash=False)
    """For fsspec; may hold secrets, so it is neither shown nor stored."""

    def __post_init__(self) -> None:
        self._set("urlpath", paths(self.urlpath))
        if self.features is not None:
            self._set("features", _names("features", self.features))
            if not self.features:
                message = "features is empty; name columns, or leave it out to take all columns of numbers"
                raise ConfigError(message)
        self._set("keep", _names("keep", self.keep))
        if isinstance(self.query_id, bool):
            self._set("query_id", "qid" if self.query_id else None)
        for name in ("label", "weight", "query_id", "id"):
            if (value := getattr(self, name)) is not None and (not isinstance(value, str) or not value):
                message = f"{name}={value!r:.100}, but it must be the name of a column"
                raise ConfigError(message)
        self._set("filters", normalized(self.filters))
        if self.n_features is not None:
            self._set("n_features", integer("n_features", self.n_features, 2**63 - 1))
        self._set("blocksize", parse_size("blocksize", self.blocksize))
        check_choices(self, _CHOICES)
        if not self.zero_based and self.features_as in ("columns", "vector"):
            message = "zero_based=False is for indices of sparse rows; leave it out"
            raise ConfigError(message)
        if self.labels is not None:
            self._set("labels", declared_labels(self.labels, self.label_dtype))
        self._check_kept()

    def __repr__(self) -> str:
        shown = {item.name: getattr(self, item.name) for item in fields(self) if item.repr}
        shown["urlpath"] = tuple(printable(path) for path in self.urlpath)
        return f"ParquetSource({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_kept(self) -> None:
        taken = [name for name in self.keep if name in RESERVED]
        if taken:
            message = (
                f"keep={taken[0]!r}, but shards have a column of that name for themselves; rename it in the source"
            )
            raise ConfigError(message)
        if self.id is not None and "id" in self.keep and self.id != "id":
            message = f"keep='id' and id={self.id!r} would both be the shards' column id; leave one out"
            raise ConfigError(message)
        if self.kept_types is not None:
            kinds = tuple(self.kept_types)
            self._set("kept_types", kinds)
            if len(kinds) != len(self.kept_columns) or not set(kinds) <= KEPT_TYPES.keys():
                message = (
                    f"kept_types={kinds!r}, but id and keep need {len(self.kept_columns)} of {', '.join(KEPT_TYPES)}"
                )
                raise ConfigError(message)

    @property
    def kept_columns(self) -> dict[str, str]:
        """Columns that shards keep: name there, then name in the source."""
        return {**({} if self.id is None else {"id": self.id}), **{name: name for name in self.keep}}

    @property
    def has_labels(self) -> bool:
        """Whether rows have labels of their own."""
        return self.label is not None

    @property
    def has_weights(self) -> bool:
        """Whether rows have weights."""
        return self.weight is not None

    @property
    def kept(self) -> dict[str, str]:
        """Types of the columns that shards keep, by their names there; known once they are settled."""
        return dict(zip(self.kept_columns, self.kept_types or (), strict=True))

    @property
    def filter_columns(self) -> tuple[str, ...]:
        """Columns that filters compare, each once."""
        filters: Filters = self.filters or ()
        return tuple(dict.fromkeys(column for alternative in filters for column, _, _ in alternative))

    @property
    def is_settled(self) -> bool:
        """Whether `read` can begin: columns, their form, their number and the label type are known."""
        return (
            self.features is not None
            and self.n_features is not None
            and self.kept_types is not None
            and "auto" not in (self.features_as, self.multilabel, self.label_dtype)
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        """Paths, globs and URLs that `files` looks up; a folder is looked through at any depth."""
        return tuple(folder_pattern(path, self.storage_options) for path in self.urlpath)

    def files(self) -> tuple[SourceFile, ...]:
        """Files of the source in byte-wise order of their names; see `dkfeat.io.files.find_files` for the errors."""
        patterns = self.patterns
        found = find_files(patterns, self.storage_options)
        if patterns == self.urlpath:
            return found
        shown = tuple(file for file in found if not is_hidden(file.name))
        if not shown:
            message = f"no file matches {printable(patterns[0])}, names that begin with _ or . left out"
            raise SourceNotFoundError(message)
        return shown

    def column_names(self, files: Sequence[SourceFile]) -> list[str]:
        """Names of all columns of the first file."""
        with open_parquet(files[0], self.storage_options) as parquet:
            return list(parquet.schema_arrow.names)

    def inspect(self, files: Sequence[SourceFile]) -> Self:
        """Source with the options that the schema of the first file settles."""
        if self.is_settled or not files:
            return self
        with open_parquet(files[0], self.storage_options) as parquet:
            return self.replaced(**settled_options(self, Schema(parquet.schema_arrow, files[0])))

    def settle(self, scan: Scan) -> Self:
        """Source with the open options as the scan found them."""
        settled = self.inspect(scan.files)
        return settled.replaced(n_features=scan.n_features, label_dtype=scan.label_dtype)

    def splits(self, files: Sequence[SourceFile] | None = None, first_number: int = 0) -> tuple[Split, ...]:
        """Cut files into splits: runs of row groups of up to `blocksize` bytes of rows, by the footers' counts.

        ``start`` and ``stop`` are numbers of row groups. Groups in which no row can pass the filters are left out. A
        file without rows is one empty split.

        Raises
        ------
        dkfeat.errors.ParquetError
            A file is damaged, or its columns are not what the source reads.
        """
        files = self.files() if files is None else files
        source = self.inspect(files)
        splits: list[Split] = []
        for file, footer in zip(files, source._footers(files), strict=True):
            splits.extend(cut_file(file, footer, int(self.blocksize), first_number + len(splits)))
        return tuple(splits)

    def rows_of(self, split: Split) -> int | None:
        """Rows of a split where the footer tells them: without filters."""
        return None if self.filters is not None else sum(self._footer(split).rows[split.start : split.stop])

    def split_bytes(self, split: Split) -> int:
        """Bytes, as stored, that belong to the rows of this split."""
        rows = self._footer(split).rows
        return split.file.size * sum(rows[split.start : split.stop]) // max(1, sum(rows))

    def piece_bytes(self, split: Split) -> int:
        """Most bytes of rows in memory in one piece of this split."""
        return min(int(self.blocksize), sum(self._footer(split).row_bytes[split.start : split.stop]))

    def scan_split(self, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
        """Count a split's rows, and read its labels, and its indices if the number of columns is open.

        `proceed` is called at every batch; what it raises ends the scan. Stored values are not counted.

        Raises
        ------
        dkfeat.errors.ParquetError
            With the place of the value.
        dkfeat.errors.SpecConflictError
            The file is not as it was listed.
        """
        return scan_groups(self.inspect([split.file]), split, proceed)

    def read(self, split: Split, max_piece_rows: int | None = None, *, checksum: bool = True) -> Iterator[Piece]:
        """Read a split, one piece after another.

        A piece ends before the first row that begins `blocksize` or more bytes of memory after the piece, or that would
        be one more than `max_piece_rows`, or one more bad row than `MOST_BAD_ROWS`, and with the split. A row counts 16
        bytes, one index and one value for each of its values, zeros among them, and the bytes of its kept text; a bad
        one counts none. Pieces depend on the rows of the split alone, not on how they are stored. ``Piece.start`` and
        ``Piece.stop`` are numbers of rows in the file.

        Parameters
        ----------
        split : Split
        max_piece_rows : int, optional
            At least 1; None: no bound.
        checksum : bool, default=True
            Compute ``Piece.source_sha256``.

        Yields
        ------
        piece : Piece
            Only whole rows that were read while the file was as listed.

        Raises
        ------
        dkfeat.errors.ConfigError
            The source is not settled.
        dkfeat.errors.ParquetError
            With the place of the value.
        dkfeat.errors.SpecConflictError
            The file is not as it was listed.
        """
        if not self.is_settled:
            message = "features, n_features and label_dtype must be known before reading; settle the source by a scan"
            raise ConfigError(message)
        if max_piece_rows is not None:
            max_piece_rows = integer("max_piece_rows", max_piece_rows, 2**31 - 1)
        return read_pieces(self, split, max_piece_rows, checksum)

    def refused_rows(self, split: Split, piece: Piece, refusals: Sequence[Refusal]) -> list[BadRow]:
        """Say where rows stand that a map refuses, by reading the split once more."""
        return place_rows(self, split, piece, refusals)

    def refused(self, split: Split, piece: Piece, refusal: Refusal) -> ParquetError:
        """Error for a row that a map refuses, with its place."""
        return refused_row(self, split, piece, refusal)

    def bad(self, file: SourceFile, row: BadRow, reason: str) -> ParquetError:  # noqa: ARG002  # reason has its place
        """Error about a row that was set aside; its message names the place."""
        return ParquetError(reason, path=printable(file.url))

    def to_mapping(self) -> dict[str, Any]:
        """Plain values of all options that affect rows or pieces."""
        mapping = {item.name: getattr(self, item.name) for item in fields(self)}
        del mapping["urlpath"], mapping["storage_options"], mapping["on_bad_row"]
        return {"kind": self.kind, **{name: _plain(value) for name, value in mapping.items()}}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """`to_mapping` of a source whose options are all left open."""
        return cls("-").to_mapping()

    def _footers(self, files: Sequence[SourceFile]) -> list[Footer]:
        token = fingerprint(self.to_mapping())
        return footers(files, self.storage_options, token, lambda file, parquet: footer_of(self, file, parquet))

    def _footer(self, split: Split) -> Footer:
        source = self.inspect([split.file])
        return source._footers([split.file])[0]


def _names(name: str, value: Any) -> tuple[str, ...]:
    """Names of columns, each once."""
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else (None,)
    if not all(isinstance(item, str) and item for item in names):
        message = f"{name}={value!r:.100}, but it must be the name of a column, or a list of names"
        raise ConfigError(message)
    doubled = next((item for item in names if names.count(item) > 1), None) if len(set(names)) < len(names) else None
    if doubled is not None:
        message = f"{name} has {doubled!r} twice; name each column once"
        raise ConfigError(message)
    return tuple(str(item) for item in names)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
