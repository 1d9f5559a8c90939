"""What the engine asks of a source, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from dkfeat.blocks import RowBlock, SourceFile, Split
from dkfeat.errors import DkfeatError, InputError

if TYPE_CHECKING:
    from dkfeat.io.quarantine import BadRow
    from dkfeat.io.scans import Scan, SplitScan

__all__ = ["Origin", "Piece", "Refusal", "Source"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Consecutive rows of a split: what one shard holds."""

    number: int
    """Position in the split, from 0."""
    last: bool
    """Whether the split ends with it."""
    block: RowBlock
    """The rows; none in the only piece of a split without rows."""
    start: int
    """Where its rows begin in the file and the piece before it ends: a byte of decompressed text, a row of Parquet."""
    stop: int
    """Where its rows end, exclusive."""
    source_sha256: str
    """SHA-256 of the text from start to stop, or of the rows as they were read from Parquet, as 64 hexadecimal digits;
    empty if it was not asked for."""
    rows_by_file: tuple[int, ...] = ()
    """Rows of each file of a group; empty for a split of one file."""
    bad_rows: tuple[BadRow, ...] = ()
    """Rows among its text that were set aside, in order; at most `dkfeat.io.quarantine.MOST_BAD_ROWS`."""
    lines: int | None = None
    """Lines of its text, where bad rows are set aside."""

    def without(self, rows: Sequence[int], bad_rows: Sequence[BadRow]) -> Piece:
        """Copy without some rows, which are among its bad rows instead; `bad_rows` are theirs, in order."""
        keep = np.ones(self.block.n_rows, np.bool_)
        keep[list(rows)] = False
        by_file = list(self.rows_by_file)
        for bad in bad_rows if by_file else ():
            by_file[bad.file] -= 1
        merged = sorted((*self.bad_rows, *bad_rows), key=lambda bad: (bad.file, bad.offset))
        return replace(self, block=self.block.take(keep), rows_by_file=tuple(by_file), bad_rows=tuple(merged))


class Refusal(NamedTuple):
    """A row of a piece that a map refuses."""

    row: int
    """In the piece, from 0."""
    column: int | None
    """Column of the value to blame, from 0; None where it is the whole row."""
    reason: str
    """What the map says, without a place."""


class Origin(NamedTuple):
    """Where consecutive rows come from."""

    file: str
    """Name of their source file."""
    split: int
    """Number of the split that they were read in."""
    first: int
    """Position of the first one among the rows of that file in that split, from 0; rows set aside do not count."""
    n_rows: int
    """Number of rows."""


