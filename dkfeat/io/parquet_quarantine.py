"""Bad rows of Parquet batches: those that cannot be decoded, and those that a map refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dkfeat.errors import ParquetError
from dkfeat.io.parquet_batch import Batch, RowError
from dkfeat.io.parquet_batches import open_split
from dkfeat.io.parquet_columns import read_columns
from dkfeat.io.parquet_decode import Rows, decode
from dkfeat.io.quarantine import REFUSED, BadRow, cut_message, shown_text

if TYPE_CHECKING:
    from dkfeat.blocks import Split
    from dkfeat.io.parquet import ParquetSource
    from dkfeat.io.source import Piece, Refusal

__all__ = ["decode_good", "place_rows", "refused_row"]

_FEW_ROWS = 8
"""Rows that are decoded one by one once something is wrong with them: to halve them further would cost as much."""
_SHOWN_ITEMS = 40
"""Columns of a row and values of a list that are looked at for the text of a record, which is cut at 160 characters."""


def decode_good(source: ParquetSource, batch: Batch, first_row: int) -> tuple[Batch, Rows, list[BadRow]]:
    """Decode a batch without its bad rows, which are told in order.

    Whether a row is bad, and why, depends on that row alone: what cannot be decoded is halved until few rows are left,
    which are decoded one by one. So a batch without bad rows is decoded once, and few bad ones cost little.

    Parameters
    ----------
    source : ParquetSource
    batch : Batch
        At least one row.
    first_row : int
        Number in the file of the first row of the batch's row group.

    Returns
    -------
    batch : Batch
        Its good rows.
    rows : Rows
        The same, decoded.
    bad_rows : list of BadRow
    """
    bad: dict[int, BadRow] = {}
    pending = [(0, len(batch.rows))]
    while pending:
        start, stop = pending.pop()
        try:
            rows = decode(source, batch.part(start, stop), first_row)
        except RowError as error:
            if stop - start == 1:
                bad[start] = _bad_row(batch, start, first_row, error)
            elif stop - start <= _FEW_ROWS:
                pending += [(row, row + 1) for row in reversed(range(start, stop))]
            else:
                middle = (start + stop) // 2
                pending += [(middle, stop), (start, middle)]
    if not bad:
        return batch, rows, []
    good = batch.without(list(bad))
    return good, decode(source, good, first_row), list(bad.values())


def place_rows(source: ParquetSource, split: Split, piece: Piece, refusals: Sequence[Refusal]) -> list[BadRow]:
    """Places of rows that a map refuses, which rise: by reading the split up to them."""
    return [
        _bad_row(batch, position, first_row, _refusal_error(source, batch, position, refusal))
        for batch, position, first_row, refusal in _found(source, split, piece, refusals)
    ]


def refused_row(source: ParquetSource, split: Split, piece: Piece, refusal: Refusal) -> ParquetError:
    """Error for a row that a map refuses, at its place."""
    batch, position, _, _ = next(_found(source, split, piece, [refusal]))
    return _refusal_error(source, batch, position, refusal)


def _found(
    source: ParquetSource, split: Split, piece: Piece, refusals: Sequence[Refusal]
) -> Iterator[tuple[Batch, int, int, Refusal]]:
    """Find the rows of a piece: batch, position in it, number of the row group's first row, and refusal of each."""
    aside = [bad.offset for bad in piece.bad_rows]
    seen, left = 0, list(refusals)
    with open_split(source, split, read_columns(source)) as reader:
        for batch, first_row in reader.batches():
            numbers = first_row + batch.rows
            own = np.flatnonzero((numbers >= piece.start) & (numbers < piece.stop) & ~np.isin(numbers, aside))
            while left and left[0].row < seen + len(own):
                yield batch, int(own[left[0].row - seen]), first_row, left[0]
                del left[0]
            seen += len(own)
            if not left:
                return


def _refusal_error(source: ParquetSource, batch: Batch, position: int, refusal: Refusal) -> RowError:
    names, reason, column = source.features or (), refusal.reason, refusal.column
    if column is None:
        return batch.error(None, position, reason, REFUSED)
    if source.features_as == "columns":
        return batch.error(names[column], position, reason, REFUSED)
    return batch.error(names[-1], position, f"{reason} (column {column:,} of the features)", REFUSED)


def _bad_row(batch: Batch, position: int, first_row: int, error: RowError) -> BadRow:
    number = first_row + int(batch.rows[position])
    place = {"row_group": error.row_group, "row": error.row, "column": error.column}
    return BadRow(
        file=0,
        offset=number,
        line=number + 1,
        column=0,
        reason=error.word,
        message=cut_message(str(ParquetError(error.reason, path="", **place))),  # type: ignore[arg-type]  # its own values
        text=shown_text(_text(batch.part(position, position + 1), error.column or "").encode()),
    )


def _text(row: Batch, blamed: str) -> str:
    """Values of a row as they were read, those of the column to blame first."""
    names = sorted(islice(row.columns, _SHOWN_ITEMS), key=lambda name: name != blamed)
    if blamed in row.columns and blamed not in names:
        names.insert(0, blamed)
    return ", ".join(f"{name}={_shown(row.columns[name])}" for name in names)


def _shown(array: pa.Array) -> str:
    """Value of an array of one, of a list its beginning."""
    if not array.null_count and hasattr(array, "flatten") and not pa.types.is_struct(array.type):
        items = array.flatten()
        dots = ", ..." if len(items) > _SHOWN_ITEMS else ""
        return "[" + ", ".join(str(item) for item in items.slice(0, _SHOWN_ITEMS).to_pylist()) + dots + "]"
    value: Any = array[0].as_py()
    return repr(value[:_SHOWN_ITEMS] if isinstance(value, bytes | str) else value)
