"""Pieces of rows that a source yields, with their locations and their bad rows: set aside, or rejected by a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse

from dkfeat.blocks import PackedCodes, RowBlock
from dkfeat.messages import printable

if TYPE_CHECKING:
    from dkfeat.blocks import BadRow


MOST_BAD_ROWS = 4096
"""Maximum number of bad rows in a piece, to bound a shard's footer and a task's memory."""

LABEL_NOT_ALLOWED, REFUSED = "label not allowed", "refused by the map"
REASONS = (
    "bad label",
    LABEL_NOT_ALLOWED,
    "bad query id",
    "bad feature",
    "index out of range",
    "indices not ascending",
    "bad value",
    "bad weight",
    "bad kept value",
    "not text",
    REFUSED,
)
"""Reasons for setting a row aside, as in the counts of the manifest."""

# lengths of escaped ASCII text, so that a shard's footer stays within its readers' limit
_SHOWN_CHARACTERS, _MESSAGE_CHARACTERS = 160, 240


def shown_text(text: bytes) -> str:
    """Escape a line so that it is safe to print, and truncate it to 160 characters."""
    shown = text[: 4 * _SHOWN_CHARACTERS].rstrip(b"\r\n").decode("utf-8", "backslashreplace")
    return _truncate(shown, _SHOWN_CHARACTERS)


def cut_message(text: str) -> str:
    """Truncate a message to the maximum length in a record."""
    return _truncate(text, _MESSAGE_CHARACTERS)


def _truncate(text: str, max_length: int) -> str:
    shown = printable(text).encode("ascii", "backslashreplace").decode()
    return shown if len(shown) <= max_length else shown[: max_length - 3] + "..."


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
    """Rows from start to stop that were set aside, in order; at most `MOST_BAD_ROWS`."""
    lines: int | None = None
    """Number of lines of text from start to stop; None for Parquet, or if bad rows are errors."""
    unterminated: tuple[int, ...] | None = None
    """Positions in the split of the files whose last line has no line end; only in the last piece of a split of
    text."""

    odd: np.ndarray | None = None
    """For each column of an encoder, the numbers of missing values and of those beyond the drawn ones."""
    rounded: BadRow | None = None
    """First row of the split up to here that is kept although it has an integer feature that was rounded."""

    def without(self, rows: Sequence[int], bad_rows: Sequence[BadRow]) -> Piece:
        """Return a copy in which the rows at these positions are bad rows; `bad_rows` has their records, in order."""
        keep = np.ones(self.block.n_rows, np.bool_)
        keep[list(rows)] = False
        merged = sorted((*self.bad_rows, *bad_rows), key=lambda bad: (bad.file, bad.offset))
        return replace(self.select(keep), bad_rows=tuple(merged))

    def select(self, keep: np.ndarray) -> Piece:
        """Return a copy with the rows of a mask, and as many rows of each file of a group as are among them."""
        of_files = np.split(keep, np.cumsum(self.rows_by_file, dtype=np.int64))[:-1]
        by_file = tuple(int(np.count_nonzero(part)) for part in of_files)
        return replace(self, block=self.block.take(keep), rows_by_file=by_file)


def join_blocks(blocks: Sequence[RowBlock]) -> RowBlock:
    """Concatenate at least one block; a single block is returned unchanged."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    columns = {
        name: join_rows([getattr(block, name) for block in blocks])
        for name in ("X", "y", "qid", "weight", "number")
        if getattr(first, name) is not None
    }
    if first.label_offsets is not None:
        lengths = [np.diff(block.label_offsets) for block in blocks]  # type: ignore[type-var]  # all have them if the first has
        columns["label_offsets"] = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
    kept = {name: pa.concat_arrays([block.kept[name] for block in blocks]) for name in first.kept}
    return RowBlock(kept=kept, **columns)


def join_rows(parts: Sequence[Any]) -> Any:
    """Concatenate rows, each as in `RowBlock.X`; tables may have other types of the same kind."""
    if isinstance(parts[0], PackedCodes):
        return PackedCodes(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    if sparse.issparse(parts[0]):
        return sparse.csr_matrix(sparse.vstack(parts, format="csr"))
    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts, promote_options="permissive")
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