class Source(ABC):
    """Files of rows, and how they are read.

    Concrete sources are frozen dataclasses whose fields are the options. What one split cannot know of the whole is
    settled before rows are read, in this order: from the spec of a data set, from the files' metadata, by a scan.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """Name of the format: ``to_mapping()["kind"]``."""
    sets_aside: ClassVar[bool] = False
    """Whether bad rows can be set aside: `on_bad_row` is an option."""
    own_rows: ClassVar[frozenset[str]] = frozenset()
    """Options that say which rows are read and what is kept beside them: `like` has no say in them."""

    urlpath: str | Sequence[str]
    """Path, glob or fsspec URL, or several."""
    n_features: int | None
    """Number of columns; None until settled."""
    blocksize: int | str
    """Bytes of rows in a split and in a piece."""
    zero_based: Any
    """Whether the first column is 0, not 1; "auto": not settled."""
    dtype: Any
    """Type of the values, "float32" or "float64"."""
    multilabel: Any
    """Whether rows have lists of labels."""
    query_id: Any
    """Whether rows have query ids: true or false as a condition."""
    labels: tuple[float, ...] | None
    """Labels allowed; None: all."""
    label_dtype: Any
    """Type of the labels, "int64" or "float64"; "auto" until settled."""
    storage_options: Mapping[str, Any] | None
    """For fsspec; may hold secrets, so it is neither shown nor stored."""
    on_bad_row: Any = "raise"
    """What a wrong row is: "raise", an error; "quarantine", set aside."""

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether `read` can begin."""

    @property
    @abstractmethod
    def patterns(self) -> tuple[str, ...]:
        """Paths, globs and URLs that `files` looks up."""

    @abstractmethod
    def files(self) -> tuple[SourceFile, ...]:
        """Files of the source, in byte-wise order of their names."""

    def inspect(self, files: Sequence[SourceFile]) -> Self:  # noqa: ARG002  # text says nothing but by being read
        """Source with what the files tell without their rows being read; what is still open needs a scan."""
        return self

    @abstractmethod
    def splits(self, files: Sequence[SourceFile] | None = None, first_number: int = 0) -> tuple[Split, ...]:
        """Cut files into splits; a file without rows is one empty split."""

    @property
    def has_labels(self) -> bool:
        """Whether rows have labels of their own."""
        return True

    @property
    def has_weights(self) -> bool:
        """Whether rows have weights, which shards keep."""
        return False

    @property
    def kept(self) -> Mapping[str, str]:
        """Types of further columns that shards keep, by their names there."""
        return {}

    def rows_of(self, split: Split) -> int | None:  # noqa: ARG002  # text has no counts
        """Rows of a split, where they are known without being read."""
        return None

    @abstractmethod
    def split_bytes(self, split: Split) -> int:
        """Bytes, as stored, that a task reads of this split."""

    @abstractmethod
    def piece_bytes(self, split: Split) -> int:
        """Most bytes of rows in one piece of this split, in the unit of `blocksize`."""

    @abstractmethod
    def scan_split(self, split: Split, proceed: Callable[[], object] | None = None) -> SplitScan:
        """Tell what is in a split; `proceed` is called now and then, and what it raises ends the scan."""

    @abstractmethod
    def settle(self, scan: Scan) -> Self:
        """Source with the open options as a scan of the whole found them."""

    @abstractmethod
    def read(self, split: Split, max_piece_rows: int | None = None, *, checksum: bool = True) -> Iterator[Piece]:
        """Read a split of a settled source piece by piece, in bounded memory."""

    def origins(self, split: Split, piece: Piece, before: Sequence[int]) -> list[Origin]:
        """Say where the rows of a piece come from; `before` are the rows of each file of the split before it."""
        counts = piece.rows_by_file or (piece.block.n_rows,)
        return [
            Origin(file.name, split.number, first, n_rows)
            for file, first, n_rows in zip(split.files, before, counts, strict=True)
        ]

    def refused_rows(self, split: Split, piece: Piece, refusals: Sequence[Refusal]) -> list[BadRow]:
        """Say where rows stand that a map refuses; they rise."""
        message = (
            f"{split.title}: {len(refusals):,} rows of piece {piece.number} are refused by the map, but a source of "
        )
        message += f"kind {self.kind!r} sets no rows aside; the first for this: {refusals[0].reason}"
        raise InputError(message)

    def refused(self, split: Split, piece: Piece, refusal: Refusal) -> DkfeatError:
        """Error for a row that a map refuses, with its place."""
        return InputError(f"{split.title}: split {split.number}, piece {piece.number}: {refusal.reason}")

    def bad(self, file: SourceFile, row: BadRow, reason: str) -> DkfeatError:  # noqa: ARG002  # others know places
        """Error about a row that was set aside, with its place; `reason` holds its message."""
        return InputError(f"{file.name}: {reason}")

    def replaced(self, **options: Any) -> Self:
        """Copy with other options."""
        return replace(self, **options)  # type: ignore[type-var]  # every source is a dataclass; a base cannot say so

    @abstractmethod
    def to_mapping(self) -> dict[str, Any]:
        """Plain values of all options that affect rows or pieces, and `kind`."""

    @classmethod
    @abstractmethod
    def defaults(cls) -> dict[str, Any]:
        """`to_mapping` of a source whose options are all left open."""
