"""A source of rows in LIBSVM text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, count
from typing import Any, ClassVar, Literal

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import ConfigError, ParseError
from dkfeat.io.files import find_files, printable
from dkfeat.io.grouping import grouped
from dkfeat.io.libsvm_errors import parse_error
from dkfeat.io.libsvm_pieces import read_pieces
from dkfeat.io.libsvm_places import place_rows, refused_row
from dkfeat.io.libsvm_scan import scan_pieces
from dkfeat.io.quarantine import BadRow
from dkfeat.io.scans import Scan, SplitScan
from dkfeat.io.source import Piece, Refusal, Source
from dkfeat.io.source_options import check_choices, declared_labels, dtype_of_labels, integer, parse_size, paths

__all__ = ["LibsvmSource"]

MOST_RANGES = 200_000
"""Ranges that plain files may be cut into: twice the tasks of the largest job that is planned for."""


@dataclass(frozen=True, slots=True)
class LibsvmSource(Source):
    """Files of LIBSVM text, and how they are read.

    A line is a row: a label, then ``index:value`` with rising indices, ``#`` and a comment at will. Blank and comment
    lines are no rows; a label alone is a row without features. Values are rounded correctly to float64, then to
    `dtype`; those that are zero then, also ``-0.0``, are not stored. Whatever else there is is an error with its place.

    Files that end in .gz, .bz2, .xz, .zst are decompressed while they are read, each as one split. Tiny files that
    follow one another are read together, as one split.

    Raises
    ------
    dkfeat.errors.ConfigError
        A setting is out of range.

    Examples
    --------
    >>> source = LibsvmSource("day*.svm", n_features=10, zero_based=False, label_dtype="int64", blocksize="1MiB")
    >>> source.is_settled, source.blocksize
    (True, 1048576)
    """

    kind: ClassVar[str] = "libsvm"
    sets_aside: ClassVar[bool] = True

    urlpath: str | Sequence[str]
    """Path, glob or fsspec URL, or several; kept as a tuple."""
    n_features: int | None = field(default=None, kw_only=True)
    """Number of columns, 1 to 2**63 - 1; None: settled by a scan."""
    zero_based: bool | Literal["auto"] = field(default="auto", kw_only=True)
    """Whether index 0 is the first column, not 1; "auto": whether any index in the whole source is 0."""
    blocksize: int | str = field(default="64MiB", kw_only=True)
    """Bytes of text in a split of a plain file and in a piece, 1 to 2 GiB; kept as an int."""
    dtype: Literal["float32", "float64"] = field(default="float32", kw_only=True)
    """Type of the values; one that overflows it is an error."""
    multilabel: bool = field(default=False, kw_only=True)
    """Labels are lists joined by commas; a line that begins with a blank is a row without labels."""
    query_id: bool = field(default=False, kw_only=True)
    """Each row has ``qid:n`` behind its label, which is kept. Without this option a query id is an error."""
    labels: tuple[float, ...] | None = field(default=None, kw_only=True)
    """Labels allowed; any other is an error. None: all."""
    label_dtype: Literal["auto", "int64", "float64"] = field(default="auto", kw_only=True)
    """Type of the labels; "auto": int64 if every label in `labels`, or without these in the whole source, is an integer
    below 2**53 in magnitude."""
    max_line_bytes: int | str = field(default="256MiB", kw_only=True)
    """A longer line is an error: what bounds memory in a hostile file. Kept as an int."""
    on_bad_row: Literal["raise", "quarantine"] = field(default="raise", kw_only=True)
    """What a wrong line is: an error, or set aside with its place. Rows are read alike, so no spec holds it."""
    storage_options: Mapping[str, Any] | None = field(default=None, kw_only=True, repr=False, hash=False)
    """For fsspec; may hold secrets, so it is neither shown nor stored."""

    def __post_init__(self) -> None:
        self._set("urlpath", paths(self.urlpath))
        if self.n_features is not None:
            self._set("n_features", integer("n_features", self.n_features, 2**63 - 1))
        self._set("blocksize", parse_size("blocksize", self.blocksize))
        self._set("max_line_bytes", parse_size("max_line_bytes", self.max_line_bytes))
        check_choices(self, _CHOICES)
        if self.labels is not None:
            self._set("labels", declared_labels(self.labels, self.label_dtype))

    def __repr__(self) -> str:
        shown = {item.name: getattr(self, item.name) for item in fields(self) if item.repr}
        shown["urlpath"] = tuple(printable(path) for path in self.urlpath)
        return f"LibsvmSource({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Paths, globs and URLs that `files` looks up."""
        return tuple(self.urlpath)

    @property
    def is_settled(self) -> bool:
        """Whether `read` can begin: columns, index base and label type are known."""
        return self.n_features is not None and self.zero_based != "auto" and self.label_dtype != "auto"

    def inspect(self, files: Sequence[SourceFile]) -> LibsvmSource:  # noqa: ARG002  # text says nothing but by being read
        """Source with the label type that the labels allowed have."""
        if self.labels is None or self.label_dtype != "auto":
            return self
        return replace(self, label_dtype=dtype_of_labels(self.labels))

    def settle(self, scan: Scan) -> LibsvmSource:
        """Source with the open options as the scan found them."""
        return replace(
            self,
            n_features=scan.n_features,
            zero_based=scan.zero_based,
            label_dtype=scan.label_dtype,  # type: ignore[arg-type]  # a Scan holds one of the two
        )

    def files(self) -> tuple[SourceFile, ...]:
        """Files of the source in byte-wise order of their names; see `dkfeat.io.files.find_files` for the errors."""
        return find_files(self.urlpath, self.storage_options)

    def splits(self, files: Sequence[SourceFile] | None = None, first_number: int = 0) -> tuple[Split, ...]:
        """Cut files into splits: ranges of plain files, whole compressed files, groups of tiny files.

        A range owns the lines that begin in it. An empty file is one empty split, or belongs to a group.

        Raises
        ------
        dkfeat.errors.ConfigError
            For more than `MOST_RANGES` ranges.
        """
        blocksize = int(self.blocksize)
        files = self.files() if files is None else files
        plain_bytes = sum(file.size for file in files if file.compression is None)
        if plain_bytes > blocksize * MOST_RANGES:
            message = (
                f"blocksize={blocksize:,} bytes cuts {plain_bytes:,} bytes of text into more than "
                f"{MOST_RANGES:,} tasks; raise it, to 64MiB for instance"
            )
            raise ConfigError(message)
        numbers = count(first_number)

        def cut(file: SourceFile) -> Iterator[Split]:
            step = blocksize if file.compression is None else max(file.size, 1)
            for start in range(0, max(file.size, 1), step):
                yield Split(number=next(numbers), file=file, start=start, stop=min(start + step, file.size))

        return grouped(chain.from_iterable(map(cut, files)), blocksize)

    def split_bytes(self, split: Split) -> int:
        """Bytes, as stored, that a task reads of this split."""
        return split.stop - split.start

    def piece_bytes(self, split: Split) -> int:
        """Most bytes of text in one piece of this split."""
        return int(self.blocksize) if split.is_compressed else min(int(self.blocksize), split.stop - split.start)

    def scan_split(self, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
        """Check a split's text and count what is in it, in memory of about `WINDOW_BYTES`.

        Options that are given are held to; with ``zero_based="auto"`` index 0 is allowed. `proceed` is called at every
        window of text; what it raises ends the scan.

        Raises
        ------
        dkfeat.errors.ParseError
            With the place of the token.
        dkfeat.errors.SpecConflictError
            The file is not as it was listed.
        """
        return scan_pieces(self, split, proceed)

    def read(self, split: Split, max_piece_rows: int | None = None, *, checksum: bool = True) -> Iterator[Piece]:
        """Read a split, one piece after another.

        A piece ends before the first row that begins `blocksize` or more bytes of decompressed text after the piece, or
        that would be one more than `max_piece_rows`, or one more bad row than `MOST_BAD_ROWS`, and with the split.
        Pieces depend on nothing else. A split has at least one piece.

        Parameters
        ----------
        split : Split
        max_piece_rows : int, optional
            At least 1; None: no bound.
        checksum : bool, default=True
            Compute ``Piece.source_sha256``: a quarter of the time.

        Yields
        ------
        piece : Piece
            Only whole rows that were read while the file was as listed.

        Raises
        ------
        dkfeat.errors.ConfigError
            The source is not settled.
        dkfeat.errors.ParseError
            With the place of the token.
        dkfeat.errors.SpecConflictError
            The file is not as it was listed.
        """
        if not self.is_settled:
            message = (
                "n_features, zero_based and label_dtype must be known before reading; give them or settle by a scan"
            )
            raise ConfigError(message)
        if max_piece_rows is not None:
            max_piece_rows = integer("max_piece_rows", max_piece_rows, 2**31 - 1)
        return read_pieces(self, split, max_piece_rows, checksum)

    def refused_rows(self, split: Split, piece: Piece, refusals: Sequence[Refusal]) -> list[BadRow]:
        """Say where rows stand that a map refuses, by reading the split once more."""
        return place_rows(self, split, piece, refusals)

    def refused(self, split: Split, piece: Piece, refusal: Refusal) -> ParseError:
        """Error for a row that a map refuses, at the place of the value to blame."""
        return refused_row(self, split, piece, refusal)

    def bad(self, file: SourceFile, row: BadRow, reason: str) -> ParseError:
        """Error about a row that was set aside, at the place of the token to blame."""
        return parse_error(reason, file, row.offset, row.column, self.storage_options)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values of all options that affect rows or pieces."""
        names = ("n_features", "zero_based", "dtype", "multilabel", "query_id", "label_dtype", "blocksize")
        labels = None if self.labels is None else list(self.labels)
        return {"kind": self.kind, **{name: getattr(self, name) for name in names}, "labels": labels}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """`to_mapping` of a source whose options are all left open."""
        return cls("-").to_mapping()


_CHOICES: dict[str, tuple[object, ...]] = {
    "zero_based": (True, False, "auto"),
    "dtype": ("float32", "float64"),
    "multilabel": (True, False),
    "query_id": (True, False),
    "label_dtype": ("auto", "int64", "float64"),
    "on_bad_row": ("raise", "quarantine"),
}
